"""A client of simulated brokers: it finds leaders and coordinators, sends them requests, and decodes their batches."""

from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

import trio
from history.operations import Read
from support.retriable_errors import PASSES as PASSES_ANYWHERE

from trioka.broker.peers.link import PeerConnection
from trioka.broker.peers.peer import Peers
from trioka.protocol import batch, errors
from trioka.protocol.errors import NONE, NetworkException, error_class
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request
from trioka.testing.client import visible_records

if TYPE_CHECKING:
    from simulation.brokers_world import BrokersWorld

PLAIN, TRANSACTIONAL = "t", "x"
TOPICS = (PLAIN, TRANSACTIONAL)
GROUP_KIND, TRANSACTION_KIND = 0, 1
ASK_S = 2.0
ANSWERS_S = 2.5  # to several requests at a time
METADATA_VERSION, FIND_VERSION = 12, 4
FETCH_BYTES = 16 * 1024
FIRST_FETCH_BY_ID = 13
READ_COMMITTED = 1

PASSES = PASSES_ANYWHERE | {
    errors.KafkaStorageError.code,
    errors.BrokerNotAvailable.code,
    errors.NetworkException.code,
    errors.NotController.code,
    errors.InvalidReplicationFactor.code,
}
"""The errors after which a client waits and retries."""

Place = tuple[str, int]


def key_of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


class SimClient:
    def __init__(self, world: "BrokersWorld", name: str, host: str | None = None) -> None:
        self.world = world
        self.name = name
        self.random = Random(f"{world.seed} {name}")
        self.host = host or f"10.0.1.{1 + len(world.client_hosts)}"
        self.peers = Peers(name, world.net.dial_from(self.host))
        self.leaders: dict[Place, tuple[int, int]] = {}  # the leader and its epoch
        self.topic_ids: dict[str, bytes] = {}
        self.addresses = {node.number: (node.host, 9092) for node in world.nodes.values() if node.is_broker}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.state = ""  # its current action, for the report of a failure
        world.client_hosts.append(self.host)

    @property
    def is_done(self) -> bool:
        """Whether all that it has begun is settled."""
        return True

    async def run(self) -> None:
        """Until it is done, or the world ends."""
        raise NotImplementedError

    def now(self) -> float:
        return self.world.clock.current_time()

    async def pause(self, at_most_s: float = 0.1) -> None:
        await trio.sleep(self.random.uniform(0.005, at_most_s))

    def surprise(self, what: str, code: int) -> None:
        self.world.violate(f"{self.name} got {error_class(code).name}: {what}")

    # -- routing -------------------------------------------------------------------------------------------------------

    async def ask(self, node: int, request: Request, version: int, purpose: str = "", timeout_s: float = ASK_S) -> Any:
        """None if there is no answer."""
        try:
            return await self.peers.peer(*self.addresses[node], purpose).send_request(
                request, version, timeout_s=timeout_s
            )
        except NetworkException as error:
            if "was expected" in str(error):
                self.world.violate(f"{self.name}: an answer to another question: {error}")
            return None

    async def talk(
        self, node: int, line: PeerConnection | None, exchange: Callable[[PeerConnection], Awaitable[bool]]
    ) -> PeerConnection | None:
        """Several requests at a time, through an open connection to a node, or a new one. Returns the connection, while
        `exchange` reports that it is usable."""
        is_good = False
        with trio.move_on_after(ANSWERS_S):
            try:
                if line is None:
                    line = PeerConnection(await self.world.net.connect(self.host, self.addresses[node]))  # type: ignore[arg-type]
                is_good = await exchange(line)
            except (OSError, trio.ClosedResourceError):
                pass
            except errors.ProtocolError as error:
                self.world.violate(f"{self.name}: an answer to another question: {error}")
        if is_good:
            return line
        if line is not None:
            line.close()
        return None

    def any_broker(self) -> int:
        return self.random.choice(sorted(self.addresses))

    async def refresh(self) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=name) for name in TOPICS], allow_auto_topic_creation=False
        )
        response = await self.ask(self.any_broker(), request, METADATA_VERSION)
        for topic in () if response is None else response.topics:
            if topic.error_code == NONE:
                self.topic_ids[topic.name] = topic.topic_id
                for partition in topic.partitions:
                    place = (topic.name, partition.partition_index)
                    if partition.leader_epoch >= self.leaders.get(place, (0, -1))[1]:
                        self.leaders[place] = (partition.leader_id, partition.leader_epoch)

    async def leader(self, place: Place) -> int | None:
        found = self.leaders.get(place)
        if found is None or found[0] not in self.addresses:
            await self.refresh()
            found = self.leaders.get(place)
        return None if found is None or found[0] not in self.addresses else found[0]

    async def coordinator(self, kind: int, key: str) -> int | None:
        found = self._coordinators.get((kind, key))
        if found is None:
            response = await self.ask(
                self.any_broker(), FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FIND_VERSION
            )
            if response is not None and response.coordinators[0].error_code == NONE:
                found = self._coordinators[kind, key] = response.coordinators[0].node_id
        return found

    async def ask_coordinator(self, kind: int, key: str, request: Request, version: int) -> Any:
        """None if there is no answer; the next request goes to the coordinator at that time."""
        node = await self.coordinator(kind, key)
        answer = None if node is None else await self.ask(node, request, version, "coordinator")
        if answer is None:
            self.forget_coordinator(kind, key)
        return answer

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def fetch(
        self, places: Iterable[Place], positions: dict[Place, int], *, is_committed: bool, wait_ms: int, version: int
    ) -> list[Read] | None:
        """One poll of one leader; the positions move. None without a result."""
        by_leader: dict[int, list[Place]] = {}
        for place in places:
            leader = await self.leader(place)
            if leader is not None:
                by_leader.setdefault(leader, []).append(place)
        if not by_leader:
            return None
        leader = self.random.choice(sorted(by_leader))
        request = self._fetch_request(by_leader[leader], positions, is_committed, wait_ms, version)
        answer = await self.ask(leader, request, version, "fetch")
        if answer is None or answer.error_code:
            await self.refresh()
            return None
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        reads: list[Read] = []
        for topic in answer.responses:
            name = topic.topic if version < FIRST_FETCH_BY_ID else names[topic.topic_id]
            for result in topic.partitions:
                reads += await self._reads_of((name, result.partition_index), result, positions)
        return reads

    def _fetch_request(
        self, places: list[Place], positions: dict[Place, int], is_committed: bool, wait_ms: int, version: int
    ) -> FetchRequest:
        requested = FetchRequest.Topic.Partition
        topics: dict[str, list[FetchRequest.Topic.Partition]] = {}
        for place in places:
            topics.setdefault(place[0], []).append(
                requested(
                    partition=place[1],
                    current_leader_epoch=self.leaders[place][1],
                    fetch_offset=positions[place],
                    partition_max_bytes=self.random.choice([200, FETCH_BYTES]),
                )
            )
        is_by_id = version >= FIRST_FETCH_BY_ID
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_COMMITTED * is_committed,
            topics=[
                FetchRequest.Topic(
                    topic="" if is_by_id else name,
                    topic_id=self.topic_ids[name] if is_by_id else NULL_UUID,
                    partitions=partitions,
                )
                for name, partitions in topics.items()
            ],
        )

    async def _reads_of(
        self, place: Place, result: FetchResponse.Topic.Partition, positions: dict[Place, int]
    ) -> list[Read]:
        if result.error_code:
            if result.error_code not in PASSES:
                self.surprise(f"fetch of {key_of(place)} from {positions[place]}", result.error_code)
            await self.refresh()
            return []
        data, start = bytes(result.records or b""), positions[place]  # type: ignore[call-overload]
        try:
            for header in batch.headers(data, partial_tail=True):
                batch.verify(data, header)
                positions[place] = max(positions[place], header.last_offset + 1)
        except (errors.CorruptMessage, errors.ProtocolError) as damage:
            self.world.violate(f"{self.name} is given damaged records of {key_of(place)}: {damage}")
            return []
        return [
            Read(key_of(place), each.offset, each.value or b"")
            for each in visible_records(data, result)
            if each.offset >= start
        ]
