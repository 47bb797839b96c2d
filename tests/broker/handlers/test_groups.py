"""ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups, OffsetDelete: groups as a whole."""

from pathlib import Path

from support.group_requests import (
    codes_of,
    commit,
    consumer_heartbeat,
    delete_offsets,
    fetch,
    grouping,
    offsets_of,
    settle,
)
from support.serving import ClientConnection, on_trio

from trioka.broker.security.authorized_operations import GROUP_OPERATIONS, bits
from trioka.protocol.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    NonEmptyGroup,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest


async def furnish(client: ClientConnection) -> None:
    """A group of each kind: g is simple, c classic, k of consumers."""
    assert codes_of(await client.ask(commit(5), 9)) == [0]
    await settle(client)
    assert (await client.ask(consumer_heartbeat("k", "m"), 1)).error_code == 0


@on_trio
async def test_groups_are_listed(tmp_path: Path) -> None:
    async with grouping(tmp_path, offsets_topic_num_partitions=3) as (_, client):
        await furnish(client)
        for version in range(6):
            result = (await client.ask(ListGroupsRequest(), version)).groups
            assert sorted((group.group_id, group.protocol_type) for group in result) == [
                ("c", "consumer"),
                ("g", ""),
                ("k", "consumer"),
            ]
            if version >= 4:
                filtered = (await client.ask(ListGroupsRequest(states_filter=["empty"]), version)).groups
                assert [group.group_id for group in filtered] == ["g"]
            if version >= 5:
                filtered = (await client.ask(ListGroupsRequest(types_filter=["consumer"]), version)).groups
                assert [group.group_id for group in filtered] == ["k"]


@on_trio
async def test_classic_groups_are_described(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        await furnish(client)
        for version in range(7):
            requested = DescribeGroupsRequest(groups=["c", "g", "k"], include_authorized_operations=version >= 3)
            classic, simple, consumer = (await client.ask(requested, version)).groups
            assert (classic.group_state, classic.protocol_type, classic.protocol_data) == (
                "Stable",
                "consumer",
                "range",
            )
            (member,) = classic.members
            assert (member.client_id, member.client_host, member.member_assignment) == ("test", "/127.0.0.1", b"yours")
            assert simple.group_state == "Empty"
            assert consumer.group_state == "Dead"
            assert consumer.error_code == (GroupIdNotFound.code if version >= 6 else 0)
            if version >= 3:
                assert classic.authorized_operations == bits(GROUP_OPERATIONS)


@on_trio
async def test_consumer_groups_are_described(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        await furnish(client)
        for version in range(2):
            requested = ConsumerGroupDescribeRequest(group_ids=["k", "c", "d", ""], include_authorized_operations=True)
            known, *unknown = (await client.ask(requested, version)).groups
            assert (known.error_code, known.group_state, known.assignor_name) == (0, "Stable", "uniform")
            assert known.authorized_operations == bits(GROUP_OPERATIONS)
            (member,) = known.members
            assert [topic.partitions for topic in member.assignment.topic_partitions] == [[0, 1, 2]]
            missing = GroupIdNotFound.code
            assert [group.error_code for group in unknown] == [missing, missing, InvalidGroupId.code]


@on_trio
async def test_groups_are_deleted_when_they_have_no_members(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        await furnish(client)
        for version in range(3):
            await client.ask(commit(5), 9)
            names = ["g", "c", "k", "d", "g"]
            result = (await client.ask(DeleteGroupsRequest(groups_names=names), version)).results
            assert [(each.group_id, each.error_code) for each in result] == [
                ("g", 0),
                ("c", NonEmptyGroup.code),
                ("k", NonEmptyGroup.code),
                ("d", GroupIdNotFound.code),
            ]
            assert offsets_of(await client.ask(fetch(), 9)) == {}


@on_trio
async def test_offsets_are_deleted_in_topics_without_a_reader(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        member = await settle(client)
        for topic in ("t", "u"):
            await client.ask(commit(5, group="c", topic=topic, member=member, epoch=1), 9)
        answer = await client.ask(delete_offsets("c", ("t", [0]), ("u", [0, 9])), 0)
        result = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
        assert result == {
            ("t", 0): GroupSubscribedToTopic.code,
            ("u", 0): 0,
            ("u", 9): UnknownTopicOrPartition.code,
        }
        assert offsets_of(await client.ask(fetch("c"), 9)) == {("t", 0): 5}
        assert (await client.ask(delete_offsets("d", ("t", [0])), 0)).error_code == GroupIdNotFound.code
        assert (await client.ask(delete_offsets("", ("t", [0])), 0)).error_code == InvalidGroupId.code


@on_trio
async def test_an_operator_may_do_without_consumer_groups(tmp_path: Path) -> None:
    async with grouping(tmp_path, group_coordinator_rebalance_protocols="classic") as (_, client):
        assert (await client.ask(consumer_heartbeat("k", "m"), 1)).error_code == UnsupportedVersion.code
        requested = ConsumerGroupDescribeRequest(group_ids=["k"], include_authorized_operations=False)
        assert (await client.ask(requested, 1)).groups[0].error_code == UnsupportedVersion.code
