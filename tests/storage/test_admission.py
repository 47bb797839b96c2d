"""What a leader lets in, and what it says to the rest. The codes are Kafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import NOW_MS, batch
from planted import planted

from trioka.protocol.batch import (
    build,
    build_marker,
    check_crc,
    headers,
    read_header,
    records,
    set_max_timestamp,
    set_timestamp,
)
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from trioka.protocol.record import NO_TIMESTAMP, EndTxnMarker, Record
from trioka.storage import admission
from trioka.storage.admission import (
    MAX_RECORD_ERRORS,
    Origin,
    UnexpectedOffset,
    admit,
    check_fetched,
    record_errors,
)
from trioka.storage.log_config import LogConfig

PLAIN = LogConfig()
COMPACTED = LogConfig(cleanup_policy=frozenset(("compact",)))
STAMPING = LogConfig(message_timestamp_type="LogAppendTime")
HOUR_MS = 3_600_000


def sealed(data: bytearray) -> bytearray:
    """After a field was changed: the CRC right again."""
    header = read_header(data)
    set_max_timestamp(data, header, header.max_timestamp, header.attributes)
    return data


def changed(at: int, value: int, size: int, **how: object) -> bytearray:
    data = batch("a", "b", **how)  # type: ignore[arg-type]
    data[at : at + size] = value.to_bytes(size, signed=True)
    return sealed(data)


def admitted(data: bytearray, config: LogConfig = PLAIN, **how: object) -> tuple[object, object, int]:
    return admit(data, config, now_ms=NOW_MS, **how)  # type: ignore[arg-type]


def test_the_common_path_returns_the_same_buffer_untouched() -> None:
    data = batch("a", "b")
    before = bytes(data)
    buffer, header, time = admit(memoryview(data), PLAIN, now_ms=NOW_MS)
    assert buffer.obj is data  # type: ignore[union-attr]
    assert data == before
    assert header == read_header(data)
    assert time == NO_TIMESTAMP


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytearray(), InvalidRecord),
        (bytearray(11), InvalidRecord),
        (batch("a") + batch("b"), InvalidRecord),
        (batch("a") + b"?", InvalidRecord),
        (batch("a")[:-1], InvalidRecord),
        (changed(0, 7, 8), InvalidRecord),
        (changed(23, 0, 4), InvalidRecord),
        (changed(23, -1, 4), InvalidRecord),
        (changed(57, 0, 4), InvalidRecord),
        (changed(57, 3, 4), InvalidRecord),
        (changed(21, 0x20, 2), InvalidRecord),
        (changed(21, 0x10, 2), InvalidRecord),
        (changed(21, 0x05, 2), UnsupportedCompressionType),
        (changed(21, 0x08, 2), InvalidTimestamp),
        (batch("a", producer=(7, -1, 0)), InvalidRecord),
        (batch("a", producer=(7, 0, -1)), InvalidRecord),
    ],
    ids=[
        "nothing",
        "less than a header",
        "two batches",
        "a byte too much",
        "a byte too little",
        "a base offset",
        "fewer offsets than records",
        "negative offsets",
        "no records",
        "more records than offsets",
        "a control batch",
        "a transaction without a producer",
        "an unknown codec",
        "the broker's timestamp flag",
        "a producer without an epoch",
        "a producer without a sequence",
    ],
)
def test_a_batch_that_cannot_be_is_refused(data: bytearray, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        admitted(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_are_refused_as_kafka_does(magic: int) -> None:
    data = batch("a")
    data[16] = magic
    with pytest.raises(InvalidRecord):
        admitted(data)


def test_rubbish_is_corrupt() -> None:
    data = batch("a")
    data[16] = 9
    with pytest.raises(CorruptMessage):
        admitted(data)


@given(at=st.integers(21, 80), bit=st.integers(0, 7))
def test_every_flipped_bit_that_the_crc_covers_is_found(at: int, bit: int) -> None:
    data = batch("some value that is long enough")
    data[at] ^= 1 << bit
    with pytest.raises(CorruptMessage):
        admitted(data)


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    data = batch("x" * 100)
    admitted(data, LogConfig(max_message_bytes=len(data)))
    with pytest.raises(MessageTooLarge):
        admitted(data, LogConfig(max_message_bytes=len(data) - 1))
    admitted(data, LogConfig(max_message_bytes=len(data) - 1), origin=Origin.COORDINATOR)


def test_coordinators_write_control_batches_and_clients_do_not() -> None:
    marker = build_marker(
        EndTxnMarker(True, 0), offset=0, timestamp=NOW_MS, leader_epoch=0, producer_id=7, producer_epoch=0
    )
    with pytest.raises(InvalidRecord):
        admitted(bytearray(marker))
    admitted(bytearray(marker), COMPACTED, origin=Origin.COORDINATOR)


def test_a_compacted_topic_takes_no_record_without_a_key_and_names_them() -> None:
    keyless = build([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v"), Record(2, NOW_MS, None, b"w")])
    admitted(bytearray(keyless), PLAIN)
    with pytest.raises(InvalidRecord) as refusal:
        admitted(bytearray(keyless), COMPACTED)
    assert [error.batch_index for error in record_errors(refusal.value)] == [1, 2]
    admitted(batch("a"), COMPACTED)


@pytest.mark.parametrize("codec", Codec)
def test_records_are_looked_at_through_every_codec(codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        admitted(batch("a", "b", key=None, codec=codec), COMPACTED)


def test_a_refusal_names_no_more_records_than_the_limit() -> None:
    keyless = build([Record(index, NOW_MS, None, b"") for index in range(MAX_RECORD_ERRORS + 50)])
    with pytest.raises(InvalidRecord) as refusal:
        admitted(keyless, COMPACTED)
    assert len(record_errors(refusal.value)) == MAX_RECORD_ERRORS


def test_timestamps_too_far_ahead_are_refused_and_named() -> None:
    late = build([Record(0, NOW_MS, b"k", b""), Record(1, NOW_MS + HOUR_MS + 1, b"k", b"")])
    with pytest.raises(InvalidTimestamp) as refusal:
        admitted(late)
    assert [error.batch_index for error in record_errors(refusal.value)] == [1]
    admitted(build([Record(0, NOW_MS + HOUR_MS, b"k", b"")]))


def test_timestamps_too_far_behind_are_refused_where_the_topic_says_so() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    old = build([Record(0, NOW_MS, b"k", b""), Record(1, NOW_MS - 1001, b"k", b"")])
    admitted(bytearray(old))
    with pytest.raises(InvalidTimestamp):
        admitted(bytearray(old), config)
    admitted(build([Record(0, NO_TIMESTAMP, b"k", b"")]), config)


def test_a_careless_header_is_mended() -> None:
    """Some clients leave the newest timestamp at nought."""
    data = changed(35, 0, 8)
    _, header, _ = admit(data, PLAIN, now_ms=NOW_MS)
    assert header.max_timestamp == NOW_MS + 1
    assert check_crc(data, read_header(data))


def test_log_append_time_is_stamped_into_the_buffer() -> None:
    data = batch("a", "b", timestamp=5)
    _, header, time = admit(data, STAMPING, now_ms=NOW_MS)
    assert time == NOW_MS
    assert header == read_header(data)
    assert check_crc(data, header)
    assert [record.timestamp for record in records(data, header)] == [NOW_MS, NOW_MS]


def test_nobody_but_the_broker_says_that_the_broker_set_the_time() -> None:
    data = batch("a")
    set_timestamp(data, read_header(data), NOW_MS)
    for config in (PLAIN, STAMPING):
        with pytest.raises(InvalidTimestamp):
            admitted(bytearray(data), config)


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_a_topic_with_a_codec_of_its_own_packs_anew(source: Codec, target: Codec) -> None:
    data = batch("a" * 50, "b" * 50, codec=source, producer=(7, 1, 3), transactional=True)
    buffer, header, _ = admit(data, LogConfig(compression_type=target), now_ms=NOW_MS)
    assert (buffer is data) == (source == target)
    assert header.codec == target
    assert check_crc(buffer, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert header.is_transactional
    assert [record.value for record in records(buffer, header)] == [b"a" * 50, b"b" * 50]


def test_a_batch_that_is_too_large_after_packing_is_refused() -> None:
    data = batch("a" * 1000, codec=Codec.GZIP)
    with pytest.raises(MessageTooLarge):
        admitted(data, LogConfig(compression_type=Codec.NONE, max_message_bytes=500))


# What a follower takes -----------------------------------------------------------------------------------------------


def fetched(*batches: bytearray) -> bytearray:
    return bytearray().join(batches)


def test_a_follower_takes_batches_with_gaps_and_leaves_a_torn_one() -> None:
    data = fetched(
        batch("a", base_offset=5, leader_epoch=1),
        batch("b", base_offset=9, leader_epoch=2),
        batch("c", base_offset=10, leader_epoch=2)[:-3],
    )
    assert [header.base_offset for header in check_fetched(data, 5, 1)] == [5, 9]
    assert len(list(headers(data, partial_tail=True))) == 2


def test_a_follower_never_goes_back() -> None:
    with pytest.raises(UnexpectedOffset) as refusal:
        check_fetched(batch("a", "b", base_offset=4), 5, -1)
    assert (refusal.value.first_offset, refusal.value.last_offset) == (4, 5)
    with pytest.raises(InvalidRecord, match="offset"):
        check_fetched(fetched(batch("a", base_offset=5), batch("b", base_offset=5)), 5, -1)
    with pytest.raises(InvalidRecord, match="epoch"):
        check_fetched(batch("a", base_offset=5, leader_epoch=1), 5, 2)


def test_a_follower_takes_no_batch_with_a_wrong_crc() -> None:
    data = batch("a", base_offset=5)
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        check_fetched(data, 5, -1)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if header.base_offset < next_offset:", "if False:"),
        ("if 0 <= header.leader_epoch < epoch:", "if False:"),
        ("        next_offset = header.last_offset + 1\n", ""),
        ("if header is batches[0]:", "if False:"),
    ],
)
def test_a_follower_that_goes_back_is_noticed(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(admission, right, wrong)
    monkeypatch.setattr(mistaken, "UnexpectedOffset", UnexpectedOffset)
    monkeypatch.setitem(globals(), "check_fetched", mistaken.check_fetched)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test_a_follower_never_goes_back()
