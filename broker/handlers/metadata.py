"""Metadata (3): returns topics, partitions with their leaders, and brokers.

A topic that does not exist is created if the client and auto.create.topics.enable allow it. Kafka then answers
UNKNOWN_TOPIC_OR_PARTITION and the client retries; this handler waits until the topic exists, so that the client gets a
leader at once. It returns that error only if the topic cannot be created.

Duplicate topics are returned once. If a request has topic ids, topics by name are ignored. Encoded topics are cached
until they change (broker/metadata/response_cache.py).

v0 an empty list means all topics; offline replicas are omitted · v1 null means all topics, an empty list none · v4 the
client can forbid creation · v6 LISTENER_NOT_FOUND if the leader is only missing on this listener · v8 authorized
operations · v12 topics by id · v13 an error for the whole response
"""

import logging
from collections.abc import Container, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import INTERNAL_TOPICS, Topic
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
from ..metadata.topic_description import (
    PartitionDescription,
    TopicDescription,
    advertised_controller,
    unknown_topic_error,
)
from ..security.authorized_operations import TOPIC_OPERATIONS
from ..security.guard import TOPIC, cluster_operations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.metadata")

TopicResult = MetadataResponse.Topic

NOT_REQUESTED: Final = -0x80000000
FIRST_VERSION_WITH_OFFLINE_REPLICAS: Final = 1
FIRST_VERSION_WITH_LISTENERS: Final = 6
FIRST_VERSION_BY_ID: Final = 12


def error_response(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        TopicResult(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=error.code)


@handles(MetadataRequest, error_response=error_response)
def metadata(
    broker: "Broker", call: "Call", request: MetadataRequest
) -> "MetadataResponse | Coroutine[Any, Any, MetadataResponse]":
    if call.version < FIRST_VERSION_BY_ID:
        for topic in request.topics or ():
            if topic.name is None or topic.topic_id != NULL_UUID:
                raise InvalidRequest(f"version {call.version} requires topic names and does not support topic ids")
    view = _View(broker, call, request)
    missing = _to_create(broker, call, request, view)
    if missing:
        return _create_and_respond(broker, call, request, view, missing)
    return _respond(broker, call, request, view)


class _View:
    """The topics that the client may describe, computed once per request."""

    def __init__(self, broker: "Broker", call: "Call", request: MetadataRequest) -> None:
        self.is_all_topics = request.topics is None or (call.version == 0 and not request.topics)
        self.describable = broker.guard.allowed(
            call,
            AclOperation.DESCRIBE,
            TOPIC,
            self._requested_names(broker, request),
            is_attempt=not self.is_all_topics,
        )
        self.not_to_create: Container[str] = ()  # missing topics that the client may describe but not create

    def _requested_names(self, broker: "Broker", request: MetadataRequest) -> Iterator[str]:
        topics = broker.metadata.topics
        if self.is_all_topics:
            yield from (topic.name for topic in topics)
            return
        yield from _names(request)
        ids = (topics.by_id(topic.topic_id) for topic in request.topics or ())
        yield from (topic.name for topic in ids if topic is not None)


def _names(request: MetadataRequest) -> list[str]:
    """The requested names without duplicates; empty if the request has ids."""
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
    topics = broker.metadata.topics
    missing = [name for name in _names(request) if name in view.describable and topics.by_name(name) is None]
    if missing and not broker.guard.may(call, AclOperation.CREATE, is_attempt=False):
        allowed = broker.guard.allowed(call, AclOperation.CREATE, TOPIC, missing)
        view.not_to_create = {name for name in missing if name not in allowed}
    return [
        name for name in missing if name not in view.not_to_create and unknown_topic_error(name) is not InvalidTopic
    ]


async def _create_and_respond(
    broker: "Broker", call: "Call", request: MetadataRequest, view: _View, missing: list[str]
) -> MetadataResponse:
    failed = await create_topics(broker, [topic_to_create(name, broker.config) for name in missing])
    for name, error in failed.items():
        log.info("cannot create topic %s for client %s: %s", name, call.client_id, error)
    return _respond(broker, call, request, view)


def _respond(broker: "Broker", call: "Call", request: MetadataRequest, view: _View) -> MetadataResponse:
    describer = _TopicDescriber(broker, call, view, request.include_topic_authorized_operations)
    if view.is_all_topics:
        topics = [describer.topic(topic) for topic in broker.metadata.topics if topic.name in view.describable]
    else:
        topics = describer.by_ids(request) + [describer.by_name(name) for name in _names(request)]
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.endpoints(call.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=advertised_controller(broker.metadata, broker.node_id),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


class _TopicDescriber:
    """Describes the topics of one response."""

    def __init__(self, broker: "Broker", call: "Call", view: _View, with_operations: bool) -> None:
        self._broker = broker
        self._call = call
        self._view = view
        self._topics = broker.metadata.topics
        self._with_operations = with_operations
        self._omits_offline = call.version < FIRST_VERSION_WITH_OFFLINE_REPLICAS
        listener = call.connection.listener
        self._description = TopicDescription(
            broker.metadata, listener, knows_listeners=call.version >= FIRST_VERSION_WITH_LISTENERS
        )
        self._cache = broker.metadata_response_cache.view_for(listener, call.version, self._description)

    def by_ids(self, request: MetadataRequest) -> list[TopicResult]:
        results = []
        for topic_id in dict.fromkeys(topic.topic_id for topic in request.topics or ()):
            if topic_id != NULL_UUID:
                topic = self._topics.by_id(topic_id)
                if topic is not None and topic.name in self._view.describable:
                    results.append(self.topic(topic))
                else:
                    code = (UnknownTopicId if topic is None else TopicAuthorizationFailed).code
                    results.append(TopicResult(error_code=code, name=None, topic_id=topic_id, partitions=[]))
        return results

    def by_name(self, name: str) -> TopicResult:
        code = TopicAuthorizationFailed.code
        if name not in self._view.describable:  # do not reveal whether the topic exists
            return TopicResult(error_code=code, name=name, is_internal=False, partitions=[])
        if name in self._view.not_to_create:
            return TopicResult(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])
        topic = self._topics.by_name(name)
        if topic is not None:
            return self.topic(topic)
        return TopicResult(
            error_code=unknown_topic_error(name).code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=self._operations(name),
        )

    def topic(self, topic: Topic) -> TopicResult:
        if self._with_operations:  # depend on the client
            return self._describe(topic)
        cached = self._cache.get(topic)
        return cached if cached is not None else self._cache.put(topic, self._describe(topic))

    def _describe(self, topic: Topic) -> TopicResult:
        description = self._description
        return TopicResult(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self._partition(description.partition(partition)) for partition in topic.partitions.values()],
            topic_authorized_operations=self._operations(topic.name),
        )

    def _operations(self, name: str) -> int:
        if not self._with_operations:
            return NOT_REQUESTED
        return self._broker.guard.operations(self._call, TOPIC, name, TOPIC_OPERATIONS)

    def _partition(self, described: PartitionDescription) -> TopicResult.Partition:
        partition, code = described.partition, described.error_code
        replicas, in_sync = list(partition.replicas), list(partition.isr)
        if self._omits_offline and described.offline:
            replicas = [broker_id for broker_id in replicas if broker_id not in described.offline]
            in_sync = [broker_id for broker_id in in_sync if broker_id not in described.offline]
            code = code or ReplicaNotAvailable.code
        return TopicResult.Partition(
            error_code=code,
            partition_index=partition.index,
            leader_id=described.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=in_sync,
            offline_replicas=described.offline,
        )
