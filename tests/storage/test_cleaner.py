"""Compaction: of each key its last record, at its offset; and everything that must outlive its records."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within
from support.compacted_log import COMPACT, DAY_MS, DIRECTORY, NOW, Pair, Partition, filled
from support.log_fixtures import verify

from trioka.protocol.batch import headers, records
from trioka.protocol.compression import Codec
from trioka.storage import cleaner
from trioka.storage.batch_scan import BadBatch
from trioka.storage.log_config import LogConfig
from trioka.storage.txn_index import AbortedTransaction


@pytest.fixture
def storage() -> ModuleType:
    return cleaner


# Records -------------------------------------------------------------------------------------------------------------


def test_of_each_key_the_last_record_stays_at_its_offset(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1"), (b"b", b"2")], [(b"a", b"3"), (b"c", b"4")], [(b"b", b"5")])
    cleaned = partition.compact(storage)
    assert partition.left() == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert (cleaned.first_dirty_offset, cleaned.keys) == (5, 3)
    assert (cleaned.records_read, cleaned.records_written) == (5, 3)
    assert cleaned.bytes_written < cleaned.bytes_read


def test_the_active_segment_is_not_touched_and_does_not_count(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1"), (b"b", b"2")])
    partition.put((b"a", b"3"))
    partition.compact(storage)
    assert partition.left() == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"3")]


def test_a_batch_that_loses_records_keeps_its_range_its_sequences_and_its_codec(storage: ModuleType) -> None:
    for codec in Codec:
        partition = Partition()
        partition.put((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), producer=7, epoch=2, sequence=10, codec=codec)
        partition.roll()
        partition.put((b"a", b"4"), (b"c", b"5"))
        partition.roll()
        before = partition.batches()[0][0]
        partition.compact(storage)
        header, content = partition.batches()[0]
        assert [(record.offset, record.timestamp, record.key) for record in content] == [(1, 51, b"b")]
        unchanged = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
                     "last_sequence", "codec")  # fmt: skip
        assert [getattr(header, name) for name in unchanged] == [getattr(before, name) for name in unchanged]
        assert header.max_timestamp == 51


def test_a_batch_that_loses_nothing_keeps_its_bytes(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"), (b"b", b"2"), codec=Codec.GZIP, level=9)  # which we would not choose ourselves
    partition.roll()
    path = partition.log.segments[0].log_path
    before = partition.disk.read(path)
    partition.compact(storage)
    assert partition.disk.read(path) == before


def test_records_without_a_key_go_and_are_counted(storage: ModuleType) -> None:
    partition = Partition(config=LogConfig())
    partition.put((None, b"1"), (b"a", b"2"))
    partition.roll()
    partition.log.config = COMPACT
    cleaned = partition.compact(storage)
    assert partition.left() == [(1, b"a", b"2")]
    assert cleaned.keyless == 1


def test_what_is_clean_already_is_compared_with_what_is_dirty_only(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1"), (b"b", b"2")], [(b"a", b"3")])
    partition.compact(storage)
    partition.put((b"b", b"4"))
    partition.roll()
    cleaned = partition.compact(storage)
    assert cleaned.keys == 1
    assert partition.left() == [(2, b"a", b"3"), (3, b"b", b"4")]


def test_a_log_without_dirt_is_left_alone(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1")], [(b"a", b"2")])
    first = partition.compact(storage).first_dirty_offset
    segments = list(partition.log.segments)
    assert partition.compact(storage) == storage.CleanResult(first_dirty_offset=first)
    assert list(partition.log.segments) == segments


# Tombstones ----------------------------------------------------------------------------------------------------------


def test_a_tombstone_stays_until_readers_had_time_to_see_it(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1")], [(b"a", None), (b"b", b"2")])
    partition.compact(storage, now=NOW)
    assert partition.left() == [(1, b"a", None), (2, b"b", b"2")]
    header, content = partition.batches()[-1]
    assert header.delete_horizon_ms == NOW + 1_000
    assert [record.timestamp for record in content] == [50, 51]
    partition.compact(storage, now=NOW + 999, again=True)
    assert partition.left() == [(1, b"a", None), (2, b"b", b"2")]
    assert partition.batches()[-1][0].delete_horizon_ms == NOW + 1_000  # counted from the first round
    partition.compact(storage, now=NOW + 1_000, again=True)
    assert partition.left() == [(2, b"b", b"2")]


def test_a_tombstone_that_was_overwritten_goes_at_once(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1")], [(b"a", None)], [(b"a", b"2")])
    partition.compact(storage)
    assert partition.left() == [(2, b"a", b"2")]


def test_a_tombstone_beyond_what_was_mapped_has_its_horizon_to_come(storage: ModuleType) -> None:
    """Two batches in one segment, and memory for the first alone."""
    partition = Partition()
    partition.put((b"a", b"1"))
    partition.put((b"a", None))
    partition.roll()
    partition.compact(storage, keys=1)
    assert partition.left() == [(0, b"a", b"1"), (1, b"a", None)]
    assert not any(header.has_delete_horizon for header, _ in partition.batches())
    partition.compact(storage, keys=1)
    assert partition.left() == [(1, b"a", None)]
    assert partition.batches()[-1][0].delete_horizon_ms == NOW + 1_000


# Transactions --------------------------------------------------------------------------------------------------------


def transaction(partition: Partition, *pairs: Pair, commit: bool, producer: int = 1, sequence: int = 0) -> None:
    partition.put(*pairs, producer=producer, epoch=0, sequence=sequence, transactional=True)
    partition.end(commit=commit, producer=producer)


def test_aborted_records_go_and_do_not_hide_older_ones(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"))
    transaction(partition, (b"a", b"2"), (b"b", b"3"), commit=False)
    partition.put((b"c", b"4"))
    partition.roll()
    partition.compact(storage)
    assert partition.left() == [(0, b"a", b"1"), (4, b"c", b"4")]


def test_committed_records_count(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"))
    transaction(partition, (b"a", b"2"), commit=True)
    partition.roll()
    partition.compact(storage)
    assert partition.left() == [(1, b"a", b"2")]


def test_nothing_is_cleaned_while_a_transaction_is_open(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"))
    partition.put((b"a", b"2"))
    partition.put((b"b", b"3"), producer=1, epoch=0, sequence=0, transactional=True)
    partition.roll()
    assert storage.log_to_clean(partition.log, None, now_ms=NOW).dirty_bytes == 0


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_stays_while_its_transaction_has_batches_and_then_until_its_horizon(commit: bool) -> None:
    marker_outlives_its_batches(cleaner, commit=commit)


def marker_outlives_its_batches(storage: ModuleType, *, commit: bool) -> None:
    partition = Partition()
    transaction(partition, (b"a", b"1"), commit=commit)  # 0, marker 1
    partition.put((b"a", b"2"))
    partition.roll()
    assert partition.log.producers.expire(NOW + 2 * DAY_MS, DAY_MS) == 1  # else its last batch would stay
    partition.compact(storage, now=NOW)
    assert partition.left() == [(2, b"a", b"2")]
    assert partition.markers() == [1]  # the round has still met the batch
    assert partition.aborted() == ([] if commit else [AbortedTransaction(1, 0, 1, 2)])
    partition.compact(storage, now=NOW, again=True)
    assert partition.markers() == [1]
    assert partition.batches()[0][0].delete_horizon_ms == NOW + 1_000
    assert partition.aborted() == []
    partition.compact(storage, now=NOW + 999, again=True)
    assert partition.markers() == [1]
    partition.compact(storage, now=NOW + 1_000, again=True)
    assert partition.markers() == []
    assert partition.left() == [(2, b"a", b"2")]


def test_an_abort_marker_outlives_its_batches(storage: ModuleType) -> None:
    marker_outlives_its_batches(storage, commit=False)


def test_a_transaction_over_several_groups_is_aborted_everywhere(storage: ModuleType) -> None:
    partition = Partition(config=LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100))
    for number in range(4):
        partition.put((b"a", b"%d" % number), producer=1, epoch=0, sequence=number, transactional=True)
        partition.put((b"b%d" % number, b""))
    partition.end(commit=False, producer=1)
    partition.roll()
    assert len(partition.log.segments) > 5
    partition.compact(storage)
    assert [key for _, key, _ in partition.left()] == [b"b0", b"b1", b"b2", b"b3"]
    assert partition.aborted() == [AbortedTransaction(1, 0, 8, 9)]


# What outlives its records -------------------------------------------------------------------------------------------


def test_the_last_batch_of_an_active_producer_stays_without_records(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"), producer=7, epoch=2, sequence=0)
    partition.put((b"a", b"2"), (b"a", b"3"), producer=7, epoch=2, sequence=1)
    partition.put((b"a", b"4"))
    partition.roll()
    partition.compact(storage)
    assert partition.left() == [(3, b"a", b"4")]
    header, content = partition.batches()[0]
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (1, 2, 1, 2)
    assert content == []
    assert not header.is_transactional


def test_sequences_go_on_after_compaction_and_a_restart_without_snapshots(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"), producer=7, epoch=2, sequence=0)
    partition.put((b"a", b"2"))
    partition.roll()
    partition.compact(storage)
    partition.close()
    for name in partition.names():
        if name.endswith(".snapshot"):
            partition.disk.remove(f"{DIRECTORY}/{name}")
    again = Partition(partition.disk)
    assert again.put((b"a", b"1"), producer=7, epoch=2, sequence=0) == 0  # a retry
    assert again.put((b"a", b"3"), producer=7, epoch=2, sequence=1) == 2


def test_the_marker_that_holds_a_producers_epoch_stays_without_records(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"), producer=7, epoch=2, sequence=0, transactional=True)
    partition.end(commit=True, producer=7, epoch=3)  # bumped: the producer has no batch in this epoch
    partition.put((b"a", b"2"))
    partition.roll()
    for now in (NOW, NOW, NOW + 1_000, NOW + 1_000):
        partition.compact(storage, now=now, again=True)
    (marker, content), _ = partition.batches()
    assert (marker.is_control, marker.producer_epoch, content) == (True, 3, [])


def test_a_producer_that_expired_is_not_kept(storage: ModuleType) -> None:
    partition = Partition()
    partition.put((b"a", b"1"), producer=7, epoch=2, sequence=0)
    partition.put((b"a", b"2"))
    partition.roll()
    partition.log.producers.expire(NOW + 2 * DAY_MS, DAY_MS)
    partition.compact(storage)
    assert [header.base_offset for header, _ in partition.batches()] == [1]


def test_the_end_of_a_group_stays_so_that_segments_have_no_gaps(storage: ModuleType) -> None:
    partition = filled([(b"a", b"1"), (b"b", b"1")], [(b"b", b"2")], [(b"b", b"3")])
    partition.put((b"b", b"4"))
    partition.roll()
    partition.log.config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=160)
    partition.compact(storage)
    ends = [segment.end_offset() for segment in partition.log.segments]
    assert [segment.base_offset for segment in partition.log.segments[1:]] == ends[:-1]
    assert partition.left() == [(0, b"a", b"1"), (4, b"b", b"4")]


# Segments ------------------------------------------------------------------------------------------------------------


def test_small_segments_become_one(storage: ModuleType) -> None:
    partition = filled(*([(b"k%d" % n, b"v")] for n in range(6)))
    assert len(partition.log.segments) == 7
    partition.compact(storage)
    assert [segment.base_offset for segment in partition.log.segments] == [0, 6]
    assert len(partition.left()) == 6


def test_a_compacted_log_reads_from_any_offset_on(storage: ModuleType) -> None:
    partition = filled(*([(b"k%d" % (n % 3), b"%d" % n)] for n in range(20)))
    partition.compact(storage)
    expected = {17: b"17", 18: b"18", 19: b"19"}
    for offset in range(20):
        read = partition.log.read(offset, 10_000)
        assert read.records is not None
        found: dict[int, bytes | None] = {}
        for header in headers(read.records.read()):
            found |= {record.offset: record.value for record in records(read.records.read(), header)}
        assert found == {at: value for at, value in expected.items() if at >= offset}


def test_indexes_of_the_new_segment_lead_to_its_batches(storage: ModuleType) -> None:
    partition = filled(*([(b"k%d" % n, b"v" * 50)] for n in range(30)))
    partition.compact(storage)
    segment = partition.log.segments[0]
    assert len(segment.index.entries) > 5
    for offset in range(30):
        place = segment.locate(offset)
        assert place is not None
        assert place.base_offset == offset
    assert segment.largest_timestamp() == (50, 0)


def test_when_memory_ends_the_round_ends_and_the_next_one_goes_on(storage: ModuleType) -> None:
    pairs = [(b"k%d" % (n % 7), b"%d" % n) for n in range(40)]
    whole, bit_by_bit = filled(*([pair] for pair in pairs)), filled(*([pair] for pair in pairs))
    whole.compact(storage)
    rounds, before = 0, 0
    while (bit_by_bit.checkpoint or 0) < 40:
        bit_by_bit.compact(storage, keys=3 * 182)
        rounds += 1
        assert bit_by_bit.checkpoint is not None
        assert bit_by_bit.checkpoint > before
        before = bit_by_bit.checkpoint
    assert rounds > 5
    assert bit_by_bit.left() == whole.left() == [(n, *pairs[n]) for n in range(33, 40)]


def test_a_round_that_finds_its_segments_gone_leaves_nothing_behind(storage: ModuleType) -> None:
    partition = filled(*([(b"k%d" % n, b"v")] for n in range(4)))
    storage.STEP_BYTES, step = 1, storage.STEP_BYTES  # type: ignore[attr-defined]
    try:
        work = storage.clean(partition.log, storage.log_to_clean(partition.log, None, now_ms=NOW), now_ms=NOW)
        for _ in range(6):
            next(work)
        partition.log.delete_segments(partition.log.segments[:1], now_ms=NOW)
        with pytest.raises(storage.CleaningAborted):
            for _ in work:
                pass
    finally:
        storage.STEP_BYTES = step  # type: ignore[attr-defined]
    assert partition.left() == [(n, b"k%d" % n, b"v") for n in range(1, 4)]
    assert not any("cleaned" in name or "swap" in name for name in partition.names())


def test_a_round_that_is_given_up_leaves_nothing_behind(storage: ModuleType) -> None:
    partition = filled(*([(b"k", b"%d" % n)] for n in range(4)))
    before = partition.names()
    storage.STEP_BYTES, step = 1, storage.STEP_BYTES  # type: ignore[attr-defined]
    try:
        for pauses in range(1, 9):
            work = storage.clean(partition.log, storage.log_to_clean(partition.log, None, now_ms=NOW), now_ms=NOW)
            for _ in range(pauses):
                next(work, None)
            work.close()
            if len(partition.log.segments) == 5:
                assert partition.names() == before
    finally:
        storage.STEP_BYTES = step  # type: ignore[attr-defined]


def test_a_damaged_batch_ends_the_round_and_nothing_is_replaced(storage: ModuleType) -> None:
    partition = filled(*([(b"k", b"%d" % n)] for n in range(4)))
    before = partition.names()
    partition.disk.flip_bit(partition.log.segments[2].log_path, 65, 0)
    with pytest.raises(BadBatch):
        partition.compact(storage)
    assert partition.names() == before


def test_a_log_in_quarantine_is_not_compacted(storage: ModuleType) -> None:
    partition = filled(*([(b"k", b"%d" % n)] for n in range(4)))
    partition.disk.flip_bit(partition.log.segments[2].log_path, 65, 0)
    assert len(list(verify(partition.log))) == 1
    before = partition.names()
    with pytest.raises(storage.CleaningAborted):
        partition.compact(storage)
    assert partition.names() == before


def test_a_log_that_turns_out_to_be_damaged_on_the_way_keeps_its_segments(storage: ModuleType) -> None:
    partition = filled(*([(b"k", b"%d" % n)] for n in range(4)))
    before = partition.names()
    work = storage.clean(partition.log, storage.log_to_clean(partition.log, None, now_ms=NOW), now_ms=NOW)
    storage.STEP_BYTES, step = 1, storage.STEP_BYTES  # type: ignore[attr-defined]
    try:
        for _ in range(5):
            next(work)  # every key is mapped, and the copying has begun
        partition.disk.flip_bit(partition.log.segments[0].log_path, 65, 0)  # copied already
        assert len(list(verify(partition.log))) == 1
        with pytest.raises(storage.CleaningAborted):
            list(work)
    finally:
        storage.STEP_BYTES = step  # type: ignore[attr-defined]
    assert [name for name in partition.names() if name not in before] == ["damaged-ranges"]


def test_commits_interleave_as_the_log_has_them(storage: ModuleType) -> None:
    """The last *record* of a key counts, not the last commit."""
    partition = Partition()
    partition.put((b"a", b"open"), producer=1, epoch=0, sequence=0, transactional=True)
    partition.put((b"a", b"later"))
    partition.end(commit=True, producer=1)
    partition.roll()
    partition.compact(storage)
    assert partition.left() == [(1, b"a", b"later")]


MISTAKES: list[tuple[str, str, Rule]] = [
    ("_refuse_damage(log)", "", test_a_log_in_quarantine_is_not_compacted),
    ("            _refuse_damage(self.log)\n", "",
     test_a_log_that_turns_out_to_be_damaged_on_the_way_keeps_its_segments),
    ("if to_clean.first_dirty_offset >= end:", "if False:", test_a_log_without_dirt_is_left_alone),
    ("span.offset >= self.offsets.get(span.key)", "True", test_of_each_key_the_last_record_stays_at_its_offset),
    ("span.offset >= self.offsets.get(span.key)", "span.offset > self.offsets.get(span.key)",
     test_of_each_key_the_last_record_stays_at_its_offset),
    ("if span.offset > latest:\n" "    kept.append(span)\n" "elif span.key is None:\n"
     "    self.result.keyless += 1\n" "elif span.offset >= self.offsets.get(span.key) and (tombstones_stay or not "
     "span.is_tombstone):\n" "    kept.append(span)", "if span.offset > latest:\n" "    pass\n"
     "elif span.key is None:\n" "    self.result.keyless += 1\n"
     "elif span.offset >= self.offsets.get(span.key) and (tombstones_stay or not " "span.is_tombstone):\n"
     "    kept.append(span)",
     test_a_tombstone_beyond_what_was_mapped_has_its_horizon_to_come),
    ("self.result.keyless += 1",
     "kept.append(span)",
     test_records_without_a_key_go_and_are_counted),
    ("tombstones_stay = horizon is None or self.now_ms < horizon", "tombstones_stay = True",
     test_a_tombstone_stays_until_readers_had_time_to_see_it),
    ("tombstones_stay = horizon is None or self.now_ms < horizon", "tombstones_stay = False",
     test_a_tombstone_stays_until_readers_had_time_to_see_it),
    ("self.now_ms < horizon", "self.now_ms <= horizon", test_a_tombstone_stays_until_readers_had_time_to_see_it),
    ("span.is_tombstone and span.offset <= latest", "span.is_tombstone",
     test_a_tombstone_beyond_what_was_mapped_has_its_horizon_to_come),
    ("dropped = self.transactions.is_aborted(header)", "dropped = False",
     test_aborted_records_go_and_do_not_hide_older_ones),
    ("elif not transactions.is_aborted(header):\n"
     "    data = batches.payload(found.buffer, header, limit=MAX_PAYLOAD_BYTES)\n"
     "    for span in batches.spans(data, header):\n" "        if span.key is not None and span.offset >= start:\n"
     "            offsets.put(span.key, span.offset)",
     "data = batches.payload(found.buffer, header, limit=MAX_PAYLOAD_BYTES)\n"
     "for span in batches.spans(data, header):\n" "    if span.key is not None and span.offset >= start:\n"
     "        offsets.put(span.key, span.offset)", test_aborted_records_go_and_do_not_hide_older_ones),
    ("dropped = idle and horizon is not None and horizon <= self.now_ms", "dropped = idle",
     test_an_abort_marker_outlives_its_batches),
    ("idle or self._has_mapped_tombstone(header, kept)", "False or self._has_mapped_tombstone(header, kept)",
     test_an_abort_marker_outlives_its_batches),
    ("        self.transactions.index = new.txn_index\n", "", test_an_abort_marker_outlives_its_batches),
    (within("_round", "transactions = TransactionFilter()"), "",
     test_a_transaction_over_several_groups_is_aborted_everywhere),
    ("needed = is_last or self._is_last_of_producer(header)", "needed = is_last",
     test_the_last_batch_of_an_active_producer_stays_without_records),
    ("needed = is_last or self._is_last_of_producer(header)", "needed = self._is_last_of_producer(header)",
     test_the_end_of_a_group_stays_so_that_segments_have_no_gaps),
    ("return header.is_control and header.producer_epoch == epoch", "return False",
     test_the_marker_that_holds_a_producers_epoch_stays_without_records),
    ("            if offsets.is_full:\n                return\n",
     "            if offsets.is_full:\n                break\n",
     test_when_memory_ends_the_round_ends_and_the_next_one_goes_on),
    ("or not _is_part_of(self.log.segments, old)", "", test_a_round_that_finds_its_segments_gone_leaves_nothing_behind),
    ("                _discard(new)\n", "                pass\n", test_a_round_that_is_given_up_leaves_nothing_behind),
    ("if len(kept) == header.record_count and not waits:", "if len(kept) == header.record_count:",
     test_a_tombstone_stays_until_readers_had_time_to_see_it),
    ("if len(kept) == header.record_count and not waits:", "if False:",
     test_a_batch_that_loses_nothing_keeps_its_bytes),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(cleaner, right, wrong, rule)
