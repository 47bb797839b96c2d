"""trioka's own requests to brokers with TLS and logins, by the options of Spark's connector."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import Row

from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.sources.broker_view import BrokerView
from trioka.pipeline.sources.brokers import Brokers
from trioka.pipeline.tables.topic_ledger import Entry
from trioka.pipeline.tables.topic_transactions import Part, ledger
from trioka.testing import Broker

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="secret";'


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, sasl=True) as broker:
        broker.create_topic("orders")
        yield broker


def options_of(broker: Broker) -> dict[str, str]:
    """The keys of a client in Java, as options of Spark's connector."""
    return {f"kafka.{key}": value for key, value in broker.client_config("java").items()}


def test_topics_offsets_and_transactions_reach_brokers_with_tls_and_a_login(secured: Broker) -> None:
    brokers = Brokers.of(options_of(secured))
    with BrokerView(brokers) as view:
        assert view.partitions()["orders"] == [0]
        assert view.topic_ids(["orders"]).keys() == {"orders"}
        view.commit("shop", {"orders": {0: 0}})
        assert view.committed("shop") == {"orders": {0: 0}}
    part = Part(brokers=brokers, topic="orders", flow_id="flow", run="run", batch=0, counts={0: 1})
    part.write([Row(key=None, value=b"a")], 0)
    assert [each.value for each in secured.records("orders")] == [b"a"]
    assert ledger(brokers, "orders", "flow") == {0: Entry(run="run", next_batch=1)}


def test_the_trusted_certificates_may_stand_in_the_options(secured: Broker) -> None:
    options = options_of(secured)
    text = Path(options.pop("kafka.ssl.truststore.location")).read_text()
    with BrokerView(Brokers.of({**options, "kafka.ssl.truststore.certificates": text})) as view:
        assert "orders" in view.partitions()


def test_passwords_are_in_no_text_of_the_brokers(secured: Broker) -> None:
    brokers = Brokers.of(options_of(secured))
    assert "password" not in repr(brokers) and str(brokers) == secured.bootstrap_servers


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is 'TLS'; there are PLAINTEXT, SSL"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "a.jks"},
            "kafka.ssl.truststore.location is a store of the type JKS",
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": "none.pem",
            },
            "kafka.ssl.truststore cannot be used: No such file or directory",
        ),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is 'GSSAPI'"),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.sasl.jaas.config",
        ),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.jaas.config": JAAS.replace("password", "secret"),
            },
            "has no username and password",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_a_password(options: Mapping[str, str], sentence: str) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        Brokers.of({"kafka.bootstrap.servers": "localhost:1", **options}).client_settings()
    (problem,) = raised.value.problems
    assert sentence in problem and "secret" not in problem.replace("secret and", "")
