"""ConsumeResponses from fetched batches: records or whole batches, cut into messages of a bounded size. Pure."""

from collections.abc import Iterator
from typing import Final

import grpc

from trioka.protocol.record import Record

from ..failures import Refused
from ..v1 import log_pb2, types_pb2
from .batches import records_from, seen_batches
from .fetch import FetchedPartition

RECORD_OVERHEAD: Final = 64  # bytes of a record's fields and lengths in a message, generously
MESSAGE_OVERHEAD: Final = 1024


def record_message(record: Record) -> types_pb2.Record:
    message = types_pb2.Record(key=record.key, value=record.value, timestamp_ms=record.timestamp, offset=record.offset)
    for key, value in record.headers:
        message.headers.append(types_pb2.Header(key=_text(key), value=value))
    return message


def _text(key: str) -> str:
    """Kafka's header keys are bytes that ought to be UTF-8, Protobuf's strings are; what is not is replaced."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def record_size(record: Record) -> int:
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size += RECORD_OVERHEAD + len(key) + len(value or b"")
    return size


class MessageBuilder:
    """Cuts what was fetched into messages. `limit` is a number of records, shared by all partitions of a reader."""

    def __init__(self, *, as_batches: bool, max_bytes: int, max_message_bytes: int, limit: int) -> None:
        self._as_batches = as_batches
        self._largest = max_message_bytes - MESSAGE_OVERHEAD
        self._max_bytes = min(max_bytes, self._largest)
        self._is_limited = limit > 0
        self._left = limit
        self._records: list[types_pb2.Record] = []
        self._batches: list[memoryview] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._is_limited and self._left <= 0

    def messages(
        self, fetched: FetchedPartition, position: int, end: int | None
    ) -> Iterator[tuple[log_pb2.ConsumeResponse | None, int]]:
        """Messages with the position behind each. The last item may be None with a position: it has moved over what is
        not for the reader. What precedes something too large comes before the error."""
        if self._is_limited and self._left <= 0:  # by another partition, while this one was fetched
            return
        for header, visible in seen_batches(fetched.data, position, fetched.aborted):
            if end is not None and header.base_offset >= end:
                position = end
                break
            if visible and self._as_batches:
                if header.size > self._largest:
                    yield from self._flush(fetched, position)
                    raise self._too_large(f"the batch at offset {header.base_offset}", header.size)
                if self._size + header.size > self._max_bytes:
                    yield from self._flush(fetched, position)
                self._batches.append(fetched.data[header.position : header.position + header.size])
                self._size += header.size
                self._left -= header.record_count
            elif visible:
                for record in records_from(fetched.data, header, position, end):
                    wanted = record_size(record)
                    if self._size + wanted > self._max_bytes:
                        yield from self._flush(fetched, record.offset)
                        if wanted > self._largest:
                            raise self._too_large(f"the record at offset {record.offset}", wanted)
                    self._records.append(record_message(record))
                    self._size += wanted
                    self._left -= 1
                    if self.is_full:
                        yield from self._flush(fetched, record.offset + 1)
                        return
            position = header.next_offset if end is None else min(header.next_offset, end)
            if self.is_full:
                break
        if self._size:
            yield from self._flush(fetched, position)
        else:
            yield None, position

    def _flush(self, fetched: FetchedPartition, next_offset: int) -> Iterator[tuple[log_pb2.ConsumeResponse, int]]:
        if self._size == 0:
            return
        response = log_pb2.ConsumeResponse(
            partition=fetched.partition,
            records=self._records,
            batches=b"".join(self._batches),
            high_watermark=fetched.high_watermark,
            next_offset=next_offset,
        )
        self._records, self._batches, self._size = [], [], 0
        yield response, next_offset

    def _too_large(self, what: str, size: int) -> Refused:
        return Refused(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"{what} has {size} bytes, more than a message may have ({self._largest}; grpc.max.message.bytes)",
        )
