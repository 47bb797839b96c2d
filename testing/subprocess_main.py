"""The process in which `Broker(process=True)` runs its broker: orders on standard input, answers on standard output.

The first line says what to start. When the input ends, whoever wanted the broker is gone, and so is it.
"""

import json
import logging
import signal
import sys
from collections.abc import Mapping
from typing import Any

from .log_capture import FORMAT
from .runner import HasEnded, Unresponsive
from .thread import ThreadHost


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format=FORMAT)
    wishes = json.loads(sys.stdin.readline())
    host = ThreadHost(wishes["folder"], wishes["settings"])
    try:
        try:
            port = host.start(wishes["port"])
        except Exception as error:
            _answer(wishes, kind=_kind(error), error=str(error))
            return
        _answer(wishes, value=port)
        for line in sys.stdin:
            said = json.loads(line)
            try:
                _answer(said, value=host.tell(said["order"], timeout_s=said["timeout_s"], **said["details"]))
            except Exception as error:
                _answer(said, kind=_kind(error), error=str(error))
    finally:
        host.stop()


def _kind(error: Exception) -> str:
    if isinstance(error, HasEnded):
        return "HasEnded"
    if isinstance(error, Unresponsive):
        return "Unresponsive"
    return "ValueError" if isinstance(error, ValueError) else type(error).__name__


def _answer(said: Mapping[str, Any], **answer: Any) -> None:
    sys.stdout.write(json.dumps({"number": said["number"], **answer}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
