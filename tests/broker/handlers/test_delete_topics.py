from pathlib import Path

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, produce, told_of

from trioka.protocol.errors import (
    InvalidRequest,
    RequestTimedOut,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.primitives import NULL_UUID

NOBODYS_ID = b"x" * 16


def by_name(*names: str, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def by_id(*ids: bytes) -> DeleteTopicsRequest:
    topics = [DeleteTopicsRequest.Topic(name=None, topic_id=id) for id in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=1000)


@on_trio
async def test_a_topic_is_gone_when_its_deletion_is_answered_and_can_come_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        first = await create(broker, "a")
        await produce(broker, "a", 1, 2)
        (result,) = (await ask(broker, by_name("a"), 5)).responses
        assert (result.name, result.error_code) == ("a", 0)
        assert await told_of(broker) == []
        second = await create(broker, "a")
        assert second.topic_id != first.topic_id
        assert await produce(broker, "a", 1) == 0, "nothing is left of the first"
    async with running_broker(tmp_path) as broker:
        assert [each.topic_id for each in await told_of(broker)] == [second.topic_id]


@on_trio
async def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = await create(broker, "a")
        result = (await ask(broker, by_id(created.topic_id, NOBODYS_ID), 6)).responses
        assert [(each.name, each.topic_id, each.error_code) for each in result] == [
            ("a", created.topic_id, 0),
            (None, NOBODYS_ID, UnknownTopicId.code),
        ]


@on_trio
async def test_what_cannot_be_meant_is_not_done(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        for version in range(1, 6):
            result = (await ask(broker, by_name("a", "a", "nobody"), version)).responses
            assert {each.name: each.error_code for each in result} == {
                "a": InvalidRequest.code,
                "nobody": UnknownTopicOrPartition.code,
            }
        (result,) = (await ask(broker, by_id(NULL_UUID), 6)).responses
        assert result.error_code == InvalidRequest.code
        (result,) = (await ask(broker, by_name("a", timeout_ms=0), 4)).responses
        assert result.error_code == RequestTimedOut.code
        assert len(await told_of(broker)) == 1


@on_trio
async def test_deletion_can_be_forbidden(tmp_path: Path) -> None:
    async with running_broker(tmp_path, delete_topic_enable="false") as broker:
        await create(broker, "a")
        for version in range(1, 6):
            (result,) = (await ask(broker, by_name("a"), version)).responses
            assert result.error_code == (InvalidRequest if version < 3 else TopicDeletionDisabled).code
        assert len(await told_of(broker)) == 1
