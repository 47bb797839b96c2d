"""The voters of the metadata quorum, each set with the offset of the record from which on it applies.

A voter is a node with a certain directory: a node whose disk was wiped is another voter, since it has lost its votes
(K7). With kraft.version 0 the configuration names the voters by their ids alone, and the directory is ignored.

A change of voters applies from the moment it is appended, committed or not; when it is truncated, the voters before
it apply again. So the log's changes are kept as a history.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import NULL_UUID

BEFORE_THE_LOG: Final = -1  # since when the voters count that the configuration, or a snapshot, names


class ReplicaKey(NamedTuple):
    id: int
    directory: bytes = NULL_UUID

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether both are the same replica, as far as their directories are known."""
        return self.id == other.id and (NULL_UUID in (self.directory, other.directory) or self == other)


@frozen
class VoterSet:
    voters: frozenset[ReplicaKey]

    @classmethod
    def of(cls, voters: Iterable[ReplicaKey]) -> "VoterSet":
        made = cls(voters=frozenset(voters))
        assert len({voter.id for voter in made.voters}) == len(made.voters), "one directory for each id"
        return made

    def __iter__(self) -> Iterator[ReplicaKey]:
        return iter(sorted(self.voters))

    def __len__(self) -> int:
        return len(self.voters)

    def __contains__(self, replica: ReplicaKey) -> bool:
        return any(voter.matches(replica) for voter in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def with_voter(self, voter: ReplicaKey) -> "VoterSet":
        return VoterSet.of(self.voters | {voter})

    def without_voter(self, voter: ReplicaKey) -> "VoterSet":
        return VoterSet.of(other for other in self.voters if not other.matches(voter))


class VoterHistory:
    def __init__(self, initial_voters: VoterSet) -> None:
        self._offsets = [BEFORE_THE_LOG]
        self._sets = [initial_voters]

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1]

    @property
    def latest_offset(self) -> int:
        """Of the record that made them voters."""
        return self._offsets[-1]

    def before(self, offset: int) -> VoterSet:
        """The voters as of this offset of the log."""
        return self._sets[max(bisect_left(self._offsets, offset) - 1, 0)]

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self._offsets[-1]
        self._offsets.append(offset)
        self._sets.append(voters)

    def restart(self, offset: int, voters: VoterSet) -> None:
        """A snapshot has the voters; earlier ones are obsolete."""
        self._offsets, self._sets = [offset], [voters]

    def truncate(self, end_offset: int) -> None:
        """Removes the changes at this offset or behind it."""
        keep = max(bisect_left(self._offsets, end_offset), 1)
        del self._offsets[keep:], self._sets[keep:]

    def start_at(self, offset: int) -> None:
        """The voters just before this offset become the beginning of the history."""
        first = max(bisect_left(self._offsets, offset) - 1, 0)
        del self._offsets[:first], self._sets[:first]
