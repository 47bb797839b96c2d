"""FindCoordinator (10): returns the coordinator of a group, a transactional id or a share partition.

The coordinator is the leader of the partition of the internal topic that the key hashes to. The first request creates
the internal topic. Kafka then answers COORDINATOR_NOT_AVAILABLE and the client retries; this handler waits until the
topic exists, and returns that error only if the topic cannot be created.

Share coordinators are not implemented yet: COORDINATOR_NOT_AVAILABLE.

v1 types of keys · v3 flexible · v4 several keys · v6 share partitions, as group:topic id:partition
"""

import logging
import re
from collections.abc import Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trioka.cluster.acls import AclOperation, AclResourceType
from trioka.coordinator.partitioning import partition_of
from trioka.protocol.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

from ..api import handles
from ..controller.topic_creation import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, create_topics, topic_to_create
from ..security.guard import FAILURES

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.coordinators")

CoordinatorResult = FindCoordinatorResponse.Coordinator

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_MANY_KEYS: Final = 4
FIRST_WITH_SHARE: Final = 6
NO_NODE: Final = -1
NO_ERROR: Final = "NONE"  # the message of a successful response before version 4

TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
RESOURCE_TYPES: Final = {GROUP: AclResourceType.GROUP, TRANSACTION: AclResourceType.TRANSACTIONAL_ID}
SHARE_KEY: Final = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}(?:==)?:[+-]?[0-9]{1,10}")


class CoordinatorNode(NamedTuple):
    id: int
    host: str
    port: int


def error_response(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    keys = request.coordinator_keys
    return _batch_response(keys, dict.fromkeys(keys, error)) if keys else _single_response(error)


@handles(FindCoordinatorRequest, error_response=error_response)
def find_coordinator(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest
) -> "FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]":
    keys = request.coordinator_keys if call.version >= FIRST_WITH_MANY_KEYS else [request.key]
    allowed = _allowed(broker, call, request.key_type, keys)
    topic = TOPICS.get(request.key_type) if any(key in allowed for key in keys) else None
    # While a change is being applied, the topic may exist without its coordinators: wait, as for the creation.
    if topic is not None and (broker.metadata.topics.by_name(topic) is None or broker.quorum.is_changing):
        return _create_and_respond(broker, call, request, topic, allowed)
    return _respond(broker, call, request, allowed)


def _allowed(broker: "Broker", call: "Call", key_type: int, keys: Sequence[str]) -> Container[str]:
    """The keys that the client may describe."""
    if key_type in RESOURCE_TYPES:
        return broker.guard.allowed(call, AclOperation.DESCRIBE, RESOURCE_TYPES[key_type], keys)
    if key_type == SHARE and call.version >= FIRST_WITH_SHARE:
        broker.guard.must(call, AclOperation.CLUSTER_ACTION)
    return keys


async def _create_and_respond(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest, topic: str, allowed: Container[str]
) -> FindCoordinatorResponse:
    failed = await create_topics(broker, [topic_to_create(topic, broker.config)])
    for name, error in failed.items():
        log.warning("cannot create topic %s for client %s: %s", name, call.client_id, error)
    return _respond(broker, call, request, allowed)


def _respond(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest, allowed: Container[str]
) -> FindCoordinatorResponse:
    is_known = request.key_type in (GROUP, TRANSACTION, SHARE)
    if call.version < FIRST_WITH_MANY_KEYS:
        if not is_known or request.key_type == SHARE:
            return _single_response(InvalidRequest())
        return _single_response(_find(broker, call, request.key_type, request.key, allowed))
    if not is_known:
        error = InvalidRequest(f"unknown coordinator type {request.key_type}")
        return _batch_response(request.coordinator_keys, dict.fromkeys(request.coordinator_keys, error))
    coordinators = {key: _find(broker, call, request.key_type, key, allowed) for key in request.coordinator_keys}
    return _batch_response(request.coordinator_keys, coordinators)


def _find(
    broker: "Broker", call: "Call", key_type: int, key: str, allowed: Container[str]
) -> CoordinatorNode | KafkaError:
    if key_type in RESOURCE_TYPES and key not in allowed:
        return FAILURES[RESOURCE_TYPES[key_type]]()
    if key_type == SHARE and (call.version < FIRST_WITH_SHARE or not SHARE_KEY.fullmatch(key)):
        return InvalidRequest()
    if key_type in TOPICS:
        topic = broker.metadata.topics.by_name(TOPICS[key_type])
        partition = None if topic is None else topic.partitions.get(partition_of(key, len(topic.partitions)))
        if partition is not None:
            for node_id, host, port, _ in broker.endpoints(call.connection.listener):
                if node_id == partition.leader:
                    return CoordinatorNode(node_id, host, port)
    return CoordinatorNotAvailable()


def _single_response(coordinator: CoordinatorNode | KafkaError) -> FindCoordinatorResponse:
    if isinstance(coordinator, CoordinatorNode):
        return FindCoordinatorResponse(
            error_message=NO_ERROR, node_id=coordinator.id, host=coordinator.host, port=coordinator.port
        )
    return FindCoordinatorResponse(
        error_code=coordinator.code, error_message=str(coordinator), node_id=NO_NODE, port=NO_NODE
    )


def _batch_response(
    keys: Sequence[str], coordinators: Mapping[str, CoordinatorNode | KafkaError]
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[_to_result(key, coordinators[key]) for key in keys])


def _to_result(key: str, coordinator: CoordinatorNode | KafkaError) -> CoordinatorResult:
    if isinstance(coordinator, CoordinatorNode):
        return CoordinatorResult(
            key=key,
            node_id=coordinator.id,
            host=coordinator.host,
            port=coordinator.port,
            error_code=0,
            error_message="",
        )
    return CoordinatorResult(
        key=key,
        node_id=NO_NODE,
        host="",
        port=NO_NODE,
        error_code=coordinator.code,
        error_message=str(coordinator) if coordinator.args else "",
    )
