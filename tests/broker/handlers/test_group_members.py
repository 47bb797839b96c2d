"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: members of classic groups, over the wire, in every version."""

from pathlib import Path

import trio
from support.group_requests import grouping, heartbeat, join, settle, sync
from support.serving import ClientConnection, on_trio

from trioka.protocol.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest

FIRST_THAT_REQUIRES_AN_ID = 4
FIRST_WITH_MANY_LEAVING = 3


@on_trio
async def test_a_member_joins_in_every_version(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        for version in range(10):
            group = f"c{version}"
            joined = await client.ask(join(group), version)
            if version >= FIRST_THAT_REQUIRES_AN_ID:
                assert joined.error_code == MemberIdRequired.code and joined.member_id
                joined = await client.ask(join(group, member=joined.member_id), version)
            assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
            assert joined.leader == joined.member_id == joined.members[0].member_id
            assert joined.member_id.startswith("test-")
            synced = await client.ask(sync(group, joined.member_id, 1), min(version, 5))
            assert (synced.error_code, synced.assignment) == (0, b"yours")


@on_trio
async def test_the_error_of_a_join_is_in_every_version(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        for version in range(10):
            for wrong, error in (
                (join(""), InvalidGroupId),
                (join(session_ms=1), InvalidSessionTimeout),
                (join(member="somebody"), UnknownMemberId),
                (join(protocols=()), InconsistentGroupProtocol),
            ):
                response = await client.ask(wrong, version)
                assert (response.error_code, response.generation_id) == (error.code, -1)
                assert response.protocol_name == ("" if version < 7 else None)


@on_trio
async def test_a_parked_request_is_answered_when_the_others_have_joined(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, first), ClientConnection(broker) as second:
        member = await settle(first)
        await second.say(join(), 0)
        while (await first.ask(heartbeat("c", member, 1), 4)).error_code != RebalanceInProgress.code:
            await trio.sleep(0.005)
        again = await first.ask(join(member=member), 0)
        other = await second.hear(join(), 0)
        assert (again.generation_id, other.generation_id, again.leader, other.leader) == (2, 2, member, member)
        assert len(again.members) == 2 and other.members == []
        await second.say(sync("c", other.member_id, 2), 3)
        assert (await first.ask(sync("c", member, 2), 3)).assignment == b"yours"
        assert (await second.hear(sync("c", other.member_id, 2), 3)).assignment == b""


@on_trio
async def test_a_member_whose_connection_is_gone_delays_no_other(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (broker, first):
        member = await settle(first)
        async with ClientConnection(broker) as second:
            await second.say(join(), 0)
            while (await first.ask(heartbeat("c", member, 1), 4)).error_code != RebalanceInProgress.code:
                await trio.sleep(0.005)
        assert (await first.ask(join(member=member), 0)).generation_id == 2


@on_trio
async def test_heartbeats(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        member = await settle(client)
        for version in range(5):
            for request, code in (
                (heartbeat("c", member, 1), 0),
                (heartbeat("c", member, 2), IllegalGeneration.code),
                (heartbeat("c", "somebody", 1), UnknownMemberId.code),
                (heartbeat("unheard of", member, 1), UnknownMemberId.code),
                (heartbeat("", member, 1), InvalidGroupId.code),
            ):
                assert (await client.ask(request, version)).error_code == code


@on_trio
async def test_leaving(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        for version in range(6):
            group = f"c{version}"
            member = await settle(client, group)
            for name, who, code in (
                (group, "somebody", UnknownMemberId.code),
                ("unheard of", member, UnknownMemberId.code),
                ("", member, InvalidGroupId.code),
                (group, member, 0),
            ):
                answer = await client.ask(leave(name, who, version), version)
                assert (answer.error_code or (answer.members and answer.members[0].error_code) or 0) == code
            (described,) = (await client.ask(DescribeGroupsRequest(groups=[group]), 6)).groups
            assert (described.group_state, described.members) == ("Empty", [])


def leave(group: str, member: str, version: int) -> LeaveGroupRequest:
    if version < FIRST_WITH_MANY_LEAVING:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.Member(member_id=member)])


@on_trio
async def test_a_static_member_that_comes_back_fences_its_former_self(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        former = await settle(client, instance="i")
        again = await client.ask(join(instance="i"), 5)
        assert (again.error_code, again.generation_id) == (0, 1) and again.member_id != former
        assert (await client.ask(heartbeat("c", former, 1, "i"), 4)).error_code == FencedInstanceId.code
        assert (await client.ask(heartbeat("c", again.member_id, 1, "i"), 4)).error_code == 0


@on_trio
async def test_the_latest_sync_names_its_protocol(tmp_path: Path) -> None:
    async with grouping(tmp_path) as (_, client):
        member = await settle(client)
        wrong = InconsistentGroupProtocol.code
        assert (await client.ask(sync("c", member, 1, protocol_type=None), 5)).error_code == wrong
        assert (await client.ask(sync("c", member, 1, protocol_name=None), 5)).error_code == wrong
        assert (await client.ask(sync("c", member, 1, protocol_name="sticky"), 5)).error_code == wrong
        response = await client.ask(sync("c", member, 1), 5)
        assert (response.error_code, response.protocol_type, response.protocol_name) == (0, "consumer", "range")
