"""The process of the gateway: start, health, metrics, stop, and the settings that it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway import GatewayUnderTest

from trioka.gateway.settings import DECLARED, Address, Settings, SettingsError, check_exposure, listener


def test_a_gateway_starts_without_a_cluster_and_says_that_it_is_alive() -> None:
    with GatewayUnderTest("127.0.0.1:1") as gateway:
        assert gateway.get("/livez") == (200, "ok\n")
        status, text = gateway.get("/metrics")
        assert status == 200
        assert "process_resident_memory_bytes" in text
        gateway.signal()
        assert gateway.wait() == 0


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("grpc.listener", "somewhere", "HOST:PORT"),
        ("grpc.listener", "127.0.0.1:70000", "HOST:PORT"),
        ("grpc.max.message.bytes", "1", "whole number from 1024 to 67108864"),
        ("grpc.max.message.bytes", "many", "whole number"),
        ("grpc.max.mesage.bytes", "4096", "there is no setting"),
        ("tls.certificate.file", "cert.pem", "given together"),
        ("tls.client.ca.file", "ca.pem", "needs tls.certificate.file"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_sentence(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        Settings({name: value})


def test_a_gateway_without_listeners_is_refused() -> None:
    with pytest.raises(SettingsError, match="nothing to serve"):
        Settings({"grpc.listener": "off", "http.listener": "off"})


def test_every_default_is_a_value_of_its_setting() -> None:
    settings = Settings()
    assert settings.listener("grpc.listener") == Address("127.0.0.1", 50051)
    assert len({each.name for each in DECLARED}) == len(DECLARED)


@pytest.mark.parametrize("text", ["127.0.0.1:0", "[::1]:8082", "localhost:1"])
def test_loopback_addresses_need_no_authentication(text: str) -> None:
    check_exposure(Settings({"grpc.listener": text, "http.listener": "off"}), is_cluster_authenticated=False)


def test_an_exposed_listener_needs_an_authenticated_cluster_or_client_certificates() -> None:
    exposed = {"grpc.listener": "0.0.0.0:50051"}
    with pytest.raises(SettingsError, match="which other machines reach"):
        check_exposure(Settings(exposed), is_cluster_authenticated=False)
    check_exposure(Settings(exposed), is_cluster_authenticated=True)
    files = {"tls.certificate.file": "c", "tls.key.file": "k", "tls.client.ca.file": "ca"}
    check_exposure(Settings({**exposed, **files}), is_cluster_authenticated=False)


def test_an_address_that_is_taken_is_one_sentence_and_an_exit_code() -> None:
    with GatewayUnderTest("127.0.0.1:1") as gateway:
        words = ["--grpc", gateway.grpc, "--http", "off", "--metrics", "off"]
        done = subprocess.run(
            [sys.executable, "-m", "trioka", "gateway", *words], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert f"error: {gateway.grpc} cannot be listened on" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ipv6_address_keeps_its_brackets() -> None:
    assert str(listener("[::1]:80")) == "[::1]:80"


def test_help_of_the_command_line_imports_nothing_of_the_gateway() -> None:
    program = (
        "import sys; from trioka.cli.commands import main; main(['--help']); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('grpc', 'google', 'starlette', 'uvicorn', 'confluent_kafka') or name.startswith('trioka.gateway')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "gateway" in done.stdout


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_one_sentence_and_an_exit_code(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_text(content)
    words = ["--grpc", "127.0.0.1:0", "--metrics", "off"]
    for key in ("certificate", "key"):
        words += ["--override", f"tls.{key}.file={path}"]
    done = subprocess.run(
        [sys.executable, "-m", "trioka", "gateway", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_log_lines_are_json_with_the_names_of_their_events() -> None:
    words = ["--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "off", "--log-level", "info"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trioka", "gateway", *words, "--bootstrap-server", "127.0.0.1:1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "gRPC" not in process.stdout.readline():
        pass
    process.terminate()
    _, lines = process.communicate(timeout=60)
    found = [json.loads(line) for line in lines.splitlines()]
    stopping = next(each for each in found if each["event"] == "gateway.stopping")
    assert (stopping["level"], stopping["grace_s"]) == ("info", 10.0)
    assert process.returncode == 0
