"""What a node writes: its log lines, and the lines of the command that starts it.

Log lines go to standard error. They are text on a terminal and JSON elsewhere; the lines of the command (that it is
ready, notes, why it does not start) are text. `--log-format json` makes these JSON objects too, so that standard error
has nothing else, and standard output stays empty.

The events of `trioka.lifecycle` (start, stop, changes of leaders) are written at the default level as well. Only
`trioka dev` leaves them out, unless all lines are JSON: it prints that it is ready.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..terminal.failure import CannotStart, Exit, Failure
from .flags import DEFAULT_LOG_LEVEL, JSON

log = logging.getLogger("trioka.cli")
lifecycle = logging.getLogger("trioka.lifecycle")


def set_up_logging(form: str, level: str, *, is_dev: bool = False) -> None:
    from trioka.broker.logs.formatters import HumanFormatter, JsonFormatter, RepeatFilter

    is_human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(HumanFormatter() if is_human else JsonFormatter())
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(form == JSON)
    if level == DEFAULT_LOG_LEVEL and (form == JSON or not is_dev):
        lifecycle.setLevel(logging.INFO)


def write_note(form: str, text: str) -> None:
    if form == JSON:
        log.warning("note: %s", text)
    else:
        print(f"note: {text}", file=sys.stderr)


def write_errors(form: str, texts: Iterable[str]) -> None:
    for text in texts:
        if form == JSON:
            log.error("cannot start: %s", text)
        else:
            print(f"error: {text}", file=sys.stderr)


def in_log_format(start: Callable[[Mapping[str, Any]], None]) -> Callable[[Mapping[str, Any]], None]:
    """The function, with its failures as log lines if all lines are JSON."""

    def run(options: Mapping[str, Any]) -> None:
        try:
            start(options)
        except Failure as failure:
            if options["log_format"] != JSON:
                raise
            set_up_logging(JSON, options["log_level"])  # it does nothing if that was done
            reason = " ".join([failure.what, *failure.hints])
            if isinstance(failure, CannotStart):
                log.error("cannot start: %s", reason)
            else:
                log.error("this process ends: %s", reason)
            raise SystemExit(failure.exit_code) from None
        except Exception:
            if options["log_format"] != JSON:
                raise
            log.critical("internal error: this process ends", exc_info=True)
            raise SystemExit(int(Exit.FAILED)) from None

    return run
