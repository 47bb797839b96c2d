"""The schema registry of a broker under test: `trioka gateway --registry` in a process of its own."""

import re
import subprocess
import sys
from typing import Final
from urllib.parse import quote

from trioka.cli.node.secured import Access

from . import temp_dirs
from .nodes.runner import Unresponsive

STOP_S: Final = 15.0
LINE: Final = re.compile(r"^  HTTP +(https?)://(\S+:\d+)")
CLIENT_FILE, LOG_FILE = "registry.properties", "registry.log"
USER: Final = "admin"
MAX_REASON_CHARS: Final = 1000


class TestRegistry:
    """Started by its constructor."""

    __test__ = False  # no class of tests

    def __init__(self, bootstrap_servers: str, folder: str, access: Access | None) -> None:
        words = ["--bootstrap-server", bootstrap_servers, "--registry", "--grpc", "off", "--metrics", "off"]
        if access is not None:
            properties = access.client_config("java").items()
            temp_dirs.write(f"{folder}/{CLIENT_FILE}", "".join(f"{name}={value}\n" for name, value in properties))
            words += ["--command-config", f"{folder}/{CLIENT_FILE}"]
        self._log = f"{folder}/{LOG_FILE}"
        with temp_dirs.appending(self._log) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trioka", "gateway", "--http", "127.0.0.1:0", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.url = self._started("" if access is None or access.password is None else access.password)

    def _started(self, password: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (found := LINE.match(line)) is not None:
                login = f"{USER}:{quote(password, safe='')}@" if password else ""
                return f"{found[1]}://{login}{found[2]}"
        self.stop()
        reason = temp_dirs.log_tail(self._log)[-MAX_REASON_CHARS:].strip()
        raise Unresponsive(f"the schema registry did not start; it needs trioka[gateway]: {reason}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
