"""The `trioka` command: the entry point, and so the only module that reads argv.

What starts a broker does not wait for the rest of the command line to be loaded; see `cli/flags.py`. Standard output
carries what was asked for; standard error everything else.
"""

import sys
from collections.abc import Sequence

from trioka.cli.failure import CannotStart, Exit
from trioka.cli.flags import STARTERS, read


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in STARTERS:
        values = read(STARTERS[words[0]], words[1:])
        if values is not None:
            from trioka.cli.node import RUN

            try:
                RUN[words[0]](values)
            except CannotStart as reason:
                print(reason, file=sys.stderr)
                return reason.exit_code
            except KeyboardInterrupt:
                return Exit.INTERRUPTED
            return Exit.OK
    from trioka.cli.commands import main as run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
