"""Batches of real clients decode to what Kafka says of them, and the clients of Python read ours as we read theirs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiokafka.record.default_records
import kafka.record.default_records
import pytest

from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.record import EndTxnMarker, Record, read_marker

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "batches").glob("*.hex"))


class Golden:
    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines()
        self.content = bytes.fromhex("".join(line for line in lines if not line.startswith("#")))
        self.said: dict[str, Any] = {}
        for line in lines:
            name, colon, value = line.removeprefix("# ").partition(": ")
            if colon and line.startswith("#") and value[:1] in ("{", "["):
                self.said[name] = json.loads(value)
        self.header: dict[str, Any] = self.said["header"]
        self.records = tuple(
            Record(
                each["offset"],
                each["timestamp"],
                None if each["key"] is None else bytes.fromhex(each["key"]),
                None if each["value"] is None else bytes.fromhex(each["value"]),
                tuple((name, None if value is None else bytes.fromhex(value)) for name, value in each["headers"]),
            )
            for each in self.said["records"]
        )


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_there_is_a_golden_file_of_each_client_for_each_codec() -> None:
    names = {path.stem for path in GOLDEN}
    for client in ("java", "librdkafka", "kafka-python", "aiokafka"):
        for codec in Codec:
            assert f"{client}-{codec.name.lower()}" in names


def test_the_header_says_what_kafka_says(golden: Golden) -> None:
    header, text = batch.read_header(golden.content), golden.header
    assert header.size == text["size"] == len(golden.content)
    assert (header.base_offset, header.last_offset) == (text["base_offset"], text["last_offset"])
    assert header.next_offset == text["last_offset"] + 1
    assert (header.base_sequence, header.last_sequence) == (text["base_sequence"], text["last_sequence"])
    assert (header.producer_id, header.producer_epoch) == (text["producer_id"], text["producer_epoch"])
    assert (header.leader_epoch, header.magic, header.crc) == (text["leader_epoch"], text["magic"], text["crc"])
    assert (header.is_transactional, header.is_control) == (text["is_transactional"], text["is_control"])
    assert header.is_log_append_time == (text["timestamp_type"] == "LogAppendTime")
    assert header.max_timestamp == text["max_timestamp"]
    assert header.delete_horizon_ms == text["delete_horizon_ms"]
    assert header.codec.name.lower() == text["codec"]
    assert header.record_count == text["count"]


def test_the_crc_is_right(golden: Golden) -> None:
    batch.verify(golden.content, batch.read_header(golden.content))


def test_the_records_are_those_that_kafka_read(golden: Golden) -> None:
    header = batch.read_header(golden.content)
    if not header.is_control:
        assert tuple(batch.records(golden.content, header)) == golden.records


def test_a_marker_is_what_kafka_says(golden: Golden) -> None:
    header = batch.read_header(golden.content)
    if header.is_control:
        text = golden.said["marker"]
        [read] = batch.records(golden.content, header)
        assert read_marker(read.key, read.value) == EndTxnMarker(text["type"] == "COMMIT", text["coordinator_epoch"])


def test_an_uncompressed_batch_is_written_again_byte_by_byte(golden: Golden) -> None:
    header = batch.read_header(golden.content)
    if header.codec is Codec.NONE:
        data = batch.payload(golden.content, header)
        assert batch.seal(header, data) == golden.content
        if not header.is_log_append_time:  # then the records' own times are not to be had any more
            assert batch.build(batch.records(golden.content, header), **as_arguments(header)) == golden.content


def test_a_compressed_batch_written_again_holds_the_same_records(golden: Golden) -> None:
    header = batch.read_header(golden.content)
    again = batch.build(batch.records(golden.content, header), codec=header.codec, **as_arguments(header))
    assert list(batch.records(again, batch.read_header(again))) == list(batch.records(golden.content, header))


def as_arguments(header: batch.BatchHeader) -> dict[str, Any]:
    return {
        "base_offset": header.base_offset,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


# --- side by side with the record batches of kafka-python and aiokafka

CLIENTS: dict[str, Any] = {
    "kafka-python": kafka.record.default_records,
    "aiokafka": aiokafka.record.default_records,
    "aiokafka without its extension": type(
        "Pure",
        (),
        {
            "DefaultRecordBatch": aiokafka.record.default_records._DefaultRecordBatchPy,
            "DefaultRecordBatchBuilder": aiokafka.record.default_records._DefaultRecordBatchBuilderPy,
        },
    ),
}
SENT = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("name", b"one"), ("name", b"two"), ("ü", b""))),
    Record(1, 1_699_999_990_000, None, b"x" * 5_000),
    Record(2, 1_700_000_070_000, b"", None),
    *(Record(n, 1_700_000_070_000 + n, b"%d" % n, b"%d" % (n * 2654435761) * 20) for n in range(3, 400)),
]


def fields(records: Iterable[Any]) -> list[Record]:
    return [
        Record(
            each.offset,
            each.timestamp,
            None if each.key is None else bytes(each.key),
            None if each.value is None else bytes(each.value),
            tuple((name, None if value is None else bytes(value)) for name, value in each.headers),
        )
        for each in records
    ]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", list(Codec))
def test_their_batches_are_read_here(client: str, codec: Codec) -> None:
    builder = CLIENTS[client].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=123_456_789_012,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        batch_size=1 << 20,
    )
    for each in SENT:
        builder.append(each.offset, each.timestamp, each.key, each.value, list(each.headers))
    wire = bytes(builder.build())
    header = batch.read_header(wire)
    batch.verify(wire, header)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123_456_789_012, 7, 2**31 - 1)
    assert header.last_sequence == len(SENT) - 2
    assert header.is_transactional
    assert header.max_timestamp == max(each.timestamp for each in SENT)
    assert list(batch.records(wire, header)) == SENT
    if codec is Codec.NONE:
        assert batch.build(SENT, **as_arguments(header)) == wire


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", list(Codec))
def test_our_batches_are_read_there(client: str, codec: Codec) -> None:
    sent = [each._replace(offset=each.offset + 1_000) for each in SENT]
    wire = batch.build(sent, base_offset=1_000, codec=codec, producer_id=5, producer_epoch=6, base_sequence=7)
    theirs = CLIENTS[client].DefaultRecordBatch(bytes(wire))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset) == (1_000, 1_000 + len(SENT))
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 6, 7)
    assert not theirs.is_transactional
    assert fields(theirs) == sent
