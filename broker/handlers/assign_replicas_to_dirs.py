"""AssignReplicasToDirs (73): a broker reports the log directories of its replicas."""

from itertools import islice
from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

DirectoryResult = AssignReplicasToDirsResponse.Directory


def error_response(request: AssignReplicasToDirsRequest, error: KafkaError) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=error.code, directories=[])


@handles(AssignReplicasToDirsRequest, error_response=error_response, cluster_only=True)
async def assign_replicas_to_dirs(
    broker: "Broker", call: "Call", request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    decision = await broker.quorum.change(lambda controller: controller.assign_replicas_to_directories(request))
    replies = iter(decision.replies)
    return AssignReplicasToDirsResponse(
        throttle_time_ms=0,
        error_code=0,
        directories=[
            DirectoryResult(
                id=directory.id,
                topics=[
                    DirectoryResult.Topic(
                        topic_id=topic.topic_id,
                        partitions=[
                            DirectoryResult.Topic.Partition(partition_index=reply.index, error_code=reply.outcome.code)
                            for reply in islice(replies, len(topic.partitions))
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ],
    )
