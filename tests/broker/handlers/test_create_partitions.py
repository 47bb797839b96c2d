from pathlib import Path

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, produce, told_of

from trioka.protocol.errors import InvalidPartitions, RequestTimedOut, UnknownTopicOrPartition
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest


def grow(*wanted: tuple[str, int], validate_only: bool = False, timeout_ms: int = 1000) -> CreatePartitionsRequest:
    topics = [CreatePartitionsRequest.Topic(name=name, count=count, assignments=None) for name, count in wanted]
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


@on_trio
async def test_a_new_partition_can_be_written_to_when_it_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 1)
        for version in range(4):
            (result,) = (await ask(broker, grow(("a", 2 + version)), version)).results
            assert (result.name, result.error_code) == ("a", 0)
            assert await produce(broker, "a", 1, partition=1 + version) == 0


@on_trio
async def test_there_is_one_result_for_each_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        await create(broker, "b", 2)
        result = (await ask(broker, grow(("a", 1), ("nobody", 3), ("b", 3)), 3)).results
        assert [(each.name, each.error_code) for each in result] == [
            ("a", InvalidPartitions.code),
            ("nobody", UnknownTopicOrPartition.code),
            ("b", 0),
        ]
        assert [len(each.partitions) for each in await told_of(broker)] == [2, 3]


@on_trio
async def test_an_immediate_fetch_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        (result,) = (await ask(broker, grow(("a", 5), validate_only=True), 3)).results
        assert result.error_code == 0
        (result,) = (await ask(broker, grow(("a", 5), timeout_ms=0), 3)).results
        assert result.error_code == RequestTimedOut.code
        assert len((await told_of(broker))[0].partitions) == 2
