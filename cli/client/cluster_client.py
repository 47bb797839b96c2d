"""A cluster, as the admin commands see it: whom to ask what, and how often.

A command asks any broker, the controller, the coordinator of a group, or the leaders of partitions. What it learns
about the cluster on the way (metadata, coordinators) is kept for the run of the command and forgotten when an answer
says that it is out of date. An answer of that kind is asked again, at most `ATTEMPTS` times with growing pauses, and
never longer than the command's timeout; all other errors go to the command.
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
from .connection import Connection, HungUp
from .time_budget import Patience

ATTEMPTS: Final = 12
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
NOBODY: Final = -1

OUT_OF_DATE: Final = frozenset(
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
    """Use it in a `with`, so that its connections are closed."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], *, connect: Connect, patience: Patience) -> None:
        """`connect` makes connections that have the same patience."""
        self.bootstrap = tuple(bootstrap)
        self.patience = patience
        self.timeout_s = patience.timeout_s
        self._connect = connect
        self._deadline: float | None = None  # of those who are asked again, since the first answer that was no use
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
        """How a person calls this cluster."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap)

    @property
    def timeout_ms(self) -> int:
        return int(self.timeout_s * 1000)

    # -- whom to ask ---------------------------------------------------------------------------------------------------

    def ask(self, request: Request, *, at_most: int | None = None) -> Any:
        """Asks the broker that was reached first."""
        return self._on(self.first(), request, at_most)

    def ask_node(self, node: int, request: Request, *, at_most: int | None = None) -> Any:
        return self._on(self.node(node), request, at_most)

    def ask_controller(self, request: Request, told: Callable[[Any], Iterable[int]]) -> Any:
        """`told` takes the error codes out of an answer; one that is out of date is asked again."""

        def ask() -> Any:
            controller = self.cluster().controller_id
            return self.ask(request) if controller == NOBODY else self.ask_node(controller, request)

        return self.insist(ask, told)

    def ask_coordinator(
        self, group: str, request: Request, told: Callable[[Any], Iterable[int]], *, at_most: int | None = None
    ) -> Any:
        return self.insist(lambda: self.ask_node(self.coordinator(group), request, at_most=at_most), told)

    def insist(self, ask: Callable[[], T], told: Callable[[T], Iterable[int]]) -> T:
        """Asks until the answer is not of yesterday's cluster, within limits; then whatever was told last."""
        pause = FIRST_PAUSE_S
        for attempt in range(ATTEMPTS):
            answer = ask()
            if OUT_OF_DATE.isdisjoint(told(answer)):
                self._deadline = None
                break
            if attempt == ATTEMPTS - 1 or not self._pause(pause):
                break
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self.forget()
        return answer

    def _pause(self, seconds: float) -> bool:
        """Before something is asked again; False if there is no time for it."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.timeout_s
        if now + seconds > self._deadline:
            return False
        time.sleep(seconds)
        return True

    def forget(self) -> None:
        """What is known about the cluster is out of date."""
        self._metadata = None
        self._coordinators.clear()

    # -- what there is -------------------------------------------------------------------------------------------------

    def cluster(self) -> MetadataResponse:
        """Brokers, controller, and all topics."""
        if self._metadata is None:
            self._metadata = self.metadata(None)
        return self._metadata

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Of the named topics, or of all. A topic is never created by being asked for."""
        wanted = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        assert isinstance(answer, MetadataResponse)
        if answer.error_code != NONE:
            raise problems.refused(answer.error_code, f"{self.name} does not tell what is in the cluster")
        return answer

    def topics(self, names: Sequence[str]) -> list[MetadataResponse.Topic]:
        """The named topics, or all if none is named, by name; a failure with a suggestion for one that is missing."""
        found = {topic.name or "": topic for topic in self.cluster().topics}
        for name in names:
            if name not in found:
                raise self.no_such_topic(name)
        return [found[name] for name in (dict.fromkeys(names) if names else sorted(found))]

    def no_such_topic(self, name: str) -> Failure:
        known = [topic.name or "" for topic in self.cluster().topics]
        hints = [*did_you_mean(name, known), f"create it: trioka topics create {name}"]
        what = f"topic '{name}' does not exist on {self.name}"
        return problems.absent(errors.UnknownTopicOrPartition, what, hints)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """By leader. Partitions that have none, or do not exist, are under `NOBODY`."""
        known = {
            TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in self.cluster().topics
            for partition in topic.partitions
        }
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(known.get(partition, NOBODY), []).append(partition)
        return found

    def coordinator(self, group: str) -> int:
        if group not in self._coordinators:
            self._coordinators[group] = self._find_coordinator(group)
        return self._coordinators[group]

    def _find_coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(coordinator_keys=[group])
        pause = FIRST_PAUSE_S
        for _ in range(ATTEMPTS):
            (told,) = self.ask(request).coordinators
            if told.error_code == NONE:
                return int(told.node_id)
            # Its topic is being made, or its leader elected.
            if told.error_code not in OUT_OF_DATE or not self._pause(pause):
                break
            pause = min(2 * pause, LONGEST_PAUSE_S)
        raise problems.refused(
            told.error_code, f"group '{group}' has no coordinator on {self.name}", told.error_message
        )

    # -- connections ---------------------------------------------------------------------------------------------------

    def first(self) -> Connection:
        """The first bootstrap server that answers. If none does, the failure of the last one that was tried."""
        if self._first is not None:
            return self._first
        failure: Failure | None = None
        for number, (host, port) in enumerate(self.bootstrap):
            connection = self._connect(host, port)
            try:
                with self.patience.share(len(self.bootstrap) - number):
                    connection.versions()
            except Failure as error:
                connection.close()
                failure = error
            except HungUp:
                failure = problems.met(
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
                raise problems.refused(errors.BrokerNotAvailable.code, f"broker {node} is not in the cluster")
            self._by_node[node] = self.connect_as_advertised(node, known[node].host, known[node].port)
        return self._by_node[node]

    def connect_as_advertised(self, node: int, host: str, port: int) -> Connection:
        """A connection to a broker at the address that it tells itself."""
        connection = self._connect(host, port)
        if self._first is not None and (self._first.host, self._first.port) == (host, port):
            return self._first
        try:
            connection.versions()
        except (Failure, HungUp) as error:
            connection.close()
            why = error.what if isinstance(error, Failure) else "it closed the connection"
            what = f"broker {node} advertises {connection.address}, and from here {why} (asked {self.first().address})"
            raise problems.met(problems.NOT_REACHABLE_AS_ADVERTISED, what) from None
        return connection

    def _on(self, connection: Connection, request: Request, at_most: int | None) -> Any:
        try:
            return connection.ask(request, at_most=at_most)
        except HungUp:
            what = f"{connection.address} closed the connection when it was asked for {_api(request)}"
            raise problems.met(problems.HUNG_UP, what) from None


def _api(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")
