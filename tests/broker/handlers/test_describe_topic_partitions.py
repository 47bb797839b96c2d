from pathlib import Path

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create

from trioka.broker.broker import Broker
from trioka.protocol.errors import InvalidRequest, InvalidTopic, UnknownTopicOrPartition
from trioka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

Request = DescribeTopicPartitionsRequest
Place = tuple[str, int]


async def describe(
    broker: Broker, *names: str, limit: int = 2000, cursor: Place | None = None
) -> DescribeTopicPartitionsResponse:
    request = Request(
        topics=[Request.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await ask(broker, request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def places(response: DescribeTopicPartitionsResponse) -> list[Place]:
    return [
        (topic.name or "", partition.partition_index) for topic in response.topics for partition in topic.partitions
    ]


@on_trio
async def test_topics_are_listed_by_name_and_unknown_ones_with_the_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "b")
        await create(broker, "a", 2)
        assert places(await describe(broker)) == [("a", 0), ("a", 1), ("b", 0)]
        result = (await describe(broker, "nobody", "b", "a b")).topics
        assert [(topic.name, topic.error_code) for topic in result] == [
            ("a b", InvalidTopic.code),
            ("b", 0),
            ("nobody", UnknownTopicOrPartition.code),
        ]
        (partition,) = result[1].partitions
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], []), "empty, and not null"


@on_trio
async def test_all_portions_together_are_everything_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for name, partitions in (("a", 2), ("b", 1), ("c", 4)):
            await create(broker, name, partitions)
        for limit in range(1, 9):
            found: list[Place] = []
            cursor: Place | None = None
            while True:
                response = await describe(broker, limit=limit, cursor=cursor)
                assert len(places(response)) <= limit
                found += places(response)
                if response.next_cursor is None:
                    break
                cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
            assert found == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2), ("c", 3)]


@on_trio
async def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, **{"max.request.partition.size.limit": 3}) as broker:
        await create(broker, "a", 5)
        response = await describe(broker, limit=100)
        assert len(places(response)) == 3
        assert response.next_cursor is not None and response.next_cursor.partition_index == 3


@on_trio
async def test_a_cursor_makes_sense(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        for cursor in (("a", -1), ("b", 0)):
            (result,) = (await describe(broker, "a", cursor=cursor)).topics
            assert result.error_code == InvalidRequest.code
        assert places(await describe(broker, "a", cursor=("a", 1))) == [("a", 1)]
