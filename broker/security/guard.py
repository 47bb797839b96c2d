"""Authorization checks of handlers: whether the principal of a call may perform an operation on a resource.

    broker.guard.must(call, ALTER)                          the cluster itself; raises CLUSTER_AUTHORIZATION_FAILED
    broker.guard.must(call, READ, GROUP, request.group_id)  raises GROUP_AUTHORIZATION_FAILED
    allowed = broker.guard.allowed(call, DESCRIBE, TOPIC, names)

Without an authorizer (authorizer.class.name) the guard is `AllowAll`, which allows every operation without a lookup.
With one it is `AclGuard`: each check is decided by the ACLs in the metadata (cluster/security/authorizer.py), and
logged: denied operations at INFO, allowed ones at DEBUG. A check that only filters a listing (`is_attempt=False`) is
not logged when it is denied.

Produce and Fetch are so frequent that they make no check at all without an authorizer: with one, `AclGuard.handler`
replaces their function by the second one that they pass to `handles`. Their fast paths need a permit (permit.py).

The principal is that of the connection's SASL login (logins.py), otherwise ANONYMOUS.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trioka.cluster.image.acls import CLUSTER_NAME, AclOperation, AclResourceType, Acls, AclStamp
from trioka.cluster.image.configs import ConfigResourceType
from trioka.cluster.security.authorizer import AuthorizationResult, Authorizer, Requester
from trioka.protocol.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)

from ..api import SUPPORTED_APIS, Handler
from ..config.authorization import authorizer_of
from ..counters.latency import FETCH, PRODUCE
from ..logs.lines import in_a_line
from .authorized_operations import CLUSTER_OPERATIONS, bits
from .permit import Permit

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Connection

log = logging.getLogger("trioka.authorizer")

T = TypeVar("T")

ANONYMOUS: Final = "User:ANONYMOUS"  # a client that has not authenticated
SELF_PRINCIPAL: Final = ""  # the principal of a node's own requests; no client has it

TOPIC: Final = AclResourceType.TOPIC
GROUP: Final = AclResourceType.GROUP
CLUSTER: Final = AclResourceType.CLUSTER
TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID

FAST_PATH_OPERATIONS: Final = {PRODUCE: AclOperation.WRITE, FETCH: AclOperation.READ}

CONFIGURABLE: Final[frozenset[int]] = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}

FAILURES: Final[dict[AclResourceType, type[KafkaError]]] = {
    AclResourceType.TOPIC: TopicAuthorizationFailed,
    AclResourceType.GROUP: GroupAuthorizationFailed,
    AclResourceType.CLUSTER: ClusterAuthorizationFailed,
    AclResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    AclResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailed,
}


class _All(Container[str]):
    """A container of every name."""

    def __contains__(self, name: object) -> bool:
        return True


ALL: Final = _All()


class AllowAll:
    """Allows every operation to every principal."""

    is_closed = False
    stamp: AclStamp | None = AclStamp()
    """The stamp of permits that are still valid (permit.py)."""

    def permit(self, connection: "Connection", key: int, topic: str, topic_id: bytes) -> Permit | None:
        """A permit for this connection's fast path to an API and topic (by name or id); None if it is not allowed."""
        assert self.stamp is not None
        return Permit(connection.principal, topic, self.stamp)

    def handler(self, handler: Handler[Any]) -> Handler[Any]:
        """The handler to serve an API with, which may contain checks."""
        return handler

    def may(
        self,
        call: "Call",
        operation: AclOperation,
        kind: AclResourceType = CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        is_attempt: bool = True,
    ) -> bool:
        return True

    def must(
        self, call: "Call", operation: AclOperation, kind: AclResourceType = CLUSTER, name: str = CLUSTER_NAME
    ) -> None:
        """Raises the resource type's authorization error if the operation is not allowed."""

    def allowed(
        self,
        call: "Call",
        operation: AclOperation,
        kind: AclResourceType,
        names: Iterable[str],
        *,
        is_attempt: bool = True,
    ) -> Container[str]:
        """The names for which the operation is allowed."""
        return ALL

    def may_on_any(self, call: "Call", operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether the operation may be allowed for any resource of this type."""
        return True

    def may_know(self, principal: str, host: str, topic: str) -> bool:
        """Whether a principal without a current call may describe a topic."""
        return True

    def operations(self, call: "Call", kind: AclResourceType, name: str, known: Sequence[AclOperation]) -> int:
        """The allowed ones of the known operations, as a bit set."""
        return bits(known)


class AclGuard(AllowAll):
    """Decides by the ACLs in the metadata."""

    is_closed = True

    def __init__(self, broker: "Broker", authorizer: Authorizer) -> None:
        self._broker = broker
        self._authorizer = authorizer

    @property
    def _acls(self) -> Acls:
        return self._broker.metadata.access.acls

    @property
    def stamp(self) -> AclStamp | None:  # type: ignore[override]
        """None while allowed operations are logged (DEBUG), so that all requests take the general path, which logs."""
        return None if log.isEnabledFor(logging.DEBUG) else self._acls.stamp

    def permit(self, connection: "Connection", key: int, topic: str, topic_id: bytes) -> Permit | None:
        stamp, name = self.stamp, topic or self._broker.topic_name(topic_id)
        if stamp is None or name is None:
            return None
        requester = Requester(connection.principal, connection.host)
        result = self._authorizer.authorize(self._acls, requester, FAST_PATH_OPERATIONS[key], TOPIC, name)
        return Permit(connection.principal, name, stamp) if result.allowed else None

    def handler(self, handler: Handler[Any]) -> Handler[Any]:
        if handler.cluster_only:
            return replace(handler, serve=self._for_nodes(handler))
        return handler if handler.authorized is None else replace(handler, serve=handler.authorized)

    def _for_nodes(self, handler: Handler[Any]) -> "Callable[[Broker, Call, Any], Any]":
        def serve(broker: "Broker", call: "Call", request: Any) -> Any:
            self.must(call, AclOperation.CLUSTER_ACTION)
            return handler.serve(broker, call, request)

        return serve

    def may(
        self,
        call: "Call",
        operation: AclOperation,
        kind: AclResourceType = CLUSTER,
        name: str = CLUSTER_NAME,
        *,
        is_attempt: bool = True,
    ) -> bool:
        if call.connection.principal == SELF_PRINCIPAL:
            return True
        verdict = self._authorizer.authorize(self._acls, _requester(call), operation, kind, name)
        if verdict.allowed or is_attempt:
            self._log(call, operation, kind, name, verdict)
        return verdict.allowed

    def must(
        self, call: "Call", operation: AclOperation, kind: AclResourceType = CLUSTER, name: str = CLUSTER_NAME
    ) -> None:
        if not self.may(call, operation, kind, name):
            # Like Kafka, only cluster errors have a message of their own.
            raise FAILURES[kind](f"{operation.name} is not allowed") if kind is CLUSTER else FAILURES[kind]()

    def allowed(
        self,
        call: "Call",
        operation: AclOperation,
        kind: AclResourceType,
        names: Iterable[str],
        *,
        is_attempt: bool = True,
    ) -> Container[str]:
        return {name for name in set(names) if self.may(call, operation, kind, name, is_attempt=is_attempt)}

    def may_on_any(self, call: "Call", operation: AclOperation, kind: AclResourceType) -> bool:
        verdict = self._authorizer.authorize_any(self._acls, _requester(call), operation, kind)
        self._log(call, operation, kind, "of any name", verdict)
        return verdict.allowed

    def may_know(self, principal: str, host: str, topic: str) -> bool:
        requester = Requester(principal, host)
        return self._authorizer.authorize(self._acls, requester, AclOperation.DESCRIBE, TOPIC, topic).allowed

    def operations(self, call: "Call", kind: AclResourceType, name: str, known: Sequence[AclOperation]) -> int:
        requester, authorize = _requester(call), self._authorizer.authorize
        return bits(each for each in known if authorize(self._acls, requester, each, kind, name).allowed)

    def _log(
        self, call: "Call", operation: AclOperation, kind: AclResourceType, name: str, verdict: AuthorizationResult
    ) -> None:
        level = logging.DEBUG if verdict.allowed else logging.INFO
        if log.isEnabledFor(level):
            requester, api = _requester(call), SUPPORTED_APIS[call.route.key].name
            what = f"{operation.name} on {kind.name} {in_a_line(name)} by {api}"
            result, reason = "allowed" if verdict.allowed else "denied", in_a_line(str(verdict.because))
            log.log(level, "%s: %s from %s, %s: %s", result, requester.principal, requester.host, what, reason)


def guard_of(broker: "Broker") -> AllowAll:
    authorizer = authorizer_of(broker.config)
    return AllowAll() if authorizer is None else AclGuard(broker, authorizer)


def cluster_operations(broker: "Broker", call: "Call") -> int:
    """The allowed cluster operations as a bit set; 0 if DESCRIBE is not allowed."""
    if not broker.guard.may(call, AclOperation.DESCRIBE):
        return 0
    return broker.guard.operations(call, CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def must_with_config(broker: "Broker", call: "Call", operation: AclOperation, resource_type: int, name: str) -> None:
    """Checks an operation on a resource that has a configuration. Other resources than topics and groups count as the
    cluster."""
    kinds = {ConfigResourceType.TOPIC: (TOPIC, name), ConfigResourceType.GROUP: (GROUP, name)}
    kind, name = kinds.get(ConfigResourceType(resource_type), (CLUSTER, CLUSTER_NAME))
    if not broker.guard.may(call, operation, kind, name):
        raise FAILURES[kind](f"{operation.name} is not allowed")


def denied_alterations(broker: "Broker", call: "Call", resources: Sequence[tuple[int, str]]) -> list[KafkaError | None]:
    """The authorization error, or None, of each resource (type and name) that is to be altered. A repeated resource or
    unknown type gets None: the alteration refuses it with its own error."""
    times = Counter(resources)
    found: list[KafkaError | None] = []
    for resource_type, name in resources:
        error = None
        if times[resource_type, name] == 1 and resource_type in CONFIGURABLE:
            try:
                must_with_config(broker, call, AclOperation.ALTER_CONFIGS, resource_type, name)
            except KafkaError as denied:
                error = denied
        found.append(error)
    return found


def pop_denied(
    broker: "Broker",
    call: "Call",
    operation: AclOperation,
    topics: list[T],
    name_of: Callable[[T], str | None],
    *,
    is_attempt: bool = True,
) -> list[T]:
    """Removes the topics for which the operation is not allowed from the list, and returns them. A topic whose name is
    unknown stays."""
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


def _requester(call: "Call") -> Requester:
    connection = call.connection
    return Requester(connection.principal, connection.host)
