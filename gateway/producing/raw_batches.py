"""Kafka record batches that a caller made itself, written as they are by Produce requests.

Kafka takes one batch of a partition per request, so several go one after the other. A request is repeated only if the
broker says that it has not written the batch: what becomes of a batch whose connection breaks is not known, and nothing
but a producer id of the caller's own would recognise its repetition.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import grpc

from trioka.protocol import batch, errors
from trioka.protocol.batch import BatchHeader
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.produce import ProduceRequest

from ..failures import Refused
from ..kafka.cluster import Cluster
from ..v1 import log_pb2

BY_NAME: Final = 12  # the last version that names topics by name
ACKS: Final[Mapping[int, int]] = {log_pb2.ACKS_ALL: -1, log_pb2.ACKS_LEADER: 1, log_pb2.ACKS_NONE: 0}


class _UnknownOutcome(Exception):
    """The batch may have been written. Not an error of Kafka, so that it is not retried."""


def checked_batches(data: bytes) -> list[BatchHeader]:
    """The headers of the batches. Raises ProtocolError or a KafkaError for anything but whole, sound batches."""
    found = []
    for header in batch.headers(data):
        batch.verify(data, header)
        found.append(header)
    return found


async def write_batches(
    cluster: Cluster, topic: str, partition: int, data: bytes, headers: Sequence[BatchHeader], acks: int
) -> list[tuple[int, int]]:
    """Partition and offset of each batch; none with ACKS_NONE."""
    positions = []
    buffer = bytearray(data)
    for written, header in enumerate(headers):
        # A broker takes offsets from 0 on. Offset and epoch are in front of what the CRC covers, so that a batch that
        # was read may be written elsewhere.
        batch.assign_offset(buffer, header.position, 0, batch.NO_EPOCH)
        part = memoryview(buffer)[header.position : header.position + header.size]
        try:
            offset = await _write(cluster, topic, partition, part, acks)
        except _UnknownOutcome as error:
            raise Refused(
                grpc.StatusCode.UNAVAILABLE,
                f"{written} of {len(headers)} batches are written, and the next one may be: {error}",
                retriable=True,
            ) from None
        if acks != log_pb2.ACKS_NONE:
            positions.append((partition, offset))
    return positions


async def _write(cluster: Cluster, topic: str, partition: int, data: memoryview, acks: int) -> int:
    kind = ProduceRequest.Topic
    request = ProduceRequest(
        acks=ACKS[acks],
        timeout_ms=int(cluster.timeout_s * 1000),
        topic_data=[kind(name=topic, partition_data=[kind.Partition(index=partition, records=data)])],
    )

    async def attempt(fresh: bool) -> int:
        node = await cluster.leader(topic, partition, fresh=fresh)
        connection = await cluster.connection(node)
        version = connection.version_of(ProduceRequest, BY_NAME)
        if acks == log_pb2.ACKS_NONE:
            await connection.send(request, version, timeout_s=cluster.timeout_s)
            return -1
        try:
            response = await connection.request(request, timeout_s=cluster.timeout_s, version=version)
        except (errors.NetworkException, errors.RequestTimedOut) as error:
            raise _UnknownOutcome(str(error)) from None
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != NONE:
            kind_of_error = error_class(answer.error_code)
            raise kind_of_error(f"{topic}-{partition}: {answer.error_message or str(kind_of_error())}")
        return int(answer.base_offset)

    return await cluster.retrying(attempt)
