"""`trioka serve` under systemd's `Type=notify`: what arrives at the notification socket."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trioka.cli.node.sd_notify import VARIABLE, notify

TIMEOUT_S = 60


def test_a_node_notifies_systemd_when_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(TIMEOUT_S)
        command = [sys.executable, "-m", "trioka", "dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path)]
        environment = {**os.environ, VARIABLE: str(tmp_path / "notify")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as node:
            assert systemd.recv(100) == b"READY=1"
            assert node.stdout is not None
            assert "ready in" in node.stdout.readline()  # it was printed before
            node.send_signal(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"


def test_an_abstract_socket_is_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"trioka-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        systemd.settimeout(TIMEOUT_S)
        monkeypatch.setenv(VARIABLE, f"@{name}")
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "/no/such/socket", "@", "/" + "x" * 200])
def test_without_a_usable_socket_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if address is not None:
        monkeypatch.setenv(VARIABLE, address)
    notify("READY=1")
