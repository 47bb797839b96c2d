"""A partition with its replicas and their controller in one process, on a clock, a network and disks that a seed
controls.

The code under test is the production code: `cluster.leader_state` for leaders and followers, and `cluster.controller`
with its image. The world around it does what a broker does: logs, a file with the state at its stop, requests that are
late, lost or overtaken. The metadata counts as agreed upon (`raft_world` tests that); every broker
replays it in order, and late.

Every event is followed by a check of the guarantees. `truth` contains everything that any client has read, or
got an acknowledgement for; it must stay that way. The first broken guarantee raises `Violation`.

Two kinds of seed: in one, any number of processes are killed, and lose nothing; in the other, machines lose their power
and what was not on their disk, and only one at a time is not whole, which is what min.insync.replicas=2
is able to survive.
"""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from types import ModuleType
from typing import Any

from simulation.replication_parts import (
    TOPIC,
    UNREGISTERED,
    Entry,
    FaultProfile,
    Habits,
    SimBroker,
    Violation,
    proposing,
)
from support.small_cluster import CLUSTER_ID, SmallCluster, directory, registration

from trioka.cluster import leader_state as the_real_one
from trioka.cluster.image_delta import PartitionChanged
from trioka.cluster.metadata import Metadata
from trioka.cluster.partition import Partition
from trioka.protocol.errors import BY_CODE, KafkaError, RequestTimedOut
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

MIN_IN_SYNC = 2
MAX_LAG_S = 0.6
HEARTBEAT_MS = 120
FETCH_MS = 25
WATCH_MS = 300
FETCH_ENTRIES = 4
FETCH_TIMEOUT_MS = 500
ALTER_TIMEOUT_MS = 400
MAX_EVENTS = 400_000
NORMAL = Habits()

FetchPosition = tuple[int, int, int, int]  # leader epoch, offset, epoch of the last record, broker epoch


class ReplicationWorld:
    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        profile: FaultProfile | None = None,
        rules: ModuleType = the_real_one,
        habits: Habits = NORMAL,
    ) -> None:
        self.random = Random(seed)
        self.profile = profile or FaultProfile.of(seed)
        self._rules = rules
        self._habits = habits
        self.now = 0
        self._numbers = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._values = count(1)
        self.cluster = SmallCluster(brokers, seed=seed, min_insync_replicas=MIN_IN_SYNC)
        self.cluster.create(TOPIC, assignments=[list(range(1, brokers + 1))], configs={"min.insync.replicas": "2"})
        self.brokers = {n: SimBroker(n) for n in range(1, brokers + 1)}
        self.heard = dict.fromkeys(self.brokers, 0)
        self.cuts: set[tuple[int, int]] = set()
        self.is_fair = False
        self.not_whole: set[int] = set()  # brokers that have lost power, and are not back in the ISR
        self.truth: list[Entry] = []
        self.acked: dict[int, int] = {}  # value → offset
        self.latest = 0
        self.events = 0

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, chaos_ms: int, heal_ms: int) -> None:
        for broker in self.brokers.values():
            broker.life = 1  # as small_cluster has registered it
            broker.epoch = self.cluster.metadata.brokers.get(broker.id).epoch  # type: ignore[union-attr]
            self._begin(broker)
        for interval_ms, event in (
            (self.profile.crash_every_ms, self._crash_a_broker),
            (self.profile.cut_every_ms, self._isolate_a_broker),
            (self.profile.pause_every_ms, self._pause_a_broker),
        ):
            self._every(interval_ms, event, only_in_chaos=True)
        self._every(40, self._produce)
        self._every(40, self._consume)
        self._every(HEARTBEAT_MS, self._sweep)
        self._run_until(chaos_ms)
        self.is_fair = True
        self.cuts.clear()
        for broker in self.brokers.values():
            broker.paused_until = 0
            if not broker.is_up:
                self._start(broker)
        acked = len(self.acked)
        self._run_until(chaos_ms + heal_ms)
        self._must_be_well(acked)

    def _must_be_well(self, acked: int) -> None:
        partition = self._partition()
        if len(partition.isr) < len(self.brokers):
            raise Violation(f"without faults, not all replicas are in sync: {partition}")
        if len(self.acked) <= acked:
            raise Violation("nothing was acknowledged without faults")
        leader = self.brokers[partition.leader].log
        for value, offset in self.acked.items():
            if offset >= leader.end or leader.entries[offset].value != value:
                raise Violation(f"{value} was acknowledged at {offset}, and is not there")

    def _run_until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.events += 1
            if self.events > MAX_EVENTS:
                raise Violation("it never comes to rest")
        self.now = end

    def _at(self, when: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def _every(self, interval_ms: int, event: Callable[[], None], *, only_in_chaos: bool = False) -> None:
        def again() -> None:
            if not (only_in_chaos and self.is_fair):
                event()
            self._at(self.now + self.random.randrange(1, 2 * interval_ms), again)

        self._at(self.random.randrange(1, 2 * interval_ms), again)

    def _while_up(self, broker: SimBroker, interval_ms: int, event: Callable[[SimBroker], None]) -> None:
        life = broker.life

        def again() -> None:
            if broker.is_up and broker.life == life:
                if self.now >= broker.paused_until:
                    event(broker)
                self._at(self.now + self.random.randrange(1, 2 * interval_ms), again)

        self._at(self.now + self.random.randrange(1, interval_ms), again)

    def _deliver(self, source: int, target: int, event: Callable[[], None], *, is_sure: bool = False) -> None:
        """From one broker to another; 0 is the controller. Later, or never."""
        if not self.is_fair and not is_sure and self.random.random() < self.profile.loss:
            return
        delay = self.random.randrange(1, 10 if self.is_fair else self.profile.max_delay_ms)
        if not self.is_fair and self.profile.straggle and self.random.random() < self.profile.straggle:
            delay += self.random.randrange(2500)
        life = self.brokers[target].life if target else 0

        def arrive() -> None:
            if (source, target) in self.cuts:
                return
            if target:
                broker = self.brokers[target]
                if not broker.is_up or broker.life != life:
                    return
                if self.now < broker.paused_until:
                    self._at(broker.paused_until, arrive)
                    return
            event()

        self._at(self.now + delay, arrive)

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _crash_a_broker(self) -> None:
        up = [broker for broker in self.brokers.values() if broker.is_up]
        if not up:
            return
        broker = self.random.choice(up)
        if self.random.random() < self.profile.clean and broker.epoch != UNREGISTERED:
            broker.previous_epoch = broker.epoch
        elif self.profile.is_power:
            if self.not_whole - {broker.id}:
                return
            self.not_whole.add(broker.id)
            broker.log.truncate(self.random.randrange(broker.log.durable, broker.log.end + 1))
        self._stop(broker)
        down_ms = self.random.randrange(self.profile.down_ms)
        self._at(self.now + down_ms, lambda: self._start(broker) if not broker.is_up else None)

    def _isolate_a_broker(self) -> None:
        """Cuts one way or both, from another broker or from the controller; heals after a while."""
        a, b = self.random.sample([0, *self.brokers], 2)
        cuts = {(a, b)} | ({(b, a)} if self.random.random() < 0.5 else set())
        self.cuts |= cuts
        self._at(self.now + self.random.randrange(2000), lambda: self.cuts.difference_update(cuts))

    def _pause_a_broker(self) -> None:
        self.random.choice(list(self.brokers.values())).paused_until = self.now + self.random.randrange(1500)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def _stop(self, broker: SimBroker) -> None:
        broker.is_up = False
        broker.leadership = broker.former = broker.following = None
        broker.waiting.clear()

    def _start(self, broker: SimBroker) -> None:
        broker.life += 1
        broker.epoch = UNREGISTERED
        broker.view, broker.applied = Metadata(), 0
        broker.log.high_watermark = min(broker.log.high_watermark, broker.log.end)
        self._begin(broker)
        self._register(broker)

    def _begin(self, broker: SimBroker) -> None:
        broker.is_up, broker.is_fetching, broker.was_cut_in = True, False, UNREGISTERED
        broker.is_serving = self._habits.leads_before_it_is_registered
        self._while_up(broker, 20, self._apply_metadata)
        self._while_up(broker, HEARTBEAT_MS, self._heartbeat)
        self._while_up(broker, FETCH_MS, self._fetch)
        self._while_up(broker, WATCH_MS, self._watch)
        self._while_up(broker, self.profile.flush_ms, SimBroker.flush)

    def _register(self, broker: SimBroker) -> None:
        """Until it is answered."""
        life = broker.life
        request = registration(
            broker.id,
            life=life % 256,
            previous_epoch=self._previous_epoch(broker),
            cluster_id=CLUSTER_ID,
            directories=[directory(broker.id)],
        )

        def decide() -> None:
            has_session = self.now - self.heard[broker.id] < self.profile.session_ms
            try:
                decision = self.cluster.controller.register_broker(
                    request, next_offset=self.cluster.next_offset, has_session=has_session
                )
            except KafkaError:
                return
            (epoch,) = self._decide(decision)
            if broker.life == life:
                self._deliver(0, broker.id, lambda: setattr(broker, "epoch", epoch))

        def ask() -> None:
            if broker.is_up and broker.life == life and broker.epoch == UNREGISTERED:
                self._deliver(broker.id, 0, decide)
                self._at(self.now + 150, ask)

        ask()

    def _previous_epoch(self, broker: SimBroker) -> int:
        if self._habits.claims_a_clean_stop:
            known = self.cluster.metadata.brokers.get(broker.id)
            return UNREGISTERED if known is None else known.epoch
        previous, broker.previous_epoch = broker.previous_epoch, UNREGISTERED
        return previous

    # -- the controller ------------------------------------------------------------------------------------------------

    def _partition(self) -> Partition:
        return self.cluster.partition(TOPIC)

    def _decide(self, decision: Any) -> Any:
        before = self._partition()
        replies = self.cluster.do(decision)
        after = self._partition()
        if after != before:
            self.not_whole -= {replica for replica in after.isr if self._is_running(self.brokers[replica])}
            self._check_members()
        return replies

    def _sweep(self) -> None:
        for broker_id, heard in self.heard.items():
            if self.now - heard >= self.profile.session_ms:
                self._decide(self.cluster.controller.fence_broker(broker_id))

    def _heartbeat(self, broker: SimBroker) -> None:
        if broker.epoch == UNREGISTERED:
            return
        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=broker.applied - 1,
            want_fence=False,
            want_shut_down=False,
        )

        def decide() -> None:
            try:
                self._decide(self.cluster.controller.heartbeat(request))
            except KafkaError:
                self._deliver(0, broker.id, begin_again)
                return
            self.heard[broker.id] = self.now

        def begin_again() -> None:
            """Another broker has registered under this id: an earlier life of this broker, whose request came late."""
            if broker.epoch == request.broker_epoch:
                self._stop(broker)
                self._start(broker)

        self._deliver(broker.id, 0, decide)

    def _apply_metadata(self, broker: SimBroker) -> None:
        """Applies the metadata, in order."""
        upto = self.random.randrange(broker.applied, self.cluster.next_offset + 1)
        if (0, broker.id) in self.cuts:
            return
        upto = self.cluster.next_offset if self.is_fair else upto
        for offset in range(broker.applied, upto):
            for change in broker.view.replay(self.cluster.log[offset], offset, 1):
                if isinstance(change, PartitionChanged) and broker.is_serving:
                    self._follow(broker, change.after)
        broker.applied = upto
        partition = broker.partition
        if not broker.is_serving and partition is not None and broker.applied > broker.epoch != UNREGISTERED:
            broker.is_serving = True
            self._follow(broker, partition)

    def _follow(self, broker: SimBroker, partition: Partition) -> None:
        if partition.leader == broker.id:
            if broker.leadership is None or broker.leadership.leader_epoch != partition.leader_epoch:
                self._lead(broker, partition)
            else:
                broker.leadership.follow(partition)
            self._advance(broker)
        else:
            broker.former = broker.leadership or broker.former
            broker.leadership = None
            broker.waiting.clear()  # NOT_LEADER_OR_FOLLOWER
            broker.following = None if partition.leader == UNREGISTERED else (partition.leader, partition.leader_epoch)

    def _lead(self, broker: SimBroker, partition: Partition) -> None:
        former = broker.leadership or broker.former
        broker.waiting.clear()
        broker.following = None
        broker.log.begin_epoch(partition.leader_epoch)
        broker.leadership = self._rules.LeaderState(
            broker.id,
            partition,
            log_end_offset=broker.log.end,
            now=self.now / 1000,
            registered=broker.view.brokers.get,
        )
        if self._habits.remembers_followers and former is not None:
            broker.leadership.followers.update(former.followers)
        self._propose(broker, broker.leadership.recovery())

    # -- records -------------------------------------------------------------------------------------------------------

    def _any_leader(self) -> SimBroker | None:
        """Or thinks so."""
        leading = [broker for broker in self.brokers.values() if broker.leadership is not None]
        return self.random.choice(leading) if leading else None

    def _produce(self) -> None:
        broker = self._any_leader()
        if broker is None:
            return
        if self.now < broker.paused_until or len(broker.leadership.isr) < MIN_IN_SYNC:
            return  # NOT_ENOUGH_REPLICAS
        value = next(self._values)
        broker.log.append(Entry(broker.leadership.leader_epoch, value))
        broker.waiting.append((broker.log.end, value))
        if self._habits.acks_at_once:
            self._acknowledge(broker, broker.log.end)
        self._advance(broker)

    def _advance(self, broker: SimBroker) -> None:
        leadership = broker.leadership
        reached = leadership.high_watermark(broker.log.end, MIN_IN_SYNC, self.now / 1000, MAX_LAG_S)
        if reached is not None and reached > broker.log.high_watermark:
            self._reach(broker, reached)
        if len(leadership.isr) >= MIN_IN_SYNC:
            self._acknowledge(broker, broker.log.high_watermark)

    def _acknowledge(self, broker: SimBroker, upto: int) -> None:
        for end, value in [each for each in broker.waiting if each[0] <= upto]:
            broker.waiting.remove((end, value))
            self.acked[value] = end - 1
            self._show(broker, end - 1)

    def _reach(self, broker: SimBroker, high_watermark: int) -> None:
        """From here on it may be read."""
        if high_watermark > broker.log.end:
            raise Violation("I3: a high watermark beyond the log")
        for offset in range(broker.log.high_watermark, high_watermark):
            self._show(broker, offset)
        broker.log.high_watermark = high_watermark

    def _show(self, broker: SimBroker, offset: int) -> None:
        entry = broker.log.entries[offset]
        if offset < len(self.truth):
            if self.truth[offset] != entry:
                raise Violation(f"I11: {self.truth[offset]} and {entry} were both shown at {offset}")
        else:
            self.truth += broker.log.entries[len(self.truth) : offset + 1]
            self._check_members()

    def _consume(self) -> None:
        """A client reads from a broker that leads, or believes so."""
        broker = self._any_leader()
        if broker is None:
            return
        upto = broker.log.end if self._habits.serves_above_high_watermark else broker.log.high_watermark
        for offset in range(max(upto - 3, 0), upto):
            self._show(broker, offset)
        is_current = broker.leadership.leader_epoch == self._partition().leader_epoch
        may_tell = broker.log.high_watermark >= broker.leadership.epoch_start or self._habits.tells_latest_at_once
        if is_current and may_tell:
            if broker.log.high_watermark < self.latest:
                raise Violation("I10: the latest offset goes back")
            self.latest = broker.log.high_watermark

    # -- following -----------------------------------------------------------------------------------------------------

    def _fetch(self, broker: SimBroker) -> None:
        if broker.following is None or broker.is_fetching or broker.epoch == UNREGISTERED:
            return
        leader_id, leader_epoch = broker.following
        log = broker.log
        if self._habits.cuts_at_high_watermark and broker.was_cut_in != leader_epoch:
            broker.was_cut_in = leader_epoch
            self._cut(broker, log.high_watermark)
        requested = (leader_epoch, log.end, log.last_epoch, broker.epoch)
        broker.is_fetching = True
        broker.fetches += 1
        number = broker.fetches

        def is_due() -> bool:
            """False for a response that took too long: its connection was given up."""
            return broker.is_fetching and broker.fetches == number

        def done() -> None:
            if is_due():
                broker.is_fetching = False

        self._at(self.now + FETCH_TIMEOUT_MS, done)

        def answered(answer: Any) -> None:
            if not is_due():
                return
            done()
            is_same = broker.following == (leader_id, leader_epoch) or self._habits.answers_any_epoch
            if is_same and broker.following is not None and log.end == requested[1]:
                self._take(broker, leader_epoch, *answer)

        self._deliver(broker.id, leader_id, self._arrival(broker, self.brokers[leader_id], requested, answered))

    def _arrival(
        self, broker: SimBroker, leader: SimBroker, requested: FetchPosition, answered: Callable[[Any], None]
    ) -> Callable[[], None]:
        return lambda: self._serve(broker.id, leader, requested, answered)

    def _serve(self, asker: int, leader: SimBroker, requested: FetchPosition, answered: Callable[[Any], None]) -> None:
        leader_epoch, offset, last_epoch, broker_epoch = requested
        leadership, log = leader.leadership, leader.log
        if leadership is None or (leadership.leader_epoch != leader_epoch and not self._habits.answers_any_epoch):
            return
        diverging = None
        if last_epoch >= 0 and not self._habits.cuts_at_high_watermark:
            epoch, end = log.end_of(last_epoch)
            if epoch < last_epoch or end < offset:
                diverging = (epoch, end)
        if diverging is None and offset <= log.end:
            try:
                leadership.note(
                    asker,
                    fetch_offset=offset,
                    log_start_offset=0,
                    broker_epoch=-1 if self._habits.hides_broker_epochs else broker_epoch,
                    leader_end=log.end,
                    now=self.now / 1000,
                )
            except KafkaError:
                return
            self._propose(leader, leadership.propose_expand(asker, log.high_watermark))
            self._advance(leader)
        entries = [] if diverging else log.entries[offset : offset + FETCH_ENTRIES]
        high_watermark = log.high_watermark
        self._deliver(leader.id, asker, lambda: answered((diverging, entries, high_watermark)))

    def _take(
        self,
        broker: SimBroker,
        leader_epoch: int,
        diverging: tuple[int, int] | None,
        entries: list[Entry],
        high_watermark: int,
    ) -> None:
        log = broker.log
        if diverging is not None:
            own_epoch, own_end = log.end_of(diverging[0])
            cut = self._rules.truncation_point(*diverging, own_epoch, own_end, log.end)
            if self._habits.cuts_once:
                if broker.was_cut_in == leader_epoch:
                    return
                broker.was_cut_in = leader_epoch
            self._cut(broker, cut.offset)
            return
        for entry in entries:
            log.append(entry)
        reached = min(high_watermark, log.end)
        if reached > log.high_watermark:
            self._reach(broker, reached)

    def _cut(self, broker: SimBroker, offset: int) -> None:
        broker.log.truncate(offset, keeps_epochs=self._habits.keeps_epochs)
        self._check_members()

    # -- membership of the ISR -----------------------------------------------------------------------------------------

    def _watch(self, broker: SimBroker) -> None:
        if broker.leadership is not None:
            self._propose(broker, broker.leadership.propose_shrink(broker.log.end, self.now / 1000, MAX_LAG_S))
            self._advance(broker)

    def _propose(self, broker: SimBroker, proposal: Any) -> None:
        if proposal is None:
            return
        leadership, life = broker.leadership, broker.life
        request = proposing(broker, self.cluster.topic(TOPIC).topic_id, proposal)

        def answer(outcome: KafkaError | Any) -> None:
            if broker.life != life or broker.leadership is not leadership:
                return
            if isinstance(outcome, KafkaError):
                if leadership.refused(proposal, outcome):
                    self._at(self.now + 50, ask)
            else:
                leadership.accepted(
                    proposal,
                    isr=outcome.isr,
                    leader_epoch=outcome.leader_epoch,
                    partition_epoch=outcome.partition_epoch,
                )
            if broker.is_up:
                self._advance(broker)

        answers = [0]

        def ask() -> None:
            if not broker.is_up or broker.life != life or leadership.proposal is not proposal:
                return
            answers[0] += 1
            number = answers[0]

            def once(outcome: Any) -> None:
                if answers[0] == number:
                    answers[0] += 1
                    answer(outcome)

            self._deliver(broker.id, 0, lambda: self._alter(broker.id, request, once))
            self._at(self.now + ALTER_TIMEOUT_MS, lambda: once(RequestTimedOut()))

        ask()

    def _alter(self, sender: int, request: AlterPartitionRequest, answer: Callable[[Any], None]) -> None:
        outcome: Any
        try:
            (reply,) = self._decide(self.cluster.controller.alter_partition(request))
            error = reply.outcome.error
            outcome = reply.partition if error is None else BY_CODE[error.code]()
        except KafkaError as stale:
            outcome = stale
        self._deliver(0, sender, lambda: answer(outcome))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _check_members(self) -> None:
        """I17: every replica that is in sync, or eligible to lead, has everything that was ever read."""
        partition = self._partition()
        for broker_id in (*partition.isr, *partition.eligible_leader_replicas):
            broker = self.brokers[broker_id]
            if self._is_running(broker) and broker.log.entries[: len(self.truth)] != self.truth:
                raise Violation(
                    f"I17: broker {broker_id} is in sync, or fit to lead, and lacks what was shown, at {self.now} ms"
                )

    def _is_running(self, broker: SimBroker) -> bool:
        """In the life that the controller knows."""
        known = self.cluster.metadata.brokers.get(broker.id)
        return broker.is_up and known is not None and broker.epoch == known.epoch
