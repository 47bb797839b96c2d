"""Who is in a classic group: members, static ones by their instance, those still expected, and one leader.

Expected are pending members, who were given an id and have not joined with it yet (KIP-394), and, once a generation has
begun, those who have not asked for their work yet. Members stand in the order in which they came. The leader is always
a member: the first to come, until it goes or does not come back.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from trioka.protocol.errors import FencedInstanceId, UnknownMemberId

from .classic_member import ClassicMember, ClassicProtocol
from .decision import Ticket
from .partitioning import java_hash


class Roster:
    def __init__(self) -> None:
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()  # they have not sent SyncGroup in this generation
        self.leader: str | None = None
        self.joined = 0  # how many wait for their JoinGroup's answer
        self._members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()  # of each protocol

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
        """The member that asks; FencedInstanceId if another one has taken its place."""
        if instance_id is not None:
            static = self.of_instance(instance_id)
            if static is None:
                raise UnknownMemberId()
            if static.id != member_id:
                raise FencedInstanceId()
        if member_id not in self._members:
            raise UnknownMemberId()
        return self._members[member_id]

    # -- coming and going ----------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        assert member.id not in self._members
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self._members[member.id] = member
        self._supporters.update(_names(member.protocols))
        self.joined += member.join_ticket is not None
        self.pending.discard(member.id)

    def remove(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return
        self._supporters.subtract(_names(member.protocols))
        self.joined -= member.join_ticket is not None
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, old: ClassicMember, member_id: str) -> ClassicMember:
        """A static member gets another id. Whoever waits as the old one has been answered."""
        assert old.instance_id is not None and old.join_ticket is None and old.sync_ticket is None
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

    def wait_for_join(self, member: ClassicMember, ticket: Ticket | None) -> Ticket | None:
        """From now on the member waits with this ticket; the one that it waited with before, if any."""
        before, member.join_ticket = member.join_ticket, ticket
        self.joined += (ticket is not None) - (before is not None)
        return before

    # -- the state of a join -------------------------------------------------------------------------------------------

    @property
    def have_all_joined(self) -> bool:
        return self.joined == len(self._members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the slowest asks for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def elect(self) -> bool:
        """The leader must be one of those who have joined. False: nobody has."""
        leader = None if self.leader is None else self._members.get(self.leader)
        if leader is not None and leader.join_ticket is not None:
            return True
        elected = next((member.id for member in self if member.join_ticket is not None), None)
        if elected is None:
            return False
        self.leader = elected
        return True

    # -- protocols -----------------------------------------------------------------------------------------------------

    def is_common(self, protocol_names: Iterable[str]) -> bool:
        """Whether everyone who is here has one of these."""
        return any(self._supporters[name] == len(self._members) for name in protocol_names)

    def select_protocol(self) -> str:
        """The one that most vote for, among those that all have. A tie goes as Apache Kafka's goes: to the name that
        comes first in a hash table of Java's."""
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
