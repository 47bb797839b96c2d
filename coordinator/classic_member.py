"""A member of a classic group: who it is, what it can do, what it waits for.

Between two generations members live in memory only; a record is written when the leader has handed out the work.
"""

from collections.abc import Collection
from typing import NamedTuple

from trioka.protocol.internal_records.classic_groups import MemberMetadata
from trioka.protocol.messages.join_group import JoinGroupRequest

from .client import Client
from .decision import Ticket


class ClassicProtocol(NamedTuple):
    """A way to share out the work, and what the member has to say about itself if that one is chosen."""

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
        "join_ticket",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
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
        self.join_ticket: Ticket | None = None  # its JoinGroup, which waits for the others
        self.sync_ticket: Ticket | None = None  # its SyncGroup, which waits for the leader
        self.version = 0  # of its last JoinGroup
        self.is_new = False  # it was never told its id: only its JoinGroup can be missed, not a heartbeat

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
        """As a record has it: of its protocols only the one that was chosen."""
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
        """The same static member under another id. It waits for nothing."""
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
        """The first of its own protocols that everyone has."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def is_excused(self) -> bool:
        """It waits for us, so that it need not say that it is alive."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


def protocols_of(request: JoinGroupRequest) -> tuple[ClassicProtocol, ...]:
    return tuple(ClassicProtocol(protocol.name, protocol.metadata) for protocol in request.protocols)


def rebalance_timeout_of(request: JoinGroupRequest, client: Client) -> int:
    return request.rebalance_timeout_ms if client.version > 0 else request.session_timeout_ms  # v0 knows only one
