"""trioka as a person starts it, in a process of its own, that can be killed and started again on its data and port.

with TriokaProcess(folder) as broker:
    ...                  # any client, at broker.bootstrap
    broker.kill()        # as a crash would
    broker.start()       # the same data, the same address
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from oracle import die_with_parent

STOP_SECONDS = 60
# The settings of `trioka serve` for a single node, as in `trioka dev`; other keys come from the test's properties.
SUPPORTED_APIS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class TriokaProcess:
    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        """Its data and its log lie in `folder`, and stay there. It is `trioka dev`; with `settings`, `trioka serve`."""
        self.log = folder / "trioka.log"
        self.bootstrap = ""
        self._folder = folder
        self._data = folder / "data"
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.kill()
        else:
            self.stop()

    @property
    def port(self) -> int:
        """0 before its first start."""
        return int(self.bootstrap.rpartition(":")[2] or 0)

    def start(self) -> None:
        """Start it and wait until it serves; the second time where it served the first time."""
        assert self._process is None, "it runs already"
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trioka", *self._command()],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent(),
            )
        assert self._process.stdout is not None
        message = self._process.stdout.readline() + self._process.stdout.readline()
        found = re.search(r"\n  \S+ +(\S+:\d+)", message)
        assert found is not None, message + self.log.read_text()
        self.bootstrap = found[1]

    def _command(self) -> list[str]:
        if self._settings is None:
            return ["dev", "--port", str(self.port), "--data", str(self._data)]
        settings = SUPPORTED_APIS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
            "log.dirs": self._data,
            **self._settings,
        }
        settings["controller.quorum.voters"] = f"{settings['node.id']}@127.0.0.1:9093"
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return ["serve", str(properties)]

    def stop(self) -> None:
        """Stop it in order; nothing happens if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
            assert process.returncode == 0, self.log.read_text()

    def kill(self) -> None:
        """End it without a warning. Only the page cache keeps what was not synced."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
