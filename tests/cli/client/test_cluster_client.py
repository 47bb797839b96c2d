"""Who is asked, and how often."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import at

from trioka.cli.client.cluster_client import ATTEMPTS, Kafka, TopicPartition
from trioka.cli.client.settings import find_settings, parse_servers
from trioka.cli.terminal.failure import Exit, Failure
from trioka.protocol.errors import NONE, NotController, UnknownTopicOrPartition

__all__ = ["at"]


@pytest.fixture
def kafka(at: str) -> Iterator[Kafka]:
    with find_settings(bootstrap_server=at, command_config=None, context=None).kafka() as kafka:
        yield kafka


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without making them."""
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


def test_an_answer_of_yesterday_is_asked_again_until_it_is_of_today(kafka: Kafka, pauses: list[float]) -> None:
    answers = [NotController.code, NotController.code, NONE]
    assert kafka.retry_while_stale(lambda: answers.pop(0), lambda code: [code]) == NONE
    assert pauses == sorted(pauses) and len(pauses) == 2


def test_asking_again_has_a_limit(kafka: Kafka, pauses: list[float]) -> None:
    requested = []
    code = kafka.retry_while_stale(lambda: requested.append(1) or NotController.code, lambda code: [code])  # type: ignore[func-returns-value]
    assert code == NotController.code
    assert len(requested) == ATTEMPTS and len(pauses) == ATTEMPTS - 1


def test_any_other_error_is_not_asked_again(kafka: Kafka, pauses: list[float]) -> None:
    assert (
        kafka.retry_while_stale(lambda: UnknownTopicOrPartition.code, lambda code: [code])
        == UnknownTopicOrPartition.code
    )
    assert pauses == []


def test_a_partition_that_does_not_exist_has_no_leader(kafka: Kafka) -> None:
    assert kafka.leaders([TopicPartition("nowhere", 0)]) == {-1: [TopicPartition("nowhere", 0)]}


def test_a_broker_that_is_not_in_the_cluster_is_a_failure(kafka: Kafka) -> None:
    with pytest.raises(Failure, match="broker 99 is not in the cluster"):
        kafka.node(99)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a", (("a", 9092),)),
        ("a:1,b:2", (("a", 1), ("b", 2))),
        ("[::1]:9093", (("::1", 9093),)),
        ("PLAINTEXT://a:1", (("a", 1),)),
    ],
)
def test_addresses_are_read(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:99999", "a:0", "http:/x"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(Failure) as failed:
        parse_servers(text)
    assert failed.value.exit_code == Exit.USAGE


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    jaas = 'Module required username="ann" password="s3\\\\"cret";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config={jaas}\n")
    settings = find_settings(bootstrap_server="a:1", command_config=str(file), context=None)
    login = settings.login()
    assert login is not None and (login.username, login.password) == ("ann", 's3"cret')
    assert "cret" not in repr(settings) + repr(login)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS\n", "must be one of PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL\n", "needs a username and a password"),
        ("security.protocol=SSL\nssl.truststore.location=no-such-file\n", "TLS cannot be set up"),
    ],
)
def test_a_client_properties_that_makes_no_sense_is_a_usage_error(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "client.properties").write_text(text)
    settings = find_settings(bootstrap_server="a:1", command_config=str(tmp_path / "client.properties"), context=None)
    with pytest.raises(Failure, match=said) as failed:
        settings.connector(1.0)
    assert failed.value.exit_code == Exit.USAGE
