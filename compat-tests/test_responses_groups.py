"""Groups and their offsets: Apache Kafka and trioka, asked the same. Where they differ, and why, stands with the test.

What both have written to `__consumer_offsets` in the end is compared too: the same records in the same order, to the
byte, but for times and ids.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from group_sides import (
    BY_GROUP,
    NO_ID,
    PATIENCE_S,
    PATIENT,
    Members,
    Partition,
    commit,
    describe,
    describe_consumers,
    fetch_all,
    new_group,
    records,
    wait_for_coordinator,
)
from side_by_side import Side, SideBySide, side_by_side
from support.group_requests import consumer_heartbeat, delete_offsets, heartbeat, join, sync
from support.serving import HOST, Client

from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

NOBODYS_ID = b"x" * 16


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    settings = {"offsets_topic_num_partitions": 1, "group_min_session_timeout_ms": 1000, **PATIENT}
    with side_by_side(**settings) as sides:
        sides.create_topic("t", 3)
        sides.create_topic("u", 1)
        for side in (sides.kafka, sides.trioka):
            wait_for_coordinator(side)
        yield sides


# -- FindCoordinator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(sides: SideBySide, version: int) -> None:
    for key_type in (0,) if version == 0 else (0, 9):
        if version < 4:
            sides.same(FindCoordinatorRequest(key="g", key_type=key_type), version)
            sides.same(FindCoordinatorRequest(key="", key_type=key_type), version)
        else:
            sides.same(FindCoordinatorRequest(coordinator_keys=["g", "", "g"], key_type=key_type), version)
            sides.same(FindCoordinatorRequest(coordinator_keys=[], key_type=key_type), version)


# -- offsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(commit(group, version), version)
    sides.same(commit(group, version, (0, 7, None), (1, -9, ""), (2, 1, "x" * 4096)), version)
    sides.same(commit(group, version, (0, 7, None), (1, 1, "x" * 4097), (2, 1, "é" * 4096), (9, 1, "")), version)
    sides.same(commit(group, version, (0, 7, "\N{SNAKE}" * 2048), (1, 1, "\N{SNAKE}" * 2049)), version)
    sides.same(commit("", version), version)
    sides.same(commit(new_group(), version, epoch=3, member="somebody"), version)
    sides.same(commit(new_group(), version, epoch=0), version)
    sides.same(commit(new_group(), version, member="somebody"), version)
    sides.same(commit(group, version, epoch=3, member="somebody"), version)
    sides.same(commit(group, version, epoch=3), version)
    if version >= 7:
        sides.same(commit(new_group(), version, instance="i"), version)
        sides.same(commit(group, version, epoch=3, member="somebody", instance="i"), version)
    if version < 5:
        sides.same(commit(new_group(), version, retention_ms=100_000), version)
    if version < 10:
        sides.same(commit(group, version, topic="nowhere"), version)
        sides.same(commit(group, version, topic=""), version)
    else:
        sides.same(commit(group, version, (0, 1, ""), (7, 1, ""), others=(NOBODYS_ID, NO_ID)), version)
    nothing = OffsetCommitRequest(group_id=new_group(), member_id="", topics=[])
    sides.same(nothing, version)
    fetch_all(sides, group)


def test_a_topic_that_is_named_twice_is_told_once(sides: SideBySide) -> None:
    partition = Partition(partition_index=0, committed_offset=5, committed_metadata=None)
    nowhere = Partition(partition_index=8, committed_offset=5, committed_metadata=None)
    topics = [
        OffsetCommitRequest.Topic(name="t", partitions=[partition]),
        OffsetCommitRequest.Topic(name="u", partitions=[nowhere, partition]),
        OffsetCommitRequest.Topic(name="t", partitions=[partition, nowhere]),
        OffsetCommitRequest.Topic(name="v", partitions=[partition]),
    ]
    sides.same(OffsetCommitRequest(group_id=new_group(), member_id="", topics=topics), 9)


@pytest.mark.parametrize("version", range(1, 8))
def test_offset_fetch_of_one_group(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(commit(group, 9, (0, 5, "hi"), (1, 6, None)), 9)
    topics = [
        OffsetFetchRequest.Topic(name="t", partition_indexes=[0, 1, 2, 9, 0]),
        OffsetFetchRequest.Topic(name="nowhere", partition_indexes=[0]),
    ]
    for stable in (False, True) if version == 7 else (False,):
        for name in (group, new_group(), ""):
            sides.same(OffsetFetchRequest(group_id=name, topics=topics, require_stable=stable), version)
            sides.same(OffsetFetchRequest(group_id=name, topics=[], require_stable=stable), version)
            if version >= 2 and name:
                sides.same(OffsetFetchRequest(group_id=name, topics=None, require_stable=stable), version)


@pytest.mark.parametrize("version", range(8, 11))
def test_offset_fetch_of_many_groups(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(commit(group, 9, (0, 5, "hi"), (1, 6, None)), 9)

    def topics(side: Side) -> list[OffsetFetchRequest.Group.Topic]:
        Topic = OffsetFetchRequest.Group.Topic
        if version < 10:
            named = [("t", [0, 1, 2, 9]), ("nowhere", [0]), ("u", [0])]
            return [Topic(name=name, partition_indexes=indexes) for name, indexes in named]
        by_id = [(NOBODYS_ID, [0]), (side.topic_id("t"), [0, 1, 2, 9]), (NO_ID, [1]), (side.topic_id("u"), [0])]
        return [Topic(topic_id=topic_id, partition_indexes=indexes) for topic_id, indexes in by_id]

    def request(side: Side) -> OffsetFetchRequest:
        Group = OffsetFetchRequest.Group
        groups = [
            Group(group_id=group, topics=topics(side)),
            Group(group_id="unheard of", topics=topics(side)),
            Group(group_id=group, topics=None),
            Group(group_id="unheard of", topics=None),
            Group(group_id=group, member_id="somebody", member_epoch=4, topics=topics(side)),
            Group(group_id=group, topics=[]),
        ]
        return OffsetFetchRequest(groups=groups, require_stable=True)

    sides.same(request, version)
    sides.same(OffsetFetchRequest(groups=[]), version)


def test_offset_delete(sides: SideBySide) -> None:
    group = new_group()
    sides.same(commit(group, 9, (0, 5, "hi"), (1, 6, None)), 9)
    sides.same(delete_offsets(group, ("t", [0, 9, 2]), ("nowhere", [0]), ("u", [0])), 0)
    fetch_all(sides, group)
    sides.same(delete_offsets(group, ("t", [0])), 0)
    sides.same(delete_offsets(group), 0)
    sides.same(delete_offsets("unheard of", ("t", [0])), 0)
    sides.same(delete_offsets("unheard of", ("nowhere", [0])), 0)
    sides.same(delete_offsets("", ("t", [0])), 0)


def test_a_deleted_topic_takes_its_offsets_along(sides: SideBySide) -> None:
    group = new_group()
    sides.create_topic("short-lived")
    sides.same(commit(group, 9, topic="short-lived"), 9)
    sides.same(commit(group, 9), 9)
    sides.both(DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=10_000), 5)
    requested = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)])
    for side in (sides.kafka, sides.trioka):
        deadline = time.monotonic() + PATIENCE_S
        while len(side.ask(requested, 9).groups[0].topics) > 1:
            assert time.monotonic() < deadline, f"{side.name} keeps offsets of a topic that is gone"
            time.sleep(0.05)
    fetch_all(sides, group)


# -- classic groups ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_join_group(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(join(""), version)
    sides.same(join(group, session_ms=999), version)
    sides.same(join(group, session_ms=10_000_000), version)
    sides.same(join(group, member="somebody"), version)
    sides.same(join(group, protocols=()), version)
    sides.same(join(group, protocol_type=""), version)
    members = Members(sides, group)
    members.come(version)
    sides.same(join(group, member="somebody"), version)
    sides.same(join(group, protocols=("roundrobin",)), version)
    sides.same(join(group, protocol_type="connect"), version)
    describe(sides, group)
    sides.same(lambda side: join(group, member=members[side]), version)
    if version >= 5:
        sides.same(lambda side: join(group, member=members[side], instance="i"), version)
        sides.same(lambda side: join(group, member="somebody", instance="i"), version)


@pytest.mark.parametrize("version", range(6))
def test_sync_group(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(sync("", "", 0), version)
    sides.same(sync(group, "somebody", 0), version)
    members = Members(sides, group)
    members.come(min(version, 3))
    sides.same(lambda side: sync(group, members[side], 1), version)
    sides.same(lambda side: sync(group, members[side], 2), version)
    sides.same(lambda side: sync(group, members[side], 0), version)
    sides.same(sync(group, "somebody", 1), version)
    sides.same(sync(group, "", 1), version)
    if version >= 3:
        sides.same(lambda side: sync(group, members[side], 1, instance="i"), version)
    if version >= 5:
        for wrong in ({"protocol_type": None}, {"protocol_name": None}, {"protocol_name": "roundrobin"}):
            sides.same(lambda side, wrong=wrong: sync(group, members[side], 1, **wrong), version)  # type: ignore[misc]
        sides.same(lambda side: sync(group, members[side], 1, protocol_type="connect"), version)
        sides.same(sync("", "", 0, protocol_type=None), version)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(sides: SideBySide, version: int) -> None:
    group = new_group()
    sides.same(heartbeat("", "", 0), version)
    sides.same(heartbeat(group, "somebody", 0), version)
    members = Members(sides, group)
    members.come(3)
    sides.same(lambda side: heartbeat(group, members[side], 1), version)
    sides.same(lambda side: heartbeat(group, members[side], 2), version)
    sides.same(heartbeat(group, "somebody", 1), version)
    sides.same(heartbeat(group, "", 1), version)
    if version >= 3:
        sides.same(lambda side: heartbeat(group, members[side], 1, "i"), version)
    sides.same(commit(new_group(), 9), 9)


@pytest.mark.parametrize("version", range(6))
def test_leave_group(sides: SideBySide, version: int) -> None:
    group = new_group()

    def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id=group, member_id=members[0][0])
        leaving = [LeaveGroupRequest.Member(member_id=member, group_instance_id=who) for member, who in members]
        return LeaveGroupRequest(group_id=group, members=leaving)

    several = (("somebody", None), ("", "i"), ("else", "j"))
    sides.same(leave("", *several), version)
    sides.same(leave(group, *several), version)
    members = Members(sides, group)
    members.come(3)
    sides.same(leave(group, *several), version)
    sides.same(lambda side: leave(group, (members[side], None), ("somebody", None)), version)
    sides.same(leave(group, *several), version)
    describe(sides, group)
    members.come(5, instance="i")
    sides.same(leave(group, ("somebody", "i"), ("", "i")), version)
    describe(sides, group)
    if version >= 3:
        sides.same(leave(group), version)


def test_a_static_member_that_comes_back_takes_its_place(sides: SideBySide) -> None:
    group = new_group()
    members = Members(sides, group)
    members.come(7, instance="i")
    former = dict(members.ids)
    members.come(7, instance="i")
    for version in range(5, 10):
        sides.same(lambda side: join(group, member=former[side.name], instance="i"), version)
    sides.same(lambda side: sync(group, former[side.name], 1, instance="i"), 5)
    sides.same(lambda side: heartbeat(group, former[side.name], 1, "i"), 4)
    for version in range(7, 11):
        sides.same(
            lambda side, version=version: commit(  # type: ignore[misc]
                group, version, epoch=1, member=former[side.name], instance="i"
            )(side),
            version,
        )
    sides.same(lambda side: heartbeat(group, members[side], 1, "i"), 4)
    describe(sides, group)


def test_commits_of_members(sides: SideBySide) -> None:
    group = new_group()
    members = Members(sides, group)
    members.come(5)
    for version in range(2, 11):
        for epoch, member in ((1, None), (2, None), (0, None), (-1, None), (1, ""), (-1, ""), (1, "somebody")):
            sides.same(
                lambda side, version=version, epoch=epoch, member=member: commit(  # type: ignore[misc]
                    group, version, epoch=epoch, member=members[side] if member is None else member
                )(side),
                version,
            )
    sides.same(delete_offsets(group, ("t", [0]), ("u", [0])), 0)
    sides.same(DeleteGroupsRequest(groups_names=[group]), 2)


def test_nobody_commits_while_the_assignment_is_awaited(sides: SideBySide) -> None:
    group = new_group()
    members = Members(sides, group)
    members.note(sides.same(join(group), 0))
    sides.same(lambda side: commit(group, 9, epoch=1, member=members[side])(side), 9)
    sides.same(lambda side: heartbeat(group, members[side], 1), 4)
    describe(sides, group)
    sides.same(ListGroupsRequest(states_filter=["completingrebalance"]), 4, order=BY_GROUP)


def test_a_group_of_two(sides: SideBySide) -> None:
    """The first is told to join again, and both are answered when it does."""
    group = new_group()
    first = Members(sides, group)
    first.come(9)
    answers: dict[str, list[Any]] = {}
    for side in (sides.kafka, sides.trioka):
        second = Client(HOST, side.port)
        result = second.ask(join(group), 9)
        answers[side.name] = [result]
        waiting = threading.Thread(
            target=lambda side=side, second=second, result=result: answers[side.name].append(
                second.ask(join(group, member=result.member_id), 9)
            )
        )
        waiting.start()
        deadline = time.monotonic() + PATIENCE_S
        while (code := side.ask(heartbeat(group, first[side], 1), 4).error_code) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        answers[side.name].append(code)
        answers[side.name].append(side.ask(join(group, member=first[side]), 9))
        waiting.join(PATIENCE_S)
        second.close()

    def shape(result: list[Any]) -> list[Any]:
        required, code, *joined = result
        joined.sort(key=lambda each: len(each.members))
        follower, leader = joined
        assert follower.leader == leader.leader == leader.member_id != follower.member_id
        return [
            required.error_code,
            code,
            [(each.error_code, each.generation_id, each.protocol_name, len(each.members)) for each in joined],
        ]

    assert shape(answers[sides.kafka.name]) == shape(answers[sides.trioka.name])


# -- groups as a whole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(sides: SideBySide, version: int) -> None:
    simple, classic, consumer = new_group(), new_group(), new_group()
    sides.same(commit(simple, 9), 9)
    Members(sides, classic).come(5)
    sides.both(consumer_heartbeat(consumer), 0)
    groups = [simple, classic, consumer, "unheard of", simple]
    for operations in (False, True) if version >= 3 else (False,):
        requested = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
        sides.same(requested, version, order=BY_GROUP)


@pytest.mark.parametrize("version", range(6))
def test_list_groups(sides: SideBySide, version: int) -> None:
    simple, classic, consumer = new_group(), new_group(), new_group()
    sides.same(commit(simple, 9), 9)
    Members(sides, classic).come(5)
    sides.both(consumer_heartbeat(consumer), 0)
    sides.same(ListGroupsRequest(), version, order=BY_GROUP)
    if version >= 4:
        for states in (["Empty"], ["eMPTY", "nonsense"], ["nonsense"], ["Stable"], ["Stable", "Empty"]):
            sides.same(ListGroupsRequest(states_filter=states), version, order=BY_GROUP)
    if version >= 5:
        for types in (["classic"], ["Consumer"], ["nonsense"], ["classic", "consumer"]):
            sides.same(ListGroupsRequest(types_filter=types), version, order=BY_GROUP)
        sides.same(ListGroupsRequest(types_filter=["classic"], states_filter=["stable"]), version, order=BY_GROUP)


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(sides: SideBySide, version: int) -> None:
    simple, classic = new_group(), new_group()
    sides.same(commit(simple, 9), 9)
    Members(sides, classic).come(5)
    names = [simple, classic, "unheard of", "", simple]
    sides.same(DeleteGroupsRequest(groups_names=names), version, order=BY_GROUP)
    sides.same(DeleteGroupsRequest(groups_names=names), version, order=BY_GROUP)
    fetch_all(sides, simple)
    describe(sides, simple, classic)


# -- consumer groups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2))
def test_consumer_group_heartbeat(sides: SideBySide, version: int) -> None:
    group = new_group()
    who = "" if version == 0 else "the-first"
    for wrong in (
        consumer_heartbeat("", who),
        consumer_heartbeat(group, who, rebalance_timeout_ms=-1),
        consumer_heartbeat(group, who, topics=None),
        consumer_heartbeat(group, who, owned=None),
        consumer_heartbeat(group, who, server_assignor="nonsense"),
        consumer_heartbeat(group, who, instance_id=""),
        consumer_heartbeat(group, who, rack_id=""),
        consumer_heartbeat(group, "somebody", 3),
        consumer_heartbeat(group, "", 3),
        consumer_heartbeat(group, "somebody", -1),
        consumer_heartbeat(group, "somebody", -2),
        consumer_heartbeat(group, "somebody", -3),
    ):
        sides.same(wrong, version)
    answers = sides.same(consumer_heartbeat(group, who), version)
    members = Members(sides, group)
    members.note(answers)
    epoch = answers[0].member_epoch
    quiet: dict[str, Any] = {"topics": None, "owned": None, "rebalance_timeout_ms": -1}
    sides.same(lambda side: consumer_heartbeat(group, members[side], epoch, **quiet), version)
    sides.same(lambda side: consumer_heartbeat(group, members[side], epoch + 1, **quiet), version)
    sides.same(lambda side: consumer_heartbeat(group, members[side], epoch - 1, **quiet), version)
    sides.same(consumer_heartbeat(group, "somebody", epoch, **quiet), version)
    for describing in range(2):
        describe_consumers(sides, describing, group)
    for committing in (8, 9, 10):
        for at in (epoch, epoch + 1, -1):
            sides.same(
                lambda side, at=at, committing=committing: commit(  # type: ignore[misc]
                    group, committing, epoch=at, member=members[side]
                )(side),
                committing,
            )
        sides.same(commit(group, committing), committing)
        sides.same(commit(group, committing, epoch=epoch, member="somebody"), committing)
    Group = OffsetFetchRequest.Group
    for member, at in ((None, -1), ("", -1), ("somebody", epoch)):
        sides.same(
            OffsetFetchRequest(groups=[Group(group_id=group, member_id=member, member_epoch=at, topics=None)]), 9
        )
    for at in (epoch, epoch + 1, epoch - 1):
        sides.same(
            lambda side, at=at: OffsetFetchRequest(  # type: ignore[misc]
                groups=[Group(group_id=group, member_id=members[side], member_epoch=at, topics=None)]
            ),
            9,
        )
    sides.same(delete_offsets(group, ("t", [0]), ("u", [0])), 0)
    sides.same(DeleteGroupsRequest(groups_names=[group]), 2)
    sides.same(lambda side: consumer_heartbeat(group, members[side], -1, **quiet), version)
    describe_consumers(sides, 1, group)
    sides.same(commit(group, 9), 9)
    sides.same(DeleteGroupsRequest(groups_names=[group]), 2)


@pytest.mark.parametrize("version", range(2))
def test_consumer_group_describe(sides: SideBySide, version: int) -> None:
    simple, classic = new_group(), new_group()
    sides.same(commit(simple, 9), 9)
    Members(sides, classic).come(5)
    describe_consumers(sides, version, simple, classic, "unheard of", "", simple)
    describe_consumers(sides, version)


# -- what is written ---------------------------------------------------------------------------------------------------


def test_the_same_records_are_written(sides: SideBySide) -> None:
    """The last test: all that the others did stands here."""
    expected, found = records(sides.kafka), records(sides.trioka)
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        assert one == other, f"record {index}, after {expected[max(0, index - 3) : index]}"
    assert len(expected) == len(found)
