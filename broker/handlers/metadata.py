"""Metadata (3): topics, partitions, who leads them, and the brokers.

A topic that is not there is created, if the client allows it and auto.create.topics.enable does. Kafka answers
UNKNOWN_TOPIC_OR_PARTITION first, and its client asks again; here the answer waits until the topic is there, so that the
client finds a leader at once. If it cannot be created, the answer is Kafka's.

Topics are told once, however often they are asked for, and if one is named by its id then those named by name count for
nothing. How a topic is told is kept until it changes (broker/metadata/response_cache.py).

v0 an empty list asks for all topics; replicas out of reach are left out · v1 null asks for all topics, an empty list
for none · v4 the client may forbid creation · v6 a leader that is only not on this listener is told so · v8 what the
asker may do · v12 topics by id · v13 an error for the whole answer
"""

import logging
from collections.abc import Container, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import Operation
from trioka.cluster.topics import INTERNAL_TOPICS, Topic
from trioka.protocol.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicId,
)
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..controller.topic_creation import create_topics, topic_to_create
from ..metadata.topic_description import Described, TopicDescription, whom_to_ask, why_unknown
from ..security.authorized_operations import TOPIC_OPERATIONS
from ..security.guard import TOPIC, cluster_operations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.metadata")

Told = MetadataResponse.Topic

NOT_ASKED: Final = -0x80000000
FIRST_VERSION_WITH_OFFLINE_REPLICAS: Final = 1
FIRST_VERSION_WITH_LISTENERS: Final = 6
FIRST_VERSION_BY_ID: Final = 12


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        Told(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=error.code)


@handles(MetadataRequest, refuse=refuse)
def metadata(
    broker: "Broker", call: "Call", request: MetadataRequest
) -> "MetadataResponse | Coroutine[Any, Any, MetadataResponse]":
    if call.version < FIRST_VERSION_BY_ID:
        for topic in request.topics or ():
            if topic.name is None or topic.topic_id != NULL_UUID:
                raise InvalidRequest(f"version {call.version} names topics by their names")
    view = _View(broker, call, request)
    missing = _to_create(broker, call, request, view)
    if missing:
        return _create_and_answer(broker, call, request, view, missing)
    return _answer(broker, call, request, view)


class _View:
    """What this client may know of, asked once."""

    def __init__(self, broker: "Broker", call: "Call", request: MetadataRequest) -> None:
        self.is_of_all = request.topics is None or (call.version == 0 and not request.topics)
        self.known = broker.guard.allowed(
            call, Operation.DESCRIBE, TOPIC, self._asked(broker, request), is_attempt=not self.is_of_all
        )
        self.not_to_create: Container[str] = ()  # it may know of them, and they are not there

    def _asked(self, broker: "Broker", request: MetadataRequest) -> Iterator[str]:
        topics = broker.metadata.topics
        if self.is_of_all:
            yield from (topic.name for topic in topics)
            return
        yield from _names(request)
        ids = (topics.by_id(topic.topic_id) for topic in request.topics or ())
        yield from (topic.name for topic in ids if topic is not None)


def _names(request: MetadataRequest) -> list[str]:
    """Each name once; none if there are ids."""
    topics = request.topics or ()
    if any(topic.topic_id != NULL_UUID for topic in topics):
        return []
    names = dict.fromkeys(topic.name for topic in topics)
    if None in names:
        raise InvalidRequest("a topic has neither a name nor an id")
    return list(names)  # type: ignore[arg-type]


def _to_create(broker: "Broker", call: "Call", request: MetadataRequest, view: _View) -> list[str]:
    if not request.topics or not request.allow_auto_topic_creation or not broker.auto_create_topics:
        return []
    known = broker.metadata.topics
    missing = [name for name in _names(request) if name in view.known and known.by_name(name) is None]
    if missing and not broker.guard.may(call, Operation.CREATE, is_attempt=False):
        allowed = broker.guard.allowed(call, Operation.CREATE, TOPIC, missing)
        view.not_to_create = {name for name in missing if name not in allowed}
    return [name for name in missing if name not in view.not_to_create and why_unknown(name) is not InvalidTopic]


async def _create_and_answer(
    broker: "Broker", call: "Call", request: MetadataRequest, view: _View, missing: list[str]
) -> MetadataResponse:
    failed = await create_topics(broker, [topic_to_create(name, broker.config) for name in missing])
    for name, why in failed.items():
        log.info("topic %s is not created for %s: %s", name, call.client_id, why)
    return _answer(broker, call, request, view)


def _answer(broker: "Broker", call: "Call", request: MetadataRequest, view: _View) -> MetadataResponse:
    telling = _Telling(broker, call, view, request.include_topic_authorized_operations)
    if view.is_of_all:
        told = [telling.topic(topic) for topic in broker.metadata.topics if topic.name in view.known]
    else:
        told = telling.by_ids(request) + [telling.by_name(name) for name in _names(request)]
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.endpoints(call.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=whom_to_ask(broker.metadata, broker.node_id),
        topics=told,
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


class _Telling:
    """What one answer says of topics."""

    def __init__(self, broker: "Broker", call: "Call", view: _View, with_operations: bool) -> None:
        self._broker = broker
        self._call = call
        self._view = view
        self._topics = broker.metadata.topics
        self._with_operations = with_operations
        self._leaves_out = call.version < FIRST_VERSION_WITH_OFFLINE_REPLICAS
        listener = call.connection.listener
        self._describing = TopicDescription(
            broker.metadata, listener, knows_listeners=call.version >= FIRST_VERSION_WITH_LISTENERS
        )
        self._told = broker.told_topics.seen(listener, call.version, self._describing)

    def by_ids(self, request: MetadataRequest) -> list[Told]:
        told = []
        for topic_id in dict.fromkeys(topic.topic_id for topic in request.topics or ()):
            if topic_id != NULL_UUID:
                topic = self._topics.by_id(topic_id)
                if topic is not None and topic.name in self._view.known:
                    told.append(self.topic(topic))
                else:
                    code = (UnknownTopicId if topic is None else TopicAuthorizationFailed).code
                    told.append(Told(error_code=code, name=None, topic_id=topic_id, partitions=[]))
        return told

    def by_name(self, name: str) -> Told:
        code = TopicAuthorizationFailed.code
        if name not in self._view.known:  # whether there is such a topic is not told, either
            return Told(error_code=code, name=name, is_internal=False, partitions=[])
        if name in self._view.not_to_create:
            return Told(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
        topic = self._topics.by_name(name)
        if topic is not None:
            return self.topic(topic)
        return Told(
            error_code=why_unknown(name).code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=self._operations(name),
        )

    def topic(self, topic: Topic) -> Told:
        if self._with_operations:  # which depend on who asks
            return self._tell(topic)
        told = self._told.get(topic)
        return told if told is not None else self._told.keep(topic, self._tell(topic))

    def _tell(self, topic: Topic) -> Told:
        describing = self._describing
        return Told(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self._partition(describing.partition(partition)) for partition in topic.partitions.values()],
            topic_authorized_operations=self._operations(topic.name),
        )

    def _operations(self, name: str) -> int:
        if not self._with_operations:
            return NOT_ASKED
        return self._broker.guard.operations(self._call, TOPIC, name, TOPIC_OPERATIONS)

    def _partition(self, described: Described) -> Told.Partition:
        partition, code = described.partition, described.error_code
        replicas, in_sync = list(partition.replicas), list(partition.isr)
        if self._leaves_out and described.offline:
            replicas = [broker_id for broker_id in replicas if broker_id not in described.offline]
            in_sync = [broker_id for broker_id in in_sync if broker_id not in described.offline]
            code = code or ReplicaNotAvailable.code
        return Told.Partition(
            error_code=code,
            partition_index=partition.index,
            leader_id=described.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=in_sync,
            offline_replicas=described.offline,
        )
