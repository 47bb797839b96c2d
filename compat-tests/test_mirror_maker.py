"""MirrorMaker 2, unmodified, copies topics from trioka to Apache Kafka and back, with exactly-once on: what is in the
copy is what was committed, once, with keys, headers, timestamps and partitions; the topic is configured as its
original, and a group finds its place in the copy.

Its connectors run in a worker of Kafka Connect, whose cluster is the one that is written to. TRIOKA_EXACTLY_ONCE=1
kills the worker, and trioka, while they are at it (minutes).
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from connect_worker import Worker
from copying import SETTINGS, messages_of, reader
from oracle import ApacheKafka
from support.serving import Client
from trioka_process import TriokaProcess

from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest

IS_LONG = bool(os.environ.get("TRIOKA_EXACTLY_ONCE"))
KILLS = ["nobody", "the worker", "trioka"] if IS_LONG else ["nobody"]
SOURCE, TARGET = "from", "to"
TOPIC, COPY, GROUP = "orders", f"{SOURCE}.orders", "readers"
PARTITIONS = 3
RECORDS_A_TURN = 60
START_MS = 1_700_000_000_000
CONFIGS = {"retention.ms": "987654321", "max.message.bytes": "123456"}
TOPIC_RESOURCE = 2

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MIRROR = "org.apache.kafka.connect.mirror.Mirror{}Connector"
WORKER = {
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": 4000,
    "heartbeat.interval.ms": 500,
    "producer.transaction.timeout.ms": 30_000,
}
COMMON = {
    "source.cluster.alias": SOURCE,
    "target.cluster.alias": TARGET,
    "key.converter": BYTES,
    "value.converter": BYTES,
    "header.converter": BYTES,
    "replication.factor": 1,
}
RECORDS = {
    **COMMON,
    "topics": TOPIC,
    "exactly.once.support": "required",
    "source.consumer.isolation.level": "read_committed",
    "offset-syncs.topic.replication.factor": 1,
    "offset.lag.max": 0,
    "refresh.topics.interval.seconds": 1,
    "sync.topic.configs.interval.seconds": 1,
}
PLACES = {
    **COMMON,
    "groups": GROUP,
    "checkpoints.topic.replication.factor": 1,
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
}

Broker = TriokaProcess | ApacheKafka


class CopiedTransaction(NamedTuple):
    """A record without its offset, which is another in the copy."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


class Pair(NamedTuple):
    source: Broker
    target: Broker
    trioka: TriokaProcess


@pytest.fixture(params=["trioka to kafka", pytest.param("kafka to trioka", marks=pytest.mark.nightly)])
def pair(request: pytest.FixtureRequest, apache_kafka: None, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as running:
        kafka = running.enter_context(ApacheKafka(SETTINGS, parent=tmp_path))
        (tmp_path / "trioka").mkdir()
        trioka = running.enter_context(TriokaProcess(tmp_path / "trioka", SETTINGS))
        is_source = request.param.startswith("trioka")
        yield Pair(trioka if is_source else kafka, kafka if is_source else trioka, trioka)


# -- the source --------------------------------------------------------------------------------------------------------


def create_topic(broker: Broker) -> None:
    wanted = CreateTopicsRequest.Topic
    configs = [wanted.Config(name=name, value=value) for name, value in CONFIGS.items()]
    topic = wanted(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=configs)
    with closing(Client("127.0.0.1", broker.port)) as client:
        (result,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
        assert result.error_code == 0, result


def write(broker: Broker, turn: int) -> None:
    """In three transactions, of which the second is aborted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{turn}", "log_level": 2})
    producer.init_transactions(60)
    for number, name in enumerate(("first", "aborted", "last")):
        producer.begin_transaction()
        for index in range(RECORDS_A_TURN // 3):
            value = None if index % 10 == 9 else f"{turn} {name} {index}".encode()
            producer.produce(
                TOPIC,
                value,
                key=f"{turn}-{index}",
                partition=index % PARTITIONS,
                timestamp=START_MS + 1000 * (3 * turn + number) + index,
                headers=[("turn", str(turn).encode()), ("empty", b""), ("none", None)],
            )
        if name == "aborted":
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def read_as_group(broker: Broker) -> None:
    """A group reads all that there is, and commits that it has."""
    ends = ends_of(broker, TOPIC)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 2}
    with closing(Consumer(settings)) as consumer:
        places = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
        consumer.commit(offsets=places, asynchronous=False)


# -- both --------------------------------------------------------------------------------------------------------------


def messages(broker: Broker, topic: str) -> list[Message]:
    found = messages_of(reader(broker.bootstrap, "read_committed", topic, PARTITIONS), PARTITIONS)
    return [message for message in found if message.error() is None]


def records(broker: Broker, topic: str) -> list[CopiedTransaction]:
    """By partition, in the order of the log."""
    found = [
        CopiedTransaction(
            message.partition() or 0,
            message.key(),
            message.value(),
            tuple(message.headers() or ()),  # type: ignore[arg-type]
            message.timestamp(),
        )
        for message in messages(broker, topic)
    ]
    return sorted(found, key=lambda record: record.partition)


def ends_of(broker: Broker, topic: str) -> dict[int, int]:
    """Behind the last record of each partition."""
    return {message.partition() or 0: (message.offset() or 0) + 1 for message in messages(broker, topic)}


def committed(broker: Broker, topic: str) -> dict[int, int]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2}
    with closing(Consumer(settings)) as consumer:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return {place.partition: place.offset for place in consumer.committed(places, timeout=60)}


def exists(broker: Broker, topic: str) -> bool:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 2})) as consumer:
        known = consumer.list_topics(timeout=60).topics.get(topic)
        return known is not None and len(known.partitions) == PARTITIONS


def configs(broker: Broker, topic: str) -> dict[str, str | None]:
    wanted = DescribeConfigsRequest.Resource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(CONFIGS)
    )
    with closing(Client("127.0.0.1", broker.port)) as client:
        (result,) = client.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
        return {each.name: each.value for each in result.configs}


# -- the mirror --------------------------------------------------------------------------------------------------------


def connect(worker: Worker, pair: Pair) -> None:
    servers = {
        "source.cluster.bootstrap.servers": pair.source.bootstrap,
        "target.cluster.bootstrap.servers": pair.target.bootstrap,
    }
    worker.wait_until(worker.is_up)
    worker.connect("records", MIRROR.format("Source"), **RECORDS, **servers)
    worker.connect("places", MIRROR.format("Checkpoint"), **PLACES, **servers)


def kill_and_start(victim: str, worker: Worker, pair: Pair) -> None:
    killed: dict[str, Worker | TriokaProcess] = {"the worker": worker, "trioka": pair.trioka}
    if victim in killed:
        killed[victim].kill()
        killed[victim].start()


def has_copied(worker: Worker, pair: Pair, count: int) -> bool:
    """A task that was disturbed in a commit may fail for good: Connect leaves it to its operator to start it again."""
    if IS_LONG:
        worker.restart_failed("records")
    return len(records(pair.target, COPY)) >= count


@pytest.mark.parametrize("victim", KILLS)
def test_a_topic_is_mirrored_once_and_whole(pair: Pair, tmp_path: Path, victim: str) -> None:
    create_topic(pair.source)
    write(pair.source, 0)
    with Worker(tmp_path, pair.target.bootstrap, "mirror", WORKER) as worker:
        connect(worker, pair)
        worker.wait_until(lambda: exists(pair.target, COPY))
        kill_and_start(victim, worker, pair)
        for turn in (1, 2):
            write(pair.source, turn)
        read_as_group(pair.source)
        expected = records(pair.source, TOPIC)
        assert len(expected) == 3 * RECORDS_A_TURN * 2 // 3
        worker.wait_until(lambda: has_copied(worker, pair, len(expected)))
        worker.wait_until(lambda: configs(pair.target, COPY) == CONFIGS)
        ends = ends_of(pair.target, COPY)
        worker.wait_until(lambda: committed(pair.target, COPY) == ends)
        assert records(pair.target, COPY) == expected
