"""The process in which `Broker(process=True)` runs its broker: commands on standard input, results on standard output.

The first line contains folder, settings and port. When the input ends, the parent process is gone, and the broker
stops.
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
    launch = json.loads(sys.stdin.readline())
    host = ThreadHost(launch["folder"], launch["settings"])
    try:
        try:
            port = host.start(launch["port"])
        except Exception as error:
            _answer(launch, kind=_kind(error), error=str(error))
            return
        _answer(launch, value=port)
        for line in sys.stdin:
            order = json.loads(line)
            try:
                _answer(order, value=host.call(order["order"], timeout_s=order["timeout_s"], **order["details"]))
            except Exception as error:
                _answer(order, kind=_kind(error), error=str(error))
    finally:
        host.stop()


def _kind(error: Exception) -> str:
    if isinstance(error, HasEnded):
        return "HasEnded"
    if isinstance(error, Unresponsive):
        return "Unresponsive"
    return "ValueError" if isinstance(error, ValueError) else type(error).__name__


def _answer(order: Mapping[str, Any], **answer: Any) -> None:
    sys.stdout.write(json.dumps({"number": order["number"], **answer}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
