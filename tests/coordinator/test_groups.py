"""The coordinator of groups: it finds a group, or makes one; what is kept changes with the log and in no other way."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.group_coordinator import GroupHarness

from trioka.coordinator import groups, offset_requests
from trioka.coordinator.client import Client
from trioka.coordinator.decision import Producer
from trioka.coordinator.groups import RECORDS_AT_ONCE
from trioka.protocol.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

DAY_MS = 86_400_000
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 00000000 00000000")  # to the topic t
P = Producer(7, 0)
Partition = OffsetCommitRequest.Topic.Partition


@pytest.fixture
def module() -> ModuleType:
    return groups


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_commit_from_outside_makes_a_simple_group(module: ModuleType) -> None:
    harness = GroupHarness(module)
    assert harness.commit(5) == [0]
    assert harness.listed() == [("g", "Empty", "classic")]
    assert harness.fetch() == [(5, 0)]
    harness.shell.crash()
    assert harness.listed() == [("g", "Empty", "classic")] and harness.fetch() == [(5, 0)]


def test_a_commit_of_a_member_of_nothing_is_refused(module: ModuleType) -> None:
    harness = GroupHarness(module)
    assert harness.commit(epoch=3, member="m", version=8) == [IllegalGeneration.code]
    assert harness.commit(epoch=3, member="m", version=9) == [GroupIdNotFound.code]
    assert harness.listed() == []


def test_a_commit_is_fenced_by_generation_and_member(module: ModuleType) -> None:
    harness = GroupHarness(module)
    member = harness.settle()
    assert harness.commit(1, epoch=1, member=member) == [0]
    assert harness.commit(2, epoch=0, member=member) == [IllegalGeneration.code]
    assert harness.commit(3, epoch=2, member=member) == [IllegalGeneration.code]
    assert harness.commit(4, epoch=1, member="somebody") == [UnknownMemberId.code]
    assert harness.commit(5) == [UnknownMemberId.code]
    assert harness.fetch() == [(1, 0)]


def test_a_commit_keeps_its_members_session_alive() -> None:
    harness = GroupHarness()
    member = harness.settle()
    for _ in range(5):
        harness.shell.pass_time(9_000)
        assert harness.commit(epoch=1, member=member) == [0]
    harness.shell.pass_time(10_000)
    assert harness.commit(epoch=1, member=member) == [UnknownMemberId.code]


def test_topics_that_are_not_there_are_refused_one_by_one() -> None:
    harness = GroupHarness()
    topic = harness.topics.by_name("u")
    assert topic is not None
    assert harness.commit(topic="nowhere") == [UnknownTopicOrPartition.code]
    assert harness.commit(topic=b"x" * 16, version=10) == [UnknownTopicId.code]
    assert harness.commit(topic="u", partitions=[0, 3, -1]) == [UnknownTopicOrPartition.code] * 2 + [0]
    assert harness.commit(topic=topic.id, partitions=[0, 3], version=10) == [UnknownTopicOrPartition.code, 0]


def test_metadata_may_not_be_too_long_in_units_of_utf_16() -> None:
    harness = GroupHarness()
    assert harness.commit(text="x" * 4096) == [0]
    assert harness.commit(text="x" * 4097) == [OffsetMetadataTooLarge.code]
    assert harness.commit(text="é" * 4096) == [0]
    assert harness.commit(text="\N{SNAKE}" * 2049) == [OffsetMetadataTooLarge.code]


def test_an_offset_of_an_earlier_topic_is_not_returned_by_id() -> None:
    harness = GroupHarness()
    first = harness.topics.add("v")
    harness.commit(topic="v")
    second = harness.topics.add("v", topic_id=b"second".ljust(16, b"\0"))
    requested = [OffsetFetchRequest.Group.Topic(topic_id=second, partition_indexes=[0])]
    assert first != second and harness.fetch(version=10, topics=requested) == [(-1, 0)]


def test_of_a_group_that_does_not_exist_nothing_is_committed() -> None:
    harness = GroupHarness()
    assert harness.fetch("nobody") == [(-1, 0)]
    assert harness.fetch("nobody", topics=None) == []
    assert harness.fetch("nobody", version=10, topics=[_by_id(b"x" * 16)]) == [(-1, UnknownTopicId.code)]


def _by_id(topic_id: bytes) -> OffsetFetchRequest.Group.Topic:
    return OffsetFetchRequest.Group.Topic(topic_id=topic_id, partition_indexes=[0])


def test_the_first_version_says_a_groups_error_at_each_partition() -> None:
    requested = OffsetFetchRequest.Group(
        group_id="g", topics=[OffsetFetchRequest.Group.Topic(name="t", partition_indexes=[0, 1])]
    )
    first = offset_requests.fetch_error(requested, CoordinatorNotAvailable(), 1)
    assert [result.error_code for result in first.topics[0].partitions] == [CoordinatorNotAvailable.code] * 2
    later = offset_requests.fetch_error(requested, CoordinatorNotAvailable(), 2)
    assert (later.error_code, later.topics) == (CoordinatorNotAvailable.code, [])


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_commit_in_a_transaction_is_hidden_until_its_marker(module: ModuleType) -> None:
    harness = GroupHarness(module)
    harness.commit(5)
    assert harness.commit_in_transaction(9) == 0
    assert harness.shell.log[-1].producer == P
    assert harness.fetch() == [(5, 0)]
    assert harness.fetch(stable=True) == [(-1, UnstableOffsetCommit.code)]
    assert harness.fetch(stable=True, topics=None) == [(-1, UnstableOffsetCommit.code)]
    harness.coordinator.replay_end(P, True)
    assert harness.fetch(stable=True) == [(9, 0)]


def test_a_commit_in_a_transaction_is_fenced_like_any_other() -> None:
    harness = GroupHarness()
    assert harness.commit_in_transaction(1, generation=3, member="m") == IllegalGeneration.code
    member = harness.settle()
    assert harness.commit_in_transaction(1, generation=1, member=member) == 0
    assert harness.commit_in_transaction(2, generation=0, member=member) == IllegalGeneration.code
    assert harness.commit_in_transaction(3, generation=1, member="somebody") == UnknownMemberId.code


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["commit", "join", "consume", "delete", "delete offsets"])
def test_what_could_not_be_written_has_changed_nothing(request_name: str) -> None:
    harness = GroupHarness()
    harness.commit(5)
    before = harness.state()
    harness.shell.failure = CoordinatorNotAvailable("the disk is full")
    if request_name == "commit":
        assert harness.commit(9) == [CoordinatorNotAvailable.code]
        assert harness.commit(9, group="new") == [CoordinatorNotAvailable.code]
    elif request_name == "join":
        assert harness.join("new").error_code == CoordinatorNotAvailable.code
    elif request_name == "consume":
        assert isinstance(harness.consume("new"), CoordinatorNotAvailable)
    elif request_name == "delete":
        assert isinstance(harness.ask("delete_group", "g"), CoordinatorNotAvailable)
    else:
        assert isinstance(harness.ask("delete_offsets", _delete("t")), CoordinatorNotAvailable)
    assert harness.state() == before
    harness.shell.failure = None
    assert harness.commit(6) == [0] and harness.join("new").error_code == 0


def test_a_group_that_could_not_be_written_is_not_there(module: ModuleType) -> None:
    harness = GroupHarness(module)
    harness.shell.failure = CoordinatorNotAvailable("the disk is full")
    harness.join("new")
    assert harness.listed() == [] and not harness.shell.waiting
    harness.shell.failure = None
    assert harness.join("new").generation_id == 1


def _delete(topic: str, *partitions: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequest.Topic(
                name=topic,
                partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in partitions or (0,)],
            )
        ],
    )


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    harness = GroupHarness()
    member = harness.settle()
    harness.commit(5, epoch=1, member=member)
    harness.commit(5, epoch=1, member=member, topic="u")
    (result,) = harness.ask("delete_offsets", _delete("t")).topics
    assert result.partitions[0].error_code == GroupSubscribedToTopic.code
    (result,) = harness.ask("delete_offsets", _delete("u", 0, 9)).topics
    assert [(p.partition_index, p.error_code) for p in result.partitions] == [(9, UnknownTopicOrPartition.code), (0, 0)]
    assert harness.fetch() == [(5, 0)]
    assert harness.fetch(topics=None) == [(5, 0)]


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    harness = GroupHarness()
    assert isinstance(harness.ask("delete_offsets", _delete("t")), GroupIdNotFound)
    nameless = OffsetDeleteRequest(group_id="", topics=[])
    assert isinstance(harness.ask("delete_offsets", nameless), InvalidGroupId)


def test_a_group_is_deleted_with_all_it_has(module: ModuleType) -> None:
    harness = GroupHarness(module)
    for partition in range(5):
        harness.commit(partitions=[partition])
    harness.settle("busy")
    assert isinstance(harness.ask("delete_group", "busy"), NonEmptyGroup)
    assert isinstance(harness.ask("delete_group", "nobody"), GroupIdNotFound)
    assert harness.ask("delete_group", "g").results[0].error_code == 0
    assert harness.listed() == [("busy", "Stable", "classic")] and len(harness.coordinator.offsets) == 0
    harness.shell.crash()
    assert harness.listed() == [("busy", "Stable", "classic")] and len(harness.coordinator.offsets) == 0


def test_a_large_group_is_deleted_by_one_decision(module: ModuleType) -> None:
    """A member that joined between two parts would be left with some of its offsets."""
    harness = GroupHarness(module)
    harness.commit(partitions=list(range(2000)))
    harness.commit(group="other")
    before = len(harness.shell.log)
    harness.shell.holds_back = True
    harness.ask("delete_group", "g")
    assert len(harness.shell.log) - before == 2001 > 2 * RECORDS_AT_ONCE
    assert harness.listed() == [("other", "Empty", "classic")]


def test_a_deleted_topic_takes_its_offsets_along(module: ModuleType) -> None:
    harness = GroupHarness(module)
    harness.commit()
    harness.commit(topic="u")
    harness.commit(group="other")
    harness.topics.remove("t")
    harness.shell.notify(lambda c, now: c.topics_deleted(["t"], now))
    assert harness.fetch() == harness.fetch("other") == [(-1, 0)]
    assert harness.fetch(topics=[OffsetFetchRequest.Group.Topic(name="u", partition_indexes=[0])]) == [(5, 0)]


def test_offsets_expire_only_when_their_group_is_empty(module: ModuleType) -> None:
    """KIP-211."""
    harness = GroupHarness(module)
    member = harness.settle(session_ms=1_800_000)
    harness.commit(epoch=1, member=member)
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    while harness.shell.now_ms < 8 * DAY_MS:
        harness.shell.pass_time(1_700_000)
        assert harness.ask("heartbeat", alive, Client("c", "/h", 4)).error_code == 0
    assert harness.fetch() == [(5, 0)]
    harness.shell.pass_time(6 * DAY_MS)
    assert harness.listed() == [("g", "Empty", "classic")] and harness.fetch() == [(5, 0)]
    harness.shell.pass_time(2 * DAY_MS)
    assert harness.listed() == [] and harness.fetch() == [(-1, 0)]


def test_a_simple_group_goes_with_its_last_offset() -> None:
    harness = GroupHarness()
    harness.commit()
    harness.shell.pass_time(5 * DAY_MS)
    harness.commit(partitions=[1])
    harness.shell.pass_time(2 * DAY_MS + 600_000)
    assert harness.fetch() == [(-1, 0)] and harness.fetch(topics=None) == [(5, 0)]
    harness.shell.pass_time(6 * DAY_MS)
    assert harness.listed() == []
    harness.shell.crash()
    assert harness.listed() == []


# -- groups as a whole -------------------------------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type() -> None:
    harness = GroupHarness()
    harness.commit(group="simple")
    harness.settle("classic")
    harness.consume("new")
    assert sorted(harness.listed()) == [
        ("classic", "Stable", "classic"),
        ("new", "Stable", "consumer"),
        ("simple", "Empty", "classic"),
    ]
    assert harness.listed(states_filter=["eMPTY", "nonsense"]) == [("simple", "Empty", "classic")]
    assert harness.listed(types_filter=["Consumer"]) == [("new", "Stable", "consumer")]
    assert harness.listed(types_filter=["classic"], states_filter=["stable"]) == [("classic", "Stable", "classic")]
    assert harness.listed(types_filter=["nonsense"]) == []


def test_each_kind_is_described_by_its_own_request() -> None:
    harness = GroupHarness()
    harness.settle("classic")
    harness.consume("new")
    assert harness.coordinator.describe_group("classic", 6).group_state == "Stable"
    for missing in ("new", "nobody"):
        result = harness.coordinator.describe_group(missing, 5)
        assert (result.error_code, result.group_state, result.error_message) == (0, "Dead", None)
        result = harness.coordinator.describe_group(missing, 6)
        assert (result.error_code, result.group_state) == (GroupIdNotFound.code, "Dead") and result.error_message
    assert harness.coordinator.describe_consumer_group("new").group_state == "Stable"
    for missing in ("classic", "nobody"):
        with pytest.raises(GroupIdNotFound):
            harness.coordinator.describe_consumer_group(missing)


def test_an_empty_group_becomes_one_of_the_other_kind() -> None:
    harness = GroupHarness()
    harness.commit(5)
    assert harness.consume().error_code == 0
    assert harness.listed() == [("g", "Stable", "consumer")] and harness.fetch() == [(5, 0)]
    harness.shell.crash()
    assert harness.listed() == [("g", "Stable", "consumer")] and harness.fetch() == [(5, 0)]


MISTAKES = [
    ("        if value is not None and key.group not in self.groups:", "        if False:",
     test_a_commit_from_outside_makes_a_simple_group),
    ("group.validate_offset_commit(request.member_id, epoch, request.group_instance_id, " "is_transactional=False)",
     "bool((request.member_id, epoch)) or dict(request.group_instance_id, " "is_transactional=False)",
     test_a_commit_is_fenced_by_generation_and_member),
    ("            producer=Producer(request.producer_id, request.producer_epoch),\n", "",
     test_a_commit_in_a_transaction_is_hidden_until_its_marker),
    ("        self._uncommitted_groups[group.id] = group\n", "        self.groups[group.id] = group\n",
     test_a_group_that_could_not_be_written_is_not_there),
    ("(*self.offsets.tombstones_of(group_id), *group.tombstones())", "(*group.tombstones(),)",
     test_a_group_is_deleted_with_all_it_has),
    ("                if nothing_remains and group.is_empty:\n", "                if group.is_empty:\n",
     test_offsets_expire_only_when_their_group_is_empty),
    ("self.offsets.tombstones_of_topics(waiting[0], gone)", "()", test_a_deleted_topic_takes_its_offsets_along),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(groups, right, wrong, rule)
