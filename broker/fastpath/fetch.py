"""The fast path of Fetches.

A consumer sends the same request again and again, except for the correlation id, the session epoch, and the fetch
offset of each partition:

    size · key, version · correlation id · client id, limits, session · epoch · topic · partitions · forgotten, rack
           ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^           ^^^^^                ^^^^^^^^^^^^^^^
                                          the same in every request of a fast path

The fixed parts are compared, and the partitions unpacked as integers; no request, call, context or response object is
made, and the response is packed from a template around the file ranges. Two kinds are served: a fetch without a
session, and the next fetch of a session whose partitions are all of one topic. A Fetch takes 23 µs on the general path
and 8 here (docs/PERFORMANCE.md).

**Not eligible**, and left to the general path unchanged: another topic, a partition that this broker does not lead, an
offset out of range, records that are not in the page cache, a fetch that must wait for `min_bytes`, aborted
transactions in a read_committed range, the end of a partition with linearizable reads, followers, and a client that is
to be throttled (its response has no records).
The fast path never answers an error, and **has no side effect before the response is known**: a session advances only
when its response is complete. A check that is added to the general path (authorization, quotas) must be added here too,
or disable the fast path.

A fast path is made from a request that the general path has served and whose bytes are those that our encoder would
write. It belongs to its connection.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trioka.protocol.codec import encode
from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import SIZE_AND_CORRELATION_ID, SIZE_BYTES, frame_response
from trioka.protocol.header import client_id_and_body
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.primitives import RecordBytes, length_prefix, uvarint
from trioka.storage.files.layout import CorruptFile
from trioka.storage.reads.page_cache_probe import uncached_range
from trioka.storage.reads.small_read import take

from ..config.network_keys import FETCH_MAX_BYTES
from ..counters.latency import FETCH
from ..handlers.fetch import READ_COMMITTED, READ_UNCOMMITTED
from ..network.limits.request_quotas import fetch_response_bytes
from ..replication.fetch_sessions.cache import (
    FINAL_EPOCH,
    FIRST_VERSION_BY_ID,
    NO_SESSION,
    CachedPartition,
    FetchSession,
)
from ..replication.fetch_sessions.fetch_results import Result
from ..replication.partitions import Replica
from .fast_path import FastPath

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection

FIRST_VERSION: Final = 9  # with leader epochs: since then a partition has one of two layouts
FIRST_FLEXIBLE_VERSION: Final = 12
FIRST_VERSION_WITHOUT_REPLICA_ID: Final = 15
MAX_PARTITIONS: Final = 16_000  # of a request or response: a compact count has at most two bytes
MAX_PREFIX_BYTES: Final = 1024
_START_BYTES: Final = 12  # size, key, version, correlation id
_EPOCH_BYTES: Final = 4
_NO_EPOCH: Final = -1

# A partition: index, leader epoch, offset, last fetched epoch, log start offset, max bytes, count of tags. Before
# version 12 it has neither a last fetched epoch nor tags.
_FLEXIBLE_PARTITION: Final = Struct(">iiqiqiB")
_PLAIN_PARTITION: Final = Struct(">iiqqi")
_PLAIN_COUNT: Final = Struct(">i")

# Of a response: partition, error, high watermark, last stable offset, log start offset.
_RESPONSE_FIELDS: Final = Struct(">ihqqq")
_PLACEHOLDERS: Final = ((0x01020304, 0, 1 << 60, 1 << 59, 1 << 58), (0x05060708, 0, 1 << 57, 1 << 56, 1 << 55))

RequestedPartition = tuple[int, ...]  # unpacked by one of these layouts
# A read: the session's partition if there is a session, index, leader epoch, offset, max bytes.
PartitionRead = tuple[CachedPartition | None, int, int, int, int]
# Its result: the session's partition, index, high watermark, last stable offset, log start offset, records.
ReadResult = tuple[CachedPartition | None, int, int, int, int, RecordBytes | None]


class FetchFastPath(FastPath):
    """Repeated Fetches of one connection."""

    __slots__ = (
        "_answers",
        "_broker",
        "_by_id",
        "_client_id",
        "_expected",
        "_is_committed",
        "_is_flexible",
        "_limits",
        "_min_size",
        "_partition",
        "_pending",
        "_session_id",
        "_start",
        "_tail",
        "_topic",
    )

    def __init__(
        self, broker: "Broker", request: FetchRequest, version: int, client_id: str, expected: tuple[bytes, ...]
    ) -> None:
        """`expected` are the constant bytes: key and version, from behind the correlation id to the epoch, the topic,
        and behind the partitions."""
        self._broker = broker
        self._pending = broker.dispatch.times.pending
        self._client_id = client_id  # part of the prefix
        (topic,) = request.topics
        self._by_id = version >= FIRST_VERSION_BY_ID
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._topic: str | bytes = topic.topic_id if self._by_id else topic.topic
        self._session_id = request.session_id
        most = min(request.max_bytes, broker.config[FETCH_MAX_BYTES])  # a static key
        self._limits = (request.max_wait_ms, request.min_bytes, most)
        self._expected, self._tail = expected[:-1], expected[-1]
        _, prefix, encoded_topic = self._expected
        self._start = Struct(f">i4si{len(prefix)}si{len(encoded_topic)}s")  # up to the number of partitions
        self._partition = _FLEXIBLE_PARTITION if self._is_flexible else _PLAIN_PARTITION
        self._min_size = self._start.size + (1 if self._is_flexible else _PLAIN_COUNT.size) + len(self._tail)
        self._is_committed = request.isolation_level == READ_COMMITTED
        self._answers = _ResponseTemplate(topic, request.session_id, version, self._is_committed)

    def matches(self, frame: memoryview) -> bool:
        kind, prefix, topic = self._expected
        start = bytes(frame[: 8 + len(prefix) + _EPOCH_BYTES + len(topic)])
        return start.startswith(kind) and start[8:].startswith(prefix) and start.endswith(topic)

    def try_serve(self, connection: "Connection") -> None:
        """Serves one request: responses are large, and clients wait for one before they fetch again."""
        reader = connection.reader
        view, start = reader.view, reader.start
        if reader.end - start < self._min_size:
            return
        size, kind, correlation_id, prefix, epoch, topic = self._start.unpack_from(view, start)
        end = start + SIZE_BYTES + size
        if end > reader.end or size > reader.max_bytes or (kind, prefix, topic) != self._expected:
            return
        wanted = self._parse_partitions(view, start + self._start.size, end)
        if wanted is None:
            return
        session: FetchSession | None = None
        if self._session_id != NO_SESSION:
            session = self._broker.fetch_sessions.find_at_epoch(self._session_id, epoch)
            if session is None:
                return
        elif epoch != FINAL_EPOCH:
            return
        reads = self._to_reads(wanted) if session is None else self._session_reads(session, wanted)
        if reads is None:
            return
        try:
            found = self._read(connection, reads)
        except (KafkaError, OSError, CorruptFile):
            return
        if found is None:
            return
        if session is not None:
            self._update_session(session, wanted, found)
        self._pending[FETCH] += 1
        reader.start = end
        connection.outgoing_bytes += self._answers.write(correlation_id, found, connection.outgoing)

    # -- the request ---------------------------------------------------------------------------------------------------

    def _parse_partitions(self, view: memoryview, at: int, end: int) -> list[RequestedPartition] | None:
        """Parses the partitions of a request, from their count on. None if they are not eligible: no partitions, a last
        fetched epoch, tags, a duplicate, or other bytes behind them than expected."""
        if self._is_flexible:
            count = view[at]
            at += 1
            if count >= 128:
                count += (view[at] - 1) * 128  # within the buffer: each partition has some bytes
                at += 1
            count -= 1
        else:
            (count,) = _PLAIN_COUNT.unpack_from(view, at)
            at += _PLAIN_COUNT.size
        behind = at + count * self._partition.size
        if not 0 < count <= MAX_PARTITIONS or view[behind:end] != self._tail:
            return None
        wanted: list[RequestedPartition] = list(self._partition.iter_unpack(view[at:behind]))
        if self._is_flexible:
            for one in wanted:
                if one[3] >= 0 or one[6]:
                    return None
        if count > 1 and len({one[0] for one in wanted}) < count:
            return None
        return wanted

    def _to_reads(self, wanted: list[RequestedPartition]) -> Sequence[PartitionRead]:
        """The reads of a fetch without a session, in the order of the request."""
        most = self._max_bytes_index
        return [(None, one[0], one[1], one[2], one[most]) for one in wanted]

    @property
    def _max_bytes_index(self) -> int:
        """The position of max_bytes in a `RequestedPartition`."""
        return 5 if self._is_flexible else 4

    def _session_reads(self, session: FetchSession, wanted: list[RequestedPartition]) -> Sequence[PartitionRead] | None:
        """The reads of a session's partitions, in its order. None with another topic, or a new partition."""
        partitions, topic, most = session.partitions, self._topic, self._max_bytes_index
        if len(partitions) == 1:
            ((key, cached),) = partitions.items()
            one = wanted[0]
            is_same = [key] == [(topic, it[0]) for it in wanted]
            return ((cached, one[0], one[1], one[2], one[most]),) if is_same else None
        updates = {one[0]: one for one in wanted}
        reads: list[PartitionRead] = []
        for (name, index), cached in partitions.items():
            if name != topic:
                return None
            update = updates.pop(index, None)
            if update is not None:
                reads.append((cached, index, update[1], update[2], update[most]))
            elif cached.last_fetched_epoch >= 0:
                return None
            else:
                reads.append((cached, index, cached.current_leader_epoch, cached.fetch_offset, cached.max_bytes))
        return None if updates else reads

    def _update_session(
        self, session: FetchSession, wanted: list[RequestedPartition], found: Sequence[ReadResult]
    ) -> None:
        """Stores the request's offsets and the response's watermarks in the session, as the general path does."""
        partitions, topic = session.partitions, self._topic
        for one in wanted:
            cached = partitions[topic, one[0]]
            cached.current_leader_epoch, cached.fetch_offset = one[1], one[2]
            if self._is_flexible:
                _, _, _, cached.last_fetched_epoch, cached.log_start_offset, cached.max_bytes, _ = one
            else:
                cached.last_fetched_epoch = _NO_EPOCH
                cached.log_start_offset, cached.max_bytes = one[3], one[4]
        self._broker.fetch_sessions.advance(session, self._broker.clock.now_ms())
        for read, _, high_watermark, _, log_start, records in found:
            assert read is not None
            read.sent_high_watermark, read.sent_log_start_offset = high_watermark, log_start
            if records is not None and len(partitions) > 1:
                partitions[read.key] = partitions.pop(read.key)

    # -- the reads -----------------------------------------------------------------------------------------------------

    def _read(self, connection: "Connection", reads: Sequence[PartitionRead]) -> list[ReadResult] | None:
        """Reads partition by partition, as handlers/fetch.py does. None if a read is not eligible."""
        broker = self._broker
        max_wait_ms, min_bytes, left = self._limits
        quotas = broker.dispatch.quotas
        if quotas is not None:
            began, usage = perf_counter(), quotas.clients.usage(connection.principal, self._client_id)
            left, min_bytes = min(left, usage.max_fetch_bytes), min(min_bytes, usage.max_fetch_bytes)
        find = broker.partitions.find_by_id if self._by_id else broker.partitions.find
        if self._by_id and broker.topic_name(self._topic) is None:  # type: ignore[arg-type]
            return None
        results: list[ReadResult] = []
        found = 0
        several: list[tuple[Replica, int]] | None = [] if len(reads) > 1 else None  # counted once the response is known
        for cached, index, epoch, offset, max_bytes in reads:
            replica = find(self._topic, index)  # type: ignore[arg-type]
            if replica is None or not replica.leads or (epoch >= 0 and epoch != replica.leader_epoch):
                return None
            log = replica.log
            high_watermark, log_start, stable = log.high_watermark, log.log_start_offset, log.last_stable_offset
            upto = stable if self._is_committed else high_watermark
            is_outside = not log.local_log_start_offset <= offset <= log.log_end_offset
            if is_outside or (replica.is_linearizable and offset >= upto):
                return None
            records: RecordBytes | None = None
            size = 0
            if offset >= upto or (left <= 0 and found):
                if cached is not None and cached.is_up_to_date(high_watermark, log_start):
                    if several is not None:
                        several.append((replica, 0))
                    continue
            else:
                limit = max_bytes if max_bytes < left else left
                if (taken := take(log, offset, limit, upto)) is not None:
                    records, following = taken
                elif uncached_range(log, offset, limit) is not None:
                    return None
                else:
                    part, _, following = log.read(offset, limit, upto=upto, at_least_one=not found)
                    if part is None:
                        return None
                    records = log.files.for_response(part)
                is_at_end = replica.is_linearizable and following >= upto
                if is_at_end or (self._is_committed and log.aborted_transactions(offset, following)):
                    return None
                size = len(records)
                found += size
                left -= size
            if several is not None:
                several.append((replica, size))
            results.append((cached, index, high_watermark, stable, log_start, records))
        if not (found and (found >= min_bytes or max_wait_ms <= 0)) or len(results) > MAX_PARTITIONS:
            return None
        if quotas and not quotas.may_fetch(usage, fetch_response_bytes(len(results), found), perf_counter() - began):
            return None
        assert replica is not None
        for each, size in ((replica, found),) if several is None else several:
            each.fetches += 1
            each.bytes_out += size
        return results


class _ResponseTemplate:
    """The constant bytes of a fast path's responses, cut from an encoded example; the numbers are packed in between."""

    __slots__ = (
        "_between",
        "_fixed_size",
        "_head",
        "_is_flexible",
        "_last_length",
        "_last_size",
        "_middle",
        "_packs",
        "_tail",
        "_topics",
    )

    def __init__(self, topic: FetchRequest.Topic, session_id: int, version: int, is_committed: bool) -> None:
        partitions = [
            Result(
                partition_index=index,
                error_code=error,
                high_watermark=high_watermark,
                last_stable_offset=stable,
                log_start_offset=start,
                aborted_transactions=[] if is_committed else None,
                records=memoryview(b"records"),
            )
            for index, error, high_watermark, stable, start in _PLACEHOLDERS
        ]
        example = FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
        response = FetchResponse(throttle_time_ms=0, session_id=session_id, responses=[example])
        pieces = [bytes(piece) for piece in frame_response(0, response, version)]  # type: ignore[arg-type]
        first, _, second, _, self._tail = pieces
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        length = 1 if self._is_flexible else 4
        (head, middle), (between, again) = (
            piece[:-length].split(_RESPONSE_FIELDS.pack(*marks))
            for piece, marks in zip((first, second), _PLACEHOLDERS, strict=True)
        )
        assert middle == again
        self._topics = head[2 * SIZE_BYTES : -length]  # up to the number of partitions
        self._head = self._topics + length_prefix(1, self._is_flexible)
        self._middle = middle  # between the numbers and the length of the records
        self._between = between  # between the records and the next partition
        # For one partition, by the width of the length: size, correlation id, head, numbers, middle, length.
        numbers = _RESPONSE_FIELDS.format[1:]
        self._fixed_size = SIZE_BYTES + len(self._head) + _RESPONSE_FIELDS.size + len(middle)
        self._length(0)
        self._packs = [Struct(f">ii{len(self._head)}s{numbers}{len(middle)}s{width}s").pack for width in range(6)]

    def write(self, correlation_id: int, found: Sequence[ReadResult], outgoing: deque[RecordBytes]) -> int:
        """Appends the pieces of the response to `outgoing`, and returns their size."""
        if len(found) > 1:
            return self._write_all(correlation_id, found, outgoing)
        ((_, index, high_watermark, stable, log_start, records),) = found
        assert records is not None
        size = self._fixed_size + len(self._tail) + len(records)
        length = self._last_length if len(records) == self._last_size else self._length(len(records))
        size += len(length)
        outgoing.append(
            self._packs[len(length)](
                size, correlation_id, self._head, index, 0, high_watermark, stable, log_start, self._middle, length
            )
        )
        outgoing.append(records)
        if self._tail:
            outgoing.append(self._tail)
        return size + SIZE_BYTES

    def _write_all(self, correlation_id: int, found: Sequence[ReadResult], outgoing: deque[RecordBytes]) -> int:
        """The same for several partitions."""
        pieces: list[RecordBytes] = []
        buffer, before = self._topics + length_prefix(len(found), self._is_flexible), b""
        middle, pack = self._middle, _RESPONSE_FIELDS.pack
        for _, index, high_watermark, stable, log_start, records in found:
            size = 0 if records is None else len(records)
            length = self._last_length if size == self._last_size else self._length(size)
            buffer += before + pack(index, 0, high_watermark, stable, log_start) + middle + length
            before = self._between
            if records is not None:
                pieces.append(buffer)
                pieces.append(records)
                buffer = b""
        if buffer or self._tail:
            pieces.append(buffer + self._tail)
        size = SIZE_BYTES + sum(map(len, pieces))
        outgoing.append(SIZE_AND_CORRELATION_ID.pack(size, correlation_id))
        outgoing.extend(pieces)
        return SIZE_BYTES + size

    def _length(self, size: int) -> bytes:
        """The encoded length of the records. The last one is cached, because the next response often has the same."""
        self._last_size, self._last_length = size, length_prefix(size, self._is_flexible)
        return self._last_length


def fast_path_for(
    broker: "Broker", frame: memoryview, body: int, request: FetchRequest, version: int
) -> FetchFastPath | None:
    """The fast path of a request that was served; None if it is not eligible. The request is encoded and compared with
    the frame, so that the positions of its fields are known."""
    if (
        version < FIRST_VERSION
        or len(request.topics) != 1
        or not 0 < len(request.topics[0].partitions) <= MAX_PARTITIONS
        or request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
        or request.forgotten_topics_data
        or max(request.replica_id, request.replica_state.replica_id) >= 0
        or (request.rack_id and broker.replication.is_rack_aware)
        or (request.session_id == NO_SESSION) != (request.session_epoch == FINAL_EPOCH)
    ):
        return None
    if bytes(frame[body:]) != encode(request, version):
        return None
    flexible = version >= FIRST_FLEXIBLE_VERSION
    epoch = body + (17 if version >= FIRST_VERSION_WITHOUT_REPLICA_ID else 21)  # behind the limits and the session id
    topic = epoch + _EPOCH_BYTES
    (wanted,) = request.topics
    topics, counted = (1, len(uvarint(len(wanted.partitions) + 1))) if flexible else (4, 4)  # sizes of the two counts
    if version >= FIRST_VERSION_BY_ID:
        name = 16
    else:
        name_bytes = len(wanted.topic.encode())
        name = len(uvarint(name_bytes + 1)) + name_bytes if flexible else 2 + name_bytes
    partitions = topic + topics + name + counted
    size = (_FLEXIBLE_PARTITION if flexible else _PLAIN_PARTITION).size * len(wanted.partitions)
    if epoch > MAX_PREFIX_BYTES or partitions + size > len(frame):
        return None
    expected = (
        bytes(frame[:4]),
        bytes(frame[8:epoch]),
        bytes(frame[topic : topic + topics + name]),
        bytes(frame[partitions + size :]),
    )
    client_id, _ = client_id_and_body(frame, flexible)
    return FetchFastPath(broker, request, version, "" if client_id is None else str(client_id, "utf-8"), expected)
