"""Properties files, environment variables, overrides; and the node that comes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioka.broker.config.addresses import Endpoint, SecurityProtocol, Server, Voter
from trioka.broker.config.key import BROKER_KEYS
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.properties import (
    MAX_FILE_BYTES,
    PropertiesError,
    key_of_variable,
    parse_environment,
    parse_overrides,
    parse_properties,
    variable_of_key,
)
from trioka.broker.config.server import load

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"a=b\nc:d\ne f\ng\n", {"a": "b", "c": "d", "e": "f", "g": ""}),
        (b"  a  =  b  \n", {"a": "b  "}),
        (b"# a=b\n! c=d\n\n  \t\n", {}),
        (b"a=b\\\n   c\\\n\td\ne=f", {"a": "bcd", "e": "f"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\\n# c\nd=e", {"a": "b# c", "d": "e"}),
        (rb"a\=b\:c\ d=e\tf\u0041\q", {"a=b:c d": "e\tfAq"}),
        (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a=1\na=2", {"a": "2"}),
        ("a=é".encode(), {"a": "é"}),
        ("a=é".encode("latin-1"), {"a": "é"}),
        (rb"a=\ud83d\ude00", {"a": "😀"}),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(text: bytes, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@given(st.binary(max_size=200))
def test_any_bytes_are_a_properties_file_or_a_clear_error(data: bytes) -> None:
    try:
        pairs = parse_properties(data)
    except PropertiesError:
        return
    "".join([*pairs.keys(), *pairs.values()]).encode()  # no half characters


def test_a_wrong_escape_is_named_with_its_line_and_a_huge_file_is_none() -> None:
    with pytest.raises(PropertiesError, match=r"^Line 2 has "):
        parse_properties(b"a=b\nc=\\u12\n")
    with pytest.raises(PropertiesError, match="the maximum is"):
        parse_properties(b" " * (MAX_FILE_BYTES + 1))


def test_environment_variables_are_named_as_in_kafkas_image() -> None:
    assert key_of_variable("KAFKA_LOG_RETENTION_MS") == "log.retention.ms"
    assert key_of_variable("KAFKA_A__B_C___D") == "a_b.c-d"
    environment = {"KAFKA_NODE_ID": "1", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_BOOTSTRAP_SERVERS": "a:1", "HOME": "/"}
    assert parse_environment(environment) == {"node.id": "1"}


@pytest.mark.parametrize("key", [*BROKER_KEYS, "a_b.c-d"])
def test_every_key_has_a_variable_of_its_own(key: str) -> None:
    assert key_of_variable(variable_of_key(key)) == key


def test_overrides_are_pairs() -> None:
    assert parse_overrides(["a=b", " c = d=e "]) == {"a": "b", "c": "d=e"}
    with pytest.raises(PropertiesError, match="key=value"):
        parse_overrides(["a"])


def test_overrides_are_stronger_than_the_environment_and_that_than_the_file() -> None:
    loaded = load({**NODE, "num.partitions": "1"}, environment={"num.partitions": "2"})
    assert loaded.config.static["num.partitions"] == "2"
    loaded = load(NODE, environment={"num.partitions": "2"}, overrides={"num.partitions": "3"})
    assert loaded.config.static["num.partitions"] == "3"


def test_a_node_knows_its_listeners_quorum_and_directories() -> None:
    node = load({**NODE, "log.dirs": "/data/a,/data/b", "broker.rack": "r1"}).node
    assert node.listeners == (
        Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "", 9092),
        Endpoint("CONTROLLER", SecurityProtocol.PLAINTEXT, "localhost", 9093),
    )
    assert node.advertised == (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9092),)
    assert [e.name for e in node.broker_listeners] == ["PLAINTEXT"]
    assert [e.name for e in node.controller_listeners] == ["CONTROLLER"]
    assert (node.id, node.inter_broker, node.rack) == (1, "PLAINTEXT", "r1")
    assert node.voters == (Voter(1, Server("localhost", 9093)),)
    assert node.log_dirs == ("/data/a", "/data/b") and node.metadata_log_dir == "/data/a"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"num.partitions": "x"},
            "Invalid value 'x' for configuration num.partitions: it must be a 32-bit integer.",
        ),
        (
            {"listeners": "localhost:9092"},
            "listeners has 'localhost:9092', which must be NAME://host:port, such as PLAINTEXT://localhost:9092.",
        ),
        ({"listeners": "A://:99999"}, "listeners has 'A://:99999', which must have a port of at most 65535."),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners has PLAINTEXT://0.0.0.0:9092, but clients cannot connect to 0.0.0.0: "
            "advertise a reachable address.",
        ),
        (
            {"controller.quorum.voters": "1-localhost"},
            "Invalid value '1-localhost' for configuration controller.quorum.voters: "
            "it must be id@host:port, such as 1@localhost:9093.",
        ),
        (
            {"listener.name.plaintext.max.connections": "x"},
            "Invalid value 'x' for configuration listener.name.plaintext.max.connections: it must be a 32-bit integer.",
        ),
        ({"broker.id": "2"}, "broker.id is 2, but must be equal to node.id (1)."),
    ],
)
def test_a_wrong_value_stops_the_start_with_one_sentence(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        load({**NODE, **changes})
    assert str(error.value) == sentence


@pytest.mark.parametrize("missing", ["process.roles", "node.id", "controller.listener.names"])
def test_what_is_required_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"^{missing} is not set"):
        load({name: text for name, text in NODE.items() if name != missing})


def test_an_unknown_key_is_a_warning_and_foreign_keys_are_one_line() -> None:
    extra = {
        "log.retention.hour": "1",
        "retention.ms": "1",
        "qqq": "1",
        "zookeeper.connect": "a",
        "metric.reporters": "b",
    }
    loaded = load({**NODE, **extra, "num.io.threads": "4", "rsm.config.x": "y"})
    assert loaded.warnings == (
        "Unknown configuration key log.retention.hour; did you mean log.retention.hours?",
        "Unknown configuration key qqq.",
        "Unknown configuration key retention.ms; the broker key is log.retention.ms.",
    )
    assert loaded.notes == (
        "Ignored keys of Java, ZooKeeper or earlier versions of Kafka: metric.reporters, zookeeper.connect.",
        "Ignored because trioka has no thread pools: num.io.threads.",
    )
