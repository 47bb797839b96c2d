"""A random walk of many consumers through one group, with every possible fault.

Consumers join, report their partitions, release them late, change their subscriptions, miss answers, leave, crash and
come back; topics are created, deleted and grow; the coordinator fails to write, and is replaced by one that has only
the log, compacted or not. After every step the invariants are checked:

    G1  a commit is accepted only from a member, for its partitions (or in its newest epoch)
    G2  no partition has two members: not in the group, not in its target, not among its readers
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from support.consumer_groups import Consumer, ConsumerGroups, Partitions
from support.coordinator_runtime import Written
from support.known_topics import KnownTopics

from trioka.coordinator.consumer.member import ConsumerMember
from trioka.protocol.errors import CoordinatorNotAvailable, KafkaError

TOPICS = ("clicks", "orders", "payments", "refunds", "visits")
MAX_PARTITIONS = 12
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_MS = 5000
SETTLING_ROUNDS = 40  # four sessions: crashed members are removed by then, and waiting members have joined


class Walk:
    def __init__(self, seed: int, consumers: int = 50) -> None:
        self.random = Random(seed)
        self.groups = ConsumerGroups(
            KnownTopics(**{name: self.random.randint(1, 6) for name in TOPICS[:3]}),
            seed=seed,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            assignment_interval_ms=self.random.choice((0, 1000)),
        )
        self.consumers = [self._consumer(number) for number in range(consumers)]
        self.memories: list[tuple[str, int, tuple[bytes, int]]] = []  # former partitions of members, and their epochs
        self.lives = consumers
        self.steps: dict[Callable[[], None], int] = {
            self.beat: 500,
            self.let_go: 100,
            self.obey: 150,
            self.miss_an_answer: 30,
            self.say_all_again: 20,
            self.leave: 4,
            self.leave_for_a_while: 12,
            self.crash: 8,
            self.change_mind: 10,
            self.change_topics: 4,
            self.wait: 40,
            self.wait_long: 1,
            self.fail_to_write: 10,
            self.commit: 50,
            self.lose_coordinator: 2,
            self.compact: 2,
        }

    def _consumer(self, number: int) -> Consumer:
        return Consumer(
            self.groups,
            f"m{number}",
            topics=self._some_topics(),
            instance_id=f"i{number}" if number % 2 else None,
            rebalance_timeout_ms=self.random.choice((2000, 30_000)),
        )

    def _some_topics(self) -> list[str]:
        return self.random.sample(TOPICS, self.random.randint(1, 3)) if self.random.random() < 0.5 else ["orders"]

    def run(self, steps: int) -> None:
        choices, weights = list(self.steps), list(self.steps.values())
        for number in range(steps):
            step = self.random.choices(choices, weights)[0]
            with suppress(KafkaError):  # an error of the member that sent the request
                step()
            try:
                self.check()
            except AssertionError as error:
                error.add_note(f"after step {number}, {step.__name__}")
                raise

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _any(self) -> Consumer:
        return self.random.choice(self.consumers)

    def beat(self) -> None:
        self._any().beat()

    def let_go(self) -> None:
        self._any().let_go()

    def obey(self) -> None:
        consumer = self._any()
        consumer.obey()
        self.memories += [(consumer.id, consumer.epoch, partition) for partition in consumer.has]
        del self.memories[:-200]

    def miss_an_answer(self) -> None:
        consumer = self._any()
        epoch, shall_have = consumer.epoch, consumer.shall_have
        consumer.beat()
        if epoch > 0:
            consumer.epoch, consumer.shall_have = epoch, shall_have
            consumer.beat(whole=True)

    def say_all_again(self) -> None:
        self._any().beat(whole=True)

    def leave(self) -> None:
        self._any().leave()

    def leave_for_a_while(self) -> None:
        """For static members; it comes back as another process, or as the same."""
        place = self.random.randrange(len(self.consumers))
        consumer = self.consumers[place]
        if consumer.instance_id is not None:
            consumer.leave(-2)
            if self.random.random() < 0.7:
                self._replace(place)

    def crash(self) -> None:
        """It ends without a request. Another process takes its place, maybe as the same instance."""
        self._replace(self.random.randrange(len(self.consumers)))

    def _replace(self, place: int) -> None:
        gone = self.consumers[place]
        self.lives += 1
        topics = gone.topics if self.random.random() < 0.5 else self._some_topics()
        self.consumers[place] = Consumer(self.groups, f"m{self.lives}", topics=topics, instance_id=gone.instance_id)

    def change_mind(self) -> None:
        self._any().topics = set(self._some_topics())

    def change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        topic = self.groups.topics.by_name(name)
        if topic is None:
            self.groups.topics.add(name, self.random.randint(1, 6))
        elif self.random.random() < 0.3:
            self.groups.topics.remove(name)
        elif topic.partitions < MAX_PARTITIONS:
            self.groups.topics.add(name, topic.partitions + 1)

    def wait(self) -> None:
        self.groups.pass_time(self.random.randint(1, 3000))

    def wait_long(self) -> None:
        self.groups.pass_time(SESSION_TIMEOUT_MS // 2)

    def fail_to_write(self) -> None:
        """A client that gets this error retries later, with its former state."""
        self.groups.at_work.failure = CoordinatorNotAvailable()
        try:
            if self.random.random() < 0.2:
                self.groups.pass_time(self.random.randint(1, 20_000))
            else:
                self._any().beat()
        finally:
            self.groups.at_work.failure = None

    def commit(self) -> None:
        """A member's commit arrives, maybe long after it was sent."""
        if not self.memories or "g" not in self.groups.at_work.coordinator.groups:
            return
        member_id, epoch, (topic, partition) = self.random.choice(self.memories)
        group = self.groups.group
        check = group.validate_offset_commit(member_id, epoch, None, is_transactional=False, version=9)
        if check is not None:
            check("a topic", topic, partition)
            assert (topic, partition) in held(group.members[member_id]), "a commit for what is not the member's"
        else:
            assert group.is_empty or group.members[member_id].epoch == epoch, "a commit of a non-member"

    def lose_coordinator(self) -> None:
        before = self.groups.at_work.coordinator.groups.get("g")
        self.groups.at_work.crash()
        after = self.groups.at_work.coordinator.groups.get("g")
        assert (before is None) == (after is None)
        if before is not None:
            assert kept_of(before) == kept_of(after), "the log does not say what the coordinator knew"

    def compact(self) -> None:
        log: list[Written] = self.groups.at_work.log
        newest = {written.key: number for number, written in enumerate(log)}
        self.groups.at_work.log[:] = [written for number, written in enumerate(log) if newest[written.key] == number]
        if self.random.random() < 0.5:  # tombstones go too, one day
            self.groups.at_work.log[:] = [written for written in log if written.value is not None]
        self.lose_coordinator()

    # -- promises ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if "g" not in self.groups.at_work.coordinator.groups:
            return
        group = self.groups.group
        owner: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for partition in held(member):
                assert partition not in owner, f"{partition} is {owner[partition]}'s and {member.id}'s"
                owner[partition] = member.id
            assert member.epoch <= group.target_epoch <= group.epoch
        wanted: Partitions = set()
        for member_id, target in group.targets.items():
            assert member_id in group.members, f"{member_id} is gone, and shall have something"
            for topic, partitions in target.items():
                for number in partitions:
                    assert (topic, number) not in wanted, f"two shall have {number}, one of them {member_id}"
                    wanted.add((topic, number))
        for consumer in self.consumers:
            known = group.members.get(consumer.id)
            if known is not None and consumer.epoch > 0:
                assert consumer.has <= held(known), f"{consumer.id} reads what is not its own"

    def settle(self) -> None:
        """No more faults, though a topic still changes. At the end every subscribed partition is read by a member that
        subscribed to it."""
        for number in range(SETTLING_ROUNDS):
            if number == SETTLING_ROUNDS // 2:
                self.change_topics()
            self.groups.pass_time(HEARTBEAT_MS)
            for consumer in self.consumers:
                try:
                    consumer.beat()
                except KafkaError:
                    continue
                consumer.obey()
            self.check()
        group = self.groups.group
        assert group.state == "Stable"
        assert group.members.keys() == {consumer.id for consumer in self.consumers}
        for name in {name for consumer in self.consumers for name in consumer.topics}:
            topic = self.groups.topics.by_name(name)
            for partition in range(0 if topic is None else topic.partitions):
                assert topic is not None
                readers = [consumer for consumer in self.consumers if (topic.id, partition) in consumer.has]
                assert len(readers) == 1 and name in readers[0].topics


def held(member: ConsumerMember) -> Partitions:
    return {
        (topic, partition)
        for owned in (member.assigned, member.revoking)
        for topic, partitions in owned.items()
        for partition in partitions
    }


def kept_of(group: object) -> dict[str, object]:
    """All of a group that is not forgotten with its coordinator."""
    soft = {"context", "patterns_seen", "subscriptions", "_owners"}
    return {name: value for name, value in vars(group).items() if name not in soft}
