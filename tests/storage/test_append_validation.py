"""What a leader lets in, and what it says to the rest. The codes are Kafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import planted
from support.log_fixtures import NOW_MS, batch

from trioka.protocol.batch import (
    BatchHeader,
    build,
    build_marker,
    check_crc,
    headers,
    read_header,
    records,
    seal,
    set_max_timestamp,
    set_timestamp,
)
from trioka.protocol.batch import payload as payload_of
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from trioka.protocol.record import NO_TIMESTAMP, EndTxnMarker, Record, encode
from trioka.storage import append_validation
from trioka.storage.append_validation import (
    MAX_RECORD_ERRORS,
    AppendOrigin,
    UnexpectedAppendOffset,
    record_errors,
    validate_batch,
    validate_replicated,
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
    return validate_batch(data, config, now_ms=NOW_MS, **how)  # type: ignore[arg-type]


def test_the_common_path_returns_the_same_buffer_untouched() -> None:
    data = batch("a", "b")
    before = bytes(data)
    buffer, header, time = validate_batch(memoryview(data), PLAIN, now_ms=NOW_MS)
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


def test_a_batch_that_is_cut_off_anywhere_is_half_a_batch() -> None:
    data = batch("a")
    for end in range(len(data)):
        with pytest.raises(InvalidRecord):
            admitted(data[:end])


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
    admitted(data, LogConfig(max_message_bytes=len(data) - 1), origin=AppendOrigin.COORDINATOR)


def test_coordinators_write_control_batches_and_clients_do_not() -> None:
    marker = build_marker(
        EndTxnMarker(True, 0), offset=0, timestamp=NOW_MS, leader_epoch=0, producer_id=7, producer_epoch=0
    )
    with pytest.raises(InvalidRecord):
        admitted(bytearray(marker))
    admitted(bytearray(marker), COMPACTED, origin=AppendOrigin.COORDINATOR)


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
    _, header, _ = validate_batch(data, PLAIN, now_ms=NOW_MS)
    assert header.max_timestamp == NOW_MS + 1
    assert check_crc(data, read_header(data))


def test_log_append_time_is_stamped_into_the_buffer() -> None:
    data = batch("a", "b", timestamp=5)
    _, header, time = validate_batch(data, STAMPING, now_ms=NOW_MS)
    assert time == NOW_MS
    assert header == read_header(data)
    assert check_crc(data, header)
    assert [record.timestamp for record in records(data, header)] == [NOW_MS, NOW_MS]


def test_only_the_broker_sets_the_append_time_attribute() -> None:
    data = batch("a")
    set_timestamp(data, read_header(data), NOW_MS)
    for config in (PLAIN, STAMPING):
        with pytest.raises(InvalidTimestamp):
            admitted(bytearray(data), config)


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_a_topic_with_a_codec_of_its_own_recompresses(source: Codec, target: Codec) -> None:
    data = batch("a" * 50, "b" * 50, codec=source, producer=(7, 1, 3), transactional=True)
    buffer, header, _ = validate_batch(data, LogConfig(compression_type=target), now_ms=NOW_MS)
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


# --- every record, of every batch that a client sends

BY_HEADER = LogConfig(validate_records="header")
CONFIGS = {
    "plain": PLAIN,
    "compacted": COMPACTED,
    "stamping": STAMPING,
    "not before": LogConfig(message_timestamp_before_max_ms=HOUR_MS),
    "as lz4": LogConfig(compression_type=Codec.LZ4),
}
SENT = [
    Record(0, NOW_MS, b"key", b"value", (("name", b"x"), ("none", None))),
    Record(1, NOW_MS - 7, b"", None),
    Record(2, NOW_MS + 9, b"k", b"v" * 70),
]


def resealed(data: bytearray, payload: bytes) -> bytearray:
    """The batch with another payload, under the same header."""
    return seal(read_header(data), payload)


def may_be_admitted(data: bytearray, config: LogConfig) -> bool:
    """By what the careful decoder reads of it, and nothing else."""
    header = read_header(data)
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return False
    try:
        found = list(records(data, header))
    except KafkaError:
        return False
    assert [each.offset for each in found] == list(range(header.record_count))
    if config.compacts and any(each.key is None for each in found):
        return False
    times = [each.timestamp for each in found if each.timestamp != NO_TIMESTAMP]
    return config is STAMPING or all(
        NOW_MS - config.message_timestamp_before_max_ms <= time <= NOW_MS + config.message_timestamp_after_max_ms
        for time in times
    )


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@given(flips=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 7)), max_size=3), counts=st.integers(-4, 4))
def test_a_batch_is_admitted_if_and_only_if_the_decoder_reads_it_and_it_is_what_the_header_says(
    codec: Codec, config: LogConfig, flips: list[tuple[int, int]], counts: int
) -> None:
    """Bits of the records are flipped, the header announces more or fewer of them, and the CRC is right."""
    payload = bytearray(b"".join(encode(each, base_offset=0, base_timestamp=NOW_MS) for each in SENT))
    for at, bit in flips:
        payload[at % len(payload)] ^= 1 << bit
    whole = read_header(build(SENT, codec=codec))
    count = whole.record_count + counts * bool(flips)
    data = seal(whole._replace(record_count=count, last_offset_delta=count - 1), bytes(payload))
    expected = may_be_admitted(data, config)
    try:
        stored, header, _ = validate_batch(bytearray(data), config, now_ms=NOW_MS)
    except (InvalidRecord, InvalidTimestamp):
        assert not expected
        return
    assert expected
    assert check_crc(stored, header)
    read = list(records(stored, header))
    assert [each[2:] for each in read] == [each[2:] for each in records(data, read_header(data))]
    assert header.max_timestamp == max(NO_TIMESTAMP, *(each.timestamp for each in read))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_garbage_with_a_good_crc_is_refused(codec: Codec, config: LogConfig) -> None:
    with pytest.raises(InvalidRecord):
        admitted(resealed(build(SENT, codec=codec), b"garbage" * 9), config)


def test_a_hidden_future_timestamp_is_refused_and_named() -> None:
    late = [*SENT[:2], Record(2, NOW_MS + 2 * HOUR_MS, b"k", b"v")]
    data = build(late)
    set_max_timestamp(data, read_header(data), NOW_MS, 0)
    with pytest.raises(InvalidTimestamp) as refusal:
        admitted(data)
    assert [error.batch_index for error in record_errors(refusal.value)] == [2]


def test_a_newest_timestamp_that_no_record_has_is_mended() -> None:
    data = build(SENT)
    set_max_timestamp(data, read_header(data), NOW_MS + 1000, 0)
    _, header, _ = validate_batch(data, PLAIN, now_ms=NOW_MS)
    assert header.max_timestamp == NOW_MS + 9
    assert check_crc(data, header)


def test_unreadable_records_are_refused_as_such_before_their_timestamps_are_judged() -> None:
    data = resealed(build([Record(0, NOW_MS + 2 * HOUR_MS, b"k", b"v")]), b"garbage" * 9)
    with pytest.raises(InvalidRecord):
        admitted(data)


def test_by_the_header_alone_records_are_not_opened() -> None:
    garbage = resealed(build(SENT), b"garbage" * 9)
    before = bytes(garbage)
    assert admitted(garbage, BY_HEADER)[0] == before
    compacted = LogConfig(cleanup_policy=frozenset(("compact",)), validate_records="header")
    with pytest.raises(InvalidRecord):
        admitted(garbage, compacted)  # whose keys must be looked at all the same


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_a_batch_is_decompressed_once(config: LogConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[int] = []

    def counted(data: object, header: BatchHeader) -> bytes:
        times.append(1)
        return payload_of(data, header)  # type: ignore[arg-type]

    monkeypatch.setattr(append_validation, "payload", counted)
    admitted(build(SENT, codec=Codec.ZSTD), config)
    assert len(times) == 1


def test_records_that_are_above_the_limit_when_decompressed_are_too_large() -> None:
    data = build([Record(0, NOW_MS, b"k", bytes(8 * 1024 * 1024))], codec=Codec.ZSTD)
    assert len(data) < 10_000
    with pytest.raises(MessageTooLarge):
        admitted(data)


def test_the_search_for_records_to_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_validation, "MAX_NAMED_AMONG", 2)
    late = Record(2, NOW_MS + 2 * HOUR_MS, None, b"v")
    for config, error in ((PLAIN, InvalidTimestamp), (COMPACTED, InvalidRecord)):
        with pytest.raises(error) as refusal:
            admitted(build([*SENT[:2], late]), config)
        assert record_errors(refusal.value) == ()


def fetched(*batches: bytearray) -> bytearray:
    return bytearray().join(batches)


def test_a_follower_takes_batches_with_gaps_and_leaves_a_torn_one() -> None:
    data = fetched(
        batch("a", base_offset=5, leader_epoch=1),
        batch("b", base_offset=9, leader_epoch=2),
        batch("c", base_offset=10, leader_epoch=2)[:-3],
    )
    assert [header.base_offset for header in validate_replicated(data, 5, 1)] == [5, 9]
    assert len(list(headers(data, partial_tail=True))) == 2


def test_a_follower_never_goes_back() -> None:
    with pytest.raises(UnexpectedAppendOffset) as refusal:
        validate_replicated(batch("a", "b", base_offset=4), 5, -1)
    assert (refusal.value.first_offset, refusal.value.last_offset) == (4, 5)
    with pytest.raises(InvalidRecord, match="offset"):
        validate_replicated(fetched(batch("a", base_offset=5), batch("b", base_offset=5)), 5, -1)
    with pytest.raises(InvalidRecord, match="epoch"):
        validate_replicated(batch("a", base_offset=5, leader_epoch=1), 5, 2)


def test_a_follower_takes_no_batch_with_a_wrong_crc() -> None:
    data = batch("a", base_offset=5)
    data[-1] ^= 1
    with pytest.raises(CorruptMessage):
        validate_replicated(data, 5, -1)


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
    mistaken = planted(append_validation, right, wrong)
    monkeypatch.setattr(mistaken, "UnexpectedAppendOffset", UnexpectedAppendOffset)
    monkeypatch.setitem(globals(), "validate_replicated", mistaken.validate_replicated)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test_a_follower_never_goes_back()


def every_record_is_checked() -> None:
    for config in CONFIGS.values():
        admitted(build(SENT, codec=Codec.GZIP), config)
        test_garbage_with_a_good_crc_is_refused(Codec.NONE, config)
        test_garbage_with_a_good_crc_is_refused(Codec.GZIP, config)
    test_a_hidden_future_timestamp_is_refused_and_named()
    test_a_newest_timestamp_that_no_record_has_is_mended()
    test_unreadable_records_are_refused_as_such_before_their_timestamps_are_judged()
    test_by_the_header_alone_records_are_not_opened()
    test_a_compacted_topic_takes_no_record_without_a_key_and_names_them()
    test_timestamps_too_far_behind_are_refused_where_the_topic_says_so()
    with pytest.raises(InvalidTimestamp):
        admitted(build([Record(0, NOW_MS, b"k", b"v"), Record(1, -(1 << 63), b"k", b"v")]))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('if self._config.validate_records == "full":', "if False:"),
        ('if self._config.validate_records == "full":', "if True:"),
        ("and (opened is None or opened.agrees_with_header())", ""),
        ("self.newest == self._header.max_timestamp and", ""),
        (" and self.oldest >= 0", ""),
        ("needs_keys = config.compacts and self._without_key > 0", "needs_keys = False"),
        ("oldest_allowed <= self.oldest and", ""),
        ("and self.newest <= max_appendable_timestamp", ""),
        ("if header.attributes & CODEC_MASK:", "if False:"),
        ('self._config.validate_records == "full"', 'not self.is_plain and self._config.validate_records == "full"'),
    ],
)
def test_a_record_that_is_not_checked_is_noticed(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every_record_is_checked()
    mistaken = planted(append_validation, right, wrong)
    monkeypatch.setitem(globals(), "validate_batch", mistaken.validate_batch)
    monkeypatch.setattr(mistaken, "RejectedRecords", append_validation.RejectedRecords)
    with pytest.raises((Exception, pytest.fail.Exception)):
        every_record_is_checked()
