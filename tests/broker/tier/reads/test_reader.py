"""The reader of remote segments: what it returns, what it requests, and when it gives up."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import NOW_MS, batch, open_log
from support.remote_logs import ABOUT, MemoryStore, copy_closed_segments
from support.serving import on_trio

from trioka.broker.config.layers import Config
from trioka.broker.tier.counts import TierCounts
from trioka.broker.tier.reads import reader as reader_module
from trioka.broker.tier.reads.reader import RANGE_BYTES, Loss, RemoteReader
from trioka.broker.tier.reads.remote_read import RemotePlace, RemoteRead, RemoteReadRequest
from trioka.broker.tier.store.segment_objects import remote_segment_of
from trioka.cluster.remote_log.metadata import RemoteLogMetadata
from trioka.protocol.batch import build_marker, headers, records
from trioka.protocol.errors import CorruptMessage, KafkaStorageError
from trioka.protocol.record import EndTxnMarker
from trioka.protocol.remote_segment.object_key import ObjectSuffix
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig

MIB = 1 << 20
SMALL = LogConfig(
    segment_bytes=2000, index_interval_bytes=300, file_delete_delay_ms=0, remote_storage=True, local_retention_bytes=0
)
LARGE = LogConfig(
    segment_bytes=9 * MIB,
    file_delete_delay_ms=0,
    remote_storage=True,
    local_retention_bytes=0,
    index_interval_bytes=4096,
)


class Remote:
    """A log, its object store, a reader, and what it has reported."""

    def __init__(self, log: Log, nursery: trio.Nursery, settings: dict[str, str], module: ModuleType) -> None:
        self.log, self.store, self.image = log, MemoryStore(), RemoteLogMetadata()
        self.before = b"".join(piece for _, piece in local_pieces(log))
        self.segments = copy_closed_segments(log, self.store, self.image)
        self.lost: list[tuple[bytes, Loss]] = []
        self.may_skip = False
        self.counts = TierCounts()
        self.config = Config(settings)
        self.reader: RemoteReader = module.RemoteReader(
            lambda: self.config,
            nursery.start_soon,
            lambda: self.store,
            self.image,
            lambda about, segment, loss: self.lost.append((segment.segment_id, loss)),
            lambda about: self.may_skip,
            self.counts,
        )

    async def read(self, offset: int, max_bytes: int = MIB, *, committed: bool = False, end: int | None = None) -> Any:
        end = self.log.high_watermark if end is None else end
        place = RemotePlace(ABOUT, self.log)
        return await self.reader.read(RemoteReadRequest(place, offset, end, max_bytes, True, committed))

    async def read_all(self, max_bytes: int = MIB) -> bytes:
        offset, found = self.log.log_start_offset, b""
        while offset < self.log.local_log_start_offset:
            read = await self.read(offset, max_bytes)
            assert isinstance(read, RemoteRead) and read.next_offset > offset
            found, offset = found + bytes(read.records), read.next_offset
        return found + b"".join(piece for _, piece in local_pieces(self.log))


def local_pieces(log: Log) -> list[tuple[int, bytes]]:
    offset, found = log.local_log_start_offset, []
    while (read := log.read(offset, 1 << 30)).records is not None:
        found.append((offset, bytes(read.records.read())))
        offset = read.next_offset
    return found


@pytest.fixture
def tier() -> ModuleType:
    return reader_module


@asynccontextmanager
async def remote(tier: ModuleType, log: Log, *, index_cache: str = "1000000", **settings: str) -> AsyncIterator[Remote]:
    log.advance_high_watermark(log.log_end_offset)
    named = {key.replace("_", "."): text for key, text in settings.items()}
    named.setdefault("remote.fetch.max.wait.ms", "30000")
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Remote(log, nursery, named, tier)
        except (Exception, pytest.fail.Exception) as error:  # raised as it is, and not in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def small_log(count: int = 60) -> Log:
    log = open_log(config=SMALL)
    for number in range(count):
        log.append_as_leader(
            batch(f"value {number}", "x" * 90, timestamp=NOW_MS + 10 * number), leader_epoch=number // 25, now_ms=NOW_MS
        )
    return log


def large_log() -> Log:
    """Three segments of two or three ranges each; no batch ends where a range does."""
    log = open_log(config=LARGE)
    for number in range(60):
        log.append_as_leader(batch(f"{number}", "x" * 450_000), leader_epoch=0, now_ms=NOW_MS)
    return log


@on_trio
async def test_the_bytes_are_those_of_the_log() -> None:
    await the_bytes_are_those_of_the_log(reader_module)


async def the_bytes_are_those_of_the_log(tier: ModuleType) -> None:
    for log, sizes in ((small_log(), (1, 500, MIB)), (large_log(), (1, MIB, 6 * MIB))):
        async with remote(tier, log) as its:
            assert len(its.segments) >= 2
            for max_bytes in sizes:
                assert await its.read_all(max_bytes) == its.before


@on_trio
async def test_a_read_from_any_offset_begins_with_its_batch() -> None:
    async with remote(reader_module, small_log()) as its:
        for offset in range(its.log.local_log_start_offset):
            read = await its.read(offset, 1)
            [header] = headers(read.records)
            assert header.base_offset <= offset < header.next_offset == read.next_offset


@on_trio
async def test_a_range_is_requested_once_however_many_read_it() -> None:
    async with remote(reader_module, large_log()) as its:
        its.store.gate = trio.Event()
        found: list[RemoteRead] = []

        async def read() -> None:
            found.append(await its.read(0))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(read)
            await until(lambda: its.store.waiting == 1 and its.reader.pending == 10)
            its.store.gate.set()
        assert len({bytes(each.records) for each in found}) == 1 and len(found) == 10
        assert len(its.store.ranges) == 1 and len(its.store.gets) == 2


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


@on_trio
async def test_a_view_of_a_range_is_not_copied() -> None:
    async with remote(reader_module, large_log()) as its:
        read = await its.read(0)
        [key] = {key for key, _ in its.store.ranges}
        assert read.records.obj is its.store.objects[key]
        small = await its.read(0, 1)
        assert small.records.obj is not its.store.objects[key], "it would keep 4 MiB in memory"


@on_trio
async def test_a_reader_that_goes_on_has_several_ranges_in_flight_over_the_end_of_the_segment() -> None:
    await several_ranges_in_flight(reader_module)


async def several_ranges_in_flight(tier: ModuleType) -> None:
    async with remote(tier, large_log()) as its:
        first = await its.read(0)
        assert len(its.store.ranges) == 1, "one read is no sequence"
        its.store.gate = trio.Event()
        await its.read(first.next_offset)
        await until(lambda: its.store.waiting == 3)
        assert {key for key, _ in its.store.ranges} > {its.store.ranges[0][0]}, "one of them is of the next segment"
        its.store.gate.set()


@on_trio
async def test_the_memory_of_the_cache_is_bounded() -> None:
    async with remote(reader_module, large_log(), trioka_tier_cache_bytes=str(2 * RANGE_BYTES)) as its:
        assert await its.read_all() == its.before
        assert 0 < its.reader.ranges.bytes <= 2 * RANGE_BYTES
    async with remote(reader_module, large_log(), trioka_tier_cache_bytes="0") as its:
        assert await its.read_all(8 * MIB) == its.before
        assert its.reader.ranges.bytes == 0


@on_trio
async def test_a_slow_store_gives_nothing_now_and_the_records_to_the_next_fetch() -> None:
    async with remote(reader_module, small_log(), remote_fetch_max_wait_ms="20") as its:
        its.store.gate = trio.Event()
        assert await its.read(0) is None
        its.store.gate.set()
        await until(lambda: bool(its.reader.ranges.bytes))
        assert len((await its.read(0)).records) > 0
        assert len(its.store.ranges) == 1


@on_trio
async def test_more_reads_than_may_wait_get_nothing() -> None:
    settings = {"remote_log_reader_max_pending_tasks": "1", "remote_fetch_max_wait_ms": "50"}
    async with remote(reader_module, small_log(), **settings) as its:
        its.store.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(its.read, 0)
            await until(lambda: its.store.waiting == 1)
            assert await its.read(20) is None
        assert its.reader.rejected == 1


@on_trio
async def test_no_more_requests_at_a_time_than_reader_threads() -> None:
    async with remote(reader_module, small_log(), remote_log_reader_threads="2") as its:
        its.store.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            for segment in its.segments[:5]:
                nursery.start_soon(its.read, segment.start_offset)
            await until(lambda: its.store.waiting == 2)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert its.store.waiting == 2
            its.store.gate.set()


@on_trio
async def test_the_quota_delays_loads() -> None:
    settings = {"remote_log_manager_fetch_max_bytes_per_second": "50000", "remote_fetch_max_wait_ms": "60000"}
    async with remote(reader_module, small_log(), **settings) as its:
        began = trio.current_time()
        for segment in its.segments[:3]:
            await its.read(segment.start_offset)
        sizes = [segment.size_bytes for segment in its.segments[:2]]
        assert trio.current_time() - began >= sum(sizes) / 50_000


@on_trio
async def test_a_missing_object_is_reported_and_nothing_is_served_in_its_place() -> None:
    for suffix in (".log", ".indexes", ".rsm-manifest"):
        async with remote(reader_module, small_log()) as its:
            segment = its.segments[1]
            [key] = [key for key in its.store.objects if key.endswith(suffix) and f"{segment.start_offset:020d}" in key]
            del its.store.objects[key]
            with pytest.raises(KafkaStorageError, match="there is no such object"):
                await its.read(segment.start_offset)
            assert its.lost == [(segment.segment_id, Loss.MISSING)]
            assert its.counts.of(ABOUT.topic).fetch_errors == 1
            assert len((await its.read(0)).records) > 0


@on_trio
async def test_a_damaged_object_is_read_again_and_then_reported() -> None:
    await a_damaged_object_is_reported(reader_module)


async def a_damaged_object_is_reported(tier: ModuleType) -> None:
    for suffix, position in ((".log", 200), (".indexes", 3), (".rsm-manifest", 100)):
        async with remote(tier, small_log()) as its:
            segment = its.segments[0]
            [key] = [key for key in its.store.objects if key.endswith(suffix) and f"/{0:020d}-" in key]
            whole = its.store.objects[key]
            its.store.objects[key] = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            with pytest.raises(CorruptMessage):
                await its.read(0)
            assert its.lost == [(segment.segment_id, Loss.DAMAGED)]
            its.store.objects[key] = whole
            assert len((await its.read(0)).records) > 0, "nothing damaged is kept"


@on_trio
async def test_a_log_object_that_is_too_short_is_damaged() -> None:
    async with remote(reader_module, small_log()) as its:
        key = next(key for key in its.store.objects if key.endswith(".log"))
        its.store.objects[key] = its.store.objects[key][:-10]
        with pytest.raises(CorruptMessage):
            await its.read(0)


@on_trio
async def test_a_store_that_fails_gives_an_error_that_clients_retry() -> None:
    async with remote(reader_module, small_log()) as its:
        its.store.fails = True
        with pytest.raises(KafkaStorageError, match="503 Slow Down"):
            await its.read(0)
        its.store.fails = False
        assert len((await its.read(0)).records) > 0 and not its.lost


@on_trio
async def test_offsets_without_a_segment_are_skipped_only_if_that_is_known() -> None:
    await offsets_are_skipped_only_if_known(reader_module)


async def offsets_are_skipped_only_if_known(tier: ModuleType) -> None:
    async with remote(tier, small_log()) as its:
        partition = its.image.partition(ABOUT.topic_id, ABOUT.partition)
        assert partition is not None
        gone, following = its.segments[1], its.segments[2]
        del partition.segments[gone.segment_id]
        partition._finished = None
        with pytest.raises(KafkaStorageError, match=f"no segment in the object store has offset {gone.start_offset}"):
            await its.read(gone.start_offset)
        its.may_skip = True
        read = await its.read(gone.start_offset)
        assert next(iter(headers(read.records))).base_offset == following.start_offset
        for segment in its.segments:
            partition.segments.pop(segment.segment_id, None)
        partition._finished = None
        assert await its.read(0) == (b"", its.log.local_log_start_offset, ())


@on_trio
async def test_a_partition_that_is_not_known_yet_is_an_error_that_clients_retry() -> None:
    async with remote(reader_module, small_log()) as its:
        its.image.forget(ABOUT.topic_id, ABOUT.partition)
        with pytest.raises(KafkaStorageError, match="nothing is known yet"):
            await its.read(0)


# Transactions and times.


def write(log: Log, producer: int, sequence: int) -> None:
    data = batch("x" * 150, producer=(producer, 0, sequence), transactional=True)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)


def end(log: Log, producer: int, *, commit: bool) -> None:
    ended = EndTxnMarker(commit=commit, coordinator_epoch=0)
    place = {"offset": 0, "leader_epoch": -1, "producer_epoch": 0}
    marker = build_marker(ended, timestamp=NOW_MS, producer_id=producer, **place)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def transactional_log() -> Log:
    """Producer 1 aborts over several segments, producer 2 commits, producer 3 aborts in the local part."""
    log = open_log(config=SMALL)
    for number in range(25):
        write(log, 1, number)
        write(log, 2, number)
    end(log, 2, commit=True)
    end(log, 1, commit=False)
    for number in range(30):
        write(log, 3, number)
    end(log, 3, commit=False)
    return log


@on_trio
async def test_aborted_transactions_are_found_in_this_segment_and_in_later_ones() -> None:
    await aborted_transactions_are_found(reader_module)


async def aborted_transactions_are_found(tier: ModuleType) -> None:
    log = transactional_log()
    whole = {
        offset: sorted((each.producer_id, each.first_offset) for each in log.aborted_transactions(offset, offset + 1))
        for offset in range(log.log_end_offset)
    }
    async with remote(tier, log) as its:
        assert len(its.segments) > 5 and sum(not each.txn_index_empty for each in its.segments) <= 2
        for offset in range(its.log.local_log_start_offset):
            read = await its.read(offset, 1, committed=True)
            assert read.next_offset == offset + 1
            assert sorted(read.aborted) == whole[offset], offset


@on_trio
async def test_an_aborted_transaction_is_found_although_its_marker_leaves_the_disk_meanwhile() -> None:
    await an_aborted_transaction_is_found_while_its_marker_leaves_the_disk(reader_module)


async def an_aborted_transaction_is_found_while_its_marker_leaves_the_disk(tier: ModuleType) -> None:
    log = open_log(config=SMALL)
    for number in range(12):  # of producer 3 first: its transaction is open when that of producer 1 is aborted
        write(log, 3, number)
        write(log, 1, number)
    end(log, 1, commit=False)
    for number in range(12, 24):
        write(log, 3, number)
    end(log, 3, commit=False)
    async with remote(tier, log) as its:
        assert its.log.local_log_start_offset <= its.log.log_end_offset - 1  # the last marker
        (marked,) = [segment for segment in its.segments if not segment.txn_index_empty]
        name, get = remote_segment_of(ABOUT, marked).key(ObjectSuffix.MANIFEST), its.store.get

        async def copy_and_delete_meanwhile(key: str, max_bytes: int = 1 << 30) -> memoryview:
            if key == name:
                start = its.log.local_log_start_offset
                for number in range(10):
                    its.log.append_as_leader(batch(f"{number}", "x" * 500), leader_epoch=0, now_ms=NOW_MS)
                its.log.advance_high_watermark(its.log.log_end_offset)
                copy_closed_segments(its.log, its.store, its.image)
                assert its.log.local_log_start_offset > start
            return await get(key, max_bytes)

        its.store.get = copy_and_delete_meanwhile  # type: ignore[method-assign]
        read = await its.read(0, 1, committed=True)
        assert read.aborted == ((3, 0),)


@on_trio
async def test_a_time_is_found_in_the_first_segment_that_has_it() -> None:
    log = small_log()
    every = [
        (record.timestamp, record.offset)
        for _, piece in local_pieces(log)
        for header in headers(piece)
        for record in records(piece, header)
    ]
    async with remote(reader_module, log) as its:
        place, start = RemotePlace(ABOUT, its.log), its.log.local_log_start_offset
        for wanted in (0, NOW_MS, NOW_MS + 1, NOW_MS + 155, every[start - 1][0]):
            found = await its.reader.offset_for_timestamp(place, wanted)
            assert found is not None
            assert (found.timestamp, found.offset) == min(
                (each for each in every if each[0] >= wanted), key=lambda each: each[1]
            )
        assert await its.reader.offset_for_timestamp(place, every[-1][0] + 1) is None
        its.log.delete_records_before(17)
        found = await its.reader.offset_for_timestamp(place, 0)
        assert found is not None and found.offset == 17


def asynchronous(rule: Any) -> Rule:
    """The rule of an async test. One that does not end is broken."""

    async def within_limits(module: ModuleType) -> None:
        with trio.move_on_after(2) as limit:
            await rule(module)
        assert not limit.cancelled_caught, "it does not end"

    return lambda module: trio.run(within_limits, module)


PLANTED = [
    ("self._load_ahead(reading, ranges[1:WINDOW])", "pass", several_ranges_in_flight),
    ("entry.last_stable_offset >= end", "True", aborted_transactions_are_found),
    ("segment.next_offset > reading.offset and not segment.txn_index_empty",
     "segment is reading.segment and not segment.txn_index_empty", aborted_transactions_are_found),
    ("found.update((transaction.producer_id, transaction.first_offset) for transaction in local)",
     "found.update((each.producer_id, each.first_offset) "
     "for each in its_log.aborted_transactions(its_log.local_log_start_offset, end))",
     an_aborted_transaction_is_found_while_its_marker_leaves_the_disk),
    ("not self._may_skip(about)", "not about", offsets_are_skipped_only_if_known),
    ("number, skipped = divmod(position, RANGE_BYTES)", "number, skipped = position // RANGE_BYTES, 0",
     the_bytes_are_those_of_the_log),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), PLANTED)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Any) -> None:
    assert_noticed(reader_module, right, wrong, asynchronous(rule))
