"""The `trioka` command: the entry point, and so the only module that reads argv.

What starts a broker does not wait for the rest of the command line to be loaded; see `cli/node/flags.py`. Nor does it
wait for the collector, which would look again and again through modules that stay: it is off until they are loaded, and
`cli/node/server.py` has it on again before the broker does anything. That is a tenth of the start. Standard output
carries what was asked for; standard error everything else.
"""

import gc
import sys
from collections.abc import Sequence

from trioka.cli.node.flags import START_COMMANDS, read
from trioka.cli.terminal.failure import Exit, Failure


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in START_COMMANDS:
        values = read(START_COMMANDS[words[0]], words[1:])
        if values is not None:
            gc.disable()
            try:
                from trioka.cli.node.server import RUN

                RUN[words[0]](values)
            except Failure as reason:
                print(reason, file=sys.stderr)
                return reason.exit_code
            except KeyboardInterrupt:
                return Exit.INTERRUPTED
            finally:
                gc.enable()
            return Exit.OK
    from trioka.cli.commands import main as run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
