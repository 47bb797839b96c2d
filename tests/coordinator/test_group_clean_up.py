"""Clean-ups of many offsets are written in parts, and undo nothing that was answered between two of them."""

from collections.abc import Callable
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from mutants.plant import Rule, assert_noticed
from support.group_coordinator import GroupHarness

from trioka.coordinator import groups
from trioka.coordinator.client import Client
from trioka.coordinator.decision import Decision, Now, RequestId
from trioka.coordinator.groups import RECORDS_AT_ONCE
from trioka.coordinator.offsets import GroupTopicPartition
from trioka.coordinator.settings import OffsetSettings
from trioka.protocol.errors import NotCoordinator
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

CLIENT = Client("c", "/h", 9)
Partition = OffsetCommitRequest.Topic.Partition


@pytest.fixture
def module() -> ModuleType:
    return groups


MANY = range(2000)  # more than two parts
RETENTION_MS = OffsetSettings().check_interval_ms  # so that offsets expire with the first look


def commits_in_between(
    module: ModuleType, begin: Callable[[GroupHarness], None], *, then: Callable[[GroupHarness], None]
) -> None:
    """Commits that are answered after `begin` has had its first records written, and before these are committed, are
    there afterwards, whatever else is forgotten."""
    harness = GroupHarness(module)
    harness.settings = OffsetSettings(retention_ms=RETENTION_MS)
    for group in ("f", "g"):
        harness.commit(partitions=list(MANY), group=group)
    harness.shell.pass_time(RETENTION_MS - 1)
    harness.commit(group="young")
    harness.shell.holds_back = True
    begin(harness)
    assert len(harness.shell.log) > 2 * len(MANY) + 1, "it has begun"
    then(harness)
    late = [0, RECORDS_AT_ONCE // 2, len(MANY) - 1]  # the first that is forgotten, one of the first part, and the last
    requests = [commit_request(group, late) for group in ("f", "g")]
    tickets = [harness.shell.ask(partial(commit_offsets, request)) for request in requests]
    harness.shell.commit()
    result = [result.response for result in harness.shell.delivered if result.request_id in tickets]
    assert [each.error_code for answer in result for each in answer.topics[0].partitions] == [0] * 6  # type: ignore[union-attr]
    requested = [OffsetFetchRequest.Group.Topic(name="t", partition_indexes=[*late, 1, 1500])]
    for _ in range(2):
        assert harness.fetch("g", topics=requested) == [(77, 0)] * 3 + [(-1, 0)] * 2
        assert harness.fetch("f", topics=requested) == [(77, 0)] * 3 + [(5 if begin is delete_group else -1, 0)] * 2
        harness.shell.crash()


def commit_offsets(request: OffsetCommitRequest, coordinator: Any, request_id: RequestId, now: Now) -> Decision:
    decision: Decision = coordinator.commit_offsets(request_id, request, CLIENT, now)
    return decision


def commit_request(group: str, partitions: list[int], topic: str = "t", offset: int = 77) -> OffsetCommitRequest:
    requested = [
        Partition(partition_index=index, committed_offset=offset, committed_metadata="") for index in partitions
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequest.Topic(name=topic, partitions=requested)],
    )


def expire(harness: GroupHarness) -> None:
    harness.shell.pass_time(1)


def delete_topic(harness: GroupHarness) -> None:
    harness.topics.remove("t")
    harness.shell.notify(lambda c, now: c.topics_deleted(["t"], now))


def create_topic(harness: GroupHarness) -> None:
    harness.topics.add("t", len(MANY))


def delete_group(harness: GroupHarness) -> None:
    harness.shell.ask(lambda c, request_id, now: c.delete_group(request_id, "g", now))


def test_a_commit_between_two_parts_of_an_expiry_is_kept(module: ModuleType) -> None:
    commits_in_between(module, expire, then=lambda harness: None)


def test_a_commit_between_two_parts_of_a_topics_deletion_is_kept(module: ModuleType) -> None:
    """It is one of the topic that has the name now."""
    commits_in_between(module, delete_topic, then=create_topic)


def test_a_commit_behind_the_deletion_of_a_large_group_is_kept(module: ModuleType) -> None:
    commits_in_between(module, delete_group, then=lambda harness: None)


def test_a_group_that_comes_to_life_between_two_parts_keeps_what_is_left(module: ModuleType) -> None:
    """What has not been written yet is not forgotten for a group that has a member by now."""
    harness = GroupHarness(module)
    harness.settings = OffsetSettings(retention_ms=RETENTION_MS)
    harness.commit(partitions=list(MANY))
    harness.shell.pass_time(RETENTION_MS - 1)
    harness.shell.holds_back = True
    harness.shell.pass_time(1)
    harness.join()
    harness.shell.commit()
    assert len(harness.coordinator.offsets) == len(MANY) - RECORDS_AT_ONCE
    assert not harness.coordinator.groups["g"].is_empty


def test_a_part_that_cannot_be_written_ends_a_clean_up_until_the_next(module: ModuleType) -> None:
    harness = GroupHarness(module)
    harness.settings = OffsetSettings(retention_ms=RETENTION_MS)
    harness.commit(partitions=list(MANY))
    harness.shell.pass_time(RETENTION_MS - 1)
    harness.shell.holds_back = True
    harness.shell.pass_time(1)
    harness.shell.failure = NotCoordinator()
    harness.shell.commit()
    assert len(harness.coordinator.offsets) == len(MANY) - RECORDS_AT_ONCE
    harness.shell.failure = None
    harness.shell.pass_time(RETENTION_MS)
    assert harness.listed() == [] and len(harness.coordinator.offsets) == 0


# -- a walk ------------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    offset: int
    at_ms: int


class Walk:
    """Two groups commit in two topics while offsets expire, topics are deleted and created again, groups are deleted
    and coordinators change; what is written stays uncommitted for a while. A commit that nothing has forgotten, and
    whose time is not over, is there."""

    def __init__(self, module: ModuleType, seed: int) -> None:
        self.random = Random(seed)
        self.harness = GroupHarness(module)
        self.harness.topics.add("u", 8)
        self.harness.settings = OffsetSettings(retention_ms=RETENTION_MS)
        self.commits: dict[GroupTopicPartition, Commit] = {}  # the last ones
        self.offset = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choices(
                (self.commit, self.wait, self.hold, self.release, self.delete_topic, self.delete_group, self.crash),
                (8, 6, 4, 3, 1, 1, 1),
            )[0]
            step()
            self.check()
        self.release()
        self.harness.shell.pass_time(3 * RETENTION_MS)
        assert len(self.harness.coordinator.offsets) == 0 and self.harness.listed() == []

    def commit(self) -> None:
        self.offset += 1
        group, topic = self.random.choice("fg"), self.random.choice("tu")
        partitions = self.random.sample(range(8), self.random.randrange(1, 9))
        request = commit_request(group, partitions, topic, self.offset)
        self.harness.shell.ask(partial(commit_offsets, request))
        for partition in partitions:
            self.commits[GroupTopicPartition(group, topic, partition)] = Commit(self.offset, self.harness.shell.now_ms)

    def wait(self) -> None:
        self.harness.shell.pass_time(self.random.randrange(RETENTION_MS))

    def hold(self) -> None:
        self.harness.shell.holds_back = True

    def release(self) -> None:
        self.harness.shell.commit()

    def delete_topic(self) -> None:
        name = self.random.choice("tu")
        self.harness.topics.remove(name)
        self.harness.shell.notify(lambda c, now: c.topics_deleted([name], now))
        self.commits = {place: commit for place, commit in self.commits.items() if place.topic != name}
        self.harness.topics.add(name, 8)

    def delete_group(self) -> None:
        group = self.random.choice("fg")
        self.harness.shell.ask(lambda c, request_id, now: c.delete_group(request_id, group, now))
        self.commits = {place: commit for place, commit in self.commits.items() if place.group != group}

    def crash(self) -> None:
        self.harness.shell.crash()

    def check(self) -> None:
        oldest_ms = self.harness.shell.now_ms - RETENTION_MS
        for place, (offset, at_ms) in self.commits.items():
            found = self.harness.coordinator.offsets.get(*place)
            if at_ms > oldest_ms:
                assert found is not None and found.offset == offset, f"{place} was committed at {offset}: {found}"
                assert place.group in self.harness.coordinator.groups


def walks(module: ModuleType) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "RECORDS_AT_ONCE", 3)
        for seed in range(30):
            Walk(module, seed).run(100)


def test_whatever_is_forgotten_no_commit_that_counts_is(module: ModuleType) -> None:
    walks(module)


# What has been decided is written in two halves, without looking again.
SPLIT = (
    "Decision(records=tuple(records[:9]), on_committed=lambda error, now: "
    "Decision(records=tuple(records[9:]), on_committed=go_on))"
)
MISTAKES = [
    ("Decision(records=tuple(records), on_committed=go_on)", SPLIT.replace("9", "1"), walks),
    ("None if topic is None else topic.id", "None", walks),
    ("Decision(records=tuple(records), on_committed=go_on)", SPLIT,
    test_a_commit_between_two_parts_of_an_expiry_is_kept), ("Decision(records=tuple(records), on_committed=go_on)",
    SPLIT,
     test_a_commit_between_two_parts_of_a_topics_deletion_is_kept),
    ("Decision(records=tuple(records), on_committed=go_on)", "Decision(records=tuple(records))",
     test_a_commit_between_two_parts_of_an_expiry_is_kept),
    ("NOTHING if error is not None else self._in_parts(part, now)", "self._in_parts(part, now)",
     test_a_part_that_cannot_be_written_ends_a_clean_up_until_the_next),
    ("                if len(gone) < free:\n", "                if True:\n",
     test_a_commit_between_two_parts_of_an_expiry_is_kept),
    ("                if len(more) < free:\n", "                if True:\n",
     test_a_commit_between_two_parts_of_a_topics_deletion_is_kept),
    ("None if topic is None else topic.id", "None",
     test_a_commit_between_two_parts_of_a_topics_deletion_is_kept),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(groups, right, wrong, rule)
