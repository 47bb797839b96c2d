"""The lane of usual Fetches: a request like the last one, but for its offsets, is recognised by its bytes and not read.

A client that reads on sends the same request again and again. What changes is the correlation id, the epoch of its
session, and what it wants of each partition that has moved:

    size · key, version · correlation id · client id, limits, session · epoch · topic · partitions · forgotten, rack
           ^^^^^^^^^^^^                    ^^^^^^^^^^^^^^^^^^^^^^^^^^           ^^^^^                ^^^^^^^^^^^^^^^
                                          the same in every request of a lane

So these are compared, and the partitions unpacked as numbers; no request, call, context or response is made, and the
answer is packed around its numbers and the file ranges. Two kinds are served: a fetch without a session, and the next
one of a session all of whose partitions are of one topic. Of 44 µs for a Fetch that leaves 15, and of 38 for each of a
thousand partitions in a session, with small reads, 25 (docs/PERFORMANCE.md).

**What is not plain leaves the lane**, and takes the usual road, byte for byte as it came: another topic, a partition
that this broker does not lead, an offset that is out of range, records that are not in memory, a fetch that has to wait
for `min_bytes`, transactions that were aborted among what is committed, followers. No error is answered from here, and
**nothing is changed before all is known**: a session goes on only when its answer is there. Whoever lets the usual road
ask more of a Fetch (who may read, and how fast) must ask it here too, or not open a lane.

A lane is made from a request that was read and answered the usual way, and whose bytes are just those that our own
encoder would write. It belongs to its connection.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from trioka.protocol.codec import encode
from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import SIZE_AND_CORRELATION_ID, SIZE_BYTES, frame_response
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.primitives import RecordBytes, counted, uvarint
from trioka.storage.layout import DamagedFile
from trioka.storage.page_cache_probe import cold_part
from trioka.storage.small_read import take

from ..config.network_keys import FETCH_MAX_BYTES
from ..counters.latency import FETCH
from ..handlers.fetch import READ_COMMITTED, READ_UNCOMMITTED, Result
from ..replication.fetch_session_cache import FINAL_EPOCH, FIRST_VERSION_BY_ID, NO_SESSION, Asked, FetchSession
from ..replication.partitions import Replica
from .fast_path import Lane

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection

FIRST_VERSION: Final = 9  # of leader epochs: from here on a partition is said in one of two ways
FIRST_FLEXIBLE_VERSION: Final = 12
FIRST_VERSION_WITHOUT_REPLICA_ID: Final = 15
MAX_PARTITIONS: Final = 16_000  # of one request, or of one answer: their number is to be said in two bytes
MAX_PREFIX_BYTES: Final = 1024
_START_BYTES: Final = 12  # size, key, version, correlation id
_EPOCH_BYTES: Final = 4
_NO_EPOCH: Final = -1

# A partition: index, leader epoch, offset, last fetched epoch, log start, most bytes, count of tags; before version 12
# there are neither last fetched epochs nor tags.
_FLEXIBLE_PARTITION: Final = Struct(">iiqiqiB")
_PLAIN_PARTITION: Final = Struct(">iiqqi")
_PLAIN_COUNT: Final = Struct(">i")

_NUMBERS: Final = Struct(">ihqqq")  # of an answer: partition, error, high watermark, last stable offset, log start
_MARKS: Final = ((0x01020304, 0, 1 << 60, 1 << 59, 1 << 58), (0x05060708, 0, 1 << 57, 1 << 56, 1 << 55))

Wanted = tuple[int, ...]  # one of these
# What is asked of a partition: who asks, in a session; index, leader epoch, offset, most bytes.
Ask = tuple[Asked | None, int, int, int, int]
# What is answered: who asked, in a session; index, high watermark, last stable offset, log start, records.
Found = tuple[Asked | None, int, int, int, int, RecordBytes | None]


class FetchLane(Lane):
    """The requests of one connection that are alike."""

    __slots__ = (
        "_answers",
        "_broker",
        "_by_id",
        "_expected",
        "_is_committed",
        "_is_flexible",
        "_limits",
        "_partition",
        "_pending",
        "_session_id",
        "_smallest",
        "_start",
        "_tail",
        "_topic",
    )

    def __init__(self, broker: "Broker", request: FetchRequest, version: int, expected: tuple[bytes, ...]) -> None:
        """`expected` are key and version, what is between correlation id and epoch, the topic, and what is behind the
        partitions."""
        self._broker = broker
        self._pending = broker.dispatch.times.pending
        (topic,) = request.topics
        self._by_id = version >= FIRST_VERSION_BY_ID
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._topic: str | bytes = topic.topic_id if self._by_id else topic.topic
        self._session_id = request.session_id
        most = min(request.max_bytes, broker.config[FETCH_MAX_BYTES])  # which only a new start changes
        self._limits = (request.max_wait_ms, request.min_bytes, most)
        self._expected, self._tail = expected[:-1], expected[-1]
        _, prefix, topic_said = self._expected
        self._start = Struct(f">i4si{len(prefix)}si{len(topic_said)}s")  # up to the number of partitions
        self._partition = _FLEXIBLE_PARTITION if self._is_flexible else _PLAIN_PARTITION
        self._smallest = self._start.size + (1 if self._is_flexible else _PLAIN_COUNT.size) + len(self._tail)
        self._is_committed = request.isolation_level == READ_COMMITTED
        self._answers = _Answers(topic, request.session_id, version, self._is_committed)

    def is_for(self, frame: memoryview) -> bool:
        kind, prefix, topic = self._expected
        said = bytes(frame[: 8 + len(prefix) + _EPOCH_BYTES + len(topic)])
        return said.startswith(kind) and said[8:].startswith(prefix) and said.endswith(topic)

    def serve(self, connection: "Connection") -> int:
        """One request at a time: answers are large, and those who fetch wait for them."""
        reader = connection.reader
        view, start = reader.view, reader.start
        if reader.end - start < self._smallest:
            return 0
        size, kind, correlation_id, prefix, epoch, topic = self._start.unpack_from(view, start)
        end = start + SIZE_BYTES + size
        if end > reader.end or size > reader.max_bytes or (kind, prefix, topic) != self._expected:
            return 0
        wanted = self._wanted(view, start + self._start.size, end)
        if wanted is None:
            return 0
        session: FetchSession | None = None
        if self._session_id != NO_SESSION:
            session = self._broker.fetch_sessions.expecting(self._session_id, epoch)
            if session is None:
                return 0
        elif epoch != FINAL_EPOCH:
            return 0
        asks = self._asks(wanted) if session is None else self._asks_of_session(session, wanted)
        if asks is None:
            return 0
        try:
            found = self._read(asks)
        except (KafkaError, OSError, DamagedFile):
            return 0
        if found is None:
            return 0
        if session is not None:
            self._go_on(session, wanted, found)
        self._pending[FETCH] += 1
        reader.start = end
        return self._answers.say(correlation_id, found, connection.outgoing)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _wanted(self, view: memoryview, at: int, end: int) -> list[Wanted] | None:
        """The partitions of a request, from their number on. None if anything is not plain: no partitions, a last
        fetched epoch, tags, the same twice, another end than those of this lane."""
        if self._is_flexible:
            count = view[at]
            at += 1
            if count >= 128:
                count += (view[at] - 1) * 128  # which is there: as many bytes as partitions must be
                at += 1
            count -= 1
        else:
            (count,) = _PLAIN_COUNT.unpack_from(view, at)
            at += _PLAIN_COUNT.size
        behind = at + count * self._partition.size
        if not 0 < count <= MAX_PARTITIONS or view[behind:end] != self._tail:
            return None
        wanted: list[Wanted] = list(self._partition.iter_unpack(view[at:behind]))
        if self._is_flexible:
            for one in wanted:
                if one[3] >= 0 or one[6]:
                    return None
        if count > 1 and len({one[0] for one in wanted}) < count:
            return None
        return wanted

    def _asks(self, wanted: list[Wanted]) -> Sequence[Ask]:
        """In the order of the request."""
        most = self._most
        return [(None, one[0], one[1], one[2], one[most]) for one in wanted]

    @property
    def _most(self) -> int:
        """Which of a partition's numbers says how many bytes it may have at most."""
        return 5 if self._is_flexible else 4

    def _asks_of_session(self, session: FetchSession, wanted: list[Wanted]) -> Sequence[Ask] | None:
        """In the order of the session. None if it is not plain: a partition that is new to it, another topic."""
        partitions, topic, most = session.partitions, self._topic, self._most
        if len(partitions) == 1:
            ((key, asked),) = partitions.items()
            one = wanted[0]
            return ((asked, one[0], one[1], one[2], one[most]),) if [key] == [(topic, it[0]) for it in wanted] else None
        news = {one[0]: one for one in wanted}
        asks: list[Ask] = []
        for (name, index), asked in partitions.items():
            if name != topic:
                return None
            new = news.pop(index, None)
            if new is not None:
                asks.append((asked, index, new[1], new[2], new[most]))
            elif asked.last_fetched_epoch >= 0:
                return None
            else:
                asks.append((asked, index, asked.current_leader_epoch, asked.fetch_offset, asked.max_bytes))
        return None if news else asks

    def _go_on(self, session: FetchSession, wanted: list[Wanted], found: Sequence[Found]) -> None:
        """All is known: the session takes note of what is asked and told, as it does on the usual road."""
        partitions, topic = session.partitions, self._topic
        for one in wanted:
            asked = partitions[topic, one[0]]
            asked.current_leader_epoch, asked.fetch_offset = one[1], one[2]
            if self._is_flexible:
                _, _, _, asked.last_fetched_epoch, asked.log_start_offset, asked.max_bytes, _ = one
            else:
                asked.last_fetched_epoch = _NO_EPOCH
                asked.log_start_offset, asked.max_bytes = one[3], one[4]
        self._broker.fetch_sessions.go_on(session, self._broker.clock.now_ms())
        for who, _, high_watermark, _, log_start, records in found:
            assert who is not None
            who.told_high_watermark, who.told_log_start_offset = high_watermark, log_start
            if records is not None and len(partitions) > 1:
                partitions[who.key] = partitions.pop(who.key)

    # -- what is found -------------------------------------------------------------------------------------------------

    def _read(self, asks: Sequence[Ask]) -> list[Found] | None:
        """As handlers/fetch.py reads, partition by partition. None if anything is not plain."""
        broker = self._broker
        max_wait_ms, min_bytes, left = self._limits
        find = broker.partitions.find_by_id if self._by_id else broker.partitions.find
        if self._by_id and broker.topic_name(self._topic) is None:  # type: ignore[arg-type]
            return None
        results: list[Found] = []
        found = 0
        several: list[tuple[Replica, int]] | None = [] if len(asks) > 1 else None  # to be counted, once all is known
        for asked, index, epoch, offset, max_bytes in asks:
            replica = find(self._topic, index)  # type: ignore[arg-type]
            if replica is None or not replica.leads or (epoch >= 0 and epoch != replica.leader_epoch):
                return None
            log = replica.log
            high_watermark, log_start = log.high_watermark, log.log_start_offset
            if not log_start <= offset <= log.log_end_offset:
                return None
            stable = log.last_stable_offset
            upto = stable if self._is_committed else high_watermark
            records: RecordBytes | None = None
            size = 0
            if offset >= upto or (left <= 0 and found):
                if asked is not None and asked.knows(high_watermark, log_start):
                    if several is not None:
                        several.append((replica, 0))
                    continue
            else:
                limit = max_bytes if max_bytes < left else left
                if (taken := take(log, offset, limit, upto)) is not None:
                    records, following = taken
                elif cold_part(log, offset, limit) is not None:
                    return None
                else:
                    part, _, following = log.read(offset, limit, upto=upto, at_least_one=not found)
                    if part is None:
                        return None
                    records = log.files.for_answer(part)
                if self._is_committed and log.aborted_transactions(offset, following):
                    return None
                size = len(records)
                found += size
                left -= size
            if several is not None:
                several.append((replica, size))
            results.append((asked, index, high_watermark, stable, log_start, records))
        if not (found and (found >= min_bytes or max_wait_ms <= 0)) or len(results) > MAX_PARTITIONS:
            return None
        assert replica is not None
        for each, size in ((replica, found),) if several is None else several:
            each.fetches += 1
            each.bytes_out += size
        return results


class _Answers:
    """The answer to the requests of a lane: cut from what the encoder writes, and packed around the numbers."""

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
            for index, error, high_watermark, stable, start in _MARKS
        ]
        said = FetchResponse.Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
        response = FetchResponse(throttle_time_ms=0, session_id=session_id, responses=[said])
        pieces = [bytes(piece) for piece in frame_response(0, response, version)]  # type: ignore[arg-type]
        first, _, second, _, self._tail = pieces
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        length = 1 if self._is_flexible else 4
        (head, middle), (between, again) = (
            piece[:-length].split(_NUMBERS.pack(*marks)) for piece, marks in zip((first, second), _MARKS, strict=True)
        )
        assert middle == again
        self._topics = head[2 * SIZE_BYTES : -length]  # up to the number of partitions
        self._head = self._topics + counted(1, self._is_flexible)
        self._middle = middle  # between the numbers and the length of the records
        self._between = between  # what ends a partition
        # For one partition, by the width of the length: size, correlation id, head, numbers, middle, length.
        numbers = _NUMBERS.format[1:]
        self._fixed_size = SIZE_BYTES + len(self._head) + _NUMBERS.size + len(middle)
        self._length(0)
        self._packs = [Struct(f">ii{len(self._head)}s{numbers}{len(middle)}s{width}s").pack for width in range(6)]

    def say(self, correlation_id: int, found: Sequence[Found], outgoing: deque[RecordBytes]) -> int:
        """Appends the pieces. How many bytes they have."""
        if len(found) > 1:
            return self._say_all(correlation_id, found, outgoing)
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

    def _say_all(self, correlation_id: int, found: Sequence[Found], outgoing: deque[RecordBytes]) -> int:
        """The same for several partitions."""
        pieces: list[RecordBytes] = []
        said, before = self._topics + counted(len(found), self._is_flexible), b""
        middle, pack = self._middle, _NUMBERS.pack
        for _, index, high_watermark, stable, log_start, records in found:
            size = 0 if records is None else len(records)
            length = self._last_length if size == self._last_size else self._length(size)
            said += before + pack(index, 0, high_watermark, stable, log_start) + middle + length
            before = self._between
            if records is not None:
                pieces.append(said)
                pieces.append(records)
                said = b""
        if said or self._tail:
            pieces.append(said + self._tail)
        size = SIZE_BYTES + sum(map(len, pieces))
        outgoing.append(SIZE_AND_CORRELATION_ID.pack(size, correlation_id))
        outgoing.extend(pieces)
        return SIZE_BYTES + size

    def _length(self, size: int) -> bytes:
        """Of the records, as it is said; the last one is kept, for it is often the next one too."""
        self._last_size, self._last_length = size, counted(size, self._is_flexible)
        return self._last_length


def lane_for(broker: "Broker", frame: memoryview, body: int, request: FetchRequest, version: int) -> FetchLane | None:
    """The lane of a request that was answered. None if it is none for a lane. Whether its bytes are what they seem is
    not guessed: the request is encoded, and they must be the same."""
    if (
        version < FIRST_VERSION
        or len(request.topics) != 1
        or not 0 < len(request.topics[0].partitions) <= MAX_PARTITIONS
        or request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
        or request.forgotten_topics_data
        or max(request.replica_id, request.replica_state.replica_id) >= 0
        or (request.rack_id and broker.replication.minds_racks)
        or (request.session_id == NO_SESSION) != (request.session_epoch == FINAL_EPOCH)
    ):
        return None
    if bytes(frame[body:]) != encode(request, version):
        return None
    flexible = version >= FIRST_FLEXIBLE_VERSION
    epoch = body + (17 if version >= FIRST_VERSION_WITHOUT_REPLICA_ID else 21)  # behind the limits and the session's id
    topic = epoch + _EPOCH_BYTES
    (wanted,) = request.topics
    topics, counted = (1, len(uvarint(len(wanted.partitions) + 1))) if flexible else (4, 4)  # the bytes of a number
    if version >= FIRST_VERSION_BY_ID:
        name = 16
    else:
        said = len(wanted.topic.encode())
        name = len(uvarint(said + 1)) + said if flexible else 2 + said
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
    return FetchLane(broker, request, version, expected)
