"""A client in a process of its own that receives one task, and then reports events, line by line,
until its input ends, or until it is killed.
"""

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .program import LOG_TAIL_CHARS

LEAVE_TIMEOUT_SECONDS = 60


class LineProcess:
    def __init__(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None, result: Mapping[str, object]
    ) -> None:
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - kill() closes it
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(result) + "\n")
        self._process.stdin.flush()
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()

    def hear(self, event: dict[str, Any]) -> None:
        """Reads one line of its reports, in a thread of its own."""
        raise NotImplementedError

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):  # it was killed within a word
                return
            self.hear(json.loads(line))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-LOG_TAIL_CHARS:]

    def leave(self) -> None:
        """A clean end: it completes its work and leaves the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LEAVE_TIMEOUT_SECONDS)
            assert self._process.returncode == 0, self.log_tail()
        finally:
            self.kill()

    def kill(self) -> None:
        """Without a word. Nothing happens if it has ended already."""
        if self._said.closed:
            return
        self._process.kill()
        self._process.wait()
        self._ear.join()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                stream.close()
