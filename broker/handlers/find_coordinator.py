"""FindCoordinator (10): which broker looks after a group, a transactional id or a share partition.

That is the leader of the partition, of the internal topic, to which its name hashes. The topic of groups, and that of
transactions, is created when it is first asked for. Kafka answers COORDINATOR_NOT_AVAILABLE first, and its client asks
again; here the answer waits until the topic is there. If it cannot be created, the answer is Kafka's.

Share groups are not coordinated yet: not available, try again.

v1 kinds of key · v3 flexible · v4 many keys at once · v6 share partitions, named group:topic id:partition
"""

import logging
import re
from collections.abc import Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trioka.cluster.acls import Operation, ResourceKind
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

Told = FindCoordinatorResponse.Coordinator

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_MANY_KEYS: Final = 4
FIRST_WITH_SHARE: Final = 6
NO_NODE: Final = -1
NO_ERROR: Final = "NONE"  # what the message of the first versions says then

TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
KINDS: Final = {GROUP: ResourceKind.GROUP, TRANSACTION: ResourceKind.TRANSACTIONAL_ID}
SHARE_KEY: Final = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}(?:==)?:[+-]?[0-9]{1,10}")


class Node(NamedTuple):
    id: int
    host: str
    port: int


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    keys = request.coordinator_keys
    return _many(keys, dict.fromkeys(keys, error)) if keys else _one(error)


@handles(FindCoordinatorRequest, refuse=refuse)
def find_coordinator(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest
) -> "FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]":
    keys = request.coordinator_keys if call.version >= FIRST_WITH_MANY_KEYS else [request.key]
    allowed = _allowed(broker, call, request.key_type, keys)
    topic = TOPICS.get(request.key_type) if any(key in allowed for key in keys) else None
    # It may be known already, and its coordinators not be there yet: then the answer waits with the one who makes it.
    if topic is not None and (broker.metadata.topics.by_name(topic) is None or broker.quorum.is_changing):
        return _create_and_answer(broker, call, request, topic, allowed)
    return _answer(broker, call, request, allowed)


def _allowed(broker: "Broker", call: "Call", key_type: int, keys: Sequence[str]) -> Container[str]:
    """The names that this client may know of."""
    if key_type in KINDS:
        return broker.guard.allowed(call, Operation.DESCRIBE, KINDS[key_type], keys)
    if key_type == SHARE and call.version >= FIRST_WITH_SHARE:
        broker.guard.must(call, Operation.CLUSTER_ACTION)
    return keys


async def _create_and_answer(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest, topic: str, allowed: Container[str]
) -> FindCoordinatorResponse:
    failed = await create_topics(broker, [topic_to_create(topic, broker.config)])
    for name, why in failed.items():
        log.warning("topic %s is not created for %s: %s", name, call.client_id, why)
    return _answer(broker, call, request, allowed)


def _answer(
    broker: "Broker", call: "Call", request: FindCoordinatorRequest, allowed: Container[str]
) -> FindCoordinatorResponse:
    is_known = request.key_type in (GROUP, TRANSACTION, SHARE)
    if call.version < FIRST_WITH_MANY_KEYS:
        if not is_known or request.key_type == SHARE:
            return _one(InvalidRequest())
        return _one(_find(broker, call, request.key_type, request.key, allowed))
    if not is_known:
        complaint = InvalidRequest(f"there is no coordinator of type {request.key_type}")
        return _many(request.coordinator_keys, dict.fromkeys(request.coordinator_keys, complaint))
    found = {key: _find(broker, call, request.key_type, key, allowed) for key in request.coordinator_keys}
    return _many(request.coordinator_keys, found)


def _find(broker: "Broker", call: "Call", key_type: int, key: str, allowed: Container[str]) -> Node | KafkaError:
    if key_type in KINDS and key not in allowed:
        return FAILURES[KINDS[key_type]]()
    if key_type == SHARE and (call.version < FIRST_WITH_SHARE or not SHARE_KEY.fullmatch(key)):
        return InvalidRequest()
    if key_type in TOPICS:
        topic = broker.metadata.topics.by_name(TOPICS[key_type])
        partition = None if topic is None else topic.partitions.get(partition_of(key, len(topic.partitions)))
        if partition is not None:
            for node_id, host, port, _ in broker.endpoints(call.connection.listener):
                if node_id == partition.leader:
                    return Node(node_id, host, port)
    return CoordinatorNotAvailable()


def _one(found: Node | KafkaError) -> FindCoordinatorResponse:
    if isinstance(found, Node):
        return FindCoordinatorResponse(error_message=NO_ERROR, node_id=found.id, host=found.host, port=found.port)
    return FindCoordinatorResponse(error_code=found.code, error_message=str(found), node_id=NO_NODE, port=NO_NODE)


def _many(keys: Sequence[str], found: Mapping[str, Node | KafkaError]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[_told(key, found[key]) for key in keys])


def _told(key: str, found: Node | KafkaError) -> Told:
    if isinstance(found, Node):
        return Told(key=key, node_id=found.id, host=found.host, port=found.port, error_code=0, error_message="")
    return Told(
        key=key,
        node_id=NO_NODE,
        host="",
        port=NO_NODE,
        error_code=found.code,
        error_message=str(found) if found.args else "",
    )
