"""Records: what is written is read, each malformed byte is an InvalidRecord, and control records say what they end."""

from contextlib import suppress
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed

from trioka.protocol import record, varint
from trioka.protocol.errors import InvalidRecord
from trioka.protocol.record import (
    BatchContext,
    ControlType,
    EndTxnMarker,
    Record,
    control_key,
    decode,
    encode,
    marker_record,
    move,
    read_control_key,
    read_marker,
    spans,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), CONTENT), max_size=5).map(tuple)

# One record of nothing: length, attributes, timestamp, offset, no key, no value, no headers.
PLAIN = "0c 00 00 00 01 01 00"


def frame(count: int = 1, last_offset_delta: int = 0, **fields: int) -> BatchContext:
    return BatchContext(
        base_offset=fields.get("base_offset", 0),
        last_offset_delta=last_offset_delta,
        base_timestamp=fields.get("base_timestamp", 0),
        log_append_time_ms=fields.get("log_append_time_ms"),
        record_count=count,
    )


# --- varints


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
    ],
)
def test_a_varint_is_zigzag_seven_bits_a_byte(value: int, wire: str) -> None:
    assert varint.varint(value).hex() == wire
    assert varint.read_varint(bytes.fromhex(wire), 0) == (value, len(wire) // 2)


@given(INT32)
def test_any_int32_comes_back_in_five_bytes_at_most(value: int) -> None:
    wire = varint.varint(value)
    assert len(wire) <= 5
    assert varint.read_varint(b"x" + wire + b"y", 1) == (value, 1 + len(wire))


@given(INT64)
def test_any_int64_comes_back_in_ten_bytes_at_most(value: int) -> None:
    wire = varint.varint(value)
    assert len(wire) <= 10
    assert varint.read_varlong(b"x" + wire + b"y", 1) == (value, 1 + len(wire))
    for end in range(len(wire)):
        with pytest.raises(IndexError):
            varint.read_varlong(wire[:end], 0)


@pytest.mark.parametrize("wire", ["808080808000", "ffffffff1f", "8080808010"])
def test_a_varint_above_32_bits_is_refused(wire: str) -> None:
    with pytest.raises(InvalidRecord, match="varint"):
        varint.read_varint(bytes.fromhex(wire), 0)


@pytest.mark.parametrize("wire", ["80" * 10 + "00", "ff" * 9 + "02"])
def test_a_varlong_above_64_bits_is_refused(wire: str) -> None:
    with pytest.raises(InvalidRecord, match="varint"):
        varint.read_varlong(bytes.fromhex(wire), 0)


def test_a_padded_varint_is_read() -> None:
    assert varint.read_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert varint.read_varint(bytes.fromhex("8280808000"), 0) == (1, 5)


@given(INT64, INT64)
def test_a_difference_that_overflows_comes_back_as_it_was(value: int, base: int) -> None:
    assert varint.int64(base + varint.int64(value - base)) == value


# --- records


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 1 << 40))
    out = []
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.integers(1, 1000))
        out.append(Record(offset, draw(INT64), draw(CONTENT), draw(CONTENT), draw(HEADERS)))
    return out


def written(records: list[Record], base_timestamp: int) -> tuple[bytes, BatchContext]:
    base = records[0].offset if records else 0
    last = records[-1].offset - base if records else 0
    data = b"".join(encode(each, base_offset=base, base_timestamp=base_timestamp) for each in records)
    return data, frame(len(records), last, base_offset=base, base_timestamp=base_timestamp)


@given(record_lists(), INT64)
def test_any_records_come_back(records: list[Record], base_timestamp: int) -> None:
    data, text = written(records, base_timestamp)
    assert list(decode(data, text)) == records


@given(record_lists(), INT64)
def test_spans_agree_with_the_records_and_with_their_bytes(records: list[Record], base_timestamp: int) -> None:
    data, text = written(records, base_timestamp)
    found = list(spans(data, text))
    assert [(span.offset, span.timestamp, span.key) for span in found] == [each[:3] for each in records]
    assert [span.is_tombstone for span in found] == [each.value is None for each in records]
    assert b"".join(data[span.start : span.end] for span in found) == data


@given(record_lists(), INT64, INT64)
def test_a_moved_record_keeps_everything_under_another_base(records: list[Record], old: int, new: int) -> None:
    data, text = written(records, old)
    moved = b"".join(move(data, span, base_timestamp=new) for span in spans(data, text))
    assert moved == written(records, new)[0]


def test_when_the_broker_set_the_time_all_records_have_it() -> None:
    data, text = written([Record(0, 5, None, None), Record(1, 9, None, None)], 5)
    assert [each.timestamp for each in decode(data, text._replace(log_append_time_ms=77))] == [77, 77]


def test_null_and_empty_are_not_the_same() -> None:
    sent = [Record(0, 0, b"", None, (("a", b""), ("b", None))), Record(1, 0, None, b"")]
    data, text = written(sent, 0)
    assert list(decode(data, text)) == sent


def test_the_attributes_of_a_record_are_ignored() -> None:
    assert list(decode(bytes.fromhex("0c ff 00 00 01 01 00"), frame())) == [Record(0, 0, None, None)]


def test_any_length_below_nought_means_null_as_in_kafka() -> None:
    assert list(decode(bytes.fromhex("0c 00 00 00 03 03 00"), frame())) == [Record(0, 0, None, None)]


def test_a_header_key_that_is_not_utf_8_survives() -> None:
    wire = bytes.fromhex("14 00 00 00 01 01 02 02 ff 02 78")
    [read] = decode(wire, frame())
    assert read.headers == (("\udcff", b"x"),)
    assert encode(read, base_offset=0, base_timestamp=0) == wire


MALFORMED = {
    "length too short": "0a 00 00 00 01 01 00",
    "length too long": "0e 00 00 00 01 01 00",
    "length below nought": "01 00 00 00 01 01 00",
    "length of nothing": "00",
    "length without an end": "ff ff ff ff ff",
    "key beyond the record": "0c 00 00 00 20 01 00",
    "key of 2³¹-1": "14 00 00 00 fe ff ff ff 0f 01 00",
    "value beyond the record": "0c 00 00 00 01 20 00",
    "value of 2³¹-1": "14 00 00 00 01 fe ff ff ff 0f 00",
    "headers below nought": "0c 00 00 00 01 01 01",
    "a hundred headers": "0e 00 00 00 01 01 c8 01",
    "2³¹-1 headers": "14 00 00 00 01 01 fe ff ff ff 0f",
    "header without a key": "10 00 00 00 01 01 02 01 01",
    "header without a key, and no byte too many": "10 00 00 00 01 01 02 81 00",
    "header key beyond the record": "10 00 00 00 01 01 02 40 01",
    "header value beyond the record": "10 00 00 00 01 01 02 00 40",
    "offset varint of six bytes": "16 00 00 80 80 80 80 80 00 01 01 00",
    "offset varint of 35 bits": "14 00 00 80 80 80 80 70 01 01 00",
    "timestamp varint of eleven bytes": "20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00",
    "offset above the last": "0c 00 00 0a 01 01 00",
    "offset below the first": "0c 00 00 01 01 01 00",
    "a byte left over": PLAIN + " 00",
    "a record left over": PLAIN + PLAIN,
    "nothing": "",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_record_is_invalid(name: str) -> None:
    for read in (decode, spans):
        with pytest.raises(InvalidRecord):
            list(read(bytes.fromhex(MALFORMED[name]), frame()))


def test_the_plain_record_of_these_cases_is_sound() -> None:
    assert list(decode(bytes.fromhex(PLAIN), frame())) == [Record(0, 0, None, None)]


@pytest.mark.parametrize("count", [-(1 << 31), -1, 0, 2, (1 << 31) - 1])
def test_another_number_of_records_than_the_header_says_is_invalid(count: int) -> None:
    with pytest.raises(InvalidRecord):
        list(decode(bytes.fromhex(PLAIN), frame(count, last_offset_delta=5)))


@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (0, 3)])
def test_offsets_increase_up_to_the_last(offsets: tuple[int, int]) -> None:
    data = b"".join(encode(Record(each, 0, None, None), base_offset=0, base_timestamp=0) for each in offsets)
    with pytest.raises(InvalidRecord, match="offset"):
        list(decode(data, frame(2, last_offset_delta=2)))


def test_offsets_end_at_two_to_the_63rd() -> None:
    top = (1 << 63) - 1
    assert [each.offset for each in decode(bytes.fromhex(PLAIN), frame(base_offset=top))] == [top]
    with pytest.raises(InvalidRecord):
        list(decode(bytes.fromhex(PLAIN), frame(last_offset_delta=1, base_offset=top)))


RICH = [
    Record(7, 1_000, b"key", b"value" * 30, (("name", b"x"), ("ü", None))),
    Record(9, 990, None, b"", ()),
    Record(200, 1_000_000, b"k" * 100, None, (("", b""),)),
]


def test_records_cut_off_at_any_byte_are_invalid() -> None:
    data, text = written(RICH, 1_000)
    for end in range(len(data)):
        with pytest.raises(InvalidRecord):
            list(decode(data[:end], text))


def test_a_changed_byte_is_invalid_or_another_record_and_nothing_else() -> None:
    data, text = written(RICH, 1_000)
    for position in range(len(data)):
        for value in range(256):
            changed = bytearray(data)
            changed[position] = value
            with suppress(InvalidRecord):
                assert len(list(decode(bytes(changed), text))) == len(RICH)


@given(st.binary(max_size=100), INT32, INT32, INT64, INT64)
def test_no_bytes_whatsoever_raise_anything_else(
    data: bytes, count: int, last: int, base_offset: int, base_timestamp: int
) -> None:
    text = frame(count, last, base_offset=base_offset, base_timestamp=base_timestamp)
    with suppress(InvalidRecord):
        assert len(list(decode(data, text))) == count


# --- control records


def test_a_control_key_is_a_version_and_a_type() -> None:
    assert control_key(ControlType.COMMIT).hex() == "00000001"
    assert [kind.name for kind in ControlType] == [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
    ]
    for kind in ControlType:
        assert read_control_key(control_key(kind)) is kind


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0", b"\xff\xff\0\1"])
def test_a_control_key_that_is_cut_off_or_below_version_nought_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_control_key(key)


@pytest.mark.parametrize("key", ["00000007", "0000ffff", "00007fff"])
def test_a_control_record_of_the_future_is_stepped_over(key: str) -> None:
    assert read_control_key(bytes.fromhex(key)) is None
    assert read_marker(bytes.fromhex(key), None) is None


def test_a_later_version_of_a_control_record_may_say_more() -> None:
    assert read_marker(bytes.fromhex("0001 0001 abcd"), bytes.fromhex("0001 00000011 ff")) == EndTxnMarker(True, 17)


@given(st.booleans(), INT32)
def test_a_marker_comes_back(commit: bool, epoch: int) -> None:
    marker = EndTxnMarker(commit, epoch)
    written_record = marker_record(marker, offset=3, timestamp=4)
    assert read_marker(written_record.key, written_record.value) == marker


@pytest.mark.parametrize("value", [None, b"", bytes(5), b"\xff\xff" + bytes(4)])
def test_a_marker_without_its_value_is_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_marker(control_key(ControlType.ABORT), value)


# --- each of these rules notices its mistake


def refuses(name: str) -> Rule:
    def rule(module: ModuleType) -> None:
        with pytest.raises(InvalidRecord):
            list(module.decode(bytes.fromhex(MALFORMED[name]), frame()))

    return rule


def refuses_two_records_at_one_offset(module: ModuleType) -> None:
    with pytest.raises(InvalidRecord):
        list(module.decode(bytes.fromhex(PLAIN + PLAIN), frame(2)))


def refuses_a_record_that_ends_before_its_length_does(module: ModuleType) -> None:
    with pytest.raises(InvalidRecord):
        list(module.decode(bytes.fromhex("0e 00 00 00 01 01 00 0c 00 00 02 01 01 00"), frame(2, last_offset_delta=1)))


def overflow(module: ModuleType) -> None:
    [read] = module.decode(bytes.fromhex("1e 00 ff ff ff ff ff ff ff ff ff 01 00 01 01 00"), frame(base_timestamp=-5))
    assert -(1 << 63) <= read.timestamp < 1 << 63


MISTAKES: list[tuple[str, str, Rule]] = [
    ("if position != size:", "if False:", refuses("a byte left over")),
    ("if position != end:", "if False:", refuses_a_record_that_ends_before_its_length_does),
    ("except IndexError:", "except KeyError:", refuses("header key beyond the record")),
    ("if not 0 <= count <= (end - position) // 2:", "if count < -9:", refuses("headers below nought")),
    ("if size < 0:", "if size < -9:", refuses("header without a key, and no byte too many")),
    (
        "previous < delta <= last_offset_delta",
        "previous <= delta <= last_offset_delta",
        refuses_two_records_at_one_offset,
    ),
    ("previous < delta <= last_offset_delta", "previous < delta", refuses("offset above the last")),
    ("timestamp = int64(timestamp)", "pass", overflow),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(record, right, wrong, rule)
