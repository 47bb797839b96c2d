"""The partitions of which this broker has a replica: from a name or an id to its log.

What is here follows the metadata (`replicas.py` adds and removes); requests only look up. A lookup is one dictionary
for the topic and one for the partition, because every Produce and Fetch passes through.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from trioka.protocol.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.storage.admission import Origin
from trioka.storage.log import Appended, Log
from trioka.storage.run import append_run

ALL_REPLICAS: Final = -1  # what `acks` says
NO_EPOCH: Final = -1


class Replica:
    """A partition's log on this broker, and what the metadata says of the partition."""

    __slots__ = (
        "in_sync",
        "index",
        "leader_epoch",
        "leader_id",
        "leads",
        "log",
        "min_in_sync",
        "replica_count",
        "topic",
        "topic_id",
    )

    def __init__(self, *, topic: str, topic_id: bytes, index: int, log: Log) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leads = False
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.replica_count = 1
        self.in_sync = 0  # how many replicas are
        self.min_in_sync = 1  # how many must be, for acks=all; never more than there are replicas

    def __repr__(self) -> str:
        return f"<Replica {self.topic}-{self.index} {'leads' if self.leads else 'follows'} epoch {self.leader_epoch}>"

    def must_lead(self, epoch: int = NO_EPOCH) -> None:
        """NotLeaderOrFollower if it does not; and the client's idea of the epoch, if it has one, must be ours."""
        if epoch != NO_EPOCH and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise FencedLeaderEpoch(f"{self.topic}-{self.index}: epoch {epoch}, it is {self.leader_epoch}")
            raise UnknownLeaderEpoch(f"{self.topic}-{self.index}: epoch {epoch}, it is {self.leader_epoch}")
        if not self.leads:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index}: leader is {self.leader_id}")

    @property
    def wants_flush(self) -> bool:
        """flush.messages: what was appended must be durable before it is acknowledged."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    def append(
        self,
        records: memoryview | bytearray,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """One batch, as its leader. With acks=all it is refused if too few replicas are in sync to begin with (I1)."""
        if not self.leads:
            self.must_lead()
        if acks == ALL_REPLICAS and self.in_sync < self.min_in_sync:
            raise NotEnoughReplicas(f"{self.topic}-{self.index}: {self.in_sync} in sync, {self.min_in_sync} wanted")
        log = self.log
        appended = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )
        if self.in_sync == 1 and self.min_in_sync <= 1:
            log.advance_high_watermark(log.log_end_offset)  # nobody else has to have it
        return appended

    @property
    def stands_alone(self) -> bool:
        """It leads, and nobody else has to have what is appended: whatever `acks` says, an append is all there is."""
        return self.leads and self.in_sync == 1 and self.min_in_sync <= 1

    def append_run(self, buffer: memoryview, places: Sequence[tuple[int, int]], now_ms: int) -> list[int]:
        """Batches at these places of a buffer, as far as they are plain (storage/run.py), for one that stands alone.
        Their first offsets."""
        log = self.log
        firsts = append_run(log, buffer, places, self.leader_epoch, now_ms)
        log.advance_high_watermark(log.log_end_offset)
        return firsts


class Partitions:
    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Replica]] = {}
        self._by_id: dict[bytes, dict[int, Replica]] = {}

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
        raise UnknownTopicOrPartition(f"{topic}-{index}")

    def get_by_id(self, topic_id: bytes, index: int) -> Replica:
        replicas = self._by_id.get(topic_id)
        if replicas is None:
            raise UnknownTopicId()
        replica = replicas.get(index)
        if replica is None:
            raise UnknownTopicOrPartition()
        return replica

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
        replicas = self._by_name[replica.topic]
        del replicas[replica.index]
        if not replicas:
            del self._by_name[replica.topic], self._by_id[replica.topic_id]


_NONE: Final[dict[int, Replica]] = {}
