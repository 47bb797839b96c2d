"""WriteTxnMarkers (27): partitions are told how a transaction ended, by its coordinator or by somebody who ends it by
hand.

Each partition answers for itself, once its marker is committed. v2 says which generation of the protocol it was: one
with an epoch for each transaction refuses a marker of the same epoch.
"""

from functools import partial
from typing import TYPE_CHECKING

import trio

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import TopicPartition
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from ..api import handles
from ..coordinators.transactions import write_marker
from ..coordinators.txn_rpc import Marker

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Asked = WriteTxnMarkersRequest.Marker
Told = WriteTxnMarkersResponse.Marker
Codes = dict[int, dict[TopicPartition, int]]  # by producer


def refuse(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    codes: Codes = {}
    for asked in request.markers:
        codes.setdefault(asked.producer_id, {}).update(dict.fromkeys(_partitions(asked), error.code))
    return _answer(codes)


@handles(WriteTxnMarkersRequest, refuse=refuse)
async def write_txn_markers(broker: "Broker", call: "Call", request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not broker.guard.may(call, Operation.ALTER, is_attempt=False):
        broker.guard.must(call, Operation.CLUSTER_ACTION)
    codes: Codes = {}
    left = sum(len(_partitions(asked)) for asked in request.markers)
    is_done = trio.Event()

    def tried(told: dict[TopicPartition, int], partition: TopicPartition, error: KafkaError | None) -> None:
        nonlocal left
        told[partition] = 0 if error is None else error.code
        left -= 1
        if not left:
            is_done.set()

    for asked in request.markers:
        if not _partitions(asked):
            continue
        told = codes.setdefault(asked.producer_id, {})
        producer = Producer(asked.producer_id, asked.producer_epoch)
        marker = Marker(producer, asked.transaction_result, asked.coordinator_epoch, asked.transaction_version)
        for partition in _partitions(asked):
            write_marker(broker, partition, marker, partial(tried, told, partition))
    if left:
        await is_done.wait()
    return _answer(codes)


def _partitions(asked: Asked) -> list[TopicPartition]:
    return [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]


def _answer(codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[Told(producer_id=producer_id, topics=_topics(told)) for producer_id, told in codes.items()]
    )


def _topics(codes: dict[TopicPartition, int]) -> list[Told.Topic]:
    topics: dict[str, list[Told.Topic.Partition]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append(Told.Topic.Partition(partition_index=index, error_code=code))
    return [Told.Topic(name=name, partitions=partitions) for name, partitions in topics.items()]
