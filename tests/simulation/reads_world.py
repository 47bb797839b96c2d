"""Linearizable reads of a simulated partition (`replication_world`): a client begins to read at a broker that leads, or
believes so, and the answer must have everything that was acknowledged before, and everything that an earlier read has
shown.

The code under test is `cluster/read_barrier.py` with `LeaderState.may_read`. Around it, this world does what a broker
does: followers send with each fetch what their leader had begun when it sent the response before; brokers also fetch
other partitions from each other, in sessions that say in which epoch they follow this one, or that they do not; a read
for which not everybody fetches asks the controller, by a proposal that changes nothing.

Replicas are more often cut off and less often stopped than in the world without reads, since a leader that was stopped
answers nothing. Elections from the eligible leader replicas are counted, as are those from the ISR.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulation.replication_parts import TOPIC, UNREGISTERED, FaultProfile, SimBroker, Violation, proposing
from simulation.replication_world import FetchPosition, ReplicationWorld

from trioka.cluster.leader_state import ANY_BROKER_EPOCH, Proposal
from trioka.cluster.partition import Partition
from trioka.cluster.read_barrier import NO_READ

READ_EVERY_MS = 30
READ_TIMEOUT_MS = 1500
LOOK_EVERY_MS = 5
CONFIRM_AFTER_MS = 100
OTHER_FETCH_MS = 30
NO_EPOCH = -1

Stamp = tuple[int, int]  # the leader's life, and the newest read that had begun there


@dataclass(slots=True)
class Answers:
    """What one broker knows of reads."""

    begun: int = NO_READ  # in its life
    last: dict[int, Stamp] = field(default_factory=dict)  # by leader: of the last response of the follower's session
    others: dict[int, Stamp] = field(default_factory=dict)  # of the sessions for other partitions


def profile_of(seed: int) -> FaultProfile:
    random = Random(f"reads {seed}")
    return FaultProfile(
        loss=random.choice([0, 0.02, 0.1]),
        max_delay_ms=random.choice([10, 60, 300]),
        crash_every_ms=random.choice([1500, 4000, 12_000]),
        cut_every_ms=random.choice([200, 400, 1500]),
        pause_every_ms=random.choice([800, 3000, 9000]),
        flush_ms=random.choice([20, 200, 2000]),
        clean=random.choice([0, 0.3]),
        is_power=random.random() < 0.3,
        session_ms=random.choice([250, 700]),
        down_ms=random.choice([60, 600, 2500]),
        straggle=random.choice([0, 0.02, 0.1]),
    )


class ReadsWorld(ReplicationWorld):
    def __init__(
        self, seed: int, *, profile: FaultProfile | None = None, counts_arrivals: bool = False, **mistake: Any
    ) -> None:
        """`counts_arrivals`: a mistake, a fetch counts if it arrives after the read began."""
        super().__init__(seed, profile=profile or profile_of(seed), **mistake)
        self._counts_arrivals = counts_arrivals
        self._answers = {number: Answers() for number in self.brokers}
        self.acknowledged = 0  # the end of what was acknowledged, or shown by a read
        self.reads = self.stale = 0  # answered reads, and those of a leader that was replaced meanwhile
        self.elected_from_isr = self.elected_from_elr = 0

    def run(self, chaos_ms: int, heal_ms: int) -> None:
        self._every(READ_EVERY_MS, self._read)
        super().run(chaos_ms, heal_ms)

    def _must_be_well(self, acked: int) -> None:
        super()._must_be_well(acked)
        if not self.reads:
            raise Violation("no read was answered")

    def _begin(self, broker: SimBroker) -> None:
        self._answers[broker.id] = Answers()
        super()._begin(broker)
        self._while_up(broker, OTHER_FETCH_MS, self._fetch_others)

    def _decide(self, decision: Any) -> Any:
        before = self._partition()
        replies = super()._decide(decision)
        after = self._partition()
        if after.leader not in (before.leader, UNREGISTERED):
            self.elected_from_isr += after.leader in before.isr
            self.elected_from_elr += after.leader in before.eligible_leader_replicas
        return replies

    def _acknowledge(self, broker: SimBroker, upto: int) -> None:
        reached = max((end for end, _ in broker.waiting if end <= upto), default=0)
        super()._acknowledge(broker, upto)
        self.acknowledged = max(self.acknowledged, reached)

    # -- reads ---------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """A client's read, from its beginning; it sees one broker only."""
        broker = self._any_leader()
        if broker is None or self.now < broker.paused_until:
            return
        answers = self._answers[broker.id]
        answers.begun += 1
        read, expected, life, began = answers.begun, self.acknowledged, broker.life, self.now
        asked_at = began

        def look() -> None:
            nonlocal asked_at
            if not broker.is_up or broker.life != life or self.now - began > READ_TIMEOUT_MS:
                return
            leadership = broker.leadership
            if leadership is None:
                return  # NOT_LEADER_OR_FOLLOWER
            if self.now < broker.paused_until:
                self._at(broker.paused_until, look)
            elif leadership.may_read(read, broker.log.high_watermark):
                self._answer(broker, leadership, expected, began)
            else:
                if self.now - asked_at >= CONFIRM_AFTER_MS:
                    asked_at = self.now
                    self._confirm(broker, leadership)
                self._at(self.now + LOOK_EVERY_MS, look)

        look()

    def _answer(self, broker: SimBroker, leadership: Any, expected: int, began: int) -> None:
        shown = broker.log.high_watermark
        self.reads += 1
        self.stale += leadership.leader_epoch != self._partition().leader_epoch
        if shown < expected:
            raise Violation(
                f"I18: a read at broker {broker.id}, epoch {leadership.leader_epoch}, began at {began} ms and shows "
                f"the end {shown} at {self.now} ms, and {expected} was acknowledged or shown before it began"
            )
        self.acknowledged = max(self.acknowledged, shown)

    def _confirm(self, broker: SimBroker, leadership: Any) -> None:
        asked, life = self._answers[broker.id].begun, broker.life
        proposal = Proposal(
            leader_epoch=leadership.leader_epoch,
            partition_epoch=leadership.partition_epoch,
            isr=leadership.isr,
            broker_epochs=(ANY_BROKER_EPOCH,) * len(leadership.isr),
        )

        def answer(outcome: Any) -> None:
            if isinstance(outcome, Partition) and broker.life == life and outcome.leader == broker.id:
                leadership.read_barrier.note_confirmed(leader_epoch=outcome.leader_epoch, requested=asked)

        request = proposing(broker, self.cluster.topic(TOPIC).topic_id, proposal)
        self._deliver(broker.id, 0, lambda: self._alter(broker.id, request, answer))

    # -- fetches -------------------------------------------------------------------------------------------------------

    def _arrival(
        self, broker: SimBroker, leader: SimBroker, requested: FetchPosition, answered: Callable[[Any], None]
    ) -> Callable[[], None]:
        """A fetch without an answer ends its session: the next one is sent after nothing."""
        last, number = self._answers[broker.id].last, broker.fetches
        sent_after = last.pop(leader.id, None)

        def serve() -> None:
            self._note_fetch(leader, broker.id, requested[0], sent_after)
            stamp = self._stamp(leader)

            def arrive(answer: Any) -> None:
                if broker.is_fetching and broker.fetches == number:
                    last[leader.id] = stamp
                answered(answer)

            self._serve(broker.id, leader, requested, arrive)

        return serve

    def _fetch_others(self, broker: SimBroker) -> None:
        """A fetch of other partitions, which another broker leads. This partition is in that session in the epoch that
        this broker knows, or not at all."""
        leader = self.brokers[self.random.choice([number for number in self.brokers if number != broker.id])]
        others = self._answers[broker.id].others
        sent_after, partition = others.get(leader.id), broker.partition
        epoch = partition.leader_epoch if partition is not None and self.random.random() < 0.5 else NO_EPOCH

        def serve() -> None:
            self._note_fetch(leader, broker.id, epoch, sent_after)
            stamp = self._stamp(leader)
            self._deliver(leader.id, broker.id, lambda: others.update({leader.id: stamp}))

        self._deliver(broker.id, leader.id, serve)

    def _stamp(self, leader: SimBroker) -> Stamp:
        return leader.life, self._answers[leader.id].begun

    def _note_fetch(self, leader: SimBroker, follower: int, epoch: int, sent_after: Stamp | None) -> None:
        if self._counts_arrivals:
            sent_after = self._stamp(leader)
        if leader.leadership is not None and sent_after is not None and sent_after[0] == leader.life:
            leader.leadership.read_barrier.note_fetch(follower, leader_epoch=epoch, answered=sent_after[1])
