"""A cluster as one user of it: brokers, cached metadata, and requests to the broker that can answer them.

Responses that report stale metadata are retried with growing pauses until the time limit; all other errors go to the
caller. Connections are shared by the calls of a user; `dedicated` opens one for a Fetch that waits for records, behind
which other requests would wait, too.

What any broker can answer, such as metadata, is requested from one of them until it fails, or its answer turns out to
be stale: a broker that is cut off from the cluster goes on to name itself as leader. Then the next one is asked.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from trioka.protocol import errors
from trioka.protocol.errors import NONE, KafkaError, error_class
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.schema import Request

from ..cluster_access import ClusterAccess
from .connection import Connection, open_connection

METADATA_S: Final = 30.0  # how long a topic's metadata is used before it is requested again
MAX_TOPICS: Final = 10_000  # topics whose metadata is kept
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
NO_NODE: Final = -1
CONSUMER: Final = -1  # the replica id of a client
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TOPIC_RESOURCE: Final = 2
LIST_OFFSETS_VERSION: Final = 9
GROUP_KEY: Final = 0

STALE: Final = frozenset(
    each.code
    for each in (
        errors.NotController,
        errors.NotCoordinator,
        errors.CoordinatorLoadInProgress,
        errors.CoordinatorNotAvailable,
        errors.NotLeaderOrFollower,
        errors.LeaderNotAvailable,
        errors.FencedLeaderEpoch,
        errors.UnknownLeaderEpoch,
        errors.ReplicaNotAvailable,
        errors.OffsetNotAvailable,
        errors.KafkaStorageError,
        errors.NetworkException,
        errors.ConcurrentTransactions,
        errors.UnstableOffsetCommit,
    )
)

T = TypeVar("T")


class TopicMetadata(NamedTuple):
    name: str
    topic_id: bytes
    leaders: Mapping[int, int]  # by partition; -1 for none
    is_internal: bool
    expires: float


class Broker(NamedTuple):
    host: str
    port: int


class Cluster:
    def __init__(self, access: ClusterAccess, *, timeout_s: float) -> None:
        self.access = access
        self.timeout_s = timeout_s
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._connections: dict[int, Connection] = {}  # NO_NODE and below: to the broker of that turn
        self._turn = 0
        self._opening: dict[int, asyncio.Lock] = {}
        self._coordinators: dict[str, int] = {}
        self._nearest: dict[tuple[str, int], tuple[int, float]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()

    # -- connections

    async def connection(self, node: int = NO_NODE) -> Connection:
        """The shared connection to a node, or to any."""
        if node == NO_NODE:
            node -= self._turn % len(self._all_servers())
        found = self._connections.get(node)
        if found is not None and found.is_open:
            return found
        async with self._opening.setdefault(node, asyncio.Lock()):
            found = self._connections.get(node)
            if found is None or not found.is_open:
                found = self._connections[node] = await self.dedicated(node)
            return found

    async def dedicated(self, node: int) -> Connection:
        """A new connection, which the caller closes. A number below 0 means any broker, and which one to try first."""
        if node > NO_NODE and node not in self._brokers:
            await self.refresh([])
            if node not in self._brokers:
                raise errors.LeaderNotAvailable(f"broker {node} is not in the cluster's metadata")
        where: Sequence[tuple[str, int]] = (
            [self._brokers[node]] if node > NO_NODE else self._all_servers(NO_NODE - node)
        )
        failure: Exception | None = None
        for host, port in where:
            try:
                return await open_connection(
                    host, port, tls=self.access.tls, login=self.access.login, timeout_s=self.timeout_s
                )
            except (errors.NetworkException, errors.RequestTimedOut) as error:
                failure = error
        assert failure is not None
        raise failure

    def _all_servers(self, first: int = 0) -> list[tuple[str, int]]:
        """The bootstrap servers and the brokers that the metadata has, in turn from the first one."""
        found = list(dict.fromkeys([*self.access.servers, *self._brokers.values()]))
        return [*found[first:], *found[:first]]

    def ask_another(self) -> None:
        """The broker that has answered what any broker can answer does not answer, or not with the current state."""
        self._turn += 1

    async def ask(self, request: Request, *, node: int = NO_NODE, at_most: int | None = None) -> Any:
        turn = self._turn
        try:
            connection = await self.connection(node)
            version = connection.version_of(type(request), at_most)
            return await connection.request(request, timeout_s=self.timeout_s, version=version)
        except (errors.NetworkException, errors.RequestTimedOut):
            if node == NO_NODE and turn == self._turn:  # else another call has moved on already
                self.ask_another()
            raise

    # -- metadata

    async def refresh(self, topics: Sequence[str] | None) -> Any:
        """Request the metadata of these topics (None: of all), and keep it. Returns the response."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequest.Topic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response = await self.ask(request)
        self._brokers = {each.node_id: Broker(each.host, each.port) for each in response.brokers}
        if len(self._topics) > MAX_TOPICS:
            self._topics.clear()
        expires = time.monotonic() + METADATA_S
        for topic in response.topics:
            if topic.error_code == NONE and topic.name is not None:
                leaders = {each.partition_index: each.leader_id for each in topic.partitions}
                topic_id = bytes(getattr(topic.topic_id, "bytes", topic.topic_id))
                self._topics[topic.name] = TopicMetadata(topic.name, topic_id, leaders, topic.is_internal, expires)
            elif topic.name is not None:
                self._topics.pop(topic.name, None)
        return response

    async def topic(self, name: str, *, fresh: bool = False) -> TopicMetadata:
        """Raises the topic's error, such as UnknownTopicOrPartition."""

        found = self._topics.get(name)
        if not fresh and found is not None and found.expires > time.monotonic():
            return found
        response = await self.refresh([name])
        for topic in response.topics:
            if topic.name == name and topic.error_code != NONE:
                raise error_class(topic.error_code)(f"topic {name!r}: {_sentence(topic.error_code)}")
        if name not in self._topics:
            raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}")
        return self._topics[name]

    async def leader(self, name: str, partition: int, *, fresh: bool = False) -> int:
        topic = await self.topic(name, fresh=fresh)
        if partition not in topic.leaders and not fresh:
            topic = await self.topic(name, fresh=True)
        if partition not in topic.leaders:
            raise errors.UnknownTopicOrPartition(
                f"topic {name!r} has no partition {partition}; it has {len(topic.leaders)}"
            )
        leader = topic.leaders[partition]
        if leader == NO_NODE:
            raise errors.LeaderNotAvailable(f"{name}-{partition} has no leader at present")
        return leader

    def forget(self, name: str) -> None:
        self._topics.pop(name, None)

    # -- replicas in the gateway's rack (KIP-392)

    def nearest(self, topic: str, partition: int) -> int | None:
        """The replica to which the leader has sent readers of this rack, for as long as metadata is used."""
        node, expires = self._nearest.get((topic, partition), (NO_NODE, 0.0))
        return node if expires > time.monotonic() and node in self._brokers else None

    def use_nearest(self, topic: str, partition: int, node: int) -> None:
        if len(self._nearest) > MAX_TOPICS:
            self._nearest.clear()
        self._nearest[topic, partition] = node, time.monotonic() + METADATA_S

    def forget_nearest(self, topic: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._nearest.pop((topic, partition), None)

    # -- retries

    async def retrying(self, attempt: Callable[[bool], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """Call `attempt(fresh)` until it raises no error that reports stale metadata, within the time limit."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pause, fresh = FIRST_PAUSE_S, False
        while True:
            try:
                return await attempt(fresh)
            except KafkaError as error:
                if error.code not in STALE or time.monotonic() + pause > deadline:
                    raise
                self.ask_another()
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause, fresh = min(2 * pause, MAX_PAUSE_S), True

    # -- offsets

    async def list_offsets(
        self, topic: str, partitions: Iterable[int], timestamp: int, *, isolation: int = READ_UNCOMMITTED
    ) -> dict[int, int]:
        """The offsets of a time, EARLIEST or LATEST, by partition; -1 where no record is as young."""
        wanted = sorted(set(partitions))

        async def attempt(fresh: bool) -> dict[int, int]:
            by_leader: dict[int, list[int]] = {}
            for partition in wanted:
                by_leader.setdefault(await self.leader(topic, partition, fresh=fresh), []).append(partition)
                fresh = False
            found: dict[int, int] = {}
            for node, some in by_leader.items():
                found |= await self._list_offsets_of(node, topic, some, timestamp, isolation)
            return found

        return await self.retrying(attempt)

    async def _list_offsets_of(
        self, node: int, topic: str, partitions: list[int], timestamp: int, isolation: int
    ) -> dict[int, int]:
        kind = ListOffsetsRequest.Topic
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=isolation,
            topics=[
                kind(
                    name=topic,
                    partitions=[kind.Partition(partition_index=each, timestamp=timestamp) for each in partitions],
                )
            ],
        )
        response = await self.ask(request, node=node, at_most=LIST_OFFSETS_VERSION)
        found = {}
        for answer in response.topics:
            for each in answer.partitions:
                if each.error_code != NONE:
                    raise error_class(each.error_code)(f"{topic}-{each.partition_index}: {_sentence(each.error_code)}")
                found[each.partition_index] = each.offset
        return found

    async def topic_configs(self, name: str, keys: Sequence[str] | None) -> Any:
        """The entries of DescribeConfigs for a topic."""
        kind = DescribeConfigsRequest.Resource
        resource = kind(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        response = await self.ask(DescribeConfigsRequest(resources=[resource]))
        result = response.results[0]
        if result.error_code != NONE:
            raise error_class(result.error_code)(result.error_message or f"topic {name!r}")
        return result.configs

    # -- groups

    async def ask_coordinator(
        self, group: str, request: Request, error_codes: Callable[[Any], Iterable[int]], *, at_most: int | None = None
    ) -> Any:
        """Send a request to the coordinator of a group. Raises its first error that reports a stale coordinator, if
        retries do not help; other errors are left to the caller."""

        async def attempt(fresh: bool) -> Any:
            node = await self._coordinator(group, fresh)
            response = await self.ask(request, node=node, at_most=at_most)
            stale = next((code for code in error_codes(response) if code in STALE), None)
            if stale is not None:
                raise error_class(stale)(f"group {group!r}: {_sentence(stale)}")
            return response

        return await self.retrying(attempt)

    async def _coordinator(self, group: str, fresh: bool) -> int:
        if not fresh and group in self._coordinators:
            return self._coordinators[group]
        if len(self._coordinators) > MAX_TOPICS:
            self._coordinators.clear()
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
        found = (await self.ask(request, at_most=4)).coordinators[0]
        if found.error_code != NONE:
            raise error_class(found.error_code)(found.error_message or f"group {group!r}")
        self._brokers[found.node_id] = Broker(found.host, found.port)
        self._coordinators[group] = found.node_id
        return int(found.node_id)

    async def nodes(self) -> list[int]:
        await self.refresh([])
        return sorted(self._brokers)


def _sentence(code: int) -> str:
    return str(error_class(code)())
