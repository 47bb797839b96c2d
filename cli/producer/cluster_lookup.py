"""What the producer asks the cluster: the leaders of a topic's partitions, and a producer id."""

import time
from typing import Final, NamedTuple

from trioka.protocol import errors
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse

from .. import problems
from ..client.cluster_client import Kafka
from .batches import ProducerId
from .partition import NO_LEADER

NO_TIMEOUT_MS: Final = 0x7FFFFFFF  # of transactions, which this producer does not use
PAUSE_S: Final = 0.05
INIT_PRODUCER_ID_AT_MOST: Final = 4


class Leaders(NamedTuple):
    by_partition: dict[int, int]
    addresses: dict[int, tuple[str, int]]  # by node


def find_leaders(kafka: Kafka, topic: str, *, may_create: bool = False) -> Leaders:
    """The leaders of a topic. If the brokers may create it, there are no partitions at first."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=may_create)
    answer: MetadataResponse = kafka.ask(request)
    (found,) = answer.topics
    if found.error_code != NONE and not error_class(found.error_code).retriable:
        raise problems.from_error_code(found.error_code, f"topic '{topic}' cannot be written to")
    by_partition = {
        each.partition_index: each.leader_id if each.leader_id >= 0 else NO_LEADER for each in found.partitions
    }
    return Leaders(by_partition, {broker.node_id: (broker.host, broker.port) for broker in answer.brokers})


def wait_for_partitions(kafka: Kafka, topic: str) -> Leaders:
    """The leaders, once the topic has partitions."""
    deadline = time.monotonic() + kafka.timeout_s
    while True:
        found = find_leaders(kafka, topic, may_create=True)
        if found.by_partition:
            return found
        if time.monotonic() > deadline:
            code = errors.UnknownTopicOrPartition.code
            raise problems.from_error_code(code, f"the broker has not created '{topic}' within {kafka.timeout_s:g} s")
        time.sleep(PAUSE_S)


def find_producer_id(kafka: Kafka) -> ProducerId:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS)
    answer = kafka.retry_while_stale(
        lambda: kafka.ask(request, at_most=INIT_PRODUCER_ID_AT_MOST), lambda result: [result.error_code]
    )
    if answer.error_code != NONE:
        what = f"{kafka.name} gives no producer id, which --acks all needs"
        hints = ["ask for the right to write to the topic, or use --acks 1"]
        raise problems.from_error_code(answer.error_code, what, hints=hints)
    return ProducerId(answer.producer_id, answer.producer_epoch)
