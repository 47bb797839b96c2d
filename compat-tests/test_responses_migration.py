"""Groups that change their protocol, as Apache Kafka and trioka have them: every answer, and in the end every record.

Records of members stand in the order of Kafka's hash tables, so those of one change are compared as a set. Where a
static member's place is taken by one that makes the group a classic one, Kafka writes what it deletes with the next
record; trioka does not write it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from group_sides import PATIENT, Members, commit, describe, describe_consumers, new_group, records, wait_for_coordinator
from side_by_side import SideBySide, side_by_side
from support.group_requests import consumer_heartbeat, heartbeat, join

from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest

EVERYTHING = bytes.fromhex("0001 00000001 0001 74 00000003 00000000 00000001 00000002 ffffffff")
QUIET: dict[str, Any] = {"topics": None, "owned": None, "rebalance_timeout_ms": -1}


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    settings = {"offsets_topic_num_partitions": 1, "group_consumer_assignment_interval_ms": 0, **PATIENT}
    with side_by_side(**settings) as sides:
        sides.create_topic("t", 3)
        for side in (sides.kafka, sides.trioka):
            wait_for_coordinator(side)
        yield sides


def lead(group: str, member: str, generation: int, instance: str | None = None) -> SyncGroupRequest:
    """A leader gives everything to itself."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequest.Assignment(member_id=member, assignment=EVERYTHING)],
    )


def come(sides: SideBySide, group: str, instance: str | None = None) -> Members:
    """The first member of a classic group, when it has its assignment."""
    member = Members(sides, group)
    member.note(sides.same(join(group, instance=instance), 9))
    if instance is None:
        member.note(sides.same(lambda side: join(group, member=member[side]), 9))
    sides.same(lambda side: lead(group, member[side], 1, instance), 5)
    return member


def follow(group: str, member: str, generation: int, **more: Any) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, protocol_type="consumer", assignments=[], **more
    )


def test_a_group_goes_there_and_back(sides: SideBySide) -> None:
    group = new_group()
    old = come(sides, group)
    sides.same(consumer_heartbeat(group, "new", 3), 1)
    answers = sides.same(consumer_heartbeat(group, "new"), 1)
    assert answers[0].error_code == 0
    describe(sides, group)
    describe_consumers(sides, 1, group)
    generation = 1
    for requested in (generation, generation + 1):
        sides.same(lambda side, requested=requested: heartbeat(group, old[side], requested), 4)  # type: ignore[misc]
        sides.same(lambda side, requested=requested: follow(group, old[side], requested), 5)  # type: ignore[misc]
    sides.same(heartbeat(group, "nobody", generation), 4)
    sides.same(heartbeat(group, "new", 2), 4)
    sides.same(lambda side: heartbeat(group, old[side], generation, "i"), 4)
    sides.same(join(group), 9)
    sides.same(join(group, protocols=["sticky"]), 9)
    sides.same(join(group, protocol_type="other"), 9)
    answers = sides.same(lambda side: join(group, member=old[side]), 9)
    generation = answers[0].generation_id
    assert generation == 2
    sides.same(lambda side: follow(group, old[side], generation, protocol_name="sticky"), 5)
    sides.same(lambda side: follow(group, old[side], generation, protocol_name="range"), 5)
    sides.same(lambda side: heartbeat(group, old[side], generation), 4)
    sides.same(consumer_heartbeat(group, "new", 2, **QUIET), 1)
    describe_consumers(sides, 1, group)
    for at in (generation, generation - 1, generation + 1):
        sides.same(
            lambda side, at=at: commit(group, 8, epoch=at, member=old[side])(side),  # type: ignore[misc]
            8,
        )
    sides.same(consumer_heartbeat(group, "new", -1, **QUIET), 1)
    describe(sides, group)
    sides.same(lambda side: heartbeat(group, old[side], generation), 4)
    answers = sides.same(lambda side: join(group, member=old[side]), 9)
    assert answers[0].generation_id == 3 and answers[0].leader == answers[0].member_id, "a classic group again"
    sides.same(lambda side: lead(group, old[side], answers[0].generation_id), 5)
    describe(sides, group)


def test_classic_members_leave_a_consumer_group(sides: SideBySide) -> None:
    group = new_group()
    sides.same(consumer_heartbeat(group, "new"), 1)
    sides.same(consumer_heartbeat(group, "newer"), 1)
    static = Members(sides, group)
    static.note(sides.same(join(group, instance="i"), 9))
    sides.same(lambda side: join(group, member=static[side], instance="j"), 9)
    sides.same(lambda side: join(group, member="nobody", instance="i"), 9)
    Leaver = LeaveGroupRequest.Member
    wrong = [
        Leaver(member_id="nobody"),
        Leaver(member_id="", group_instance_id="j"),
        Leaver(member_id="nobody", group_instance_id="i"),
        Leaver(member_id="new"),
        Leaver(member_id="", group_instance_id="i"),
    ]
    sides.same(LeaveGroupRequest(group_id=group, members=wrong), 5)
    describe_consumers(sides, 1, group)
    sides.same(LeaveGroupRequest(group_id=group, member_id="newer"), 2)
    describe_consumers(sides, 1, group)


def test_a_static_member_takes_its_place_with_either_protocol(sides: SideBySide) -> None:
    group = new_group()
    old = come(sides, group, "i")
    sides.same(consumer_heartbeat(group, "new", instance_id="i"), 1)
    describe_consumers(sides, 1, group)
    sides.same(lambda side: heartbeat(group, old[side], 1, "i"), 4)


def test_what_was_written_is_the_same(sides: SideBySide) -> None:
    """By all before it."""
    expected, found = (Counter(map(repr, records(side))) for side in (sides.kafka, sides.trioka))
    assert found == expected
    assert len(found) > 20


def test_a_static_member_takes_its_place_and_the_group_becomes_a_classic_one(sides: SideBySide) -> None:
    group = new_group()
    sides.same(consumer_heartbeat(group, "new", instance_id="i"), 1)
    old = Members(sides, group)
    old.note(sides.same(join(group, instance="i"), 9))
    describe(sides, group)
    sides.same(lambda side: follow(group, old[side], 2, group_instance_id="i"), 5)
    sides.same(lambda side: heartbeat(group, old[side], 2, "i"), 4)
    sides.same(consumer_heartbeat(group, "new", 2, instance_id="i", **QUIET), 1)
