from pathlib import Path
from typing import Any

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create

from trioka.broker.broker import Broker
from trioka.protocol.errors import ElectionNotNeeded, InvalidRequest, RequestTimedOut, UnknownTopicOrPartition
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest


async def elect(
    broker: Broker, *topics: tuple[str, list[int]], version: int = 2, type: int = 0, timeout_ms: int = 1000
) -> Any:
    requested = [ElectLeadersRequest.TopicPartition(topic=name, partitions=indexes) for name, indexes in topics]
    request = ElectLeadersRequest(election_type=type, topic_partitions=requested or None, timeout_ms=timeout_ms)
    return await ask(broker, request, version)


@on_trio
async def test_on_one_broker_every_partition_has_its_leader(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        for version in range(3):
            response = await elect(broker, ("a", [0, 9]), ("nobody", [0]), ("a", [1]), version=version)
            assert response.error_code == 0
            assert [
                (topic.topic, [(result.partition_id, result.error_code) for result in topic.partition_result])
                for topic in response.replica_election_results
            ] == [
                ("a", [(0, ElectionNotNeeded.code), (9, UnknownTopicOrPartition.code)]),
                ("nobody", [(0, UnknownTopicOrPartition.code)]),
                ("a", [(1, ElectionNotNeeded.code)]),
            ]
            (topic,) = (await elect(broker, version=version)).replica_election_results
            assert (topic.topic, topic.partition_result) == ("a", []), "of all, only those that needed one"


@on_trio
async def test_a_refusal_is_as_precise_as_the_version_allows(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        for version in range(3):
            response = await elect(broker, ("a", [0]), version=version, timeout_ms=0)
            assert response.error_code == (RequestTimedOut.code if version else 0)
            assert response.replica_election_results[0].partition_result[0].error_code == RequestTimedOut.code
            response = await elect(broker, version=version, timeout_ms=0)
            assert response.replica_election_results == []
        assert (await elect(broker, ("a", [0]), type=7)).error_code == InvalidRequest.code
