"""Writes logs of many gigabytes that use little disk: most of a file is a hole, which reads as zeros.

    | block of 4 KB: header, framing, zeros | hole ....... 60 KB of the one record's value ....... | block | hole ...

Each batch has 64 KB and one record, whose value consists of zeros: of its sixteen blocks only the first has other
bytes, and only that one is written. So a log of 20 GB uses 1.25 GB. Readers see no difference: batches are complete,
their CRCs are valid, and the indexes are the same as for batches from a producer.

The broker's own storage writes them into the folder of a cleanly stopped node of either broker, because both use
Kafka's file format. The topics exist already. Closing the folder marks it as cleanly stopped, with checkpoints for the
new log ends, so that neither broker recovers these logs at its start.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from measures import KIB

from trioka.protocol import batch
from trioka.protocol.record import Record
from trioka.storage.directory import LogDirectory
from trioka.storage.files.disk import FILE_MODE, Buffer, File, OsDisk, OsFile
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig

BATCH_BYTES = 64 * KIB
FRAMING_BYTES = 72  # of a batch with one record: its header, and the bytes around the value
VALUE_BYTES = BATCH_BYTES - FRAMING_BYTES
BLOCK_BYTES = 4 * KIB
ZEROS = bytes(BLOCK_BYTES)


class SparseFile(OsFile):
    """Skips writes of zeros after the end of the file, which leaves holes."""

    __slots__ = ()

    def write(self, offset: int, *buffers: Buffer) -> int:
        if offset < self.size():
            return super().write(offset, *buffers)  # existing bytes must be overwritten
        data = b"".join(buffers)
        position = 0
        while position < len(data):
            end = position + BLOCK_BYTES - (offset + position) % BLOCK_BYTES
            block = data[position:end]
            if block != ZEROS[: len(block)]:
                super().write(offset + position, block)
            position = end
        self.truncate(offset + len(data))
        return len(data)


class SparseDisk(OsDisk):
    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SparseFile(path, os.open(path, flags, FILE_MODE))


def make_sparse_logs(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write this many bytes of records, or a batch less, to each of these empty topics with one partition."""
    now_ms = time.time_ns() // 1_000_000
    directory = LogDirectory.open(SparseDisk(), str(folder), lambda _: LogConfig(), now_ms=now_ms)
    assert directory.failure is None, directory.failure
    assert directory.report.clean, f"{folder} was not stopped cleanly"
    for topic, size in sizes.items():
        _fill(directory.logs[TopicPartition(topic, 0)], size // BATCH_BYTES, now_ms)
    directory.close(broker_epoch=directory.report.broker_epoch or 0)


def _fill(log: Log, batches: int, now_ms: int) -> None:
    assert log.log_end_offset == 0, f"{log} is not empty"
    data = bytearray(batch.build([Record(offset=0, timestamp=now_ms, key=None, value=bytes(VALUE_BYTES))]))
    assert len(data) == BATCH_BYTES, len(data)
    epoch = max(log.epochs.latest_epoch, 0)
    for _ in range(batches):
        batch.assign_offset(data, 0, 0, epoch)  # as in a client's batch; the log has set its own offset
        log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
