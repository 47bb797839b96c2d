"""`trioka dev --tls --sasl`: what it writes and prints, what a second start keeps, and that clients get in."""

import os
import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.command_line import command, home
from support.dev_process import PASSWORD, dev

from trioka.cli.client.settings import find_settings
from trioka.cli.node import certificates, dev_security
from trioka.cli.terminal.failure import Exit

__all__ = ["home"]


def test_clients_get_in_by_what_it_writes_and_a_later_start_keeps_it(home: Path) -> None:
    data = home / "data"
    config = ("--command-config", str(data / "client.properties"))
    with dev(data, "--tls", "--sasl", "--topic", "orders:2") as (address, text):
        assert command("topics", "list", "-o", "name", *config, at=address).out == "orders\n"
        assert command("doctor", "tls", *config, at=address).code == Exit.OK
        (password,) = PASSWORD.findall(text)
        assert text.count(password) == 1
        for word in ("KafkaProducer(", "confluent-kafka", "kafka-topics.sh", "kcat -F", str(data / "ca.pem")):
            assert word in text
        denied = command("topics", "list", "--timeout", "10s", at=address)
        assert denied.code == Exit.UNREACHABLE
    for name in ("ca.pem", "server.pem", "client.properties", "kcat.conf"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600, name
    written = {name: (data / name).read_text() for name in ("ca.pem", "server.pem", "client.properties")}
    with dev(data, "--tls", "--sasl") as (address, text):
        assert command("topics", "list", "-o", "name", *config, at=address).out == "orders\n"
        assert password not in text and f"in {data / 'client.properties'}" in text
    assert written == {name: (data / name).read_text() for name in written}


@pytest.mark.parametrize(("flag", "protocol"), [("--tls", "SSL"), ("--sasl", "SASL_PLAINTEXT")])
def test_each_of_the_two_works_alone(home: Path, flag: str, protocol: str) -> None:
    with dev(home / "data", flag) as (address, text):
        config = str(home / "data" / "client.properties")
        assert find_settings(bootstrap_server=address, command_config=config, context=None).protocol == protocol
        assert command("topics", "list", "--command-config", config, at=address).code == Exit.OK
        assert re.search(rf"Kafka +{address} +{protocol}$", text, re.MULTILINE), text


def test_it_is_for_one_node(home: Path) -> None:
    for more in ("--demo", "--nodes=2"):
        ended = command("dev", "--tls", more)
        assert ended.code == Exit.FAILED and "--tls and --sasl are for one node" in ended.stderr


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.fixture
def module() -> ModuleType:
    return dev_security


def test_a_password_is_new_once_and_then_kept(module: ModuleType, tmp_path: Path) -> None:
    first = module.prepare(tmp_path / "a", tls=False, sasl=True)
    second = module.prepare(tmp_path / "a", tls=False, sasl=True)
    assert first.new_password and not second.new_password
    assert first.access.password == second.access.password and len(first.access.password) >= 24
    assert len(first.upsertions()) == 1 and second.upsertions() == []
    assert module.prepare(tmp_path / "b", tls=False, sasl=True).access.password != first.access.password
    for shown in (repr(first), repr(first.access)):
        assert first.access.password not in shown


def test_a_certificate_that_is_about_to_end_is_recreated(module: ModuleType, tmp_path: Path) -> None:
    def certificate() -> str:
        module.prepare(tmp_path, tls=True, sasl=False)
        return (tmp_path / "server.pem").read_text()

    first = certificate()
    assert certificate() == first
    almost_a_year = datetime.now(UTC) - timedelta(days=certificates.VALID_DAYS - 2)
    old = certificates.make_certificates(now=almost_a_year)
    (tmp_path / "ca.pem").write_text(old.authority)
    (tmp_path / "server.pem").write_text(old.identity)
    assert certificate() not in (first, old.identity)
    (tmp_path / "server.pem").write_text("damaged")
    assert "PRIVATE KEY" in certificate()


def test_files_are_private_from_the_first_byte_on(module: ModuleType, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        module.prepare(tmp_path / "data", tls=False, sasl=True)
    finally:
        os.umask(before)
    for name, mode in ((".", 0o700), ("client.properties", 0o600), ("kcat.conf", 0o600)):
        assert stat.S_IMODE((tmp_path / "data" / name).stat().st_mode) == mode, name


MISTAKES: list[tuple[str, str, Callable[[ModuleType, Path], None]]] = [
    ("new_password=sasl and kept is None", "new_password=sasl", test_a_password_is_new_once_and_then_kept),
    ("end_s - time.time() > RENEW_S", "end_s - time.time() > 0", test_a_certificate_that_is_about_to_end_is_recreated),
    (
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600",
        "os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644",
        test_files_are_private_from_the_first_byte_on,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    right: str, wrong: str, rule: Callable[[ModuleType, Path], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def check(planted: ModuleType) -> None:
        rule(planted, tmp_path_factory.mktemp("planted"))

    assert_noticed(dev_security, right, wrong, check)
