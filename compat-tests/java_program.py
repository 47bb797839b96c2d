"""A Java program that runs beside a test: Kafka Connect, or an application of Kafka Streams.

with JavaProgram(folder, jars.class_path_with("connect_jars.txt"), MAIN_CLASS, "worker.properties") as worker:
    ...
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from java import java
from oracle import LOG_TAIL_CHARS, LOG_WARNINGS, QUICK, die_with_parent

PATIENCE_SECONDS = 240
LOOK_SECONDS = 0.1


class JavaProgram:
    """It runs until the `with` ends, or is killed and started again. Its output is in `log`."""

    def __init__(self, folder: Path, class_path: str, main_class: str, *arguments: str | Path) -> None:
        self.log = folder / f"{main_class.rpartition('.')[2]}.log"
        self._command = [java(), "-Xmx256m", *QUICK, *LOG_WARNINGS, "-cp", class_path, main_class, *arguments]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"it last said:\n{self.log_tail()}")
        self.kill()

    def start(self) -> None:
        assert self._process is None, "it runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=die_with_parent(),
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert self._process is not None and self._process.poll() is None, "it has ended"
            assert time.monotonic() < deadline, "that takes too long"
            time.sleep(LOOK_SECONDS)
