"""`trioka gateway` as a process of its own beside a test, at any free ports."""

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from types import TracebackType
from typing import Final

START_S: Final = 120
STOP_S: Final = 30
LINE: Final = re.compile(r"^  (gRPC|HTTP|Metrics) +(?:https?://)?(\S+?:\d+)")


class GatewayUnderTest:
    """Starts it, and stops it at the end of the block. `words` are further options of the command."""

    def __init__(self, bootstrap_servers: str, *words: str) -> None:
        self._words = ["--bootstrap-server", bootstrap_servers, *words]
        self.addresses: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "GatewayUnderTest":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start it, on the ports of before if it ran before."""
        listeners: list[str] = []
        for name in ("gRPC", "HTTP", "Metrics"):
            listeners += [f"--{name.lower()}", self.addresses.get(name, "127.0.0.1:0")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trioka", "gateway", *listeners, *self._words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        too_late = threading.Timer(START_S, self._process.kill)
        too_late.start()
        try:
            for line in self._process.stdout:
                if (found := LINE.match(line)) is not None:
                    self.addresses[found[1]] = found[2]
                if found is not None and found[1] == "Metrics":
                    return
        finally:
            too_late.cancel()
        raise AssertionError(f"the gateway did not start: exit code {self._process.wait(STOP_S)}")

    @property
    def grpc(self) -> str:
        return self.addresses["gRPC"]

    @property
    def http(self) -> str:
        return f"http://{self.addresses['HTTP']}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def get(self, path: str) -> tuple[int, str]:
        """Of the listener of metrics and health."""
        try:
            with urllib.request.urlopen(f"http://{self.addresses['Metrics']}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._finish()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(STOP_S)

    def close(self) -> None:
        """Without its graceful stop, which costs a second; tests of it send a signal, and wait."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._finish()

    def _finish(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
