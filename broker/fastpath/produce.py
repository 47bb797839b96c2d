"""The fast path of Produces to one partition.

A producer sends the same request again and again, except for the correlation id, the partition, the length and the
records:

    size · key, version · correlation id · client id, acks, timeout, topic · partition · length · records · tags
           ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^                                 ^^^^
                                          the same in every request of a fast path

One `unpack_from` yields the fixed parts, which are compared; nothing is decoded, and no request, call or response
object is made. All requests for one partition that arrived together are appended by one call
(storage/batch_append.py), and their responses are packed from a template. A small Produce takes 9 µs on the general
path, 1.2 here, and 5 if it arrives alone (docs/PERFORMANCE.md).

With acks=all and followers, the responses wait until the records are committed (replication/commit_wait.py), as on the
general path. The requests of one append share one wait and one place in the connection's order of responses. If the
records cannot be committed, the error is the general path's (handlers/produce.py).

**Not eligible**, and left to the general path: another topic or client, a partition that this broker does not lead,
too few in-sync replicas, a batch that a check refuses, a failed disk, transactions, internal topics.

A fast path is made from a request that the general path has appended and whose bytes are those that our encoder would
write. It belongs to no connection: connections that send the same bytes share it.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.topics import BROKER_TOPICS
from trioka.protocol.batch import HEADER_SIZE
from trioka.protocol.codec import encoder
from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import SIZE_BYTES, frame_response
from trioka.protocol.header import client_id_and_body
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import length_prefix

from ..counters.latency import PRODUCE
from ..handlers.produce import FIRST_VERSION_WITH_IDS, FIRST_VERSION_WITH_ZSTD, template_of, uncommitted_response
from ..network.limits.charge import Charge
from ..network.limits.request_quotas import with_throttle_time
from ..replication.commit_wait import on_committed
from ..replication.partitions import ALL_REPLICAS
from .fast_path import FastPath

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Connection
    from ..network.dispatch import Route
    from ..replication.partitions import Replica
    from .coalescer import PendingBatch

MAX_FAST_PATHS: Final = 1000  # when there are more, all are discarded and made again as they are needed
MAX_PREFIX_BYTES: Final = 1024
_START_BYTES: Final = 12  # size, key, version, correlation id
_INDEX_BYTES: Final = 4

Appended = tuple[int, int]
"""A request whose records are appended: correlation id, first offset."""


class ProduceFastPath(FastPath):
    """The requests that begin with the same bytes. Made for one size of records; another size is fitted in 1 µs."""

    __slots__ = (
        "_around",
        "_batches",
        "_broker",
        "_by_id",
        "_coalescer",
        "_is_flexible",
        "_kind",
        "_length",
        "_pack_response",
        "_pending",
        "_prefix",
        "_records_at",
        "_records_size",
        "_replicas",
        "_round",
        "_size",
        "_tail",
        "_topic",
        "_unpack",
        "_unpack_tail",
        "_unpacks",
        "client_id",
        "commit_timeout_s",
        "route",
    )

    may_overtake = True

    def __init__(
        self, broker: "Broker", request: ProduceRequest, route: "Route", client_id: str, prefix: bytes, tail: bytes
    ) -> None:
        version = route.version
        (topic,) = request.topic_data
        self._broker = broker
        self._coalescer = broker.coalescer
        self._round = -1
        self._batches: dict[int, PendingBatch] = {}  # of this round, by partition
        self._pending = broker.dispatch.times.pending
        self.client_id = client_id  # which is in the prefix
        self._topic = ProduceRequest.Topic(name=topic.name, topic_id=topic.topic_id, partition_data=[])
        self._replicas: dict[int, Replica] = {}  # by partition
        self._by_id = version >= FIRST_VERSION_WITH_IDS
        self._is_flexible = version in ProduceRequest.__flexible__
        self._kind = route.key.to_bytes(2) + version.to_bytes(2)
        self._prefix = prefix  # between the correlation id and the partition
        self._tail = (tail,)  # behind the records
        self._unpack_tail = Struct(f"{len(tail)}s").unpack_from
        template = template_of(topic, version)
        self._pack_response = (template.pack, template.size, template.head, template.rest)
        self.route = route
        # How long a response may wait for the commit; None: it does not wait (acks=1).
        self.commit_timeout_s = max(request.timeout_ms, 0) / 1000 if request.acks == ALL_REPLICAS else None
        self._around = _START_BYTES - SIZE_BYTES + len(prefix) + _INDEX_BYTES + len(tail)  # length and records
        # By the width of the length: size, kind, correlation id, prefix, partition, length.
        self._unpacks = [Struct(f">i4si{len(prefix)}si{width}s") for width in range(6)]
        fitted = self._resize(_START_BYTES + len(prefix) + _INDEX_BYTES + len(tail) + HEADER_SIZE, 1 << 30)
        assert fitted

    def matches(self, frame: memoryview) -> bool:
        return bytes(frame[:4]) == self._kind and bytes(frame[8 : 8 + len(self._prefix)]) == self._prefix

    def _resize(self, size: int, max_bytes: int) -> bool:
        """Fits the fast path to frames of this size. False if it is too large, or too small for a batch."""
        left = size - self._around  # for the length and the records
        width = 4
        if self._is_flexible:
            width = 1
            while left - width + 1 >= 1 << 7 * width:  # a compact length is one more than the number of bytes
                width += 1
        records_size = left - width
        if records_size < HEADER_SIZE or size > max_bytes:
            return False
        self._size, self._records_size = size, records_size
        self._length = length_prefix(records_size, self._is_flexible)
        self._unpack, self._records_at = self._unpacks[width].unpack_from, self._unpacks[width].size
        return True

    def frame_bytes(self, records_bytes: int) -> int:
        """The size in the header of a frame with so many bytes of records."""
        if records_bytes == self._records_size:
            return self._size
        return self._around + len(length_prefix(records_bytes, self._is_flexible)) + records_bytes

    def try_serve(self, connection: "Connection") -> None:
        reader = connection.reader
        view, start, end = reader.view, reader.start, reader.end
        while end - start >= self._records_at:
            ranges: list[tuple[int, int]] = []
            frames: list[tuple[int, int]] = []  # correlation id, start of the frame
            start, index = self._parse_frames(view, start, end, reader.max_bytes, ranges, frames)
            if not ranges:
                break
            appended = self._append(connection, view, index, ranges, frames)
            if appended < len(ranges):
                start = frames[appended][1]
                break
            if connection.muted is not None:
                break
        reader.start = start

    def _parse_frames(
        self,
        view: memoryview,
        start: int,
        end: int,
        max_bytes: int,
        ranges: list[tuple[int, int]],
        frames: list[tuple[int, int]],
    ) -> tuple[int, int]:
        """Collects the next frames of this fast path that are for one partition. Returns the end of the last, and the
        partition."""
        kind, prefix, tail = self._kind, self._prefix, self._tail
        unpack_tail, tail_size = self._unpack_tail, len(tail[0])
        partition = -1
        while end - start >= self._records_at:
            size, its_kind, correlation_id, its_prefix, index, length = self._unpack(view, start)
            if size != self._size:
                if its_kind == kind and its_prefix == prefix and self._resize(size, max_bytes):
                    continue
                break
            following = start + SIZE_BYTES + size
            if (
                following > end
                or its_prefix != prefix
                or its_kind != kind
                or length != self._length
                or unpack_tail(view, following - tail_size) != tail
            ):
                break
            if index != partition:
                if ranges:
                    break
                partition = index
            ranges.append((start + self._records_at, self._records_size))
            frames.append((correlation_id, start))
            start = following
        return start, partition

    def _append(
        self,
        connection: "Connection",
        view: memoryview,
        index: int,
        ranges: list[tuple[int, int]],
        frames: list[tuple[int, int]],
    ) -> int:
        """Appends the batches up to the first that is not eligible, and responds. Returns the number of appended
        batches."""
        replica = self._replica(index)
        if replica is None:
            return 0
        began = 0.0 if self._broker.dispatch.quotas is None else perf_counter()
        try:
            offsets = replica.try_append_batches(view, ranges, self._broker.clock.now_ms())
        except (KafkaError, OSError):
            return 0
        if not offsets:
            return 0
        self._broker.purgatory.notify(replica)
        appended = [(correlation_id, offset) for (correlation_id, _), offset in zip(frames, offsets, strict=False)]
        if self.commit_timeout_s is None or replica.is_unreplicated:
            self._pending[PRODUCE] += len(offsets)
            response = self.response(replica, appended)
            if self._broker.dispatch.quotas is not None:
                response = self.charged(connection, response, len(offsets), perf_counter() - began)
            connection.respond(response)
        else:
            call = connection.begin_call(self.route, frames[0][0], len(offsets))
            if self._broker.dispatch.quotas is not None:
                call.charge = Charge.of_fast_path(len(offsets) * self._size, perf_counter() - began)
            self.respond_when_committed(replica, replica.log.log_end_offset, [(call, self, appended)])
        return len(offsets)

    def charged(self, connection: "Connection", response: bytes, requests: int, seconds: float) -> bytes:
        """The responses; the last one has the client's throttle time, if any. The requests have the size of this fast
        path and are recorded together, like one."""
        quotas = self._broker.dispatch.quotas
        if quotas is None:
            return response
        throttle_ms = quotas.charge_produce(connection, self.client_id, requests * self._size, seconds)
        return with_throttle_time(response, self.route.version, throttle_ms) if throttle_ms else response

    def response(self, replica: "Replica", appended: Sequence[Appended]) -> bytes:
        """The responses to these requests, one behind the other."""
        pack, size, head, rest = self._pack_response
        index, log_start = replica.index, replica.log.log_start_offset
        if len(appended) == 1:
            ((correlation_id, offset),) = appended
            return pack(size, correlation_id, head, index, 0, offset, -1, log_start, rest)
        return b"".join(
            [
                pack(size, correlation_id, head, index, 0, offset, -1, log_start, rest)
                for correlation_id, offset in appended
            ]
        )

    def respond_when_committed(
        self,
        replica: "Replica",
        until: int,
        waiting: "Sequence[tuple[Call, ProduceFastPath, Sequence[Appended]]]",
    ) -> None:
        """Responds to these calls when everything before `until` is committed, or cannot be."""
        assert self.commit_timeout_s is not None
        on_committed(self._broker, replica, until, self.commit_timeout_s, partial(_respond, replica, waiting))

    def error_response(
        self, replica: "Replica", call: "Call", appended: Sequence[Appended], error: KafkaError
    ) -> bytes:
        """The general path's responses to requests whose records were appended and are not committed."""
        pieces: list[bytes] = []
        for correlation_id, offset in appended:
            response = uncommitted_response(
                self._broker, call, self._topic, replica.index, offset, replica.log.log_start_offset, error
            )
            pieces += frame_response(correlation_id, response, self.route.version)  # type: ignore[arg-type]
        return b"".join(pieces)

    def try_defer(self, connection: "Connection") -> bool:
        reader = connection.reader
        start, end = reader.start, reader.end
        size = end - start - SIZE_BYTES
        if reader.own is not None or (size != self._size and not self._resize(size, reader.max_bytes)):
            return False
        size, kind, correlation_id, prefix, index, length = self._unpack(reader.view, start)
        if (size, kind, prefix, length) != (end - start - SIZE_BYTES, self._kind, self._prefix, self._length):
            return False
        if self._unpack_tail(reader.view, end - len(self._tail[0])) != self._tail:
            return False
        batch = self._batches.get(index) if self._round == self._coalescer.round else None
        if batch is None and (batch := self._new_batch(index)) is None:
            return False
        batch.ranges.append((start + self._records_at, self._records_size))
        batch.requests.append((connection, correlation_id, self))
        reader.scratch.used = end
        return True

    def _new_batch(self, index: int) -> "PendingBatch | None":
        """Where requests for this partition are collected; looked up once in a round."""
        if self._round != self._coalescer.round:
            self._round = self._coalescer.round
            self._batches.clear()
        replica = self._replica(index)
        if replica is None:
            return None
        timeout_s = None if replica.is_unreplicated else self.commit_timeout_s
        batch = self._batches[index] = self._coalescer.batch_for(replica, timeout_s)
        return batch

    def release(self) -> None:
        """A cached replica keeps its log in memory, even if its topic is deleted."""
        self._replicas.clear()
        self._batches.clear()

    def _replica(self, index: int) -> "Replica | None":
        """The partition's replica, if this broker may append to it for these requests. It is cached for as long as it
        leads: a replica that leaves this broker does not lead (replication/applier.py)."""
        replica = self._replicas.get(index)
        if replica is None or not replica.leads:
            partitions, topic = self._broker.partitions, self._topic
            replica = (
                partitions.find_by_id(topic.topic_id, index) if self._by_id else partitions.find(topic.name, index)
            )
            if replica is None or not replica.leads or replica.topic in BROKER_TOPICS:
                self._replicas.pop(index, None)
                return None
            self._replicas[index] = replica
        return replica if self.commit_timeout_s is None or replica.has_min_in_sync else None


def _respond(
    replica: "Replica",
    waiting: "Sequence[tuple[Call, ProduceFastPath, Sequence[Appended]]]",
    error: KafkaError | None,
) -> None:
    for call, fast_path, appended in waiting:
        if error is None:
            response = fast_path.response(replica, appended)
        else:
            response = fast_path.error_response(replica, call, appended, error)
        call.reply(response)


class ProduceFastPaths:
    """All Produce fast paths of a broker, by the bytes that identify them."""

    __slots__ = ("_broker", "_fast_paths")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fast_paths: dict[bytes, ProduceFastPath] = {}

    def release(self) -> None:
        for fast_path in self._fast_paths.values():
            fast_path.release()

    def fast_path_for(
        self, frame: memoryview, body: int, request: ProduceRequest, route: "Route"
    ) -> ProduceFastPath | None:
        """The fast path of a request whose records were appended; None if it is not eligible. The request is encoded
        and compared with the frame, so that its bytes are known to be what they seem."""
        version = route.version
        if version < FIRST_VERSION_WITH_ZSTD or request.transactional_id is not None or len(request.topic_data) != 1:
            return None
        if len(request.topic_data[0].partition_data) != 1:
            return None
        pieces = [bytes(piece) for piece in encoder(ProduceRequest, version)(request, bytearray())]  # type: ignore[arg-type]
        if bytes(frame[body:]) != b"".join(pieces):
            return None
        before, records, tail = pieces if len(pieces) == 3 else (*pieces, b"")
        is_flexible = version in ProduceRequest.__flexible__
        prefix = bytes(frame[8:body]) + before[: -len(length_prefix(len(records), is_flexible)) - _INDEX_BYTES]
        if len(prefix) > MAX_PREFIX_BYTES:
            return None
        key = bytes(frame[:4]) + prefix
        fast_path = self._fast_paths.get(key)
        if fast_path is None:
            if len(self._fast_paths) >= MAX_FAST_PATHS:
                self._fast_paths.clear()
            client_id, _ = client_id_and_body(frame, route.is_flexible)
            name = "" if client_id is None else str(client_id, "utf-8")
            fast_path = self._fast_paths[key] = ProduceFastPath(self._broker, request, route, name, prefix, tail)
        return fast_path
