"""A broker in its own process, which a test can kill and pause like a real one.

It is a `ThreadHost` in a child (`testing/subprocess_main.py`). Commands go to its standard input, results come from its
standard output, one line of JSON each; its log goes to a file beside its data. The child ends when its input ends, so
it does not outlive a test that is killed; the kernel ends a paused child (it sends SIGHUP to stopped orphans).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from . import temp_dirs
from .runner import ANSWER_S, HasEnded, Unresponsive

START_S: Final = 60.0
STOP_S: Final = 20.0
ERRORS: Final[Mapping[str, type[Exception]]] = {
    "ValueError": ValueError,
    "Unresponsive": Unresponsive,
    "HasEnded": HasEnded,
}


class ProcessHost:
    def __init__(self, data: str, words: str, settings: Mapping[str, str]) -> None:
        self._data = data
        self._words = words
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._reader: threading.Thread | None = None
        self._turn = threading.Lock()
        self._number = 0  # of the last command
        self._is_paused = False

    def start(self, port: int) -> int:
        assert self._process is None
        with temp_dirs.appending(self._words) as words:
            process = subprocess.Popen(
                [sys.executable, "-m", "trioka.testing.subprocess_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                process_group=0,  # Ctrl-C goes to the test only, which then stops its broker
            )
        self._process, self._is_paused = process, False
        try:
            self._answers = SimpleQueue()
            self._reader = threading.Thread(target=self._read, args=(process, self._answers), daemon=True)
            self._reader.start()
            launch = {"folder": self._data, "settings": dict(self._settings), "port": port}
            return int(self._send_order(launch, START_S))
        except BaseException:
            self.kill()
            raise

    @staticmethod
    def _read(process: "subprocess.Popen[str]", answers: "SimpleQueue[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")

    def call(self, order: str, *, timeout_s: float = ANSWER_S, **details: Any) -> Any:
        if self._is_paused:
            raise Unresponsive("the broker is paused; resume() it first")
        return self._send_order({"order": order, "details": details, "timeout_s": timeout_s}, timeout_s)

    def _send_order(self, said: Mapping[str, Any], timeout_s: float) -> Any:
        process = self._process
        if process is None or process.stdin is None:
            raise Unresponsive("the broker is not running")
        with self._turn:
            self._number += 1
            try:
                process.stdin.write(json.dumps({**said, "number": self._number}) + "\n")
                process.stdin.flush()
                result = self._read_answer(timeout_s)
            except (OSError, Empty):
                result = None
        if result is None:
            raise Unresponsive(f"the broker's process does not answer\n{self.log_tail}".rstrip())
        if "error" in result:
            raise ERRORS.get(result["kind"], RuntimeError)(result["error"])
        return result["value"]

    def _read_answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The result of the last command; skips results of earlier commands that timed out."""
        deadline = time.monotonic() + timeout_s
        while line := self._answers.get(timeout=max(0.0, deadline - time.monotonic())):
            result: dict[str, Any] = json.loads(line)
            if result["number"] == self._number:
                return result
        return None

    def stop(self) -> None:
        """Stop cleanly, if the process still can."""
        process = self._process
        if process is None:
            return
        if self._is_paused:
            self.resume()
        try:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(STOP_S)
        except BaseException as error:
            self.kill()
            if not isinstance(error, OSError | subprocess.TimeoutExpired):
                raise
        self._forget()

    def kill(self) -> None:
        """Send SIGKILL, which a process cannot handle."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.join()
        if process is not None:
            for stream in (process.stdin, process.stdout):
                try:
                    if stream is not None:
                        stream.close()
                except OSError:  # the reader of the unflushed rest is gone
                    pass

    def pause(self) -> None:
        """Returns when all threads of the process have stopped. If this process is killed, the kernel ends a child that
        has stopped, and overlooks one that is about to stop."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        with suppress(ChildProcessError):  # it has ended
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise Unresponsive("the broker is not running")
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log_tail(self) -> str:
        return temp_dirs.log_tail(self._words)
