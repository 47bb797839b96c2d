"""Whether whoever asks may have what it asks for: what handlers ask before they do it, or tell of it.

    broker.guard.must(call, ALTER)                          the cluster itself; raises CLUSTER_AUTHORIZATION_FAILED
    broker.guard.must(call, READ, GROUP, request.group_id)  raises GROUP_AUTHORIZATION_FAILED
    allowed = broker.guard.allowed(call, DESCRIBE, TOPIC, names)

Without an authorizer (authorizer.class.name) the guard is one that lets everybody do everything and looks nothing up.
With one, each question is decided by the rules that stand in the metadata (cluster/authorizer.py), and written down:
what is denied at INFO, what is allowed at DEBUG. What is only looked through, to tell somebody what is his, is
no attempt, and is not written down when it is denied.

Produce and Fetch are asked so often that without an authorizer nothing shall be asked at all: they name a second
function to `handles`, which serves in the first one's place (`Guard.handler`), and no lane is opened (dispatch.py).

The principal is the connection's. Until there are TLS and SASL it is ANONYMOUS for all, and who comes from where
is all that rules can tell apart.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trioka.cluster.acls import CLUSTER_NAME, Acls, Operation, ResourceKind
from trioka.cluster.authorizer import Authorizer, Verdict, Who
from trioka.cluster.configs import ResourceType
from trioka.protocol.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

from ..api import SERVED, Handler
from ..config.authorization import authorizer_of
from .authorized_operations import CLUSTER_OPERATIONS, bits

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.authorizer")

T = TypeVar("T")

MAX_LOGGED_CHARS: Final = 500
THIS_NODE: Final = ""  # the principal of what a node asks of itself; no client is without one

TOPIC: Final = ResourceKind.TOPIC
GROUP: Final = ResourceKind.GROUP
CLUSTER: Final = ResourceKind.CLUSTER
TRANSACTIONAL_ID: Final = ResourceKind.TRANSACTIONAL_ID

CONFIGURABLE: Final[frozenset[int]] = frozenset(ResourceType) - {ResourceType.UNKNOWN}

FAILURES: Final[dict[ResourceKind, type[KafkaError]]] = {
    ResourceKind.TOPIC: TopicAuthorizationFailed,
    ResourceKind.GROUP: GroupAuthorizationFailed,
    ResourceKind.CLUSTER: ClusterAuthorizationFailed,
    ResourceKind.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceKind.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
}


class _All(Container[str]):
    """Every name is in it."""

    def __contains__(self, name: object) -> bool:
        return True


ALL: Final = _All()


class OpenDoor:
    """Everybody may do everything."""

    is_closed = False

    def handler(self, handler: Handler[Any]) -> Handler[Any]:
        """What serves an API."""
        return handler

    def may(
        self,
        call: "Call",
        operation: Operation,
        kind: ResourceKind = CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        is_attempt: bool = True,
    ) -> bool:
        return True

    def must(self, call: "Call", operation: Operation, kind: ResourceKind = CLUSTER, name: str = CLUSTER_NAME) -> None:
        """Raises the error of what may not be done to such a resource."""

    def allowed(
        self,
        call: "Call",
        operation: Operation,
        kind: ResourceKind,
        names: Iterable[str],
        *,
        is_attempt: bool = True,
    ) -> Container[str]:
        """Of these, the ones with which it may be done."""
        return ALL

    def may_with_some(self, call: "Call", operation: Operation, kind: ResourceKind) -> bool:
        """Whether there could be any of that kind with which it may be done."""
        return True

    def may_know(self, principal: str, host: str, topic: str) -> bool:
        """Whether somebody who is not asking just now may be told of a topic."""
        return True

    def operations(self, call: "Call", kind: ResourceKind, name: str, known: Sequence[Operation]) -> int:
        """As a set of bits: what of all that can be done with it may be done."""
        return bits(known)


class Guard(OpenDoor):
    """Somebody watches."""

    is_closed = True

    def __init__(self, broker: "Broker", authorizer: Authorizer) -> None:
        self._broker = broker
        self._authorizer = authorizer

    @property
    def _acls(self) -> Acls:
        return self._broker.metadata.access.acls

    def handler(self, handler: Handler[Any]) -> Handler[Any]:
        if handler.for_nodes:
            return replace(handler, serve=self._for_nodes(handler))
        return handler if handler.guarded is None else replace(handler, serve=handler.guarded)

    def _for_nodes(self, handler: Handler[Any]) -> "Callable[[Broker, Call, Any], Any]":
        def serve(broker: "Broker", call: "Call", request: Any) -> Any:
            self.must(call, Operation.CLUSTER_ACTION)
            return handler.serve(broker, call, request)

        return serve

    def may(
        self,
        call: "Call",
        operation: Operation,
        kind: ResourceKind = CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        is_attempt: bool = True,
    ) -> bool:
        if call.connection.principal == THIS_NODE:
            return True
        verdict = self._authorizer.authorize(self._acls, _who(call), operation, kind, name)
        if verdict.allowed or is_attempt:
            self._write_down(call, operation, kind, name, verdict)
        return verdict.allowed

    def must(self, call: "Call", operation: Operation, kind: ResourceKind = CLUSTER, name: str = CLUSTER_NAME) -> None:
        if not self.may(call, operation, kind, name):
            # Kafka has words of its own for the cluster, and for nothing else.
            raise FAILURES[kind](f"{operation.name} is not allowed") if kind is CLUSTER else FAILURES[kind]()

    def allowed(
        self,
        call: "Call",
        operation: Operation,
        kind: ResourceKind,
        names: Iterable[str],
        *,
        is_attempt: bool = True,
    ) -> Container[str]:
        return {name for name in set(names) if self.may(call, operation, kind, name, is_attempt=is_attempt)}

    def may_with_some(self, call: "Call", operation: Operation, kind: ResourceKind) -> bool:
        verdict = self._authorizer.authorize_any(self._acls, _who(call), operation, kind)
        self._write_down(call, operation, kind, "of any name", verdict)
        return verdict.allowed

    def may_know(self, principal: str, host: str, topic: str) -> bool:
        who = Who(principal, host)
        return self._authorizer.authorize(self._acls, who, Operation.DESCRIBE, TOPIC, topic).allowed

    def operations(self, call: "Call", kind: ResourceKind, name: str, known: Sequence[Operation]) -> int:
        who, authorize = _who(call), self._authorizer.authorize
        return bits(each for each in known if authorize(self._acls, who, each, kind, name).allowed)

    def _write_down(self, call: "Call", operation: Operation, kind: ResourceKind, name: str, verdict: Verdict) -> None:
        level = logging.DEBUG if verdict.allowed else logging.INFO
        if log.isEnabledFor(level):
            who, api = _who(call), SERVED[call.route.key].name
            what = f"{operation.name} on {kind.name} {_in_a_line(name)}, asked by {api}"
            word, why = "allowed" if verdict.allowed else "denied", _in_a_line(str(verdict.because))
            log.log(level, "%s: %s from %s, %s: %s", word, who.principal, who.host, what, why)


def _in_a_line(text: str) -> str:
    """What somebody has sent us, so that it makes neither a second line nor a long one."""
    text = text[:MAX_LOGGED_CHARS]
    return text if text.isprintable() else repr(text)


def guard_of(broker: "Broker") -> OpenDoor:
    authorizer = authorizer_of(broker.config)
    return OpenDoor() if authorizer is None else Guard(broker, authorizer)


def cluster_operations(broker: "Broker", call: "Call") -> int:
    """What may be done with the cluster, for those who may know."""
    if not broker.guard.may(call, Operation.DESCRIBE):
        return 0
    return broker.guard.operations(call, CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def must_with_config(broker: "Broker", call: "Call", operation: Operation, resource_type: int, name: str) -> None:
    """Of a resource that has a configuration; what is no topic and no group belongs to the cluster."""
    kinds = {ResourceType.TOPIC: (TOPIC, name), ResourceType.GROUP: (GROUP, name)}
    kind, name = kinds.get(ResourceType(resource_type), (CLUSTER, CLUSTER_NAME))
    if not broker.guard.may(call, operation, kind, name):
        raise FAILURES[kind](f"{operation.name} is not allowed")


def denied_alterations(broker: "Broker", call: "Call", resources: Sequence[tuple[int, str]]) -> list[KafkaError | None]:
    """Of resources (type and name) that shall be configured otherwise: why not. What cannot be is refused for that."""
    times = Counter(resources)
    found: list[KafkaError | None] = []
    for resource_type, name in resources:
        error = None
        if times[resource_type, name] == 1 and resource_type in CONFIGURABLE:
            try:
                must_with_config(broker, call, Operation.ALTER_CONFIGS, resource_type, name)
            except KafkaError as denied:
                error = denied
        found.append(error)
    return found


def take_denied(
    broker: "Broker",
    call: "Call",
    operation: Operation,
    topics: list[T],
    name_of: Callable[[T], str | None],
    *,
    is_attempt: bool = True,
) -> list[T]:
    """Takes out of a list the topics with which it may not be done, and returns them. One without a name stays: nobody
    knows it."""
    if not broker.guard.is_closed:
        return []
    names = {name for topic in topics if (name := name_of(topic)) is not None}
    allowed = broker.guard.allowed(call, operation, TOPIC, names, is_attempt=is_attempt)
    denied: list[T] = []
    left: list[T] = []
    for topic in topics:
        name = name_of(topic)
        (left if name is None or name in allowed else denied).append(topic)
    topics[:] = left
    return denied


def _who(call: "Call") -> Who:
    connection = call.connection
    return Who(connection.principal, connection.host)
