"""A cluster as the admin commands see it: which broker gets which request, and how often it is retried.

A command sends requests to any broker, the controller, the coordinator of a group, or the leaders of partitions.
Metadata and coordinators are cached for the run of the command, and dropped when a response reports that they are
stale. A request with such a response is retried at most `ATTEMPTS` times with growing pauses, and never longer than the
command's timeout; all other errors go to the command.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from trioka.protocol import errors
from trioka.protocol.errors import NONE
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.schema import Request

from .. import problems
from ..terminal.failure import Failure, did_you_mean
from .connection import Connection, ConnectionClosed
from .time_budget import TimeoutBudget

ATTEMPTS: Final = 12
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
NO_NODE: Final = -1

STALE_METADATA_ERRORS: Final = frozenset(
    error.code
    for error in (
        errors.NotController,
        errors.NotCoordinator,
        errors.CoordinatorLoadInProgress,
        errors.CoordinatorNotAvailable,
        errors.NotLeaderOrFollower,
        errors.FencedLeaderEpoch,
        errors.UnknownLeaderEpoch,
        errors.ConcurrentTransactions,
    )
)

T = TypeVar("T")
Connect = Callable[[str, int], Connection]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class Kafka:
    """A cluster. Use it in a `with`, so that its connections are closed."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], *, connect: Connect, budget: TimeoutBudget) -> None:
        """`connect` makes connections that share the same time budget."""
        self.bootstrap = tuple(bootstrap)
        self.budget = budget
        self.timeout_s = budget.timeout_s
        self._connect = connect
        self._deadline: float | None = None  # deadline of the retries; set at the first stale response
        self._first: Connection | None = None
        self._by_node: dict[int, Connection] = {}
        self._metadata: MetadataResponse | None = None
        self._coordinators: dict[str, int] = {}

    def __enter__(self) -> "Kafka":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in {self._first, *self._by_node.values()} - {None}:
            assert connection is not None
            connection.close()

    @property
    def name(self) -> str:
        """How a user names this cluster."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)

    @property
    def timeout_ms(self) -> int:
        return int(self.timeout_s * 1000)

    def known_servers(self) -> list[tuple[str, int]]:
        """The addresses of the brokers in the cached metadata; none before the first Metadata request."""
        return [] if self._metadata is None else [(broker.host, broker.port) for broker in self._metadata.brokers]

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, request: Request, *, at_most: int | None = None) -> Any:
        """Send a request to the broker that was reached first."""
        return self._on(self.first(), request, at_most)

    def ask_node(self, node: int, request: Request, *, at_most: int | None = None) -> Any:
        return self._on(self.node(node), request, at_most)

    def ask_controller(self, request: Request, error_codes: Callable[[Any], Iterable[int]]) -> Any:
        """Send a request to the controller; retry it while the error codes of its response report stale metadata."""

        def ask() -> Any:
            controller = self.cluster().controller_id
            return self.ask(request) if controller == NO_NODE else self.ask_node(controller, request)

        return self.retry_while_stale(ask, error_codes)

    def ask_coordinator(
        self, group: str, request: Request, error_codes: Callable[[Any], Iterable[int]], *, at_most: int | None = None
    ) -> Any:
        return self.retry_while_stale(
            lambda: self.ask_node(self.coordinator(group), request, at_most=at_most), error_codes
        )

    def retry_while_stale(self, ask: Callable[[], T], error_codes: Callable[[T], Iterable[int]]) -> T:
        """Send until no error code reports stale metadata, within limits; return the last response."""
        pause = FIRST_PAUSE_S
        for attempt in range(ATTEMPTS):
            answer = ask()
            if STALE_METADATA_ERRORS.isdisjoint(error_codes(answer)):
                self._deadline = None
                break
            if attempt == ATTEMPTS - 1 or not self._pause(pause):
                break
            pause = min(2 * pause, MAX_PAUSE_S)
            self.forget()
        return answer

    def _pause(self, seconds: float) -> bool:
        """Sleep before a retry; False if no time is left for one."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.timeout_s
        if now + seconds > self._deadline:
            return False
        time.sleep(seconds)
        return True

    def forget(self) -> None:
        """Drop the cached metadata and coordinators."""
        self._metadata = None
        self._coordinators.clear()

    # -- metadata ------------------------------------------------------------------------------------------------------

    def cluster(self) -> MetadataResponse:
        """Brokers, controller, and all topics."""
        if self._metadata is None:
            self._metadata = self.metadata(None)
        return self._metadata

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Metadata of the named topics, or of all. The request never creates a topic."""
        wanted = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        assert isinstance(answer, MetadataResponse)
        if answer.error_code != NONE:
            raise problems.from_error_code(answer.error_code, f"{self.name} did not return the metadata of the cluster")
        return answer

    def topics(self, names: Sequence[str]) -> list[MetadataResponse.Topic]:
        """The named topics by name, or all if none is named; a missing topic is a failure with a suggestion."""
        found = {topic.name or "": topic for topic in self.cluster().topics}
        for name in names:
            if name not in found:
                raise self.no_such_topic(name)
        return [found[name] for name in (dict.fromkeys(names) if names else sorted(found))]

    def no_such_topic(self, name: str) -> Failure:
        known = [topic.name or "" for topic in self.cluster().topics]
        hints = [*did_you_mean(name, known), f"create it: trioka topics create {name}"]
        what = f"topic '{name}' does not exist on {self.name}"
        return problems.not_found(errors.UnknownTopicOrPartition, what, hints)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by leader. Partitions without a leader, and partitions that do not exist, are under `NO_NODE`."""
        known = {
            TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in self.cluster().topics
            for partition in topic.partitions
        }
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(known.get(partition, NO_NODE), []).append(partition)
        return found

    def coordinator(self, group: str) -> int:
        if group not in self._coordinators:
            self._coordinators[group] = self._find_coordinator(group)
        return self._coordinators[group]

    def _find_coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(coordinator_keys=[group])
        pause = FIRST_PAUSE_S
        for _ in range(ATTEMPTS):
            (result,) = self.ask(request).coordinators
            if result.error_code == NONE:
                return int(result.node_id)
            # The topic is being created, or its leader elected.
            if result.error_code not in STALE_METADATA_ERRORS or not self._pause(pause):
                break
            pause = min(2 * pause, MAX_PAUSE_S)
        raise problems.from_error_code(
            result.error_code, f"group '{group}' has no coordinator on {self.name}", result.error_message
        )

    # -- connections ---------------------------------------------------------------------------------------------------

    def first(self) -> Connection:
        """The first bootstrap server that answers; if none does, raise the failure of the last one that was tried."""
        if self._first is not None:
            return self._first
        failure: Failure | None = None
        for number, (host, port) in enumerate(self.bootstrap):
            connection = self._connect(host, port)
            try:
                with self.budget.share(len(self.bootstrap) - number):
                    connection.versions()
            except Failure as error:
                connection.close()
                failure = error
            except ConnectionClosed:
                failure = problems.failure_for(
                    problems.HUNG_UP, f"{connection.address} closed the connection without an answer"
                )
            else:
                self._first = connection
                return connection
        assert failure is not None, "there is at least one bootstrap server"
        raise failure

    def node(self, node: int) -> Connection:
        """The connection to a broker."""
        if node not in self._by_node:
            known: Mapping[int, Any] = {broker.node_id: broker for broker in self.cluster().brokers}
            if node not in known:
                raise problems.from_error_code(errors.BrokerNotAvailable.code, f"broker {node} is not in the cluster")
            self._by_node[node] = self.connect_as_advertised(node, known[node].host, known[node].port)
        return self._by_node[node]

    def connect_as_advertised(self, node: int, host: str, port: int) -> Connection:
        """A connection to a broker at its advertised address."""
        connection = self._connect(host, port)
        if self._first is not None and (self._first.host, self._first.port) == (host, port):
            return self._first
        try:
            connection.versions()
        except (Failure, ConnectionClosed) as error:
            connection.close()
            why = error.what if isinstance(error, Failure) else "it closed the connection"
            source = self.first().address
            what = f"broker {node} advertises {connection.address} (according to {source}), and from here {why}"
            raise problems.failure_for(problems.NOT_REACHABLE_AS_ADVERTISED, what) from None
        return connection

    def _on(self, connection: Connection, request: Request, at_most: int | None) -> Any:
        try:
            return connection.ask(request, at_most=at_most)
        except ConnectionClosed:
            what = f"{connection.address} closed the connection instead of answering {_api(request)}"
            raise problems.failure_for(problems.HUNG_UP, what) from None


def _api(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")
