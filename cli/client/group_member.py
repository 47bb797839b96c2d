"""A member of a classic consumer group: it joins, is assigned partitions, says that it is alive, and leaves.

The classic protocol works with every Kafka from 0.9 on, also in a group whose other members use KIP-848: the
coordinator translates. The member offers the assignor `range`, which Java's and librdkafka's consumers offer too, and
assigns for all members if it is the group's leader. A thread sends the heartbeats, so that a slow reader of standard
output does not cost the membership; the caller asks `has_to_join` between two reads.
"""

import threading
from collections.abc import Sequence
from typing import Final

from trioka.protocol import errors
from trioka.protocol.errors import NONE
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest

from .. import problems
from ..terminal.failure import Failure
from .classic_protocol import assign_ranges, read_assignment, read_subscription, write_assignment, write_subscription
from .cluster_client import Kafka, TopicPartition
from .connection import ConnectionClosed
from .settings import Settings

ASSIGNOR: Final = "range"
PROTOCOL_TYPE: Final = "consumer"
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
HEARTBEAT_S: Final = 3.0
MAX_JOINS: Final = 10  # without an assignment between them
NO_GENERATION: Final = -1

# After these the member joins again; after the others as a new member.
KEEPS_MEMBER_ID: Final = frozenset({errors.RebalanceInProgress.code, errors.MemberIdRequired.code})
JOINS_AGAIN: Final = KEEPS_MEMBER_ID | {
    errors.UnknownMemberId.code,
    errors.IllegalGeneration.code,
    errors.FencedInstanceId.code,
}


class GroupMember:
    def __init__(self, settings: Settings, group: str, topics: Sequence[str]) -> None:
        self._settings = settings
        self._group = group
        self._topics = tuple(topics)
        self._member_id = ""
        self._generation = NO_GENERATION
        self._heartbeats: _Heartbeats | None = None

    @property
    def id(self) -> tuple[str, int]:
        """As `offsets.commit` takes it."""
        return self._member_id, self._generation

    def has_to_join(self) -> bool:
        """Whether the member has no valid assignment."""
        if self._heartbeats is not None and self._heartbeats.error != NONE:
            self.lose(self._heartbeats.error)
        return self._heartbeats is None

    def lose(self, code: int) -> None:
        """A response says that the assignment no longer holds."""
        self._stop_heartbeats()
        if code not in KEEPS_MEMBER_ID:
            self._member_id, self._generation = "", NO_GENERATION

    def join(self, kafka: Kafka) -> list[TopicPartition]:
        """The assigned partitions. Waits until the other members have joined, too."""
        for _ in range(MAX_JOINS):
            joined = self._join(kafka)
            if joined is None:
                continue
            synced = self._sync(kafka, joined)
            if synced is None:
                continue
            known = self._settings.with_servers(kafka.known_servers())
            self._heartbeats = _Heartbeats(known, self._group, self._member_id, self._generation)
            return synced
        code = errors.RebalanceInProgress.code
        raise problems.from_error_code(code, f"group '{self._group}' assigns no partitions")

    def _join(self, kafka: Kafka) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.Protocol(name=ASSIGNOR, metadata=write_subscription(self._topics))],
        )
        answer: JoinGroupResponse = kafka.ask_coordinator(self._group, request, lambda result: [result.error_code])
        if answer.error_code == errors.MemberIdRequired.code:
            self._member_id = answer.member_id
        if not self._is_fine(answer.error_code):
            return None
        self._member_id, self._generation = answer.member_id, answer.generation_id
        return answer

    def _sync(self, kafka: Kafka, joined: JoinGroupResponse) -> list[TopicPartition] | None:
        assignments = []
        if joined.leader == self._member_id and not joined.skip_assignment:
            members = {each.member_id: read_subscription(bytes(each.metadata)) for each in joined.members}
            wanted = {topic for topics in members.values() for topic in topics}
            kafka.forget()
            counts = {
                topic.name or "": len(topic.partitions) for topic in kafka.cluster().topics if topic.name in wanted
            }
            assignments = [
                SyncGroupRequest.Assignment(member_id=member, assignment=write_assignment(places))
                for member, places in assign_ranges(members, counts).items()
            ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = kafka.ask_coordinator(self._group, request, lambda result: [result.error_code])
        return read_assignment(bytes(answer.assignment)) if self._is_fine(answer.error_code) else None

    def _is_fine(self, code: int) -> bool:
        """False if the member has to join again; other errors end the command."""
        if code == NONE:
            return True
        if code not in JOINS_AGAIN:
            raise problems.from_error_code(code, f"group '{self._group}' cannot be joined")
        self.lose(code)
        return False

    def leave(self, kafka: Kafka) -> None:
        self._stop_heartbeats()
        if self._member_id:
            member = LeaveGroupRequest.Member(member_id=self._member_id)
            kafka.ask_coordinator(
                self._group,
                LeaveGroupRequest(group_id=self._group, members=[member]),
                lambda result: [result.error_code],
            )
            self._member_id = ""

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats = None


class _Heartbeats:
    """A thread with its own connection. It ends with the first error that calls for another join."""

    def __init__(self, settings: Settings, group: str, member_id: str, generation: int) -> None:
        self.error = NONE
        self._settings = settings
        self._group = group
        self._request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        self._stopped = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._settings.kafka() as kafka:
                    while not self._stopped.wait(HEARTBEAT_S):
                        self._beat(kafka)
            except (Failure, ConnectionClosed):
                self._stopped.wait(HEARTBEAT_S)  # the next attempt has new connections

    def _beat(self, kafka: Kafka) -> None:
        answer = kafka.ask_coordinator(self._group, self._request, lambda result: [result.error_code])
        if answer.error_code != NONE:
            self.error = answer.error_code
            self.stop()
