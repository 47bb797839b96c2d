"""The lane of small Produces: a request that begins like the last one is recognised by its bytes, and not read.

A client that sends one record at a time sends the same request again and again: but for the correlation id, the
partition, the length and the records, all bytes are those of the request before.

    size · key, version · correlation id · client id, acks, timeout, topic · partition · length · records · tags
           ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^                                 ^^^^
                                          the same in every request of a lane

So these are compared, with one `unpack_from` for all of it, and nothing is decoded: no request, no call, no response is
made. All requests that arrived together and are for one partition are appended by one call (storage/batch_append.py),
and the answers, which are always the same too, are packed around their numbers. One that comes alone is appended by
itself (storage/plain_batch.py). Of 18 µs for a Produce that leaves 2, and of 20 for one that comes alone, 7
(docs/PERFORMANCE.md).

**What is not plain leaves the lane**, and takes the usual road, byte for byte as it came: another topic, another
client, a partition that this broker does not lead alone, a batch that any check refuses, a disk that fails. No error
is answered from here. Whoever lets the usual road ask more of a Produce (who may write, and how fast) must ask it here
too, or not open a lane.

A lane is made from a request that was read and answered the usual way, and whose bytes are just those that our own
encoder would write. It belongs to no connection: those who send the same bytes share it.
"""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from trioka.cluster.topics import INTERNAL_TOPICS
from trioka.protocol.batch import HEADER_SIZE
from trioka.protocol.codec import encoder
from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import SIZE_BYTES
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import counted
from trioka.storage.plain_batch import NOT_PLAIN

from ..counters.latency import PRODUCE
from ..handlers.produce import FIRST_VERSION_WITH_IDS, FIRST_VERSION_WITH_ZSTD, template_of
from .fast_path import Lane

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection
    from ..replication.partitions import Replica
    from .coalescer import Group

MAX_LANES: Final = 1000  # when there are more, all are made anew, by those who are still there
MAX_PREFIX_BYTES: Final = 1024
_START_BYTES: Final = 12  # size, key, version, correlation id
_INDEX_BYTES: Final = 4

AnswerParts = tuple[Callable[..., bytes], int, bytes, bytes]
"""Of an answer's template: how it is packed, its size, and what is before and behind its numbers."""


class ProduceLane(Lane):
    """The requests that begin with the same bytes. Made for one length of records; another one is fitted in 1 µs."""

    __slots__ = (
        "_answer",
        "_broker",
        "_by_id",
        "_groups",
        "_is_flexible",
        "_kind",
        "_length",
        "_pending",
        "_prefix",
        "_records_at",
        "_records_size",
        "_replicas",
        "_round",
        "_size",
        "_tail",
        "_together",
        "_topic",
        "_topic_id",
        "_unpack",
        "_unpack_tail",
        "_unpacks",
    )

    def __init__(
        self, broker: "Broker", topic: ProduceRequest.Topic, version: int, kind: bytes, prefix: bytes, tail: bytes
    ) -> None:
        self._broker = broker
        self._together = broker.together
        self._round = -1
        self._groups: dict[int, Group] = {}  # of this round
        self._pending = broker.dispatch.times.pending
        self._topic, self._topic_id = topic.name, topic.topic_id
        self._replicas: dict[int, Replica] = {}  # by partition
        self._by_id = version >= FIRST_VERSION_WITH_IDS
        self._is_flexible = version in ProduceRequest.__flexible__
        self._kind = kind  # key and version
        self._prefix = prefix  # from behind the correlation id to the partition
        self._tail = (tail,)  # behind the records
        self._unpack_tail = Struct(f"{len(tail)}s").unpack_from
        template = template_of(topic, version)
        self._answer: AnswerParts = (template.pack, template.size, template.head, template.rest)
        # By the width of the length: size, kind, correlation id, prefix, partition, length.
        self._unpacks = [Struct(f">i4si{len(prefix)}si{width}s") for width in range(6)]
        fitted = self._fit(_START_BYTES + len(prefix) + _INDEX_BYTES + len(tail) + HEADER_SIZE, 1 << 30)
        assert fitted

    def is_for(self, frame: memoryview) -> bool:
        return bytes(frame[:4]) == self._kind and bytes(frame[8 : 8 + len(self._prefix)]) == self._prefix

    def _fit(self, size: int, max_bytes: int) -> bool:
        """Makes it fit frames of that size. False if there are none so large, or so small."""
        around = _START_BYTES - SIZE_BYTES + len(self._prefix) + _INDEX_BYTES + len(self._tail[0])
        left = size - around  # for the length and the records
        width = 4
        if self._is_flexible:
            width = 1
            while left - width + 1 >= 1 << 7 * width:  # what is said is the length + 1
                width += 1
        records_size = left - width
        if records_size < HEADER_SIZE or size > max_bytes:
            return False
        self._size, self._records_size = size, records_size
        self._length = counted(records_size, self._is_flexible)
        self._unpack, self._records_at = self._unpacks[width].unpack_from, self._unpacks[width].size
        return True

    def serve(self, connection: "Connection") -> int:
        reader = connection.reader
        if reader.end - reader.start == SIZE_BYTES + self._size and (taken := self._serve_one(connection)):
            return taken
        view, start, end = reader.view, reader.start, reader.end
        answers = bytearray()
        while end - start >= self._records_at:
            places: list[tuple[int, int]] = []
            asked: list[tuple[int, int]] = []  # correlation id, start of the frame
            start, index = self._cut(view, start, end, reader.max_bytes, places, asked)
            if not places:
                break
            offsets, log_start = self._append(view, index, places)
            self._pending[PRODUCE] += len(offsets)
            pack, size, head, rest = self._answer
            for (correlation_id, _), offset in zip(asked, offsets, strict=False):
                answers += pack(size, correlation_id, head, index, 0, offset, -1, log_start, rest)
            if len(offsets) < len(places):
                start = asked[len(offsets)][1]
                break
        reader.start = start
        if answers:
            connection.outgoing.append(bytes(answers))
        return len(answers)

    def _serve_one(self, connection: "Connection") -> int:
        """The same for one request and nothing else, as of clients that wait for each answer: a list for each step
        would cost them more than the step."""
        reader = connection.reader
        found = self._only(reader.view, reader.start, reader.end)
        replica = None if found is None else self._replica(found[1])
        if found is None or replica is None:
            return 0
        correlation_id, index = found
        at = reader.start + self._records_at
        try:
            offset = replica.append_plain(reader.view[at : at + self._records_size], self._broker.clock.now_ms())
        except (KafkaError, OSError):
            return 0
        if offset == NOT_PLAIN:
            return 0
        self._broker.delayed.touch(replica)
        self._pending[PRODUCE] += 1
        pack, size, head, rest = self._answer
        answer = pack(size, correlation_id, head, index, 0, offset, -1, replica.log.log_start_offset, rest)
        reader.start = reader.end
        connection.outgoing.append(answer)
        return len(answer)

    def _only(self, view: memoryview, start: int, end: int) -> tuple[int, int] | None:
        """Correlation id and partition of what was received, if that is one request of this lane, of the length that it
        is made for."""
        size, kind, correlation_id, prefix, index, length = self._unpack(view, start)
        if (size, kind, prefix, length) != (end - start - SIZE_BYTES, self._kind, self._prefix, self._length):
            return None
        return (correlation_id, index) if self._unpack_tail(view, end - len(self._tail[0])) == self._tail else None

    def put_off(self, connection: "Connection") -> bool:
        """What was received, if it is one request of this lane and nothing else, is noted to be appended with those of
        others (broker/fastpath/coalescer.py)."""
        reader = connection.reader
        start, end = reader.start, reader.end
        size = end - start - SIZE_BYTES
        if reader.own is not None or (size != self._size and not self._fit(size, reader.max_bytes)):
            return False
        found = self._only(reader.view, start, end)
        if found is None:
            return False
        group = self._groups.get(found[1]) if self._round == self._together.round else None
        if group is None and (group := self._new_group(found[1])) is None:
            return False
        group[0].append((start + self._records_at, self._records_size))
        group[1].append((connection, found[0], self._answer))
        reader.scratch.used = end
        return True

    def _new_group(self, index: int) -> "Group | None":
        """Where those are noted that are for this partition; looked up once in a round."""
        if self._round != self._together.round:
            self._round = self._together.round
            self._groups.clear()
        replica = self._replica(index)
        if replica is None:
            return None
        group = self._groups[index] = self._together.group_of(replica)
        return group

    def _cut(
        self,
        view: memoryview,
        start: int,
        end: int,
        max_bytes: int,
        places: list[tuple[int, int]],
        asked: list[tuple[int, int]],
    ) -> tuple[int, int]:
        """Frames of this lane for one partition: where the records are. The end of the last, and the partition."""
        kind, prefix, tail = self._kind, self._prefix, self._tail
        unpack_tail, tail_size = self._unpack_tail, len(tail[0])
        partition = -1
        while end - start >= self._records_at:
            size, its_kind, correlation_id, its_prefix, index, length = self._unpack(view, start)
            if size != self._size:
                if its_kind == kind and its_prefix == prefix and self._fit(size, max_bytes):
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
                if places:
                    break
                partition = index
            places.append((start + self._records_at, self._records_size))
            asked.append((correlation_id, start))
            start = following
        return start, partition

    def _append(self, view: memoryview, index: int, places: list[tuple[int, int]]) -> tuple[list[int], int]:
        """The first offsets of those that were appended, and where the log starts."""
        replica = self._replica(index)
        if replica is None:
            return [], -1
        try:
            offsets = replica.append_run(view, places, self._broker.clock.now_ms())
        except (KafkaError, OSError):
            return [], -1
        if offsets:
            self._broker.delayed.touch(replica)
        return offsets, replica.log.log_start_offset

    def quiet(self) -> None:
        """A replica that is held is a log that is held, though its topic be deleted."""
        self._replicas.clear()
        self._groups.clear()

    def _replica(self, index: int) -> "Replica | None":
        """It must stand alone: nobody else has to have what is appended, whatever `acks` says. Once found it is known
        for as long as it does: one that leaves this broker does not any more (replication/applier.py)."""
        replica = self._replicas.get(index)
        if replica is not None and replica.stands_alone:
            return replica
        partitions = self._broker.partitions
        replica = partitions.find_by_id(self._topic_id, index) if self._by_id else partitions.find(self._topic, index)
        if replica is None or not replica.stands_alone or replica.topic in INTERNAL_TOPICS:
            self._replicas.pop(index, None)
            return None
        self._replicas[index] = replica
        return replica


class ProduceLanes:
    """All lanes of a broker, by the bytes by which they are recognised."""

    __slots__ = ("_broker", "_lanes")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._lanes: dict[bytes, ProduceLane] = {}

    def quiet(self) -> None:
        for lane in self._lanes.values():
            lane.quiet()

    def lane_for(self, frame: memoryview, body: int, request: ProduceRequest, version: int) -> ProduceLane | None:
        """The lane of a request for one topic, which was appended and answered. None if it is none for a lane. Whether
        its bytes are what they seem is not guessed: the request is encoded, and they must be the same."""
        (topic,) = request.topic_data
        if version < FIRST_VERSION_WITH_ZSTD or request.transactional_id is not None or len(topic.partition_data) != 1:
            return None
        if self._broker.guard.is_closed:
            return None  # an authorizer has each request asked about
        said = [bytes(piece) for piece in encoder(ProduceRequest, version)(request, bytearray())]  # type: ignore[arg-type]
        if bytes(frame[body:]) != b"".join(said):
            return None
        before, records, tail = said if len(said) == 3 else (*said, b"")
        is_flexible = version in ProduceRequest.__flexible__
        prefix = bytes(frame[8:body]) + before[: -len(counted(len(records), is_flexible)) - _INDEX_BYTES]
        kind = bytes(frame[:4])
        if len(prefix) > MAX_PREFIX_BYTES:
            return None
        lane = self._lanes.get(kind + prefix)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                self._lanes.clear()
            lane = self._lanes[kind + prefix] = ProduceLane(self._broker, topic, version, kind, prefix, tail)
        return lane
