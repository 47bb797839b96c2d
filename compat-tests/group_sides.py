"""Groups, as Apache Kafka and trioka have them: short words for asking both, and what both have written.

A member's id differs from side to side, and so a request of a member is a function of the side; `Members` knows the
ids. Everything that stands in `__consumer_offsets` can be compared at the end: `records`.
"""

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from side_by_side import GENERATED_ID, Order, Side, SideBySide
from support.group_requests import LONG_MS, OFFSETS_TOPIC, join, sync

from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.errors import MemberIdRequired
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.schema import Struct

PATIENCE_S = 60
NO_ID = bytes(16)

# The order of groups and members is that of Java's hash tables, which has no meaning (and differs from run to run if
# an id is a random one).
BY_GROUP: Order = {"groups": "group_id", "results": "group_id", "groups.members": repr}

# A silent member stays in its group until the last comparison, on a slow machine too. (In classic groups each member
# sets its session timeout.)
PATIENT: Mapping[str, object] = {
    "group_consumer_session_timeout_ms": LONG_MS,
    "group_consumer_max_session_timeout_ms": LONG_MS,
}

Partition = OffsetCommitRequest.Topic.Partition

_numbers = count(1)


def wait_for_coordinator(side: Side) -> None:
    """Apache Kafka creates the topic on the first request, and answers meanwhile that there is no coordinator."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (found,) = side.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
        if not found.error_code:
            requested = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)])
            if not side.ask(requested, 9).groups[0].error_code:
                return
        assert time.monotonic() < deadline, f"{side.name}: no coordinator"
        time.sleep(0.05)


def new_group() -> str:
    return f"group-{next(_numbers)}"


def commit(
    group: str,
    version: int,
    *partitions: tuple[int, int, str | None],
    epoch: int = -1,
    member: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
    topic: str = "t",
    others: tuple[bytes, ...] = (),
) -> Callable[[Side], OffsetCommitRequest]:
    """A request that names its topic as its version does. `others` are ids of topics that are not there."""

    def request(side: Side) -> OffsetCommitRequest:
        requested = [
            Partition(partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=text)
            for index, offset, text in partitions or [(0, 5, "hi")]
        ]
        if version < 10:
            topics = [OffsetCommitRequest.Topic(name=topic, partitions=requested)]
        else:
            topics = [OffsetCommitRequest.Topic(topic_id=side.topic_id(topic), partitions=requested)]
        topics += [OffsetCommitRequest.Topic(topic_id=other, partitions=requested) for other in others]
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=topics,
        )

    return request


def fetch_all(sides: SideBySide, group: str) -> None:
    requested = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)])
    sides.same(requested, 9, order={"groups.topics": "name", "groups.topics.partitions": "partition_index"})


class Members:
    """The members of a group on both sides; their ids differ."""

    def __init__(self, sides: SideBySide, group: str) -> None:
        self.group = group
        self._sides = sides
        self.ids: dict[str, str] = {}

    def __getitem__(self, side: Side) -> str:
        return self.ids[side.name]

    def come(self, version: int, **more: Any) -> None:
        """Joins as the only member, and gets the assignment."""
        answers = self._sides.same(join(self.group, **more), version)
        if answers[0].error_code == MemberIdRequired.code:
            self.note(answers)
            answers = self._sides.same(lambda side: join(self.group, member=self[side], **more), version)
        self.note(answers)
        generation = answers[0].generation_id
        self._sides.same(
            lambda side: sync(self.group, self[side], generation, instance=more.get("instance")), min(version, 5)
        )

    def note(self, answers: tuple[Any, Any]) -> None:
        self.ids = {self._sides.kafka.name: answers[0].member_id, self._sides.trioka.name: answers[1].member_id}


def describe(sides: SideBySide, *groups: str) -> None:
    for version in (3, 6):
        sides.same(DescribeGroupsRequest(groups=list(groups)), version, order=BY_GROUP)


def describe_consumers(sides: SideBySide, version: int, *groups: str) -> None:
    requested = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
    sides.same(requested, version, order=BY_GROUP)


def records(side: Side) -> list[Any]:
    """All of the topic, times and ids made equal. That nothing else is lost by reading a record: it is written again,
    and the bytes are the same."""
    found: list[Any] = []
    offset = 0
    while data := _read(side, offset):
        for header in batch.headers(data, partial_tail=True):
            assert (header.producer_id, header.base_sequence, header.is_transactional) == (-1, 0, False)
            for record in batch.records(data, header):
                assert record.key is not None
                kept = GROUPS.decode(record.key, record.value)
                assert kept is not None, record
                assert GROUPS.encode(kept) == (record.key, record.value)
                found.append((_plain(side, kept.key), kept.value and _plain(side, kept.value)))
            offset = header.next_offset
    return found


def _read(side: Side, offset: int) -> bytes:
    requested = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchRequest.Topic(
                topic=OFFSETS_TOPIC,
                partitions=[
                    FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    (topic,) = side.ask(requested, 4).responses
    assert not topic.partitions[0].error_code
    return bytes(topic.partitions[0].records or b"")


def _plain(side: Side, value: Any) -> Any:
    if isinstance(value, Struct):
        return (type(value).__name__, {f.name: _named(side, f.name, getattr(value, f.name)) for f in value.__fields__})
    if isinstance(value, list):
        return [_plain(side, each) for each in value]
    return value


def _named(side: Side, name: str, value: Any) -> Any:
    if name.endswith("timestamp") and value > 0:
        return "<a time>"
    if name == "topic_id" and value != NO_ID:
        return next((f"<id of {topic}>" for topic, known in side.ids.items() if known == value), "<an id>")
    if name == "metadata_hash" and value:
        return "<a hash>"  # of topics with their ids
    if isinstance(value, str) and GENERATED_ID.search(value):
        return "<a member's id>"
    return _plain(side, value)
