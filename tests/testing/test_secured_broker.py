"""A broker under test with TLS and logins, and the clients of a test that reach it."""

from collections.abc import Iterator

import kafka as kafka_python
import pytest
from confluent_kafka.admin import AdminClient
from support.command_line import command

from trioka.cli.node.secured import CLIENTS
from trioka.cli.terminal.failure import Exit
from trioka.testing import Broker


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, sasl=True) as broker:
        broker.create_topic("orders")
        yield broker


def test_its_own_client_and_those_of_a_test_are_let_in(secured: Broker) -> None:
    assert secured.produce("orders", b"a") == [0]
    producer = kafka_python.KafkaProducer(**secured.client_config("kafka-python"))
    assert producer.send("orders", b"b").get(timeout=30).offset == 1
    producer.close()
    assert set(AdminClient(secured.client_config("confluent-kafka")).list_topics(timeout=30).topics) >= {"orders"}
    assert [each.value for each in secured.records("orders")] == [b"a", b"b"]


def test_a_client_without_a_login_is_not_let_in(secured: Broker) -> None:
    ended = command("topics", "list", "--timeout", "10s", at=secured.bootstrap_servers)
    assert ended.code == Exit.UNREACHABLE


def test_users_keep_their_passwords_over_a_restart() -> None:
    with Broker(sasl=True) as broker:
        broker.create_topic("kept")
        before = broker.client_config("java")
        broker.restart()
        assert broker.client_config("java") == before
        assert broker.produce("kept", b"a") == [0]


@pytest.mark.parametrize(
    ("options", "protocol"),
    [({}, "PLAINTEXT"), ({"tls": True}, "SSL"), ({"sasl": True}, "SASL_PLAINTEXT")],
)
def test_the_settings_of_clients_name_the_protocol(options: dict[str, bool], protocol: str) -> None:
    with Broker(**options) as broker:
        for client in CLIENTS:
            assert protocol in broker.client_config(client).values()
            assert broker.bootstrap_servers in broker.client_config(client).values()
        broker.create_topic("t")
        with pytest.raises(ValueError, match="knows java, confluent-kafka, kafka-python"):
            broker.client_config("sarama")


@pytest.mark.kafka(tls=True, sasl=True)
def test_the_fixture_has_tls_and_logins_by_its_marker(kafka: Broker) -> None:
    assert kafka.client_config("java")["security.protocol"] == "SASL_SSL"
    kafka.create_topic("t")
