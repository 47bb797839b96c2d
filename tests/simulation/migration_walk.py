"""A random walk of consumers of both protocols through one group, which changes its type on the way.

Consumers join, leave, crash, and are replaced by some of the other kind, as in a rollout; writing fails; another
coordinator takes over, which has only the log. Time passes in steps that are shorter than every timeout, and every live
consumer sends a heartbeat after each: no consumer is removed while it reads. After every step:

    G2  no partition is read by two

and at the end, without further faults, every partition is read by one.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from support.classic_consumer import ClassicConsumer
from support.consumer_groups import Consumer, ConsumerGroups
from support.known_topics import KnownTopics

from trioka.coordinator.consumer.group import ConsumerGroup
from trioka.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound, KafkaError

Client = ClassicConsumer | Consumer

SETTLING_ROUNDS = (
    160  # of 750 ms: crashed members time out, maybe one after another, and their partitions are assigned again
)


class MigrationWalk:
    def __init__(self, seed: int, clients: int = 6, *, is_cooperative: bool = False) -> None:
        self.random = Random(seed)
        self.groups = ConsumerGroups(KnownTopics(orders=7, clicks=3), seed=seed)
        self.is_cooperative = is_cooperative
        self.lives = 0
        self.clients: list[Client] = [self._new(is_classic=not is_cooperative)]
        self.clients += [self._new(is_classic=True) for _ in range(clients - 1)]
        # In a classic group cooperative consumers need a leader that supports them. With a member of the new protocol
        # they need none.
        self.anchor = self.clients[0] if is_cooperative else None
        self._step(self.clients[0])
        self.kinds: set[str] = set()
        self.steps: dict[Callable[[], None], int] = {
            self.step: 300,
            self.wait: 60,
            self.leave: 8,
            self.crash: 6,
            self.fail_to_write: 10,
            self.lose_coordinator: 3,
        }

    def _new(self, *, is_classic: bool, instance_id: str | None = None) -> Client:
        self.lives += 1
        if instance_id is None and self.random.random() < 0.3:
            instance_id = f"i{self.lives}"
        topics = ("orders", "clicks") if self.random.random() < 0.7 else ("orders",)
        if is_classic:
            return ClassicConsumer(
                self.groups,
                f"x{self.lives}",
                topics=topics,
                instance_id=instance_id,
                is_cooperative=self.is_cooperative,
            )
        return Consumer(self.groups, f"c{self.lives}", topics=topics, instance_id=instance_id)

    def run(self, steps: int) -> None:
        choices, weights = list(self.steps), list(self.steps.values())
        for number in range(steps):
            step = self.random.choices(choices, weights)[0]
            step()
            try:
                self.check()
            except AssertionError as error:
                error.add_note(f"after step {number}, {step.__name__}")
                raise

    def check(self) -> None:
        readers: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            for partition in client.has:
                assert readers.setdefault(partition, client.id) == client.id, f"{partition} is read by two"
        group = self.groups.at_work.coordinator.groups.get("g")
        self.kinds.add(type(group).__name__)

    def settle(self) -> None:
        """No more faults, and no member joins or leaves."""
        for _ in range(SETTLING_ROUNDS):
            self.wait()
            self.check()
        wanted = {topic for client in self.clients for topic in client.topics}
        known = [topic for name in wanted if (topic := self.groups.topics.by_name(name)) is not None]
        everything = {(topic.id, number) for topic in known for number in range(topic.partitions)}
        assert {partition for client in self.clients for partition in client.has} == everything, (
            "some partitions have no owner"
        )

    def roll(self, *, is_classic: bool) -> None:
        """All become consumers of one kind, one after another; the group follows."""
        for place in range(len(self.clients)):
            self._retire(place, is_classic=is_classic)
            for _ in range(self.random.randint(0, 5)):
                self.wait()
                self.check()
        self.settle()
        group = self.groups.at_work.coordinator.groups["g"]
        assert isinstance(group, ConsumerGroup) is not is_classic, "the group stayed what it was"

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self._step(self.random.choice(self.clients))

    def _step(self, client: Client) -> None:
        if isinstance(client, ClassicConsumer):
            client.step()
            return
        try:
            client.beat()
        except GroupIdNotFound:
            client.drop()
        except KafkaError:
            return
        if self.random.random() < 0.7:
            client.obey()
        else:
            client.let_go()

    def wait(self) -> None:
        self.groups.pass_time(self.random.randint(500, 1000))
        for client in self.random.sample(self.clients, len(self.clients)):
            self._step(client)

    def leave(self) -> None:
        place = self.random.randrange(len(self.clients))
        if self.clients[place] is not self.anchor:
            self._retire(place, is_classic=self.random.random() < 0.5)

    def _retire(self, place: int, *, is_classic: bool) -> None:
        client = self.clients[place]
        if isinstance(client, Consumer):
            with suppress(KafkaError):
                client.leave()
        elif client.id and not client.waits:
            client.leave()
        self.clients[place] = self._new(is_classic=is_classic)

    def crash(self) -> None:
        """It ends without a request. A static member is started again, with either protocol."""
        place = self.random.randrange(len(self.clients))
        gone = self.clients[place]
        if gone is not self.anchor:
            self.clients[place] = self._new(is_classic=self.random.random() < 0.5, instance_id=gone.instance_id)

    def fail_to_write(self) -> None:
        self.groups.at_work.failure = CoordinatorNotAvailable()
        try:
            self.step()
        finally:
            self.groups.at_work.failure = None

    def lose_coordinator(self) -> None:
        self.groups.at_work.crash()
