"""OffsetCommit: the offset is kept, or the response has an error for each partition."""

from pathlib import Path

from support.group_requests import code_of, codes_of, commit, consumer_heartbeat, fetch, grouping, offsets_of, settle
from support.serving import on_trio

from trioka.protocol.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


@on_trio
async def test_a_commit_is_kept_in_every_version(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, client):
        for version in range(2, 11):
            topic = broker.metadata.topics.by_name("t")
            assert topic is not None
            request = commit(40 + version, topic="t" if version < 10 else topic.topic_id, text="here", leader_epoch=7)
            answer = await client.ask(request, version)
            assert code_of(answer) == 0
            assert answer.topics[0].name == ("t" if version < 10 else "")
            assert answer.topics[0].topic_id == (bytes(16) if version < 10 else topic.topic_id)
            (result,) = (await client.ask(fetch(), 9)).groups[0].topics[0].partitions
            epoch = 7 if version >= 6 else -1
            assert (result.committed_offset, result.committed_leader_epoch, result.metadata) == (
                40 + version,
                epoch,
                "here",
            )


@on_trio
async def test_each_partition_gets_its_own_error(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        unknown = UnknownTopicOrPartition.code
        assert codes_of(await client.ask(commit(1, topic="nowhere"), 9)) == [unknown]
        assert codes_of(await client.ask(commit(1, topic=b"x" * 16), 10)) == [UnknownTopicId.code]
        assert codes_of(await client.ask(commit(1, partitions=[0, 3]), 9)) == [unknown, 0]
        assert codes_of(await client.ask(commit(1, text="x" * 4097), 9)) == [OffsetMetadataTooLarge.code]
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 1}


@on_trio
async def test_a_group_with_members_is_not_committed_for_from_outside(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        member = await settle(client)
        assert code_of(await client.ask(commit(1, group="c"), 9)) == UnknownMemberId.code
        assert code_of(await client.ask(commit(1, group="c", member=member, epoch=2), 9)) == IllegalGeneration.code
        assert code_of(await client.ask(commit(1, group="c", member=member, epoch=1), 9)) == 0
        assert code_of(await client.ask(commit(1, group="d", member=member, epoch=1), 8)) == IllegalGeneration.code
        assert code_of(await client.ask(commit(1, group="d", member=member, epoch=1), 9)) == GroupIdNotFound.code


@on_trio
async def test_a_member_of_a_consumer_group_commits_with_its_epoch(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        joined = await client.ask(consumer_heartbeat("k", "m"), 1)
        assert joined.error_code == 0
        epoch = joined.member_epoch
        assert code_of(await client.ask(commit(1, group="k", member="m", epoch=epoch), 9)) == 0
        stale = commit(2, group="k", member="m", epoch=epoch + 1)
        assert code_of(await client.ask(stale, 9)) == StaleMemberEpoch.code
        assert code_of(await client.ask(commit(2, group="k", member="x", epoch=epoch), 9)) == UnknownMemberId.code
        assert offsets_of(await client.ask(fetch("k"), 9)) == {("t", 0): 1}


@on_trio
async def test_the_longest_metadata_is_what_the_broker_says(tmp_path: Path) -> None:
    async with grouping(tmp_path, offset_metadata_max_bytes=3) as (_, client):
        assert code_of(await client.ask(commit(1, text="abc"), 9)) == 0
        assert code_of(await client.ask(commit(1, text="abcd"), 9)) == OffsetMetadataTooLarge.code
