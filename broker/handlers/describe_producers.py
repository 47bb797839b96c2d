"""DescribeProducers (61): returns the producer state of a partition's leader, with open transactions."""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.placement.topic_names import check_topic_name
from trioka.protocol.errors import InvalidTopic, KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from trioka.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

from ..api import handles
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicRequest = DescribeProducersRequest.Topic
PartitionResult = DescribeProducersResponse.Topic.Partition


def error_response(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0, topics=[_error_result(topic, error) for topic in request.topics]
    )


@handles(DescribeProducersRequest, error_response=error_response)
def describe_producers(broker: "Broker", call: "Call", request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0, topics=[_topic(broker, call, topic) for topic in request.topics]
    )


def _topic(broker: "Broker", call: "Call", topic: TopicRequest) -> DescribeProducersResponse.Topic:
    error = _topic_error(broker, call, topic.name)
    if error is not None:
        return _error_result(topic, error)
    return DescribeProducersResponse.Topic(
        name=topic.name, partitions=[_partition(broker, topic.name, index) for index in topic.partition_indexes]
    )


def _topic_error(broker: "Broker", call: "Call", name: str) -> KafkaError | None:
    try:
        check_topic_name(name)
        broker.guard.must(call, AclOperation.READ, TOPIC, name)
    except (InvalidTopic, TopicAuthorizationFailed) as error:
        return error
    return None if broker.metadata.topics.by_name(name) else UnknownTopicOrPartition(f"topic {name!r} does not exist")


def _partition(broker: "Broker", topic: str, index: int) -> PartitionResult:
    try:
        replica = broker.partitions.get(topic, index)
        replica.require_leader()
    except KafkaError as error:
        return PartitionResult(partition_index=index, error_code=error.code, active_producers=[])
    return PartitionResult(
        partition_index=index,
        error_code=0,
        active_producers=[
            PartitionResult.ActiveProducer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer_id, producer in replica.log.producers.producers.items()
        ],
    )


def _error_result(topic: TopicRequest, error: KafkaError) -> DescribeProducersResponse.Topic:
    partitions = [
        PartitionResult(partition_index=index, error_code=error.code, error_message=str(error), active_producers=[])
        for index in topic.partition_indexes
    ]
    return DescribeProducersResponse.Topic(name=topic.name, partitions=partitions)
