from pathlib import Path

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, told_of

from trioka.protocol.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

Request = AlterPartitionReassignmentsRequest


def move(name: str, *moves: tuple[int, list[int] | None], timeout_ms: int = 1000) -> Request:
    partitions = [Request.Topic.Partition(partition_index=index, replicas=replicas) for index, replicas in moves]
    return Request(topics=[Request.Topic(name=name, partitions=partitions)], timeout_ms=timeout_ms)


@on_trio
async def test_on_one_broker_a_replica_can_only_stay_where_it_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        for version in range(2):
            request = move("a", (0, [1]), (1, [2]), (0, []), (0, None), (9, [1]))
            response = await ask(broker, request, version)
            assert response.error_code == 0
            assert [result.error_code for result in response.responses[0].partitions] == [
                0,
                InvalidReplicaAssignment.code,
                InvalidReplicaAssignment.code,
                NoReassignmentInProgress.code,
                UnknownTopicOrPartition.code,
            ]
        assert (await ask(broker, ListPartitionReassignmentsRequest(topics=None), 0)).topics == []
        assert [each.replica_nodes for each in (await told_of(broker, "a"))[0].partitions] == [[1], [1]]


@on_trio
async def test_a_job_without_a_waiter_is_not_begun(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        response = await ask(broker, move("a", (0, [1]), timeout_ms=0), 1)
        assert response.error_code == response.responses[0].partitions[0].error_code == RequestTimedOut.code
