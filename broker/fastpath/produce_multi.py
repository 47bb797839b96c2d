"""The lane of wide Produces: several partitions of one topic in a request, and several such requests at a time.

A client that writes to many partitions sends requests that begin alike, as those of the narrow lane do
(fastpath/produce.py), and carry a batch for each of some partitions:

    size · key, version · correlation id · client id, acks, timeout, topic · partitions · tags
           ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^                ^^^^
                                          the same in every request of a lane

Of a batch of 1 KiB, the write to its log is half of the cost: the kernel notes in each file when it was written to. So
the requests that have arrived together are taken together, and **each partition has one write for all of them**
(storage/batch_append.py). A connection in this lane receives more than one request at a time for that
(`FrameReader.ahead`).

**What is not plain leaves the lane**, as there. A batch that any check refuses is left as it came, and its request for
the usual road, which is told where it has been appended already (`Connection.appended`), and does the rest.
The requests behind it follow, so that answers keep their order. No error is answered from here. Whoever lets the usual
road ask more of a Produce must ask it here too, or not open a lane.
"""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from trioka.cluster.topics import INTERNAL_TOPICS
from trioka.protocol.batch import HEADER_SIZE
from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import SIZE_AND_CORRELATION_ID, SIZE_BYTES, FrameReader, frame_response
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.primitives import counted, read_uvarint
from trioka.protocol.record import NO_TIMESTAMP
from trioka.storage.plain_batch import NOT_PLAIN

from ..counters.latency import PRODUCE
from ..handlers.produce import FIRST_VERSION_WITH_IDS, MARKS, NUMBERS
from .fast_path import Lane

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection

LARGE_BYTES: Final = 128 * 1024
AHEAD_BYTES: Final = 4 * 1024 * 1024
"""So much is received at a time, at the most, where requests are large: of small ones many arrive together anyhow."""

BATCHES_AT_ONCE: Final = 4096
"""Nobody else is served meanwhile: after so many, a request that has come is left for the next turn."""

_FLEXIBLE_START: Final = Struct(">iBBB")  # of a partition: its index, and the size of its records in up to three bytes
_PLAIN_START: Final = Struct(">ii")
_CONTINUES: Final = 128

Place = tuple[int, int, int]  # of a partition's records in a buffer: the partition's index, position, size
Asked = tuple[int, int, list[Place]]  # of a request: its correlation id, its end, its partitions


class WideLane(Lane):
    """The requests that begin with the same bytes. Like a narrow one it belongs to no connection."""

    __slots__ = (
        "_answers",
        "_broker",
        "_expected",
        "_find",
        "_is_flexible",
        "_pending",
        "_start",
        "_tail",
        "_topic",
    )

    def __init__(
        self, broker: "Broker", topic: ProduceRequest.Topic, version: int, kind: bytes, prefix: bytes, tail: bytes
    ) -> None:
        """`kind` is key and version, `prefix` stands between the correlation id and the number of partitions, `tail`
        behind the partitions."""
        self._broker = broker
        self._pending = broker.dispatch.times.pending
        by_id = version >= FIRST_VERSION_WITH_IDS
        self._topic: str | bytes = topic.topic_id if by_id else topic.name
        self._find = broker.partitions.find_by_id if by_id else broker.partitions.find
        self._is_flexible = version in ProduceRequest.__flexible__
        self._expected = kind, prefix
        self._tail = tail
        self._start = Struct(f">i4si{len(prefix)}s")
        self._answers = WideAnswers(topic.name, topic.topic_id, version)

    def is_for(self, frame: memoryview) -> bool:
        kind, prefix = self._expected
        return bytes(frame[:4]) == kind and bytes(frame[8 : 8 + len(prefix)]) == prefix

    def serve(self, connection: "Connection") -> int:
        reader = connection.reader
        asked = self._cut(reader)
        if not asked:
            return 0
        if asked[0][1] - reader.start > LARGE_BYTES:
            reader.ahead = AHEAD_BYTES
        firsts = self._append(reader.view, asked)
        answers: list[bytes] = []
        for correlation_id, end, places in asked:
            said = [told for index, _, _ in places if (told := next(firsts[index], None)) is not None]
            if connection.appended or len(said) < len(places):
                connection.appended.append((correlation_id, self._answers.told(said)))
                continue
            answers.append(self._answers.answer(correlation_id, said))
            reader.start = end
        self._pending[PRODUCE] += len(answers)
        whole = b"".join(answers)
        if whole:
            connection.outgoing.append(whole)
        return len(whole)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _cut(self, reader: FrameReader) -> list[Asked]:
        """The requests of this lane that are complete, up to the first that is none."""
        view, start, end = reader.view, reader.start, reader.end
        tail_bytes = len(self._tail)
        asked: list[Asked] = []
        batches = 0
        while end - start >= self._start.size and batches < BATCHES_AT_ONCE:
            size, kind, correlation_id, prefix = self._start.unpack_from(view, start)
            behind = start + SIZE_BYTES + size
            if (kind, prefix) != self._expected or behind > end or size > reader.max_bytes:
                break
            if view[behind - tail_bytes : behind] != self._tail:
                break
            places = self._places(view, start + self._start.size, behind - tail_bytes)
            if places is None:
                break
            asked.append((correlation_id, behind, places))
            batches += len(places)
            start = behind
        return asked

    def _places(self, view: memoryview, at: int, end: int) -> list[Place] | None:
        """The partitions of a request, from their number on, which fill it to its end. None if anything is not plain:
        no partitions, no records, tags, the same partition twice."""
        places: list[Place] = []
        if at + HEADER_SIZE > end:
            return None
        if self._is_flexible:
            count, at = read_uvarint(view, at)
            for _ in range(count - 1):
                if at + HEADER_SIZE > end:
                    return None
                index, size, second, third = _FLEXIBLE_START.unpack_from(view, at)
                at += 5
                if size >= _CONTINUES:
                    size += (second - 1) * 128
                    at += 1
                    if second >= _CONTINUES:
                        size += (third - 1) * 16384
                        at += 1
                        if third >= _CONTINUES:
                            return None
                size -= 1
                places.append((index, at, size))
                at += size + 1
                if size < HEADER_SIZE or at > end or view[at - 1]:
                    return None
        else:
            count, at = int.from_bytes(view[at : at + 4]), at + 4
            for _ in range(count):
                if at + HEADER_SIZE > end:
                    return None
                index, size = _PLAIN_START.unpack_from(view, at)
                at += _PLAIN_START.size
                places.append((index, at, size))
                at += size
                if size < HEADER_SIZE or at > end:
                    return None
        if at != end or not places or len({one[0] for one in places}) < len(places):
            return None
        return places

    # -- what becomes of it --------------------------------------------------------------------------------------------

    def _append(self, view: memoryview, asked: list[Asked]) -> dict[int, Iterator[bytes]]:
        """By partition, what is told of its batches, as far as they were appended: one after the other."""
        by_index: dict[int, list[tuple[int, int]]] = {}
        for _, _, places in asked:
            for index, position, size in places:
                known = by_index.get(index)
                if known is None:
                    by_index[index] = [(position, size)]
                else:
                    known.append((position, size))
        find, topic, touch, say = self._find, self._topic, self._broker.delayed.touch, self._answers.say
        now_ms = self._broker.clock.now_ms()
        told: dict[int, Iterator[bytes]] = {}
        for index, its_places in by_index.items():
            replica = find(topic, index)  # type: ignore[arg-type]
            firsts: list[int] = []
            if replica is not None and replica.stands_alone and replica.topic not in INTERNAL_TOPICS:
                try:
                    if len(its_places) > 1:
                        firsts = replica.append_run(view, its_places, now_ms)
                    else:
                        ((position, size),) = its_places
                        first = replica.append_plain(view[position : position + size], now_ms)
                        firsts = [first] if first != NOT_PLAIN else firsts
                except (KafkaError, OSError):
                    pass  # which is going to be said again, and told
                if firsts:
                    touch(replica)
                    start = replica.log.log_start_offset
                    told[index] = iter([say(index, first, start) for first in firsts])
                    continue
            told[index] = iter(())
        return told


class WideAnswers:
    """What is answered: of each partition its numbers, and a rest that is the same for all. Cut from what the encoder
    writes of two."""

    __slots__ = ("_head", "_is_flexible", "_pack", "_rest", "_tail")

    def __init__(self, name: str, topic_id: bytes, version: int) -> None:
        index, *others = MARKS
        numbers = [(index + number, *others) for number in range(2)]
        told = [
            ProduceResponse.Topic.Partition(
                index=one, error_code=error, base_offset=first, log_append_time_ms=time_ms, log_start_offset=start
            )
            for one, error, first, time_ms, start in numbers
        ]
        topic = ProduceResponse.Topic(name=name, topic_id=topic_id, partition_responses=told)
        (whole,) = frame_response(0, ProduceResponse(responses=[topic]), version)
        head, behind = bytes(whole).split(NUMBERS.pack(*numbers[0]))  # type: ignore[arg-type]
        self._rest, behind = behind.split(NUMBERS.pack(*numbers[1]))
        assert behind.startswith(self._rest)
        self._tail = behind[len(self._rest) :]
        self._is_flexible = version in ProduceResponse.__flexible__
        count = counted(2, self._is_flexible)
        assert head.endswith(count)
        self._head = head[SIZE_AND_CORRELATION_ID.size : -len(count)]
        self._pack = Struct(f"{NUMBERS.format}{len(self._rest)}s").pack

    def say(self, index: int, first_offset: int, log_start_offset: int) -> bytes:
        """Of one partition."""
        return self._pack(index, 0, first_offset, NO_TIMESTAMP, log_start_offset, self._rest)

    def told(self, said: list[bytes]) -> dict[int, tuple[int, int]]:
        """The same by partition: its first offset, and where its log starts."""
        numbers = (NUMBERS.unpack_from(one) for one in said)
        return {index: (first_offset, log_start) for index, _, first_offset, _, log_start in numbers}

    def answer(self, correlation_id: int, said: list[bytes]) -> bytes:
        body = b"".join((self._head, counted(len(said), self._is_flexible), *said, self._tail))
        return SIZE_AND_CORRELATION_ID.pack(len(body) + SIZE_BYTES, correlation_id) + body
