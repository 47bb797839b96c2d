"""Every client writes records of every shape and size, in every way, and reads the same again."""

import pytest
from broker_under_test import Node
from clients.client import CODECS, EARLIEST, LATEST, Client, Read, Record, Refused
from clients.samples import few, incompressible, shapes, timed
from stored import stored_batches

from trioka.protocol.errors import InvalidRecord, MessageTooLarge

pytest_plugins = ["broker_under_test"]

LARGE_BYTES = 900_000
BATCH_RECORDS = 10_000


def numbered(records: list[Record], first: int = 0) -> list[Read]:
    """The records at the offsets that they have when nothing else was written."""
    return [Read(first + index, record) for index, record in enumerate(records)]


def test_keys_values_headers_and_timestamps_come_back_as_they_were(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = shapes(client.lacks)
    assert client.produce(topic, records) == list(range(len(records)))
    assert client.consume(topic, offset=EARLIEST, count=len(records)) == numbered(records)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_kept_and_read_back(codec: str, client: Client, topic: str, node: Node) -> None:
    client.create_topic(topic)
    records = few(50, "lorem ipsum ")
    assert client.produce(topic, records, codec=codec) == list(range(50))
    assert client.consume(topic, offset=EARLIEST, count=50) == numbered(records)
    # Some clients send without compression, and without a word, when they dislike the versions that they were told.
    assert {header.codec.name.lower() for header in stored_batches(node.bootstrap, topic)} == {codec}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_whatever_is_acknowledged(acks: int, client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = few(5)
    assert client.produce(topic, records, acks=acks) == (list(range(5)) if acks else [])
    assert client.consume(topic, offset=EARLIEST, count=5) == numbered(records)


def test_records_go_to_the_partition_that_they_were_written_to(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    records = [record._replace(partition=index % 3) for index, record in enumerate(few(30))]
    assert client.produce(topic, records) == [index // 3 for index in range(30)]
    for partition in range(3):
        expected = [record for record in records if record.partition == partition]
        assert client.consume(topic, partition=partition, offset=EARLIEST, count=10) == numbered(expected)


def test_an_idempotent_producer_writes_each_record_once(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    records = [record._replace(partition=index % 2) for index, record in enumerate(few(40))]
    for first in (0, 20, 40):  # each round is another producer, with another id
        assert client.produce(topic, records, idempotent=True) == [first + index // 2 for index in range(40)]
    for partition in (0, 1):
        expected = [record for record in records if record.partition == partition] * 3
        assert client.consume(topic, partition=partition, offset=EARLIEST, count=60) == numbered(expected)
        assert client.offset_at(topic, LATEST, partition) == 60


def test_a_record_of_900_kilobytes_passes(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = timed([Record(b"before", b""), Record(b"large", incompressible(LARGE_BYTES)), Record(b"after", b"")])
    assert client.produce(topic, records) == [0, 1, 2]
    assert client.consume(topic, offset=EARLIEST, count=3) == numbered(records)


def test_ten_thousand_records_at_once_keep_their_order(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = timed([Record(None, f"record {number}".encode()) for number in range(BATCH_RECORDS)])
    assert client.produce(topic, records, codec="lz4", idempotent=True) == list(range(BATCH_RECORDS))
    assert client.consume(topic, offset=EARLIEST, count=BATCH_RECORDS) == numbered(records)


def test_a_record_larger_than_the_topic_allows_is_refused(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"max.message.bytes": "10000"})
    with pytest.raises(Refused) as refused:
        client.produce(topic, timed([Record(b"too large", incompressible(50_000))]))
    assert refused.value.code == MessageTooLarge.code
    assert client.produce(topic, timed([Record(b"small", b"")])) == [0]


def test_a_compacted_topic_refuses_a_record_without_a_key(client: Client, topic: str) -> None:
    client.must("know of invalid records")
    client.create_topic(topic, config={"cleanup.policy": "compact"})
    with pytest.raises(Refused) as refused:
        client.produce(topic, timed([Record(None, b"no key")]))
    assert refused.value.code == InvalidRecord.code
    assert client.produce(topic, timed([Record(b"key", b"")])) == [0]


def test_the_first_record_makes_its_topic(client: Client, topic: str) -> None:
    records = few(2)
    assert client.produce(topic, records) == [0, 1]
    assert topic in client.topics()
    assert client.consume(topic, offset=EARLIEST, count=2) == numbered(records)
