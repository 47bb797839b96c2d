"""A partition's producers, and the offsets of the log that would be beside them."""

from types import ModuleType

from trioka.protocol.batch import BatchHeader, build, read_header
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage.producers.producer_snapshot import SnapshotFiles
from trioka.storage.producers.producer_state import CompletedTransaction, ProducerState
from trioka.testing.disks.memory_disk import MemoryDisk

DIRECTORY = "/logs/orders-0"
LAST = 2**31 - 1
DAY_MS = 86_400_000
COMMIT, ABORT = EndTxnMarker(True, 0), EndTxnMarker(False, 0)


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 1000,
    epoch: int = 0,
    offset: int = 0,
    timestamp: int = 100,
    transactional: bool = False,
) -> BatchHeader:
    records = [Record(offset, timestamp, None, b"")] if count else []
    return read_header(
        build(
            records,
            base_offset=offset,
            last_offset_delta=count - 1,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(*, producer: int = 1000, epoch: int = 0) -> BatchHeader:
    return batch(-1, producer=producer, epoch=epoch)


class Partition:
    """A producer state and the offsets of the log that would be beside it."""

    def __init__(self, storage: ModuleType, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.disk.make_directory(DIRECTORY)
        self.state: ProducerState = storage.ProducerState(SnapshotFiles.scan(self.disk, DIRECTORY))
        self.end = 0

    def write(
        self,
        sequence: int,
        count: int = 1,
        *,
        producer: int = 1000,
        epoch: int = 0,
        timestamp: int = 100,
        transactional: bool = False,
        client: bool = True,
    ) -> int:
        """The offset of the batch, from this write or from its first one."""
        header = batch(sequence, count, producer=producer, epoch=epoch, transactional=transactional)
        earlier = self.state.check(header, sequences=client)
        if earlier is not None:
            assert earlier.last_offset - earlier.first_offset == count - 1
            return earlier.first_offset
        first = self.end
        self.state.apply(header, first, timestamp)
        self.end = self.state.end_offset = first + count
        return first

    def mark(
        self, ending: EndTxnMarker, *, producer: int = 1000, epoch: int = 0, version: int = 0, timestamp: int = 100
    ) -> CompletedTransaction | None:
        header = marker(producer=producer, epoch=epoch)
        self.state.check_marker(header, ending, transaction_version=version)
        completed = self.state.apply_marker(header, ending, self.end, timestamp)
        self.end = self.state.end_offset = self.end + 1
        return completed

    def reopen(self, storage: ModuleType, log_start: int = 0, *, now_ms: int = 200) -> "Partition":
        again = Partition(storage, self.disk)
        again.state.truncate_and_reload(log_start, self.end, now_ms=now_ms, expiration_ms=DAY_MS)
        again.end = again.state.end_offset
        return again
