"""A log to be compacted, with short functions that write it and read the rest."""

from collections.abc import Sequence
from types import ModuleType

from trioka.protocol.batch import BatchHeader, build, build_marker, records
from trioka.protocol.compression import Codec
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.cleaning import cleaner
from trioka.storage.cleaning.cleaner import CleanResult
from trioka.storage.files.checkpoint import read_offsets, write_offsets
from trioka.storage.files.file_pool import FilePool
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.recovery.recovery import ShutdownState
from trioka.storage.segments.txn_index import AbortedTransaction
from trioka.testing.disks.memory_disk import MemoryDisk

DIRECTORY = "/logs/orders-0"
RECOVERY_POINTS = "/logs/recovery-point-offset-checkpoint"
NAME = TopicPartition("orders", 0)
NOW = 1_000_000
DAY_MS = 86_400_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=1_000, index_interval_bytes=100)

Pair = tuple[bytes | None, bytes | None]


class Partition:
    """A log, its recovery point in a checkpoint, and short words for writing it."""

    def __init__(self, disk: MemoryDisk | None = None, config: LogConfig = COMPACT, *, clean: bool = True) -> None:
        self.disk = disk or MemoryDisk()
        self.disk.make_directory(DIRECTORY)
        self.log = Log.open(
            FilePool(self.disk),
            DIRECTORY,
            NAME,
            config,
            ShutdownState(clean=clean, recovery_point=read_offsets(self.disk, RECOVERY_POINTS).get(NAME, 0)),
            now_ms=NOW,
            keep=self.keep,
        )
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.checkpoint: int | None = None

    def keep(self, log: Log) -> None:
        write_offsets(self.disk, RECOVERY_POINTS, {NAME: log.recovery_point})

    def close(self) -> None:
        self.log.close()
        self.keep(self.log)

    def put(
        self,
        *pairs: Pair,
        producer: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp: int = 50,
    ) -> int:
        """One batch; its first offset."""
        content = [Record(number, timestamp + number, key, value) for number, (key, value) in enumerate(pairs)]
        batch = build(
            content,
            codec=codec,
            level=level,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        origin = AppendOrigin.COORDINATOR if any(key is None for key, _ in pairs) else AppendOrigin.CLIENT
        first = self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW, origin=origin).first_offset
        self.log.advance_high_watermark(self.log.log_end_offset)
        return first

    def end(self, *, commit: bool, producer: int, epoch: int = 0) -> int:
        marker = build_marker(
            EndTxnMarker(commit, 0), offset=0, timestamp=60, leader_epoch=0, producer_id=producer, producer_epoch=epoch
        )
        first = self.log.append_as_leader(
            marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR
        ).first_offset
        self.log.advance_high_watermark(self.log.log_end_offset)
        return first

    def roll(self) -> None:
        self.log.roll(now_ms=NOW)

    def compact(
        self, storage: ModuleType = cleaner, *, now: int = NOW, again: bool = False, keys: int = 10**9
    ) -> CleanResult:
        """A round. With `again` everything counts as dirty, in spite of earlier rounds."""
        to_clean = storage.log_to_clean(self.log, None if again else self.checkpoint, now_ms=now)
        work = storage.clean(self.log, to_clean, now_ms=now, map_bytes=keys)
        while True:
            try:
                next(work)
            except StopIteration as finished:
                self.checkpoint = finished.value.first_dirty_offset
                return finished.value  # type: ignore[no-any-return]

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return [
            (found.header, list(records(found.buffer, found.header)))
            for segment in self.log.segments
            for found in segment.scan()
        ]

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every data record."""
        return [
            (record.offset, record.key, record.value)
            for header, content in self.batches()
            if not header.is_control
            for record in content
        ]

    def markers(self) -> list[int]:
        return [header.base_offset for header, content in self.batches() if header.is_control and content]

    def aborted(self) -> list[AbortedTransaction]:
        return self.log.aborted_transactions(0, 2**62)

    def names(self) -> list[str]:
        return self.disk.list(DIRECTORY)


def filled(*batches: Sequence[Pair]) -> Partition:
    """A segment for each batch, and an active one behind them."""
    partition = Partition()
    for pairs in batches:
        partition.put(*pairs)
        partition.roll()
    return partition


def committed(partition: Partition) -> dict[bytes, bytes | None]:
    """The last value of each key, as a reader of committed records finds it."""
    aborted = partition.aborted()
    values: dict[bytes, bytes | None] = {}
    for header, content in partition.batches():
        if header.is_control or any(
            header.is_transactional
            and header.producer_id == gone.producer_id
            and gone.first_offset <= header.base_offset <= gone.last_offset
            for gone in aborted
        ):
            continue
        for record in content:
            assert record.key is not None
            values[record.key] = record.value
    return values
