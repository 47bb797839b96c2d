"""Logs for tests: small, in memory, and batches to put into them."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from trioka.protocol.batch import build, headers, records
from trioka.protocol.compression import Codec
from trioka.protocol.errors import CorruptMessage
from trioka.protocol.record import Record
from trioka.storage.disk import Disk
from trioka.storage.file_pool import FilePool
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_end import AppendResult
from trioka.storage.quarantine import Damage
from trioka.storage.recovery import ShutdownState
from trioka.storage.segment import Segment
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
DIRECTORY = "/logs/orders-0"
NOW_MS = 1_700_000_000_000

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=1000)
"""A segment of some ten batches, an index entry for every third."""


def batch(
    *values: str,
    key: str | None = "k",
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """As a client sends it: one record for each value. `producer` is its id, epoch and sequence."""
    made = [
        Record(base_offset + index, timestamp + index, key.encode() if key is not None else None, value.encode())
        for index, value in enumerate(values)
    ]
    return build(
        made,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )


def open_log(
    disk: Disk | None = None,
    *,
    config: LogConfig = SMALL,
    clean: bool = True,
    recovery_point: int = 0,
    log_start: int = 0,
    now_ms: int = NOW_MS,
    files: FilePool | None = None,
) -> Log:
    """The log in `DIRECTORY`, which is made if it is not there."""
    if disk is None:
        disk = files.disk if files is not None else MemoryDisk()
    if not disk.exists(DIRECTORY):
        disk.make_directory(DIRECTORY)
        disk.sync_directory("/logs")
        disk.sync_directory("/")
    stopped = ShutdownState(clean=clean, recovery_point=recovery_point, log_start_offset=log_start)
    return Log.open(files or FilePool(disk), DIRECTORY, NAME, config, stopped, now_ms=now_ms)


def reopen(log: Log, *, clean: bool = True) -> Log:
    """Close the log, and open it as the next process would."""
    log.close()
    return open_log(
        log.files.disk,
        config=log.config,
        clean=clean,
        recovery_point=log.recovery_point,
        log_start=log.log_start_offset,
    )


def append(log: Log, *values: str, epoch: int = 0, **how: object) -> AppendResult:
    return log.append_as_leader(batch(*values, **how), leader_epoch=epoch, now_ms=NOW_MS)  # type: ignore[arg-type]


def read_all(
    log: Log, offset: int | None = None, *, max_bytes: int = 1_000_000, upto: int | None = None
) -> list[Record]:
    """Every record from an offset on, read as a consumer would."""
    at = log.log_start_offset if offset is None else offset
    wanted = at
    found: list[Record] = []
    while True:
        answer = log.read(at, max_bytes, upto=upto)
        if answer.records is None:
            return found
        data = answer.records.read()
        for header in headers(data):
            found += [record for record in records(data, header) if record.offset >= wanted]
        assert answer.next_offset > at, "a read that has records goes forward"
        at = answer.next_offset


def values(log: Log, offset: int | None = None) -> list[str]:
    return [(record.value or b"").decode() for record in read_all(log, offset)]


def verify(log: Log) -> Iterator[Damage]:
    """Checks every byte of every segment again; yields (and notes) new damage. It reads all of the log, so it pauses
    after each segment, and may be abandoned there."""
    for segment in list(log.segments):
        known = log.quarantine.damages
        segment.checked.cut(0)
        end = log.segments.expected_end(segment, log.log_end_offset)
        with suppress(CorruptMessage):
            log.query(segment, partial(_check_all, end=end))
        yield from (damage for damage in log.quarantine.damages if damage not in known)


def _check_all(segment: Segment, end: int) -> None:
    segment.check(0, segment.size, end)
