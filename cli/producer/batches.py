"""A batch of records for one partition, from its first record until the leader has acknowledged it.

Records are encoded as they are added, so a batch costs little more memory than it has on the wire. It is sealed
(compressed, numbered, with its CRC) when it is sent first; a batch that is sent again has the same bytes.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol import batch
from trioka.protocol.batch import MAX_SEQUENCE, NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader
from trioka.protocol.compression import Codec
from trioka.protocol.record import Record, encode
from trioka.protocol.record_run import RunEncoder

Pair: TypeAlias = tuple[bytes | None, bytes]  # a key, or None for the common one; and a value


class ProducerId(NamedTuple):
    id: int
    epoch: int


NO_PRODUCER: Final = ProducerId(NO_PRODUCER_ID, NO_EPOCH)


class Batch:
    def __init__(self, partition: int, number: int, codec: Codec, now: float) -> None:
        self.partition = partition
        self.number = number  # the number of records before it; batches are sent in this order
        self.opened_at = now
        self.count = 0
        self.size = batch.HEADER_SIZE  # on the wire, if not compressed
        self.sequence: int | None = None  # of its first record, once it is sent
        self.producer = NO_PRODUCER
        self.charged = 0  # of `size`, counted by the owner as memory in use
        self.attempts = 0
        self.may_be_written = False  # whether a request with it had no response that says so
        self._codec = codec
        self._pieces: list[bytes] = []
        self._base_timestamp = self._max_timestamp = 0
        self._data: bytes | None = None

    def add_values(self, encoder: RunEncoder, values: Sequence[bytes], timestamp: int) -> None:
        delta = self._delta(timestamp)
        self._add(encoder.encode_values(values, first=self.count, timestamp_delta=delta), len(values))

    def add_pairs(self, encoder: RunEncoder, pairs: Sequence[Pair], timestamp: int) -> None:
        delta = self._delta(timestamp)
        self._add(encoder.encode_pairs(pairs, first=self.count, timestamp_delta=delta), len(pairs))

    def _delta(self, timestamp: int) -> int:
        if not self.count:
            self._base_timestamp = self._max_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        return timestamp - self._base_timestamp

    def _add(self, piece: bytes, count: int) -> None:
        self._pieces.append(piece)
        self.count += count
        self.size += len(piece)

    def sealed(self) -> bytes:
        """The batch as it is sent."""
        if self._data is None:
            header = BatchHeader(
                position=0,
                size=0,
                base_offset=0,
                leader_epoch=NO_EPOCH,
                magic=batch.MAGIC,
                crc=0,
                attributes=self._codec,
                last_offset_delta=self.count - 1,
                base_timestamp=self._base_timestamp,
                max_timestamp=self._max_timestamp,
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                base_sequence=NO_SEQUENCE if self.sequence is None else self.sequence,
                record_count=self.count,
            )
            self._data = bytes(batch.seal(header, b"".join(self._pieces)))
            self._pieces = []
        return self._data

    def renumber(self) -> None:
        """Take the sequence number back: the next one is that of another producer epoch."""
        if self._data is not None:
            payload = batch.payload(self._data, batch.read_header(self._data), limit=batch.MAX_BATCH_BYTES)
            self._pieces, self._data = [payload], None
        self.producer, self.sequence = NO_PRODUCER, None

    def halves(self) -> tuple["Batch", "Batch"]:
        """The same records with the same sequence numbers, in two batches."""
        records = self._records()
        middle = len(records) // 2
        first, second = self._part(records[:middle], self.number), self._part(records[middle:], self.number + middle)
        if self.sequence is not None:
            first.sequence, second.sequence = self.sequence, (self.sequence + middle) & MAX_SEQUENCE
        return first, second

    def without(self, indexes: Collection[int]) -> "Batch":
        """The other records, to be numbered again."""
        rest = [record for index, record in enumerate(self._records()) if index not in indexes]
        return self._part(rest, self.number)

    def _records(self) -> list[Record]:
        data = self.sealed()
        return list(batch.records(data, batch.read_header(data), limit=batch.MAX_BATCH_BYTES))

    def _part(self, records: Sequence[Record], number: int) -> "Batch":
        part = Batch(self.partition, number, self._codec, self.opened_at)
        base = records[0].timestamp
        part._base_timestamp, part._max_timestamp = base, max(record.timestamp for record in records)
        for index, record in enumerate(records):
            part._add(encode(record._replace(offset=index), base_offset=0, base_timestamp=base), 1)
        part.producer, part.attempts = self.producer, self.attempts
        return part
