"""The partitions of which this broker has a replica: from a name or an id to its log.

What is here follows the metadata (`replication/applier.py` adds and removes); requests only look up. A lookup is one
dictionary for the topic and one for the partition, because every Produce and Fetch passes through.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from trioka.cluster.leader_state import Leadership
from trioka.protocol.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.record import NO_TIMESTAMP
from trioka.storage.append_validation import Origin
from trioka.storage.batch_append import append_run
from trioka.storage.log import Log
from trioka.storage.log_end import Appended
from trioka.storage.plain_batch import NOT_PLAIN, append_one

from ..counters.traffic import Traffic

ALL_REPLICAS: Final = -1  # what `acks` says
NO_EPOCH: Final = -1
NEVER_SCRUBBED: Final = 0


class Replica:
    """A partition's log on this broker, and what the metadata says of the partition.

    A leader that has followers keeps a `leadership` (cluster/leader_state.py), and the high watermark follows from it.
    One that is the only replica `stands_alone`: what is appended is committed, and it pays for nothing else.
    """

    __slots__ = (
        "bytes_out",
        "fetches",
        "index",
        "leader_epoch",
        "leader_id",
        "leadership",
        "leads",
        "log",
        "max_lag_s",
        "min_in_sync",
        "now",
        "reign",
        "replica_count",
        "scrubbed_ms",
        "stands_alone",
        "topic",
        "topic_id",
    )

    def __init__(self, *, topic: str, topic_id: bytes, index: int, log: Log, now: Callable[[], float]) -> None:
        self.now = now
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.bytes_out = 0  # to clients, and how often they fetched: for metrics
        self.fetches = 0
        self.leads = False
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.replica_count = 1
        self.min_in_sync = 1  # how many must be, for acks=all; never more than there are replicas
        self.leadership: Leadership | None = None
        self.max_lag_s = 30.0  # replica.lag.time.max.ms
        self.stands_alone = False  # it leads, and nobody else has to have what is appended
        self.scrubbed_ms = NEVER_SCRUBBED  # when all of its log was last compared with its checksums
        self.reign = 0  # how often it has begun to lead: in between, its log may have been cut

    def __repr__(self) -> str:
        return f"<Replica {self.topic}-{self.index} {'leads' if self.leads else 'follows'} epoch {self.leader_epoch}>"

    def must_lead(self, epoch: int = NO_EPOCH) -> None:
        """NotLeaderOrFollower if it does not; and the client's idea of the epoch, if it has one, must be ours."""
        self.must_be_of(epoch)
        if not self.leads:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index}: leader is {self.leader_id}")

    def must_be_of(self, epoch: int) -> None:
        """The client's idea of the epoch, if it has one, must be ours (I7)."""
        if epoch != NO_EPOCH and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"{self.topic}-{self.index}: epoch {epoch}, it is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"{self.topic}-{self.index}: epoch {epoch}, it is {self.leader_epoch}")

    @property
    def wants_flush(self) -> bool:
        """flush.messages: what was appended must be durable before anybody reads it or is told of it."""
        log = self.log
        if log.run_limits is not None:  # there is no such rule
            return False
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    @property
    def _own_end(self) -> int:
        """How far this replica has what it must have."""
        return self.log.recovery_point if self.wants_flush else self.log.log_end_offset

    @property
    def in_sync(self) -> int:
        """How many replicas are, as far as a leader's word counts: those that the controller knows."""
        return 1 if self.leadership is None else len(self.leadership.isr)

    @property
    def offsets_are_known(self) -> bool:
        """A new leader does not know at once what its predecessor committed: not before all that it began with is
        committed again does it say where its log ends (I10)."""
        return self.leadership is None or self.log.high_watermark >= self.leadership.epoch_start

    def append(
        self,
        records: memoryview | bytearray,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """One batch, as its leader. With acks=all it is refused if too few replicas are in sync to begin with (I1).
        Whether it is committed then, `outcome` says."""
        if not self.leads:
            self.must_lead()
        if acks == ALL_REPLICAS and not self.stands_alone and self.in_sync < self.min_in_sync:
            raise NotEnoughReplicas(f"{self.topic}-{self.index}: {self.in_sync} in sync, {self.min_in_sync} wanted")
        log = self.log
        if origin is Origin.CLIENT:
            first_offset = self.append_plain(records, now_ms)
            if first_offset != NOT_PLAIN:
                last_offset = log.log_end_offset - 1
                return tuple.__new__(Appended, (first_offset, last_offset, NO_TIMESTAMP, log.log_start_offset, False))
        appended = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        if self.stands_alone:
            log.advance_high_watermark(self._own_end)  # nobody else has to have it
        else:
            self.advance()  # nor, perhaps, for a while
        return appended

    def append_plain(self, records: memoryview | bytearray, now_ms: int) -> int:
        """The same for one that stands alone, and a batch that is plain (storage/plain_batch.py). Its first offset, or
        NOT_PLAIN."""
        if not self.stands_alone:
            return NOT_PLAIN
        log = self.log
        first_offset = append_one(log, records, self.leader_epoch, now_ms)
        if first_offset != NOT_PLAIN:
            log.advance_high_watermark(log.log_end_offset)
        return first_offset

    def append_run(self, buffer: memoryview, places: Sequence[tuple[int, int]], now_ms: int) -> list[int]:
        """Batches at these places of a buffer, as far as they are plain (storage/batch_append.py), for one that stands
        alone. Their first offsets."""
        log = self.log
        firsts = append_run(log, buffer, places, self.leader_epoch, now_ms)
        log.advance_high_watermark(log.log_end_offset)
        return firsts

    def advance(self) -> bool:
        """The high watermark goes as far as all have it who must. True if it moved: whoever waits wants to know."""
        log, leadership = self.log, self.leadership
        if leadership is None:
            return self.stands_alone and log.advance_high_watermark(self._own_end)
        offset = leadership.high_watermark(log.log_end_offset, self.min_in_sync, self.now(), self.max_lag_s)
        return offset is not None and log.advance_high_watermark(min(offset, self._own_end))

    def outcome(self, until: int, reign: int) -> KafkaError | bool:
        """What became of records that this replica appended in that reign and that end before `until`: True if they are
        committed, False if they are not yet, or why nobody will be told that they are (I1)."""
        if not self.leads or self.reign != reign:
            return NotLeaderOrFollower(f"{self.topic}-{self.index}: leader is {self.leader_id}")
        if self.log.high_watermark < until:
            return False
        leadership = self.leadership
        if leadership is not None and len(leadership.maximal_isr) < self.min_in_sync:
            return NotEnoughReplicasAfterAppend(f"{self.topic}-{self.index}: {self.min_in_sync} wanted")
        return True


class Partitions:
    def __init__(self, is_elsewhere: Callable[[str, bytes, int], bool] = lambda topic, topic_id, index: False) -> None:
        """`is_elsewhere`: whether other brokers have the partition, which is asked if this one does not."""
        self._is_elsewhere = is_elsewhere
        self._by_name: dict[str, dict[int, Replica]] = {}
        self._by_id: dict[bytes, dict[int, Replica]] = {}
        self.departed = Traffic()  # of replicas that are gone

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._by_name.values():
            yield from replicas.values()

    def get(self, topic: str, index: int) -> Replica:
        replicas = self._by_name.get(topic)
        if replicas is not None:
            replica = replicas.get(index)
            if replica is not None:
                return replica
        if self._is_elsewhere(topic, b"", index):
            raise NotLeaderOrFollower(f"{topic}-{index} has no replica here")
        raise UnknownTopicOrPartition(f"{topic}-{index}")

    def get_by_id(self, topic_id: bytes, index: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        replica = None if replicas is None else replicas.get(index)
        if replica is not None:
            return replica
        if self._is_elsewhere("", topic_id, index):
            raise NotLeaderOrFollower("there is no replica here")
        raise UnknownTopicId() if replicas is None else UnknownTopicOrPartition()

    def find(self, topic: str, index: int) -> Replica | None:
        return self._by_name.get(topic, _NONE).get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Replica | None:
        return self._by_id.get(topic_id, _NONE).get(index)

    def of_topic(self, topic: str) -> list[Replica]:
        return list(self._by_name.get(topic, _NONE).values())

    def add(self, replica: Replica) -> None:
        assert self.find(replica.topic, replica.index) is None
        replicas = self._by_name.setdefault(replica.topic, {})
        replicas[replica.index] = replica
        self._by_id[replica.topic_id] = replicas

    def remove(self, replica: Replica) -> None:
        self.departed.add(replica)
        replicas = self._by_name[replica.topic]
        del replicas[replica.index]
        if not replicas:
            del self._by_name[replica.topic], self._by_id[replica.topic_id]


_NONE: Final[dict[int, Replica]] = {}
