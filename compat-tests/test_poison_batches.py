"""Batches whose records cannot be read, with a good CRC: Apache Kafka and trioka refuse them with the same answer.

Where they differ, and why, stands with the test. After each, what was stored is read back: nothing of it may be there.
"""

import time
from collections.abc import Iterator

import pytest
from side_by_side import SideBySide, side_by_side
from test_responses_records import fetch, new_name, produce, with_crc

from trioka.protocol.batch import build, headers, read_header, seal
from trioka.protocol.compression import Codec
from trioka.protocol.errors import InvalidRecord, InvalidTimestamp, UnknownServerError
from trioka.protocol.messages.produce import ProduceResponse
from trioka.protocol.record import Record, encode

NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 24 * 60 * 60 * 1000
ONE = Record(0, NOW_MS, b"k", b"one")
TWO = Record(1, NOW_MS + 5, b"k", b"two", (("name", b"x"), ("none", None)))
PLAIN = bytes.fromhex("0c 00 00 00 01 01 00")


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side() as sides:
        yield sides


def written(*records: Record) -> bytes:
    return b"".join(encode(each, base_offset=0, base_timestamp=NOW_MS) for each in records)


def batch(data: bytes, count: int = 1, codec: Codec = Codec.NONE, newest: int = NOW_MS) -> bytes:
    """These bytes as the records of a batch whose header and CRC are in order."""
    header = read_header(build([ONE], codec=codec))
    return bytes(seal(header._replace(record_count=count, last_offset_delta=count - 1, max_timestamp=newest), data))


POISON = {
    "garbage": (b"garbage" * 9, 1),
    "nothing": (b"", 1),
    "fewer records than announced": (written(ONE, TWO), 3),
    "more records than announced": (written(ONE, TWO), 1),
    "a byte behind the records": (written(ONE) + b"?", 1),
    "a length beyond the batch": (bytes.fromhex("0e 00 00 00 01 01 00"), 1),
    "a length below the content": (bytes.fromhex("0a 00 00 00 01 01 00"), 1),
    "a key beyond the record": (bytes.fromhex("0c 00 00 00 20 01 00"), 1),
    "a key of 2³¹-1 bytes": (bytes.fromhex("14 00 00 00 fe ff ff ff 0f 01 00"), 1),
    "a value beyond the record": (bytes.fromhex("0c 00 00 00 01 20 00"), 1),
    "a negative number of headers": (bytes.fromhex("0c 00 00 00 01 01 01"), 1),
    "2³¹-1 headers": (bytes.fromhex("14 00 00 00 01 01 fe ff ff ff 0f"), 1),
    "a header without a key": (bytes.fromhex("10 00 00 00 01 01 02 01 01"), 1),
    "a header value beyond the record": (bytes.fromhex("10 00 00 00 01 01 02 00 40"), 1),
    "a varint of six bytes": (bytes.fromhex("16 00 00 80 80 80 80 80 00 01 01 00"), 1),
}


def is_empty(sides: SideBySide, topic: str) -> None:
    kafka, _ = sides.same(fetch(11, (topic, 0, 0)), 11)
    assert kafka.responses[0].partitions[0].high_watermark == 0


def refused(answer: ProduceResponse) -> tuple[int, list[int]]:
    """The error code, and which records were named."""
    (result,) = answer.responses[0].partition_responses
    return result.error_code, [error.batch_index for error in result.record_errors]


@pytest.mark.parametrize("name", POISON)
def test_records_that_cannot_be_read_are_refused_alike(sides: SideBySide, name: str) -> None:
    topic = new_name()
    sides.create_topic(topic)
    for version in (3, 9, 12):
        _, trioka = sides.same(produce(topic, batch(*POISON[name]), version), version)
        assert refused(trioka) == (InvalidRecord.code, [])
    is_empty(sides, topic)


# Kafka steps over the records of a compressed batch without looking at their lengths, and stores these two, which its
# own consumer cannot read.
STORED_BY_KAFKA = {"a length beyond the batch", "a length below the content"}


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_records_that_cannot_be_read_are_refused_alike(sides: SideBySide, codec: Codec) -> None:
    topic, other = new_name(), new_name()
    sides.create_topic(topic)
    sides.create_topic(other)
    for name, (data, count) in POISON.items():
        poison = batch(data, count, codec)
        if name in STORED_BY_KAFKA:
            kafka, trioka = sides.both(produce(other, poison, 9), 9)
            assert refused(kafka) == (0, []), name
        else:
            _, trioka = sides.same(produce(topic, poison, 9), 9)
        assert refused(trioka) == (InvalidRecord.code, []), name
    is_empty(sides, topic)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamps_are_those_of_the_records_and_not_of_the_header(sides: SideBySide, codec: Codec) -> None:
    topic = new_name()
    sides.create_topic(topic)
    for hidden in (NOW_MS + DAY_MS, -(1 << 63)):
        poison = batch(written(ONE, TWO._replace(timestamp=hidden)), 2, codec)
        _, trioka = sides.same(produce(topic, poison, 9), 9)
        assert refused(trioka) == (InvalidTimestamp.code, [1])
    is_empty(sides, topic)
    for newest in (NOW_MS + 77, NOW_MS + DAY_MS, NOW_MS - 77):
        _, trioka = sides.same(produce(topic, batch(written(ONE, TWO), 2, codec, newest), 9), 9)
        assert refused(trioka) == (0, [])
    for side in (sides.kafka, sides.trioka):  # both have mended the header
        (answer,) = side.ask(fetch(11, (topic, 0, 0)), 11).responses
        stored = bytes(answer.partitions[0].records)
        assert [header.max_timestamp for header in headers(stored)] == [NOW_MS + 5] * 3, side.name


def test_the_attributes_of_a_record_are_taken_by_both(sides: SideBySide) -> None:
    topic = new_name()
    sides.create_topic(topic)
    for codec in (Codec.NONE, Codec.GZIP):
        _, trioka = sides.same(produce(topic, batch(bytes.fromhex("0c ff 00 00 01 01 00"), codec=codec), 9), 9)
        assert refused(trioka) == (0, [])


def test_a_batch_that_is_cut_off_anywhere_is_refused_alike(sides: SideBySide) -> None:
    topic = new_name()
    sides.create_topic(topic)
    whole = batch(written(ONE))
    for end in range(len(whole)):
        sides.same(produce(topic, whole[:end], 9), 9)
    is_empty(sides, topic)


@pytest.mark.parametrize(
    ("data", "count"),
    [(written(ONE, ONE), 2), (written(ONE, TWO._replace(offset=3)), 2), (written(TWO), 1)],
    ids=["an offset twice", "a gap", "a first offset of 1"],
)
def test_offsets_that_are_not_in_a_row_are_refused(sides: SideBySide, data: bytes, count: int) -> None:
    """Apache Kafka stores them where they are not compressed, so that two records have one offset, or one has the
    offset of another batch; compressed ones fail inside of it."""
    topic = new_name()
    sides.create_topic(topic)
    for codec, kafkas in ((Codec.NONE, 0), (Codec.GZIP, UnknownServerError.code)):
        kafka, trioka = sides.both(produce(topic, batch(data, count, codec), 9), 9)
        assert refused(trioka) == (InvalidRecord.code, [])
        if count == 2:
            assert refused(kafka) == (kafkas, [])


def test_a_varint_with_bits_beyond_its_type_is_refused(sides: SideBySide) -> None:
    """Apache Kafka drops those bits (protocol/varint.py says why we do not)."""
    topic = new_name()
    sides.create_topic(topic)
    poison = batch(bytes.fromhex("14 00 00 80 80 80 80 70 01 01 00"))
    kafka, trioka = sides.both(produce(topic, poison, 9), 9)
    assert refused(kafka) == (0, [])
    assert refused(trioka) == (InvalidRecord.code, [])


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_damaged_compression_is_an_invalid_record(sides: SideBySide, codec: Codec) -> None:
    """Apache Kafka says UNKNOWN_SERVER_ERROR, which does not tell the client whose mistake it is."""
    topic = new_name()
    sides.create_topic(topic)
    damaged = with_crc(batch(b"garbage" * 9), 21, ">h", codec)
    kafka, trioka = sides.both(produce(topic, damaged, 9), 9)
    assert refused(kafka) == (UnknownServerError.code, [])
    assert refused(trioka) == (InvalidRecord.code, [])
    is_empty(sides, topic)
