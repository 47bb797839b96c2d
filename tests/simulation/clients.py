"""The clients of a world of brokers: idempotent producers, consumers, a group that commits, transactions.

Each does what a careful client does: it retries after every transient error, and always completes what it has begun.
An impossible answer is a violation at once; everything else goes into the history.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio
from history.operations import Assign, Outcome, Send
from simulation.client import PASSES, PLAIN, TOPICS, TRANSACTIONAL, Place, SimClient, key_of
from simulation.denied_client import Denied, make_rules
from simulation.group_member import Member
from simulation.transactional_producer import TransactionalProducer

from trioka.broker.peers.link import PeerConnection
from trioka.protocol.batch import build
from trioka.protocol.errors import (
    NONE,
    DuplicateSequenceNumber,
    OutOfOrderSequenceNumber,
    TopicAlreadyExists,
)
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record

if TYPE_CHECKING:
    from simulation.brokers_world import BrokersWorld

PRODUCERS, TRANSACTIONAL_PRODUCERS, MEMBERS = 2, 2, 2
IN_FLIGHT = 5
PRODUCE_MS = 1000
FIRST_PRODUCE_BY_ID = 13


class Clients:
    def __init__(self, world: "BrokersWorld") -> None:
        self._world = world
        self._admin = SimClient(world, "admin")
        self.is_over = False  # nothing new is begun
        places = [(topic, index) for topic in TOPICS for index in range(world.profile.partitions)]
        plain = [place for place in places if place[0] == PLAIN]
        others = [place for place in places if place[0] == TRANSACTIONAL]
        self._places = places
        self._producers = [Producer(self, world, f"p{number}", plain) for number in range(1, PRODUCERS + 1)]
        self._transactional = [
            TransactionalProducer(self, world, f"x{number}", others) for number in range(1, TRANSACTIONAL_PRODUCERS + 1)
        ]
        self._consumers = [
            Consumer(self, world, "c1", places, is_committed=True),
            Consumer(self, world, "c2", plain, is_committed=False),
        ]
        self._members = [Member(self, world, f"m{number}", PLAIN) for number in range(1, MEMBERS + 1)]
        self._final = Consumer(self, world, "final", places, is_committed=True)
        self._denied = [Denied(world)] if world.profile.guarded else []

    async def begin(self, nursery: trio.Nursery) -> None:
        for topic in TOPICS:
            await self._create(topic)
        if self._denied:
            await make_rules(self._admin)
        for each in (*self._producers, *self._transactional, *self._consumers, *self._members, *self._denied):
            nursery.start_soon(each.run)
        for each in self._world.more_clients():
            nursery.start_soon(each.run)

    async def _create(self, name: str) -> None:
        profile = self._world.profile
        wanted = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=profile.partitions,
            replication_factor=profile.replicas,
            assignments=[],
            configs=[
                CreateTopicsRequest.Topic.Config(name="internal.segment.bytes", value=str(profile.segment_bytes)),
                CreateTopicsRequest.Topic.Config(name="min.insync.replicas", value=str(profile.min_in_sync)),
                *(CreateTopicsRequest.Topic.Config(name=k, value=v) for k, v in self._world.topic_configs.items()),
            ],
        )
        while True:
            response = await self._admin.ask(self._admin.any_broker(), CreateTopicsRequest(topics=[wanted]), 7)
            if response is not None and response.topics[0].error_code in (NONE, TopicAlreadyExists.code):
                return
            if response is not None and response.topics[0].error_code not in PASSES:
                self._admin.surprise(f"create {name}", response.topics[0].error_code)
            self._world.check()
            await self._admin.pause()

    def finish(self) -> None:
        self.is_over = True

    def unfinished(self) -> list[str]:
        return [
            f"{each.name} has not finished: {each.state}"
            for each in (*self._producers, *self._transactional)
            if not each.is_done
        ]

    async def read_all(self) -> None:
        """Reads everything from the start: a value that is missing now is lost."""
        ends = {}
        for node in self._world.nodes.values():
            for replica in () if node.broker is None else node.broker.partitions:
                if replica.leads:
                    ends[replica.topic, replica.index] = replica.log.high_watermark
        await self._final.read_up_to({place: ends[place] for place in self._places})


class Batch:
    """A batch of one partition, in flight."""

    def __init__(self, sequence: int, values: list[bytes], began: float) -> None:
        self.sequence = sequence
        self.values = values
        self.began = began
        self.is_acknowledged = False
        self.offset: int | None = None


class Producer(SimClient):
    """Idempotent, acks=all, up to five batches of a partition on their way at a time; one, before the first is
    acknowledged, since a broker takes any sequence of a producer that it does not know.

    If the answers to several were lost with a leader that stops, the next one, or the same after a restart, knows all
    of them: to be out of order is a violation.
    """

    def __init__(self, clients: Clients, world: "BrokersWorld", name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._clients = clients
        self._places = places
        self._who: dict[Place, tuple[int, int]] = {}
        self._left = len(places)
        self._numbers = 0
        self._version = self.random.choice([9, 12, 13])

    @property
    def is_done(self) -> bool:
        return self._left == 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for place in self._places:
                nursery.start_soon(self._produce, place)

    async def _init(self) -> tuple[int, int]:
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            response = await self.ask(self.any_broker(), request, 4)
            if response is not None and response.error_code == NONE:
                return response.producer_id, response.producer_epoch
            if response is not None and response.error_code not in PASSES:
                self.surprise("InitProducerId", response.error_code)
            await self.pause()

    async def _produce(self, place: Place) -> None:
        waiting: list[Batch] = []
        sequence, line = 0, None
        self._who[place] = await self._init()
        while waiting or not self._clients.is_over:
            most = IN_FLIGHT if sequence and not (waiting and waiting[0].sequence == 0) else 1
            while len(waiting) < most and not self._clients.is_over and self.random.random() < 0.5:
                values = [self._value() for _ in range(self.random.choice([1, 1, 2, 5]))]
                waiting.append(Batch(sequence, values, self.now()))
                sequence += len(values)
            if waiting:
                line = await self._burst(place, waiting, line)
                waiting = self._settle(place, waiting)
            await self.pause(0.25)
        self._left -= 1

    def _value(self) -> bytes:
        self._numbers += 1
        return f"{self.name}.{self._numbers}".encode() + b" " * self.random.choice([0, 0, 20, 200])

    def _settle(self, place: Place, waiting: list[Batch]) -> list[Batch]:
        """In the order in which they were sent."""
        while waiting and waiting[0].is_acknowledged:
            self._note(place, waiting.pop(0), Outcome.OK)
        return waiting

    def _note(self, place: Place, batch: Batch, outcome: Outcome) -> None:
        key, first = key_of(place), batch.offset
        sends = [Send(key, value, None if first is None else first + n) for n, value in enumerate(batch.values)]
        process = f"{self.name}/{key}/{self._who[place][0]}"
        self.world.history.add(process, outcome, sends, began=batch.began, ended=self.now())
        self.world.note(f"{self.name} {key} {batch.sequence} {outcome.value} {first}")

    async def _burst(self, place: Place, waiting: list[Batch], line: "tuple[int, PeerConnection] | None") -> Any:
        """Sends all unacknowledged batches, and reads the responses. Returns the connection, if it is still usable."""
        leader = await self.leader(place)
        if leader is None:
            return line
        self.state = f"{key_of(place)} at {leader}, {len(waiting)} waiting"
        if line is not None and line[0] != leader:
            line[1].close()
            line = None
        batches = [each for each in waiting if not each.is_acknowledged]
        used = await self.talk(leader, line and line[1], lambda used: self._exchange(place, batches, used))
        if used is None:
            await self.refresh()
            return None
        return leader, used

    async def _exchange(self, place: Place, batches: list[Batch], line: PeerConnection) -> bool:
        for number, each in enumerate(batches):
            await line.send(frame_request(number, self.name, self._request(place, each), self._version))
        is_good = True
        for number, each in enumerate(batches):
            answer: Any = read_response(ProduceRequest, self._version, await line.receive(), number)
            result = answer.responses[0].partition_responses[0]
            if result.error_code in (NONE, DuplicateSequenceNumber.code):
                each.is_acknowledged = True
                each.offset = result.base_offset if result.error_code == NONE else None
                continue
            if result.error_code == OutOfOrderSequenceNumber.code:
                if is_good:  # nothing before it has failed
                    self.surprise(f"{key_of(place)}, sequence {each.sequence}", result.error_code)
            elif result.error_code not in PASSES:
                self.surprise(f"{key_of(place)}, sequence {each.sequence}", result.error_code)
            is_good = False
        return is_good

    def _request(self, place: Place, each: Batch) -> ProduceRequest:
        records = [Record(n, self.world.now_ms(), None, value) for n, value in enumerate(each.values)]
        producer_id, epoch = self._who[place]
        built = build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=each.sequence)
        is_by_id = self._version >= FIRST_PRODUCE_BY_ID
        return ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_MS,
            topic_data=[
                ProduceRequest.Topic(
                    name="" if is_by_id else place[0],
                    topic_id=self.topic_ids[place[0]] if is_by_id else NULL_UUID,
                    partition_data=[ProduceRequest.Topic.Partition(index=place[1], records=built)],
                )
            ],
        )


class Consumer(SimClient):
    """Reads its assigned partitions, and keeps its positions."""

    def __init__(
        self, clients: Clients, world: "BrokersWorld", name: str, places: Iterable[Place], *, is_committed: bool
    ) -> None:
        super().__init__(world, name)
        self._clients = clients
        self._positions = dict.fromkeys(places, 0)
        self._is_committed = is_committed
        self._version = self.random.choice([12, 13, 17])

    async def run(self) -> None:
        await self._assign()
        while True:
            await self._poll(self._positions, wait_ms=self.random.choice([0, 50, 300]))
            await self.pause(0.1)

    async def _assign(self) -> None:
        self.world.history.ok(
            self.name, Assign(frozenset(map(key_of, self._positions))), began=self.now(), ended=self.now()
        )
        while len(self.topic_ids) < len(TOPICS):
            await self.refresh()
            await self.pause()

    async def _poll(self, places: Iterable[Place], wait_ms: int) -> None:
        began = self.now()
        reads = await self.fetch(
            list(places), self._positions, is_committed=self._is_committed, wait_ms=wait_ms, version=self._version
        )
        if reads:
            self.world.history.ok(self.name, reads, began=began, ended=self.now())
            self.world.note(f"{self.name} {len(reads)} {reads[-1].key} {reads[-1].offset}")

    async def read_up_to(self, ends: dict[Place, int]) -> None:
        await self._assign()
        while behind := [place for place, end in ends.items() if self._positions[place] < end]:
            await self._poll(behind, wait_ms=0)
            self.world.check()
