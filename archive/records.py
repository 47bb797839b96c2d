"""Iterates over the records of one partition as a consumer would see them, with a position to go on from."""

from collections.abc import Generator, Iterator
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from trioka.protocol.batch import BatchHeader, records
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.record import Headers

from .errors import DamagedSegment, MissingObject
from .partition import ALL_OFFSETS, ALL_TIMES, ArchivedPartition, OffsetRange, TimeRange
from .ranges import ReadAhead
from .segment_reader import Batch
from .transactions import AbortedTransactions


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class ArchivedRecord(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class RecordIterator:
    """Records in the order of their offsets. `position` is the offset to go on from, whatever was skipped before it."""

    def __init__(
        self,
        partition: ArchivedPartition,
        *,
        offsets: OffsetRange = ALL_OFFSETS,
        times: TimeRange = ALL_TIMES,
        isolation: Isolation = Isolation.READ_COMMITTED,
        fail_on_data_loss: bool = True,
    ) -> None:
        self._partition = partition
        self._times = times
        self._committed = isolation is Isolation.READ_COMMITTED
        self._fail_on_data_loss = fail_on_data_loss
        limit = partition.last_stable_offset if self._committed else partition.end_offset
        self._end = limit if offsets.end is None else min(offsets.end, limit)
        self.position = partition.start_offset if offsets.start is None else offsets.start
        self._batches = self._read()
        self._records: Iterator[ArchivedRecord] = iter(())

    def __iter__(self) -> "RecordIterator":
        return self

    def __next__(self) -> ArchivedRecord:
        while True:
            for record in self._records:
                self.position = record.offset + 1
                return record
            self._records = iter(next(self._batches))

    def close(self) -> None:
        """Ends reading ahead. The iterator then has no more records."""
        self._batches.close()
        self._records = iter(())

    def batches(self) -> Iterator[list[ArchivedRecord]]:
        """The same records, batch by batch. Not together with `__next__`."""
        return self._batches

    def _read(self) -> Generator[list[ArchivedRecord], None, None]:
        """`position` moves past a batch when the next one is requested."""
        partition, end = self._partition, self._end
        offsets = OffsetRange(self.position, end)
        chosen = partition.chosen(offsets, self._times, fail_on_data_loss=self._fail_on_data_loss)
        following = dict(pairwise(chosen))
        ahead = ReadAhead(partition.ranges)
        try:
            for number in chosen:
                try:
                    yield from self._read_slice(number, ahead, following.get(number))
                except MissingObject:  # deleted since the partition was listed
                    if self._fail_on_data_loss:
                        raise
        finally:
            ahead.close()
        self.position = max(self.position, end)

    def _read_slice(
        self, number: int, ahead: ReadAhead, following: int | None
    ) -> Generator[list[ArchivedRecord], None, None]:
        partition, end = self._partition, self._end
        aborted: AbortedTransactions | None = None
        on_last = None if following is None else partial(ahead.begin, following)
        begun = ahead.take(number)
        for batch in partition.batches(number, self.position, end, begun=begun, on_last=on_last):
            header = batch.header
            if self._committed and aborted is None and header.is_transactional:
                aborted = partition.aborted(number, fail_on_data_loss=self._fail_on_data_loss)
            is_aborted = aborted is not None and aborted.has(header)
            if not header.is_control and not is_aborted and not self._is_too_old(header):
                yield self._decoded(batch)
            self.position = max(self.position, min(header.next_offset, end))

    def _is_too_old(self, header: BatchHeader) -> bool:
        return self._times.start is not None and header.max_timestamp < self._times.start

    def _decoded(self, batch: Batch) -> list[ArchivedRecord]:
        header, number = batch.header, self._partition.partition
        epoch, start, end, times = header.leader_epoch, self.position, self._end, self._times
        kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
        try:
            return [
                ArchivedRecord(number, offset, timestamp, kind, key, value, headers, epoch)
                for offset, timestamp, key, value, headers in records(batch.data, header)
                if start <= offset < end and (times is ALL_TIMES or times.has(timestamp))
            ]
        except (KafkaError, ProtocolError) as error:
            name = f"{self._partition.topic}-{number}"
            raise DamagedSegment(
                f"{name}: the batch at offset {header.base_offset} cannot be decoded: {error}"
            ) from error
