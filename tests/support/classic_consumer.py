"""A consumer of the classic protocol that behaves like Java's, beside those of `consumer_groups.py` in one group.

It joins, receives an id and joins with it, waits for its answers, assigns partitions if it is the leader (by ranges),
and syncs. After REBALANCE_IN_PROGRESS it joins again: an eager consumer first drops all its partitions, a
cooperative one sends its partitions, revokes those that it loses, and joins again.
"""

from collections.abc import Callable

from support.consumer_groups import GROUP, ConsumerGroups, Partitions

from trioka.coordinator.client import Client
from trioka.coordinator.consumer_protocol import read_assignment, read_subscription, write_assignment
from trioka.coordinator.decision import Decision, Now, RequestId
from trioka.coordinator.groups import GroupCoordinator
from trioka.protocol.codec import encode
from trioka.protocol.errors import (
    NONE,
    FencedInstanceId,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    error_class,
)
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.schema import Response

Asking = Callable[[GroupCoordinator, RequestId, Now], Decision]


class ClassicConsumer:
    def __init__(
        self,
        groups: ConsumerGroups,
        name: str,
        *,
        topics: tuple[str, ...] = ("orders",),
        instance_id: str | None = None,
        is_cooperative: bool = False,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 20_000,
        protocols: tuple[str, ...] = ("range",),
    ) -> None:
        self.groups = groups
        self.name = name
        self.topics = topics
        self.instance_id = instance_id
        self.is_cooperative = is_cooperative
        self.protocols = protocols
        self.id = ""
        self.generation = -1
        self.has: Partitions = set()
        self._keeps: Partitions = set()  # the partitions that it keeps when it joins again
        self.is_member = False  # it has its assignment, and need not join again for all it knows
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._ticket: RequestId | None = None

    @property
    def waits(self) -> bool:
        return self._ticket is not None

    def join(self) -> str:
        """The answer, or "" while the consumer waits for it."""
        self.is_member = False
        self.has &= self._keeps if self.is_cooperative else set()
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=self.subscription()) for name in self.protocols],
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
        )
        return self._ask(lambda c, request_id, now: c.join_group(request_id, request, self._client(9), now))

    def sync(self, shares: dict[str, bytes] | None = None) -> str:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=[
                SyncGroupRequest.Assignment(member_id=member_id, assignment=share)
                for member_id, share in (shares or {}).items()
            ],
        )
        return self._ask(lambda c, request_id, now: c.sync_group(request_id, request, self._client(5), now))

    def beat(self) -> str:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance_id
        )
        return self._ask(lambda c, request_id, now: c.heartbeat(request_id, request, self._client(4), now))

    def leave(self) -> str:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[LeaveGroupRequest.Member(member_id=self.id, group_instance_id=self.instance_id)],
        )
        self.has = set()
        text = self._ask(lambda c, request_id, now: c.leave_group(request_id, request, self._client(5), now))
        self.id, self.generation, self.is_member = "", -1, False
        return text

    def step(self) -> None:
        """The next action of a client by itself."""
        if self.waits:
            self.listen()
        elif self.is_member:
            self.beat()
        else:
            self.join()

    def subscription(self) -> bytes:
        topics = self.groups.topics
        owned: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.has):
            topic = topics.by_id(topic_id)
            if topic is not None:
                owned.setdefault(topic.name, []).append(number)
        text = ConsumerProtocolSubscription(
            topics=list(self.topics),
            owned_partitions=[
                ConsumerProtocolSubscription.OwnedPartition(topic=name, partitions=numbers)
                for name, numbers in owned.items()
            ],
            generation_id=self.generation,
        )
        return b"\0\2" + encode(text, 2)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _client(self, version: int) -> Client:
        return Client(f"client-{self.name}", "/127.0.0.1", version)

    def _ask(self, asking: Asking) -> str:
        assert not self.waits
        self._ticket = self.groups.at_work.ask(asking)
        return self.listen()

    def listen(self) -> str:
        result = next((result for result in self.groups.at_work.delivered if result.request_id == self._ticket), None)
        if result is None:
            if self._ticket not in self.groups.at_work.waiting:
                self._ticket = None  # the coordinator that should have answered is gone
            return ""
        self.groups.at_work.delivered.remove(result)
        self._ticket = None
        return self._hear(result.response)

    def _hear(self, response: Response | KafkaError) -> str:
        if isinstance(response, KafkaError):
            return response.name
        assert isinstance(response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse)
        if response.error_code != NONE:
            return self._hear_error(response)
        if isinstance(response, JoinGroupResponse):
            self.id, self.generation = response.member_id, response.generation_id
            leads = bool(response.members)
            text = f"generation {self.generation}{', leads' if leads else ''}"
            after = self.sync(self._share_out(response) if leads else None)
            return f"{text}; {after or 'waits'}"
        if isinstance(response, SyncGroupResponse):
            return self._take(response.assignment)
        return "ok"

    def _hear_error(
        self, response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse
    ) -> str:
        name = error_class(response.error_code).name
        if response.error_code == MemberIdRequired.code:
            assert isinstance(response, JoinGroupResponse)
            self.id = response.member_id
            return self.join()
        self.is_member = False
        if response.error_code != RebalanceInProgress.code:
            self.generation, self.has = -1, set()
        if response.error_code in (UnknownMemberId.code, FencedInstanceId.code):
            self.id = ""
        return name

    def _take(self, blob: bytes) -> str:
        topics = self.groups.topics
        given = {
            (topic.id, number)
            for assigned in read_assignment(blob).assigned_partitions
            if (topic := topics.by_name(assigned.topic)) is not None
            for number in assigned.partitions
        }
        self.is_member = not self.is_cooperative or self.has <= given  # else it revokes partitions and joins again
        self._keeps = given
        self.has = self.has | given if self.is_cooperative else given
        return "has its share"

    def _share_out(self, response: JoinGroupResponse) -> dict[str, bytes]:
        """As a range assignor of clients does."""
        wants = {m.member_id: set(read_subscription(m.metadata).topics) for m in response.members}
        shares: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in wants}
        for name in sorted(set().union(*wants.values())):
            topic = self.groups.topics.by_name(name)
            readers = sorted(member_id for member_id in wants if name in wants[member_id])
            if topic is not None:
                for number in range(topic.partitions):
                    reader = readers[number * len(readers) // topic.partitions]
                    shares[reader].setdefault(topic.id, []).append(number)
        return {member_id: write_assignment(share, self.groups.topics, 2) for member_id, share in shares.items()}
