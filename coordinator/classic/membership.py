"""The membership of a classic group: members, static members by instance id, expected members, the leader.

Expected are pending members, which were given an id and have not joined with it yet (KIP-394), and, once a generation
has begun, members without a SyncGroup. Members are kept in the order in which they joined. The leader is always a
member: the first to join, until it leaves or does not rejoin.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from trioka.protocol.errors import FencedInstanceId, UnknownMemberId

from ..decision import RequestId
from ..partitioning import java_hash
from .member import ClassicMember, ClassicProtocol


class ClassicMembership:
    def __init__(self) -> None:
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()  # they have not sent SyncGroup in this generation
        self.leader: str | None = None
        self.joined = 0  # number of members with a pending JoinGroup
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()  # the number of members that support each protocol

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> ClassicMember | None:
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def validate(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The requesting member; FencedInstanceId if another member has its instance id."""
        if instance_id is not None:
            static = self.of_instance(instance_id)
            if static is None:
                raise UnknownMemberId()
            if static.id != member_id:
                raise FencedInstanceId()
        if member_id not in self._members:
            raise UnknownMemberId()
        return self._members[member_id]

    # -- adding and removing -------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        assert member.id not in self._members
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self._members[member.id] = member
        self._supporters.update(_names(member.protocols))
        self.joined += member.join_request_id is not None
        self.pending.discard(member.id)

    def remove(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return
        self._supporters.subtract(_names(member.protocols))
        self.joined -= member.join_request_id is not None
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, old: ClassicMember, member_id: str) -> ClassicMember:
        """Gives a static member another id. Pending requests of the old one have been answered."""
        assert old.instance_id is not None and old.join_request_id is None and old.sync_request_id is None
        member = old.renamed(member_id)
        self._members = {m.id: m for m in (member if m is old else m for m in self)}
        self._static[old.instance_id] = member_id
        self.unsynced.discard(old.id)
        if self.leader == old.id:
            self.leader = member_id
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[ClassicProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._supporters.subtract(_names(member.protocols))
        self._supporters.update(_names(protocols))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def wait_for_join(self, member: ClassicMember, request_id: RequestId | None) -> RequestId | None:
        """Sets the member's pending JoinGroup. Returns the earlier one that it replaces, if any."""
        before, member.join_request_id = member.join_request_id, request_id
        self.joined += (request_id is not None) - (before is not None)
        return before

    # -- the state of a join -------------------------------------------------------------------------------------------

    @property
    def have_all_joined(self) -> bool:
        return self.joined == len(self._members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def elect(self) -> bool:
        """Makes a joined member leader. False if no member has joined."""
        leader = None if self.leader is None else self._members.get(self.leader)
        if leader is not None and leader.join_request_id is not None:
            return True
        elected = next((member.id for member in self if member.join_request_id is not None), None)
        if elected is None:
            return False
        self.leader = elected
        return True

    # -- protocols -----------------------------------------------------------------------------------------------------

    def is_common(self, protocol_names: Iterable[str]) -> bool:
        """Whether every member supports one of these."""
        return any(self._supporters[name] == len(self._members) for name in protocol_names)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support. Ties are resolved as in Apache Kafka:
        by the order of names in a Java hash table."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._members)}
        votes = Counter(member.vote(candidates) for member in self)
        size = 16
        while len(votes) > size * 3 // 4:
            size *= 2
        return min(votes, key=lambda name: (-votes[name], _bucket(name, size)))


def _names(protocols: tuple[ClassicProtocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _bucket(name: str, size: int) -> int:
    value = java_hash(name) & 0xFFFFFFFF
    return (value ^ (value >> 16)) & (size - 1)
