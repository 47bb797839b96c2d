"""OffsetFetch: where a group is, of one group or of many, of some topics or of all."""

from pathlib import Path
from typing import Any

from support.group_requests import commit, consumer_heartbeat, grouping
from support.serving import on_trio

from trioka.protocol.errors import StaleMemberEpoch, UnknownTopicId
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

Group = OffsetFetchRequest.Group


def result(topics: Any) -> list[tuple[str, int, int, int]]:
    return [(t.name, p.partition_index, p.committed_offset, p.error_code) for t in topics for p in t.partitions]


@on_trio
async def test_one_group(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        await client.ask(commit(5, partitions=[0, 1]), 9)
        for version in range(1, 8):
            topics = [
                OffsetFetchRequest.Topic(name="t", partition_indexes=[1, 2]),
                OffsetFetchRequest.Topic(name="nowhere", partition_indexes=[0]),
            ]
            answer = await client.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
            assert result(answer.topics) == [("t", 1, 5, 0), ("t", 2, -1, 0), ("nowhere", 0, -1, 0)]
            answer = await client.ask(OffsetFetchRequest(group_id="unheard of", topics=topics[:1]), version)
            assert result(answer.topics) == [("t", 1, -1, 0), ("t", 2, -1, 0)]
            if version >= 2:
                answer = await client.ask(OffsetFetchRequest(group_id="g", topics=None), version)
                assert result(answer.topics) == [("t", 0, 5, 0), ("t", 1, 5, 0)] and not answer.error_code


@on_trio
async def test_many_groups(tmp_path: Path) -> None:
    async with grouping(tmp_path, offsets_topic_num_partitions=5) as (_, client):
        for number, name in enumerate("abc"):
            await client.ask(commit(number, group=name), 9)
        for version in (8, 9):
            groups = [Group(group_id=name, topics=None) for name in "cabd"]
            answer = await client.ask(OffsetFetchRequest(groups=groups), version)
            assert [(group.group_id, result(group.topics)) for group in answer.groups] == [
                ("c", [("t", 0, 2, 0)]),
                ("a", [("t", 0, 0, 0)]),
                ("b", [("t", 0, 1, 0)]),
                ("d", []),
            ]


@on_trio
async def test_topics_by_id(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, client):
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
        await client.ask(commit(5), 9)
        ids = [b"x" * 16, topic.topic_id]
        request = [Group.Topic(topic_id=topic_id, partition_indexes=[0]) for topic_id in ids]
        (group,) = (await client.ask(OffsetFetchRequest(groups=[Group(group_id="g", topics=request)]), 10)).groups
        known, unknown = group.topics
        assert (known.topic_id, known.partitions[0].committed_offset) == (topic.topic_id, 5)
        assert (unknown.topic_id, unknown.partitions[0].error_code) == (b"x" * 16, UnknownTopicId.code)
        (group,) = (await client.ask(OffsetFetchRequest(groups=[Group(group_id="g", topics=None)]), 10)).groups
        assert [topic.topic_id for topic in group.topics] == [topic.topic_id]


@on_trio
async def test_a_member_of_a_consumer_group_must_know_its_epoch(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        epoch = (await client.ask(consumer_heartbeat("k", "m"), 1)).member_epoch
        for said, code in ((epoch, 0), (epoch + 1, StaleMemberEpoch.code)):
            request = Group(group_id="k", member_id="m", member_epoch=said, topics=None)
            (group,) = (await client.ask(OffsetFetchRequest(groups=[request]), 9)).groups
            assert group.error_code == code
