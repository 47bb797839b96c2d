"""The partitions of which this broker has a replica: finds a log by topic name or id.

`replication/applier.py` adds and removes partitions as the metadata changes; requests only look up. A lookup is one
dictionary access for the topic and one for the partition, because every Produce and Fetch needs it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from trioka.cluster.image.partition import Partition
from trioka.cluster.replication.leader_state import LeaderState
from trioka.protocol.batch import HEADER_SIZE
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
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.batch_append import try_append_batches
from trioka.storage.log import Log
from trioka.storage.log_end import AppendResult

from ..counters.traffic import Traffic

ALL_REPLICAS: Final = -1  # the value of `acks`
NO_EPOCH: Final = -1
NEVER_SCRUBBED: Final = 0


class Replica:
    """A partition's log on this broker, with the partition's state in the metadata.

    A leader with followers has a `leadership` (cluster/replication/leader_state.py), which determines the high
    watermark. With a single replica `is_unreplicated` is set: appended records are committed at once.
    """

    __slots__ = (
        "bytes_out",
        "deferred",
        "fetches",
        "index",
        "is_linearizable",
        "is_unreplicated",
        "leader_epoch",
        "leader_id",
        "leadership",
        "leads",
        "log",
        "max_lag_s",
        "min_in_sync",
        "now",
        "replica_count",
        "restored_epoch",
        "scrubbed_ms",
        "term",
        "topic",
        "topic_id",
    )

    def __init__(self, *, topic: str, topic_id: bytes, index: int, log: Log, now: Callable[[], float]) -> None:
        self.now = now
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.bytes_out = 0  # to clients; with `fetches`, for metrics
        self.fetches = 0
        self.leads = False
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.replica_count = 1
        self.min_in_sync = 1  # required for acks=all; at most the number of replicas
        self.leadership: LeaderState | None = None
        self.deferred: Partition | None = None  # elected to lead this, once it is restored (tier/memory_restore.py)
        self.restored_epoch = NO_EPOCH  # the leader epoch for which that was done
        self.max_lag_s = 30.0  # replica.lag.time.max.ms
        self.is_unreplicated = False  # it leads and is the only replica
        self.is_linearizable = False  # reads of the end of the log wait (replication/linearizable_reads.py)
        self.scrubbed_ms = NEVER_SCRUBBED  # when the whole log was last verified
        self.term = 0  # number of times it became leader: its log may have been truncated between two terms

    def __repr__(self) -> str:
        return f"<Replica {self.topic}-{self.index} {'leads' if self.leads else 'follows'} epoch {self.leader_epoch}>"

    def require_leader(self, epoch: int = NO_EPOCH) -> None:
        """Raise NotLeaderOrFollower if it does not lead. The client's epoch, if given, must be current."""
        self.require_epoch(epoch)
        if not self.leads:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index}: leader is {self.leader_id}")

    def require_epoch(self, epoch: int) -> None:
        """The client's leader epoch, if given, must be current (I7)."""
        if epoch != NO_EPOCH and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise FencedLeaderEpoch(
                    f"{self.topic}-{self.index}: leader epoch {epoch} instead of {self.leader_epoch}"
                )
            raise UnknownLeaderEpoch(f"{self.topic}-{self.index}: leader epoch {epoch} instead of {self.leader_epoch}")

    @property
    def wants_flush(self) -> bool:
        """flush.messages: whether records must be durable before they are read or acknowledged."""
        log = self.log
        if log.append_limits is not None:  # no flush required
            return False
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    @property
    def _own_end(self) -> int:
        """The end offset that this replica counts with: of durable records if they must be flushed."""
        return self.log.recovery_point if self.wants_flush else self.log.log_end_offset

    @property
    def in_sync(self) -> int:
        """The number of in-sync replicas that the controller has confirmed."""
        return 1 if self.leadership is None else len(self.leadership.isr)

    @property
    def has_min_in_sync(self) -> bool:
        """Whether enough replicas are in sync for an append with acks=all (min.insync.replicas)."""
        return self.is_unreplicated or self.in_sync >= self.min_in_sync

    @property
    def offsets_are_known(self) -> bool:
        """Whether the end offset may be returned: a new leader does not know its predecessor's high watermark, so it
        waits until all records that it started with are committed (I10)."""
        return self.leadership is None or self.log.high_watermark >= self.leadership.epoch_start

    def append(
        self,
        records: memoryview | bytearray,
        acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append one batch as leader. With acks=all it is rejected if too few replicas are in sync (I1).
        `commit_status` returns whether it is committed."""
        if not self.leads:
            self.require_leader()
        if acks == ALL_REPLICAS and not self.has_min_in_sync:
            raise NotEnoughReplicas(
                f"{self.topic}-{self.index}: {self.in_sync} in sync, min.insync.replicas is {self.min_in_sync}"
            )
        log = self.log
        if origin is AppendOrigin.CLIENT and len(records) >= HEADER_SIZE:
            firsts = self.try_append_batches(memoryview(records), ((0, len(records)),), now_ms)
            if firsts:
                last_offset = log.log_end_offset - 1
                return tuple.__new__(AppendResult, (firsts[0], last_offset, NO_TIMESTAMP, log.log_start_offset, False))
        appended = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        self.advance()
        return appended

    def try_append_batches(self, buffer: memoryview, ranges: Sequence[tuple[int, int]], now_ms: int) -> list[int]:
        """Append the batches in these ranges of a buffer as leader, up to the first one that is not eligible for the
        fast path (storage/batch_append.py). Returns their first offsets."""
        log = self.log
        firsts = try_append_batches(log, buffer, ranges, self.leader_epoch, now_ms)
        if firsts:
            if self.is_unreplicated:  # as in `advance`, without its checks
                log.advance_high_watermark(log.log_end_offset)
            else:
                self.advance()
        return firsts

    def advance(self) -> bool:
        """Advance the high watermark to what all in-sync replicas have. True if it moved: parked requests must then be
        notified."""
        log, leadership = self.log, self.leadership
        if leadership is None:
            return self.is_unreplicated and log.advance_high_watermark(self._own_end)
        offset = leadership.high_watermark(log.log_end_offset, self.min_in_sync, self.now(), self.max_lag_s)
        return offset is not None and log.advance_high_watermark(min(offset, self._own_end))

    def commit_status(self, until: int, term: int) -> KafkaError | bool:
        """The outcome of records that this replica appended in that term and that end before `until`: True if
        committed, False if not yet, or the error for the request (I1)."""
        if not self.leads or self.term != term:
            return NotLeaderOrFollower(f"{self.topic}-{self.index}: leader is {self.leader_id}")
        if self.log.high_watermark < until:
            return False
        leadership = self.leadership
        if leadership is not None and len(leadership.maximal_isr) < self.min_in_sync:
            return NotEnoughReplicasAfterAppend(f"{self.topic}-{self.index}: min.insync.replicas is {self.min_in_sync}")
        return True


class Partitions:
    def __init__(
        self, has_other_replicas: Callable[[str, bytes, int], bool] = lambda topic, topic_id, index: False
    ) -> None:
        """`has_other_replicas` returns whether other brokers have a partition; it is called if this one does not."""
        self._has_other_replicas = has_other_replicas
        self._by_name: dict[str, dict[int, Replica]] = {}
        self._by_id: dict[bytes, dict[int, Replica]] = {}
        self.departed = Traffic()  # of removed replicas

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
        if self._has_other_replicas(topic, b"", index):
            raise NotLeaderOrFollower(f"{topic}-{index} has no replica here")
        raise UnknownTopicOrPartition(f"{topic}-{index}")

    def get_by_id(self, topic_id: bytes, index: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        replica = None if replicas is None else replicas.get(index)
        if replica is not None:
            return replica
        if self._has_other_replicas("", topic_id, index):
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
