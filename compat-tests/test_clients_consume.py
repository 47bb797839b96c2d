"""Every client finds its place in a log: by offset, by time, at both ends; and reads what any other has written."""

import pytest
from broker_under_test import client_named
from clients.catalogue import STARTERS, Catalogue
from clients.client import CODECS, EARLIEST, LATEST, Client, Read, Refused
from clients.samples import FIRST_TIMESTAMP_MS, STEP_MS, few, shapes

from trioka.protocol.errors import OffsetOutOfRange

pytest_plugins = ["broker_under_test"]


def test_a_consumer_starts_at_any_offset_also_inside_of_a_batch(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = few(20)
    client.produce(topic, records, codec="gzip")
    for offset in (0, 1, 7, 19):
        expected = [Read(offset + index, record) for index, record in enumerate(records[offset:])]
        assert client.consume(topic, offset=offset, count=20 - offset) == expected


def test_the_ends_of_a_log_are_told(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    assert (client.offset_at(topic, EARLIEST, 1), client.offset_at(topic, LATEST, 1)) == (0, 0)
    client.produce(topic, [record._replace(partition=1) for record in few(7)])
    assert (client.offset_at(topic, EARLIEST, 1), client.offset_at(topic, LATEST, 1)) == (0, 7)
    assert (client.offset_at(topic, EARLIEST, 0), client.offset_at(topic, LATEST, 0)) == (0, 0)


def test_a_consumer_starts_at_a_time(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = few(12)
    for first in (0, 4, 8):
        client.produce(topic, records[first : first + 4])
    for index, record in enumerate(records):
        assert client.offset_at(topic, record.timestamp) == index
        assert client.offset_at(topic, record.timestamp - STEP_MS + 1) == index
    offset = client.offset_at(topic, FIRST_TIMESTAMP_MS + 5 * STEP_MS)
    assert client.consume(topic, offset=offset, count=1) == [Read(5, records[5])]


def test_a_time_after_the_last_record_has_no_offset(client: Client, topic: str) -> None:
    client.must("no offset")
    client.create_topic(topic)
    client.produce(topic, few(3))
    assert client.offset_at(topic, FIRST_TIMESTAMP_MS + 3 * STEP_MS) == -1


def test_an_offset_outside_of_the_log_is_refused(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, few(3))
    with pytest.raises(Refused) as refused:
        client.consume(topic, offset=4, count=1)
    assert refused.value.code == OffsetOutOfRange.code


def test_everyone_reads_what_one_has_written(client: Client, catalogue: Catalogue, topic: str) -> None:
    client.create_topic(topic)
    shaped = shapes(client.lacks)
    for codec in CODECS:
        client.produce(topic, shaped, codec=codec)
    expected = [Read(offset, record) for offset, record in enumerate(shaped * len(CODECS))]
    for name in STARTERS:
        reader = client_named(name, catalogue)
        assert reader.consume(topic, offset=EARLIEST, count=len(expected)) == expected, f"read by {name}"
