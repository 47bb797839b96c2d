"""Record batches: built, read, checked and patched; and every wrong byte of one is noticed."""

from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed

from trioka.protocol import batch
from trioka.protocol.batch import HEADER_SIZE, BatchHeader, build, build_marker, headers, read_header, rebuild, records
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    ProtocolError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from trioka.protocol.record import EndTxnMarker, Record, read_marker

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
CONTENT = st.none() | st.binary(max_size=60)
CODECS = st.sampled_from(list(Codec))

RECORDS = [
    Record(0, 1_000, b"a", b"1"),
    Record(1, 1_300, b"b", None),
    Record(2, 1_200, b"c", b"3" * 70, (("h", None), ("ü", b"x"))),
    Record(3, 1_100, None, b"4"),
]


def header_of(wire: bytes | bytearray) -> BatchHeader:
    header = read_header(wire)
    batch.verify(wire, header)
    return header


# --- build and read


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], dict[str, Any]]:
    base = draw(st.integers(0, 1 << 50))
    offset, content = base - 1, []
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.integers(1, 100))
        names = st.lists(st.tuples(st.text(max_size=9), CONTENT), max_size=3).map(tuple)
        content.append(Record(offset, draw(INT64), draw(CONTENT), draw(CONTENT), draw(names)))
    options = {
        "base_offset": base,
        "leader_epoch": draw(INT32),
        "codec": draw(CODECS),
        "producer_id": draw(INT64),
        "producer_epoch": draw(INT16),
        "base_sequence": draw(st.integers(-1, (1 << 31) - 1)),
        "transactional": draw(st.booleans()),
        "control": draw(st.booleans()),
        "delete_horizon_ms": draw(st.none() | INT64),
    }
    return content, options


@given(batches())
def test_any_batch_comes_back_with_its_flags(sent: tuple[list[Record], dict[str, Any]]) -> None:
    content, options = sent
    wire = build(content, **options)
    header = header_of(wire)
    assert list(records(wire, header)) == content
    assert header.size == len(wire)
    for name in ("base_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "delete_horizon_ms"):
        assert getattr(header, name) == options[name]
    assert header.codec is (options["codec"] if content else Codec.NONE)
    assert header.is_transactional is options["transactional"]
    assert header.is_control is options["control"]
    assert header.has_delete_horizon is (options["delete_horizon_ms"] is not None)
    assert not header.is_log_append_time
    assert header.record_count == len(content)
    assert header.last_offset == (content[-1].offset if content else header.base_offset)
    assert header.max_timestamp == max((each.timestamp for each in content), default=-1)


@given(batches(), INT64)
def test_a_time_that_the_broker_sets_is_that_of_all_records(
    sent: tuple[list[Record], dict[str, Any]], now: int
) -> None:
    content, options = sent
    built = build(content, log_append_time_ms=now, **options)
    patched = build(content, **options)
    batch.set_timestamp(patched, read_header(patched), now)
    assert patched == built
    header = header_of(patched)
    assert header.is_log_append_time
    assert {each.timestamp for each in records(patched, header)} <= {now}
    assert header.base_timestamp == read_header(build(content, **options)).base_timestamp


def test_an_empty_batch_keeps_its_offsets() -> None:
    wire = build([], base_offset=50, last_offset_delta=9, codec=Codec.ZSTD)
    header = header_of(wire)
    assert (len(wire), header.base_offset, header.next_offset, header.record_count) == (HEADER_SIZE, 50, 60, 0)
    assert list(records(wire, header)) == []


@pytest.mark.parametrize(
    ("base", "last_delta", "last"),
    [
        (-1, 5, -1),
        (0, 5, 5),
        ((1 << 31) - 1, 0, (1 << 31) - 1),
        ((1 << 31) - 1, 1, 0),
        ((1 << 31) - 3, 5, 2),
    ],
)
def test_sequences_wrap_to_nought(base: int, last_delta: int, last: int) -> None:
    wire = build([], last_offset_delta=last_delta, base_sequence=base)
    assert read_header(wire).last_sequence == last


def test_offsets_must_increase_and_lie_within() -> None:
    for offsets, base, last in (((1, 1), 0, None), ((2, 1), 0, None), ((3,), 4, None), ((3,), 0, 2)):
        with pytest.raises(AssertionError, match="offset"):
            build([Record(each, 0, None, None) for each in offsets], base_offset=base, last_offset_delta=last)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read_at_any_position(kind: Any) -> None:
    wire = build(RECORDS, codec=Codec.LZ4)
    buffer = kind(b"abc" + wire + b"def")
    header = read_header(buffer, 3)
    assert (header.position, header.end) == (3, 3 + len(wire))
    batch.verify(buffer, header)
    assert list(records(buffer, header)) == RECORDS


# --- many batches


def two_batches() -> tuple[bytearray, int]:
    first = build(RECORDS)
    return first + build([each._replace(offset=each.offset + 4) for each in RECORDS], base_offset=4), len(first)


def test_headers_lists_all_batches() -> None:
    wire, border = two_batches()
    assert [(each.position, each.base_offset) for each in headers(wire)] == [(0, 0), (border, 4)]
    assert [each.position for each in headers(wire, border)] == [border]
    assert [each.position for each in headers(wire, 0, border)] == [0]
    assert list(headers(b"")) == []


def test_a_cut_off_batch_is_an_error_or_the_end() -> None:
    wire, border = two_batches()
    for end in range(len(wire)):
        whole = [each.position for each in headers(wire, end=end, partial_tail=True)]
        assert whole == ([] if end < border else [0])
        assert [each.position for each in headers(wire[:end], partial_tail=True)] == whole
        if end not in (0, border):
            with pytest.raises(ProtocolError):
                list(headers(wire, end=end))
            with pytest.raises(ProtocolError):
                list(headers(wire[:end]))


def test_rubbish_is_an_error_even_as_a_tail() -> None:
    wire = build(RECORDS) + b"\xff" * 100
    with pytest.raises(ProtocolError, match="magic"):
        list(headers(wire, partial_tail=True))


# --- damage


def read_all(wire: bytes | bytearray | memoryview) -> list[Record]:
    """As a broker reads what a client sent."""
    out: list[Record] = []
    for header in headers(wire):
        batch.verify(wire, header)
        out += records(wire, header, limit=1 << 20)
    return out


REFUSED = (
    ProtocolError,
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_cut_off_at_any_byte_is_refused(codec: Codec) -> None:
    wire = bytes(build(RECORDS, codec=codec))
    assert read_all(wire) == RECORDS
    header = read_header(wire)
    for end in range(1, len(wire)):
        with pytest.raises(ProtocolError):
            read_all(wire[:end])
        with pytest.raises(CorruptMessage):
            batch.verify(wire[:end], header)
        with pytest.raises(CorruptMessage, match="cut off"):
            records(wire[:end], header)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_flipped_bit_is_noticed_except_where_the_broker_writes(codec: Codec) -> None:
    wire = build(RECORDS, codec=codec)
    for position in range(len(wire)):
        for bit in range(8):
            damaged = bytearray(wire)
            damaged[position] ^= 1 << bit
            if position < 8 or 12 <= position < 16:  # base offset and leader epoch
                header_of(damaged)
            elif position < 17:  # length and magic: the end of the batch is unknown
                with pytest.raises((ProtocolError, CorruptMessage, UnsupportedForMessageFormat)):
                    read_all(damaged)
            else:
                with pytest.raises(CorruptMessage, match="fails its CRC"):
                    read_all(damaged)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("tail", [b"\0", bytes(61), b"xyz", b"\xff" * 80])
def test_trailing_bytes_are_refused(codec: Codec, tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_all(build(RECORDS, codec=codec) + tail)


FIELDS = {  # where each field stands, and how wide it is
    "base_offset": (0, 8),
    "length": (8, 4),
    "leader_epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last_offset_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "producer_epoch": (51, 2),
    "base_sequence": (53, 4),
    "record_count": (57, 4),
}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("right_crc", [False, True])
def test_a_field_with_any_odd_value_is_read_or_refused_and_nothing_else(
    codec: Codec, name: str, right_crc: bool
) -> None:
    wire = build(RECORDS, codec=codec)
    position, width = FIELDS[name]
    top = 1 << 8 * width - 1
    middle = [2**31 - 1, -(2**31), 2**15, len(wire), len(wire) - 11, len(wire) - 13, 48, 49]
    for value in {-top, -top + 1, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, top - 1, *(each % top for each in middle)}:
        odd = bytearray(wire)
        odd[position : position + width] = value.to_bytes(width, "big", signed=True)
        if right_crc and name != "crc":
            odd[17:21] = crc32c(bytes(odd[21:])).to_bytes(4, "big")
        with suppress(*REFUSED):
            assert len(read_all(odd)) in (0, len(RECORDS))


@given(st.binary(max_size=200), st.binary(max_size=100), CODECS)
def test_no_payload_whatsoever_raises_anything_else(prefix: bytes, data: bytes, codec: Codec) -> None:
    with suppress(*REFUSED):
        read_all(prefix)
    header = read_header(build(RECORDS))
    sealed = batch.seal(header, prefix)
    sealed[HEADER_SIZE:] = data
    sealed[8:12] = (len(sealed) - 12).to_bytes(4, "big")
    sealed[22] = codec
    sealed[17:21] = crc32c(bytes(sealed[21:])).to_bytes(4, "big")
    with suppress(InvalidRecord, MessageTooLarge):
        read_all(sealed)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_distinguished_from_garbage(magic: int) -> None:
    message = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(9)
    for wire in (message, message + bytes(60)):
        with pytest.raises(UnsupportedForMessageFormat, match=f"magic {magic}"):
            list(headers(wire))
    with pytest.raises(ProtocolError, match="magic"):
        read_header(bytes(100))  # noughts, as a torn file has them


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    wire = build(RECORDS)
    header = read_header(wire)._replace(attributes=codec)
    with pytest.raises(UnsupportedCompressionType, match=f"codec {codec}"):
        records(wire, header)


def test_damaged_compression_is_an_invalid_record_with_its_kafka_code() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        wire = build(RECORDS)
        header = read_header(wire)._replace(attributes=int(codec))
        with pytest.raises(InvalidRecord, match=codec.name.lower()) as caught:
            records(wire, header)
        assert isinstance(caught.value, KafkaError)
        assert caught.value.code == 87


@pytest.mark.parametrize("codec", list(Codec))
def test_records_above_the_limit_are_a_message_too_large(codec: Codec) -> None:
    wire = build([Record(0, 0, None, bytes(5_000_000))], codec=codec)
    header = header_of(wire)
    assert len(list(records(wire, header, limit=6_000_000))) == 1
    with pytest.raises(MessageTooLarge, match=r"limit|allowed"):
        records(wire, header, limit=4_000_000)
    if codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):  # snappy cannot pack noughts that well
        with pytest.raises(MessageTooLarge):
            records(wire, header)


# --- patches


@given(CODECS, INT64, INT32)
def test_offset_and_epoch_are_set_in_place_and_the_crc_stays(codec: Codec, offset: int, epoch: int) -> None:
    wire = bytearray(b"xyz") + build(RECORDS, codec=codec)
    before = bytearray(wire)
    batch.assign_offset(wire, 3, offset, epoch)
    header = read_header(wire, 3)
    batch.verify(wire, header)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    assert (wire[:3], wire[11:15], wire[19:]) == (before[:3], before[11:15], before[19:])


def test_a_patch_through_a_view_changes_the_buffer() -> None:
    wire = build(RECORDS)
    with memoryview(wire) as view:
        batch.assign_offset(view, 0, 77, 5)
        batch.set_timestamp(view, read_header(view), 4_242)
    header = header_of(wire)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (77, 5, 4_242)
    assert [each.offset for each in records(wire, header)] == [77, 78, 79, 80]


# --- as Apache Kafka 4.3.1 wrote them, from the same records

KAFKA_RECORDS = [
    Record(50, 1_000, b"a", b"1"),
    Record(51, 1_300, b"b", None),
    Record(52, 1_200, b"c", b"3", (("h", None),)),
    Record(53, 1_100, b"d", b"4"),
]
KAFKA = {
    "batch": (
        "00000000000000320000005a00000007022ae3726a00000000000300000000000003e8000000000000051400000000000000"
        "0900020000000a00000004"
        "1000000002610231001000d8040202620100180090030402630233020268011200c801060264023400"
    ),
    "compacted": (
        "0000000000000032000000470000000702d8b476d70040000000030000000000001691000000000000051400000000000000"
        "0900020000000a00000002"
        "1000f94502026201001800c147040263023302026801"
    ),
    "emptied": (
        "0000000000000032000000310000000702de23818b000000000003ffffffffffffffff000000000000051400000000000000"
        "0900020000000a00000000"
    ),
    "stamped": (
        "00000000000000320000005a00000007026ca2be0b00180000000300000000000003e8000000000000270f00000000000000"
        "0900020000000a00000004"
        "1000000002610231001000d8040202620100180090030402630233020268011200c801060264023400"
    ),
    "stamped, compacted": (
        "0000000000000032000000470000000702519b50e60058000000030000000000001691000000000000270f00000000000000"
        "0900020000000a00000002"
        "1000fc4102026201001800fc41040263023302026801"
    ),
    "stamped, emptied": (
        "0000000000000032000000310000000702e552a34a001800000003ffffffffffffffff000000000000270f00000000000000"
        "0900020000000a00000000"
    ),
    "commit": (
        "000000000000000500000042000000030212e85d5300300000000000000000000004d200000000000004d200000000000000"
        "090004ffffffff00000001"
        "2000000008000000010c00000000001100"
    ),
    "abort": (
        "0000000000000005000000420000000302e6d68b1b00300000000000000000000004d200000000000004d200000000000000"
        "090004ffffffff00000001"
        "2000000008000000000c00000000001100"
    ),
}
KAFKA_OPTIONS: dict[str, Any] = {
    "base_offset": 50,
    "leader_epoch": 7,
    "producer_id": 9,
    "producer_epoch": 2,
    "base_sequence": 10,
}


def test_a_batch_is_kafkas_to_the_byte() -> None:
    assert build(KAFKA_RECORDS, **KAFKA_OPTIONS).hex() == KAFKA["batch"]
    stamped = build(KAFKA_RECORDS, log_append_time_ms=9_999, transactional=True, **KAFKA_OPTIONS)
    assert stamped.hex() == KAFKA["stamped"]


@pytest.mark.parametrize("prefix", ["", "stamped, "])
def test_what_compaction_leaves_is_kafkas_to_the_byte(prefix: str) -> None:
    wire = bytes.fromhex(KAFKA["stamped" if prefix else "batch"])
    header = read_header(wire)
    data = batch.payload(wire, header)
    kept = [span for span in batch.spans(data, header) if span.offset in (51, 52)]
    assert rebuild(header, data, kept, delete_horizon_ms=5_777).hex() == KAFKA[prefix + "compacted"]
    assert rebuild(header, data, []).hex() == KAFKA[prefix + "emptied"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_kafkas_to_the_byte(commit: bool) -> None:
    marker = EndTxnMarker(commit, 17)
    wire = build_marker(marker, offset=5, timestamp=1_234, leader_epoch=3, producer_id=9, producer_epoch=4)
    assert wire.hex() == KAFKA["commit" if commit else "abort"]
    [read] = records(wire, header_of(wire))
    assert read_marker(read.key, read.value) == marker


# --- compaction


@given(batches(), st.data())
def test_compaction_keeps_what_it_keeps_and_all_of_the_header(
    sent: tuple[list[Record], dict[str, Any]], data: st.DataObject
) -> None:
    content, options = sent
    wire = build(content, **options)
    header = read_header(wire)
    payload = batch.payload(wire, header)
    chosen = data.draw(st.sets(st.integers(0, 8)))
    horizon = data.draw(st.none() | INT64)
    kept = [span for n, span in enumerate(batch.spans(payload, header)) if n in chosen]
    again = rebuild(header, payload, kept, delete_horizon_ms=horizon)
    after = header_of(again)
    assert list(records(again, after)) == [each for n, each in enumerate(content) if n in chosen]
    for name in ("base_offset", "last_offset", "base_sequence", "last_sequence", "producer_id", "producer_epoch"):
        assert getattr(after, name) == getattr(header, name)
    assert (after.is_transactional, after.is_control) == (header.is_transactional, header.is_control)
    if kept:
        assert after.codec is header.codec
        assert after.delete_horizon_ms == (horizon if header.delete_horizon_ms is None else header.delete_horizon_ms)
        assert after.max_timestamp == max(span.timestamp for span in kept)
    else:
        assert (after.codec, after.size, after.max_timestamp) == (Codec.NONE, HEADER_SIZE, header.max_timestamp)


# --- each of these rules notices its mistake


def crc_covers_the_attributes(module: ModuleType) -> None:
    wire = module.build(RECORDS)
    assert module.check_crc(wire, module.read_header(wire))
    wire[21] ^= 1
    assert not module.check_crc(wire, module.read_header(wire))


def crc_covers_the_last_byte(module: ModuleType) -> None:
    wire = module.build(RECORDS)
    assert module.check_crc(wire, module.read_header(wire))
    wire[-1] ^= 1
    assert not module.check_crc(wire, module.read_header(wire))


def offset_leaves_length(module: ModuleType) -> None:
    wire = build(RECORDS)
    module.assign_offset(wire, 0, 5, 6)
    assert read_header(wire)[1:4] == (len(wire), 5, 6)


def sequences_wrap(module: ModuleType) -> None:
    wire = build(RECORDS, base_sequence=(1 << 31) - 1)
    assert module.read_header(wire).last_sequence == 2


def compaction_keeps_the_last_offset(module: ModuleType) -> None:
    wire = build(RECORDS)
    header = module.read_header(wire)
    data = module.payload(wire, header)
    assert read_header(module.rebuild(header, data, list(module.spans(data, header))[:2])).last_offset == 3


def a_stamp_keeps_the_crc_right(module: ModuleType) -> None:
    wire = build(RECORDS)
    module.set_timestamp(wire, module.read_header(wire), 5)
    assert header_of(wire).is_log_append_time


def a_short_length_is_refused(module: ModuleType) -> None:
    wire = build(RECORDS)
    wire[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(ProtocolError):
        module.read_header(wire)


def a_tail_is_not_a_batch(module: ModuleType) -> None:
    assert list(module.headers(build(RECORDS)[:-1], partial_tail=True)) == []


MISTAKES: list[tuple[str, str, Rule]] = [
    ("_ATTRIBUTES_AT: Final = 21", "_ATTRIBUTES_AT: Final = 23", crc_covers_the_attributes),
    (
        "view[header.position + _ATTRIBUTES_AT : end]",
        "view[header.position + _ATTRIBUTES_AT : end - 1]",
        crc_covers_the_last_byte,
    ),
    (
        "position + 12",
        "position + 8",
        offset_leaves_length,
    ),
    (
        "(self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE",
        "self.base_sequence + self.last_offset_delta",
        sequences_wrap,
    ),
    ("record_count=len(kept),", "record_count=len(kept), last_offset_delta=1,", compaction_keeps_the_last_offset),
    ("    _set_crc(buffer, position, header.size)\n", "", a_stamp_keeps_the_crc_right),
    ("if magic != MAGIC or length < _MIN_LENGTH:", "if magic != MAGIC:", a_short_length_is_refused),
    ("if header is None or header.size > end - position:", "if header is None:", a_tail_is_not_a_batch),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(batch, right, wrong, rule)
