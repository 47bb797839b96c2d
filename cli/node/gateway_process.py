"""The gateway of `trioka dev --gateway`: a process of its own, which ends with this one.

It listens on its default ports; with `--port 0` on any free ones. It prints its own addresses.
"""

import subprocess
import sys
from typing import Final

from .run import die_with_parent

STOP_S: Final = 15.0  # more than the gateway's own shutdown.grace.ms


class GatewayProcess:
    def __init__(
        self,
        servers: str,
        *,
        client_file: str | None = None,
        any_port: bool = False,
        has_registry: bool = False,
        log_format: str = "auto",
    ) -> None:
        words = ["--bootstrap-server", servers, "--log-format", log_format, *(["--registry"] if has_registry else [])]
        if client_file is not None:
            words += ["--command-config", client_file]
        if any_port:
            words += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trioka", "gateway", *words],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C stops this process first, which then stops the gateway
            preexec_fn=die_with_parent,
        )

    def stop(self) -> None:
        """Let calls end, within limits."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
