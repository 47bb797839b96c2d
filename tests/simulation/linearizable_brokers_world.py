"""Whole brokers with linearizable topics: clients ask every broker for the end of a partition, while brokers are cut
off from each other and not from the clients.

An answer must have everything that was acknowledged before it was asked for, and everything that an earlier answer has
shown (I18). `reads_world` has the rule alone; here are fetch sessions, parked fetches, dispatch and fast paths with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

from history.operations import Outcome
from simulation.brokers_faults import FaultProfile, ScheduledFault
from simulation.brokers_world import BrokersWorld, SimNode, Violation
from simulation.client import PASSES, PLAIN, Place, SimClient, key_of

from trioka.protocol.errors import NONE, FencedLeaderEpoch, OffsetNotAvailable, OffsetOutOfRange
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest

READERS = 3
LATEST = -1
LIST_VERSION, FETCH_VERSION = 9, 12
MAY_PASS = PASSES | {OffsetNotAvailable.code, FencedLeaderEpoch.code}


def profile_of(seed: int) -> FaultProfile:
    """Three brokers, of which one after the other is isolated; and the usual troubles, fewer of them."""
    random = Random(f"linearizable brokers {seed}")
    usual = replace(FaultProfile.of(seed), brokers=3, controllers=random.choice([0, 0, 3]), guarded=False)
    troubles = [each for each in usual.troubles if random.random() < 0.3 and max(each.node, each.other) <= 3]
    at = random.uniform(0.3, 1.5)
    while at < usual.chaos_s:
        troubles.append(ScheduledFault(at, "isolate", random.randint(1, 3), random.uniform(0.5, 4.0)))
        at += random.uniform(0.5, 4.0)
    return replace(usual, troubles=tuple(sorted(troubles)))


class LinearizableBrokersWorld(BrokersWorld):
    topic_configs: Mapping[str, str] = MappingProxyType({"trioka.read.consistency": "linearizable"})

    def __init__(self, seed: int, profile: FaultProfile | None = None) -> None:
        super().__init__(seed, profile or profile_of(seed))
        self.shown: dict[str, int] = {}  # by partition: the end that a read has shown, or that was acknowledged
        self.reads = 0
        self._looked_at = 0

    def more_clients(self) -> Sequence[SimClient]:
        return [Reader(self, f"r{number}") for number in range(1, READERS + 1)]

    def expected(self, key: str) -> int:
        """The end of what is acknowledged or shown by now."""
        operations = self.history.operations
        for operation in operations[self._looked_at :]:
            for send in operation.sends if operation.outcome is Outcome.OK else ():
                if send.offset is not None:
                    self.shown[send.key] = max(self.shown.get(send.key, 0), send.offset + 1)
        self._looked_at = len(operations)
        return self.shown.get(key, 0)

    def _isolate(self, node: SimNode, trouble: ScheduledFault) -> bool:
        """From all other nodes, both ways; clients reach it."""
        others = [each.host for each in self.nodes.values() if each is not node]
        pairs = [pair for host in others for pair in ((node.host, host), (host, node.host))]
        for pair in pairs:
            self.net.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                self.net.heal(*pair)

        self._later(trouble, heal)
        return True

    def _judge(self, clients: Any) -> None:
        super()._judge(clients)
        if not self.reads:
            raise Violation("no read was answered")


class Reader(SimClient):
    world: LinearizableBrokersWorld

    async def run(self) -> None:
        places = [(PLAIN, index) for index in range(self.world.profile.partitions)]
        while True:
            place = self.random.choice(places)
            read = self.random.choice([self._latest, self._fetch])
            expected = self.world.expected(key_of(place))
            found = await read(place, self.any_broker(), expected)
            if found is not None:
                self.world.reads += 1
                if found < expected:
                    self.world.violate(f"I18: {self.name} is shown the end {found} of {key_of(place)}, not {expected}")
                self.world.shown[key_of(place)] = max(self.world.shown.get(key_of(place), 0), found)
            await self.pause(0.05)

    async def _latest(self, place: Place, node: int, expected: int) -> int | None:
        """None if there is no answer, or an error that passes."""
        requested = ListOffsetsRequest.Topic.Partition(partition_index=place[1], timestamp=LATEST)
        topic = ListOffsetsRequest.Topic(name=place[0], partitions=[requested])
        answer = await self.ask(node, ListOffsetsRequest(replica_id=-1, topics=[topic]), LIST_VERSION, "list")
        if answer is None:
            return None
        (result,) = answer.topics[0].partitions
        return None if self._is_error(result.error_code, f"latest of {key_of(place)}") else int(result.offset)

    async def _fetch(self, place: Place, node: int, expected: int) -> int | None:
        requested = FetchRequest.Topic.Partition(
            partition=place[1], fetch_offset=expected, current_leader_epoch=-1, partition_max_bytes=1000
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=self.random.choice([0, 50]),
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchRequest.Topic(topic=place[0], partitions=[requested])],
        )
        answer = await self.ask(node, request, FETCH_VERSION, "fetch")
        if answer is None:
            return None
        (result,) = answer.responses[0].partitions
        if result.error_code == OffsetOutOfRange.code:
            return 0
        return None if self._is_error(result.error_code, f"fetch of {key_of(place)}") else int(result.high_watermark)

    def _is_error(self, code: int, what: str) -> bool:
        if code != NONE and code not in MAY_PASS:
            self.surprise(what, code)
        return code != NONE
