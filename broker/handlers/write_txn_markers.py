"""WriteTxnMarkers (27): writes the commit or abort markers of a transaction to its partitions. The sender is the
transaction coordinator, or an operator's command that aborts a hanging transaction.

The response is sent when all markers are committed; each partition has its own error. v2 the transaction version: with
version 2 (KIP-890), a marker with the producer's current epoch is rejected.
"""

from functools import partial
from typing import TYPE_CHECKING

import trio

from trioka.cluster.image.acls import AclOperation
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

MarkerRequest = WriteTxnMarkersRequest.Marker
MarkerResult = WriteTxnMarkersResponse.Marker
Codes = dict[int, dict[TopicPartition, int]]  # by producer


def error_response(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    codes: Codes = {}
    for requested in request.markers:
        codes.setdefault(requested.producer_id, {}).update(dict.fromkeys(_partitions(requested), error.code))
    return _response(codes)


@handles(WriteTxnMarkersRequest, error_response=error_response)
async def write_txn_markers(broker: "Broker", call: "Call", request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not broker.guard.may(call, AclOperation.ALTER, is_attempt=False):
        broker.guard.must(call, AclOperation.CLUSTER_ACTION)
    codes: Codes = {}
    pending = sum(len(_partitions(requested)) for requested in request.markers)
    done = trio.Event()

    def on_written(results: dict[TopicPartition, int], partition: TopicPartition, error: KafkaError | None) -> None:
        nonlocal pending
        results[partition] = 0 if error is None else error.code
        pending -= 1
        if not pending:
            done.set()

    for requested in request.markers:
        if not _partitions(requested):
            continue
        results = codes.setdefault(requested.producer_id, {})
        producer = Producer(requested.producer_id, requested.producer_epoch)
        marker = Marker(
            producer, requested.transaction_result, requested.coordinator_epoch, requested.transaction_version
        )
        for partition in _partitions(requested):
            write_marker(broker, partition, marker, partial(on_written, results, partition))
    if pending:
        await done.wait()
    return _response(codes)


def _partitions(requested: MarkerRequest) -> list[TopicPartition]:
    return [(topic.name, index) for topic in requested.topics for index in topic.partition_indexes]


def _response(codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            MarkerResult(producer_id=producer_id, topics=_topics(results)) for producer_id, results in codes.items()
        ]
    )


def _topics(codes: dict[TopicPartition, int]) -> list[MarkerResult.Topic]:
    topics: dict[str, list[MarkerResult.Topic.Partition]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append(MarkerResult.Topic.Partition(partition_index=index, error_code=code))
    return [MarkerResult.Topic(name=name, partitions=partitions) for name, partitions in topics.items()]
