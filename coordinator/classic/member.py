"""A member of a classic group: its identity, its protocols, its pending requests.

During a rebalance members are in memory only; a record is written when the leader has sent the assignment.
"""

from collections.abc import Collection
from typing import NamedTuple

from trioka.protocol.internal_records.classic_groups import MemberMetadata
from trioka.protocol.messages.join_group import JoinGroupRequest

from ..client import Client
from ..decision import RequestId


class ClassicProtocol(NamedTuple):
    """An assignment protocol that a member supports, with the member's metadata."""

    name: str
    metadata: bytes


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join_request_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_request_id",
        "version",
    )

    def __init__(
        self,
        *,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[ClassicProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.id = id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.join_request_id: RequestId | None = None  # its JoinGroup that waits for the other members
        self.sync_request_id: RequestId | None = None  # its SyncGroup that waits for the leader
        self.version = 0  # of its last JoinGroup
        self.is_new = False  # it has no member id yet, so only its JoinGroup can time out, not its session

    @classmethod
    def joining(cls, member_id: str, request: JoinGroupRequest, client: Client) -> "ClassicMember":
        return cls(
            id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.id,
            client_host=client.host,
            rebalance_timeout_ms=rebalance_timeout_of(request, client),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols_of(request),
        )

    @classmethod
    def loaded(cls, kept: MemberMetadata, protocol_type: str, protocol_name: str | None) -> "ClassicMember":
        """The member in a record: only with the chosen protocol."""
        return cls(
            id=kept.member_id,
            instance_id=kept.group_instance_id,
            client_id=kept.client_id,
            client_host=kept.client_host,
            rebalance_timeout_ms=kept.session_timeout if kept.rebalance_timeout == -1 else kept.rebalance_timeout,
            session_timeout_ms=kept.session_timeout,
            protocol_type=protocol_type,
            protocols=(ClassicProtocol(protocol_name or "", kept.subscription),),
            assignment=kept.assignment,
        )

    def renamed(self, member_id: str) -> "ClassicMember":
        """The same static member under another id, without pending requests."""
        return ClassicMember(
            id=member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            assignment=self.assignment,
        )

    def kept(self, protocol_name: str, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def metadata(self, protocol_name: str) -> bytes:
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The first of the member's protocols that all members support."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def is_excused(self) -> bool:
        """Whether a request of the member is pending, so that no heartbeat is expected."""
        return not self.is_new and (self.join_request_id is not None or self.sync_request_id is not None)


def protocols_of(request: JoinGroupRequest) -> tuple[ClassicProtocol, ...]:
    return tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols)


def rebalance_timeout_of(request: JoinGroupRequest, client: Client) -> int:
    return request.rebalance_timeout_ms if client.version > 0 else request.session_timeout_ms  # v0 has only one timeout
