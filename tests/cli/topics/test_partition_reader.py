"""`consume` without a group reads over its own connections, and finds what kafka-python's consumer finds."""

import random
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer
from mutants.plant import assert_noticed, within
from support.command_line import command

from trioka.cli.client.cluster_client import TopicPartition
from trioka.cli.client.settings import Settings, parse_servers
from trioka.cli.terminal.failure import Exit, Failure
from trioka.cli.topics import consume, partition_reader
from trioka.cli.topics.partition_reader import Window
from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.errors import UnsupportedForMessageFormat
from trioka.testing import Broker, Cluster

TOPIC: Final = "mixed"
PARTITIONS: Final = 3
MAX_ROUNDS: Final = 300  # more than it takes to read the topic
CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A topic with records of every shape: null keys and values, headers, codecs, transactions of both ends."""
    with Broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        chance = random.Random(23)
        for codec in CODECS:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec, linger_ms=20)
            write(producer, chance, 120)
            producer.close()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t")
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            write(producer, chance, 20)
            producer.flush()
            end()
        producer.close()
        yield broker


def write(producer: Any, chance: random.Random, count: int) -> None:
    for _ in range(count):
        key = chance.choice([None, b"", b"k", chance.randbytes(90)])
        producer.send(
            TOPIC,
            partition=chance.randrange(PARTITIONS),
            key=key,
            value=chance.choice(
                [b"" if key is None else None, b"", b"a line", chance.randbytes(300).hex().encode(), b"x" * 9000]
            ),
            headers=[("h", chance.choice([b"v", b""]))] * chance.choice([0, 0, 1, 70]),
        )


def settings_of(broker: Broker, timeout_s: float = 30.0) -> Settings:
    return Settings(parse_servers(broker.bootstrap_servers), {}, timeout_s)


def windows_of(broker: Broker, where: str) -> dict[TopicPartition, Window]:
    with settings_of(broker).kafka() as cluster:
        places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return consume.find_windows(cluster, places, where, is_finite=True)


def by_partition(reader: Any) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    try:
        rounds = 0
        while (records := reader.poll(50)) or not reader.is_at_the_end():
            rounds += 1
            assert rounds < MAX_ROUNDS, "offsets are read again and again"
            for each in records:
                fields = (each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers)))
                found.setdefault(each.partition, []).append(fields)
    finally:
        reader.close()
    return found


def read_all(reader: partition_reader.PartitionReader) -> list[partition_reader.ConsumedRecord]:
    found = []
    while not reader.is_at_the_end():
        found += reader.poll(15)
    return found


def with_kafka_python(
    broker: Broker, windows: Mapping[TopicPartition, Window], isolation: str = "read_uncommitted"
) -> dict[int, list[tuple[Any, ...]]]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False, isolation_level=isolation
    )
    found: dict[int, list[tuple[Any, ...]]] = {}
    for place, window in windows.items():
        assert window.stop is not None
        at = kafka.TopicPartition(*place)
        consumer.assign([at])
        consumer.seek(at, window.start)
        while consumer.position(at) < window.stop:
            for each in consumer.poll(timeout_ms=1000).get(at, []):
                if each.offset < window.stop:
                    fields = (each.offset, each.timestamp, each.key, each.value, tuple(map(tuple, each.headers)))
                    found.setdefault(each.partition, []).append(fields)
    consumer.close()
    return found


@pytest.mark.parametrize("where", ["start", "7:31", "+100", "-3", "end"])
def test_the_same_records_are_read_as_kafka_pythons_consumer_reads(broker: Broker, where: str) -> None:
    windows = windows_of(broker, where)
    reader = partition_reader.PartitionReader(settings_of(broker), windows, resets_to_end=False)
    found = by_partition(reader)
    assert found == with_kafka_python(broker, windows)
    assert bool(found) == (where != "end")


@pytest.mark.parametrize("where", ["start", "7:31", "-3"])
def test_lines_are_the_values_of_the_same_records(broker: Broker, where: str) -> None:
    windows = windows_of(broker, where)
    for place, window in windows.items():
        reader = partition_reader.PartitionReader(settings_of(broker), {place: window}, resets_to_end=False)
        lines = b""
        while not reader.is_at_the_end():
            lines += b"".join(line for line, _ in reader.poll_lines(b"|\n"))
        reader.close()
        expected = with_kafka_python(broker, {place: window}).get(place.partition, [])
        assert lines == b"".join((value or b"") + b"|\n" for _, _, _, value, _ in expected)


def test_a_broker_that_restarts_in_the_middle_costs_no_record_and_repeats_none() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        place = TopicPartition(TOPIC, 0)
        broker.produce(TOPIC, *[b"%d" % number for number in range(20)])
        windows = {place: Window(0, 40)}
        reader = partition_reader.PartitionReader(settings_of(broker), windows, resets_to_end=False)
        found = reader.poll(15)
        assert len(found) == 15
        broker.restart()
        broker.produce(TOPIC, *[b"%d" % number for number in range(20, 40)])
        found += read_all(reader)
        reader.close()
        assert [each.value for each in found] == [b"%d" % number for number in range(40)]
        assert [each.offset for each in found] == list(range(40))


def test_a_read_that_nothing_answers_ends_with_the_timeout_and_says_why() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        windows = {TopicPartition(TOPIC, 0): Window(0, 1)}
        reader = partition_reader.PartitionReader(settings_of(broker, 0.5), windows, resets_to_end=False)
        assert reader.poll(1) == []
        broker.stop()
        with pytest.raises(Failure, match="there is more to read") as caught:
            read_all(reader)
        assert "nothing listens on" in str(caught.value)


def test_an_offset_that_the_log_no_longer_has_goes_on_at_its_start(broker: Broker) -> None:
    broker.create_topic("trimmed", 1)
    broker.produce("trimmed", b"a", b"b", b"c")
    settings, place = settings_of(broker), TopicPartition("trimmed", 0)
    reader = partition_reader.PartitionReader(settings, {place: Window(0, 3)}, resets_to_end=False)
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.delete_records({kafka.TopicPartition(*place): 2})
    admin.close()
    found = read_all(reader)
    reader.close()
    assert [each.value for each in found] == [b"c"]


@pytest.mark.parametrize("form", ["%s\\n", "%o %S\\n"])
def test_records_of_an_old_format_end_the_command_with_a_sentence(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    consume_all = ("consume", TOPIC, "-e", "-p", "0", "-f", form)
    expected = command(*consume_all, at=broker.bootstrap_servers).out
    real, batches = batch.headers, 0

    def headers(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        nonlocal batches
        for header in real(*arguments, **keywords):
            batches += 1
            if batches == 3:
                raise UnsupportedForMessageFormat("magic 1")
            yield header

    monkeypatch.setattr(batch, "headers", headers)
    ended = command(*consume_all, at=broker.bootstrap_servers)
    assert ended.code == Exit.FAILED and "before Kafka 0.11" in ended.stderr
    assert ended.out and expected.startswith(ended.out)


@pytest.mark.parametrize("where", ["start", "7:31", "-3"])
def test_read_committed_leaves_out_aborted_transactions(broker: Broker, where: str) -> None:
    windows = windows_of(broker, where)
    reader = partition_reader.PartitionReader(settings_of(broker), windows, resets_to_end=False, is_committed=True)
    found = by_partition(reader)
    assert found == with_kafka_python(broker, windows, "read_committed")
    if where == "start":
        assert sum(map(len, found.values())) == sum(map(len, with_kafka_python(broker, windows).values())) - 20


def test_read_committed_ends_before_an_open_transaction() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        broker.produce(TOPIC, b"a")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"b").get()
        read = ("consume", TOPIC, "-e", "--timeout", "5s")
        assert command(*read, "--read-committed", at=broker.bootstrap_servers).out == "a\n"
        assert command(*read, at=broker.bootstrap_servers).out == "a\nb\n"
        producer.commit_transaction()
        assert command(*read, "--read-committed", at=broker.bootstrap_servers).out == "a\nb\n"
        producer.close()


def test_a_leader_that_is_killed_in_the_middle_costs_no_record_and_repeats_none() -> None:
    with Cluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 2)
        places = [TopicPartition(TOPIC, index) for index in range(2)]
        for place in places:
            for number in range(20):
                cluster.produce(TOPIC, b"%d" % number, partition=place.partition)
        leader = cluster.leader(TOPIC, 0)
        settings = Settings(parse_servers(cluster.address(leader)), {}, 60.0)  # only the node that dies
        reader = partition_reader.PartitionReader(settings, dict.fromkeys(places, Window(0, 20)), resets_to_end=False)
        found = reader.poll(5)
        cluster.kill(leader)
        found += read_all(reader)
        reader.close()
        for place in places:
            read = [each.value for each in found if each.partition == place.partition]
            assert read == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (within("_records_of", "record.offset >= start"), "record.offset > start"),
        (within("_records_of", "record.offset < stop"), "record.offset <= stop"),
        (within("_advance", "each.header.next_offset"), "each.header.base_offset"),
        (within("_checked", "header.is_control"), "False"),
    ],
)
def test_a_planted_mistake_is_noticed(broker: Broker, right: str, wrong: str) -> None:
    windows = {place: Window(*window) for place, window in windows_of(broker, "7:31").items()}
    whole = windows_of(broker, "start")

    def rule(module: ModuleType) -> None:
        for each in (windows, whole):
            reader = module.PartitionReader(settings_of(broker, 1.0), each, resets_to_end=False)
            assert by_partition(reader) == with_kafka_python(broker, each)

    assert_noticed(partition_reader, right, wrong, rule)


def test_codecs_are_all_covered() -> None:
    assert len(CODECS) == len(Codec)
