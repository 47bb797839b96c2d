"""A coordinator of groups on a log that is a list, and functions that send it requests."""

from random import Random
from types import ModuleType
from typing import Any

from support.coordinator_runtime import CoordinatorDriver
from support.known_topics import KnownTopics

from trioka.coordinator import groups
from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.decision import Producer
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, CoordinatorContext, OffsetSettings
from trioka.protocol.errors import (
    KafkaError,
)
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

DAY_MS = 86_400_000
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 00000000 00000000")  # to the topic t
P = Producer(7, 0)
Partition = OffsetCommitRequest.Topic.Partition


class GroupHarness:
    """A coordinator on a log that is a list, and methods that send it requests."""

    def __init__(self, module: ModuleType = groups) -> None:
        self.topics = KnownTopics(t=2000, u=3)
        self.settings = OffsetSettings(retention_ms=7 * DAY_MS)
        self.shell = CoordinatorDriver(lambda: module.GroupCoordinator(self._context()), GROUPS)

    def _context(self) -> CoordinatorContext:
        return CoordinatorContext(
            classic=lambda: ClassicSettings(initial_rebalance_delay_ms=0),
            consumer=lambda group: ConsumerSettings(assignment_interval_ms=0),
            offsets=lambda: self.settings,
            topics=self.topics,
            deadlines=Deadlines(),
            random=Random(1),
        )

    @property
    def coordinator(self) -> Any:
        return self.shell.coordinator

    def ask(self, method: str, *arguments: object) -> Any:
        """The answer; an error as it is."""
        request_id = self.shell.ask(lambda c, request_id, now: getattr(c, method)(request_id, *arguments, now))
        self.shell.pass_time(0)  # a new group has no initial delay here, but its timer still runs
        return next((result.response for result in self.shell.delivered if result.request_id == request_id), None)

    def commit(self, offset: int = 5, *, version: int = 9, **more: Any) -> list[int]:
        """Error codes."""
        partitions = more.pop("partitions", [0])
        text = more.pop("text", "")
        topic = more.pop("topic", "t")
        requested = [
            Partition(partition_index=index, committed_offset=offset, committed_metadata=text) for index in partitions
        ]
        named = (
            OffsetCommitRequest.Topic(topic_id=topic, partitions=requested)
            if isinstance(topic, bytes)
            else OffsetCommitRequest.Topic(name=topic, partitions=requested)
        )
        request = OffsetCommitRequest(
            group_id=more.pop("group", "g"),
            generation_id_or_member_epoch=more.pop("epoch", -1),
            member_id=more.pop("member", ""),
            topics=[named],
            **more,
        )
        answer = self.ask("commit_offsets", request, Client("c", "/h", version))
        if isinstance(answer, KafkaError):
            return [answer.code]
        return [result.error_code for topic in answer.topics for result in topic.partitions]

    def commit_in_transaction(self, offset: int, *, generation: int = -1, member: str = "") -> Any:
        requested = TxnOffsetCommitRequest.Topic.Partition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=P.id,
            producer_epoch=P.epoch,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequest.Topic(name="t", partitions=[requested])],
        )
        return (
            self.ask("commit_offsets_in_transaction", request, Client("c", "/h", 5)).topics[0].partitions[0].error_code
        )

    def fetch(self, group: str = "g", *, stable: bool = False, version: int = 9, **more: Any) -> list[tuple[int, int]]:
        """Offset and error code of each partition."""
        topics = more.get("topics", [OffsetFetchRequest.Group.Topic(name="t", partition_indexes=[0])])
        requested = OffsetFetchRequest.Group(group_id=group, topics=topics)
        result = self.coordinator.fetch_offsets(requested, require_stable=stable, version=version)
        return [(p.committed_offset, p.error_code) for topic in result.topics for p in topic.partitions]

    def join(self, group: str = "g", member: str = "", session_ms: int = 10_000) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)],
        )
        return self.ask("join_group", request, Client("c", "/h", 0))

    def settle(self, group: str = "g", session_ms: int = 10_000) -> str:
        """A group of one member, which has its assignment."""
        joined = self.join(group, session_ms=session_ms)
        assignment = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"all")
        request = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        )
        assert self.ask("sync_group", request, Client("c", "/h", 3)).error_code == 0
        return str(joined.member_id)

    def consume(self, group: str = "g", epoch: int = 0) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        return self.ask("consumer_group_heartbeat", request, Client("c", "/h", 1))

    def listed(self, **filters: list[str]) -> list[tuple[str, str, str]]:
        result = self.coordinator.list_groups(ListGroupsRequest(**filters))
        return [(group.group_id, group.group_state, group.group_type) for group in result]

    def state(self) -> object:
        """All that is kept."""
        return (self.listed(), [(g, list(self.coordinator.offsets.of_group(g))) for g, _, _ in self.listed()])
