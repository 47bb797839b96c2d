"""The parts of a simulated partition (`replication_world` uses them): logs, brokers, and the severity of faults."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from trioka.cluster.metadata import Metadata
from trioka.cluster.partition import Partition, RecoveryState
from trioka.protocol.messages.alter_partition import AlterPartitionRequest

TOPIC = "t"
UNREGISTERED = -1


class Violation(AssertionError):
    """A promise was broken."""


class Entry(NamedTuple):
    epoch: int
    value: int


class SimLog:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []  # (epoch, first offset)
        self.high_watermark = 0
        self.durable = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        """Which may be one that began here and wrote nothing."""
        return self.epochs[-1][0] if self.epochs else -1

    def begin_epoch(self, epoch: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, self.end))

    def append(self, entry: Entry) -> None:
        if self.entries and entry.epoch < self.entries[-1].epoch:
            raise Violation("I9: epochs go back in a log")
        self.begin_epoch(entry.epoch)
        self.entries.append(entry)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends."""
        for number in range(len(self.epochs) - 1, -1, -1):
            if self.epochs[number][0] <= epoch:
                following = self.epochs[number + 1][1] if number + 1 < len(self.epochs) else self.end
                return self.epochs[number][0], following
        return -1, 0

    def truncate(self, offset: int, *, keeps_epochs: bool = False) -> None:
        del self.entries[offset:]
        if not keeps_epochs:
            self.epochs = [each for each in self.epochs if each[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)
        self.durable = min(self.durable, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the brokers around the rules behave. Each True is a mistake that some broker has made once."""

    acks_at_once: bool = False
    serves_above_high_watermark: bool = False
    tells_latest_at_once: bool = False
    answers_any_epoch: bool = False
    cuts_at_high_watermark: bool = False
    cuts_once: bool = False
    keeps_epochs: bool = False
    remembers_followers: bool = False
    claims_a_clean_stop: bool = False
    hides_broker_epochs: bool = False
    leads_before_it_is_registered: bool = False


@dataclass(slots=True)
class SimBroker:
    id: int
    log: SimLog = field(default_factory=SimLog)
    life: int = 0
    is_up: bool = False
    epoch: int = UNREGISTERED  # as registered; UNREGISTERED until the controller has answered
    previous_epoch: int = UNREGISTERED  # of a clean stop
    view: Metadata = field(default_factory=Metadata)
    applied: int = 0
    leadership: Any = None
    former: Any = None
    following: tuple[int, int] | None = None  # the leader and its epoch
    waiting: list[tuple[int, int]] = field(default_factory=list)  # (end, value) of unacknowledged records
    is_fetching: bool = False
    fetches: int = 0
    paused_until: int = 0
    was_cut_in: int = UNREGISTERED  # the epoch in which it has cut its log
    is_serving: bool = False  # it has replayed its registration, and its effect on its partitions (K9)

    def flush(self) -> None:
        self.log.durable = self.log.end

    @property
    def partition(self) -> Partition | None:
        topic = self.view.topics.by_name(TOPIC)
        return None if topic is None else topic.partitions.get(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    loss: float = 0.02
    max_delay_ms: int = 60
    crash_every_ms: int = 1500
    cut_every_ms: int = 1500
    pause_every_ms: int = 3000
    flush_ms: int = 200
    clean: float = 0.2  # how many stops are in order
    is_power: bool = False
    session_ms: int = 700
    down_ms: int = 2500  # the longest absence of a broker
    straggle: float = 0.0  # the share of messages that are delayed until they are no longer expected

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            loss=random.choice([0, 0.02, 0.15]),
            max_delay_ms=random.choice([10, 60, 400]),
            crash_every_ms=random.choice([500, 1500, 4000]),
            cut_every_ms=random.choice([400, 1500, 4000]),
            pause_every_ms=random.choice([800, 3000, 9000]),
            flush_ms=random.choice([20, 200, 2000]),
            clean=random.choice([0, 0.3]),
            is_power=random.random() < 0.5,
            session_ms=random.choice([250, 700]),
            down_ms=random.choice([60, 600, 2500]),
            straggle=random.choice([0, 0.02]),
        )


def proposing(broker: SimBroker, topic_id: bytes, proposal: Any) -> AlterPartitionRequest:
    """The proposals of a leader to the controller."""
    result = AlterPartitionRequest.Topic.Partition
    epochs = zip(proposal.isr, proposal.broker_epochs, strict=True)
    partition = result(
        partition_index=0,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[
            result.NewIsrWithEpoch(broker_id=replica, broker_epoch=broker.epoch if replica == broker.id else epoch)
            for replica, epoch in epochs
        ],
        leader_recovery_state=RecoveryState.RECOVERED,
        partition_epoch=proposal.partition_epoch,
    )
    return AlterPartitionRequest(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        topics=[AlterPartitionRequest.Topic(topic_id=topic_id, partitions=[partition])],
    )
