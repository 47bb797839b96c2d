"""Who votes in the metadata quorum, and since which record of the log.

A voter is a node with a certain directory: a node whose disk was wiped is another voter, since it has forgotten what it
promised (K7). With kraft.version 0 the configuration names the voters by their ids alone, and the directory is not
looked at.

A change of voters counts from the moment it is appended, committed or not; when it is cut off again, the voters before
it count again. So the log's changes are kept as a history.
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
        """The same replica, as far as both know their directories."""
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
    def __init__(self, founders: VoterSet) -> None:
        self._offsets = [BEFORE_THE_LOG]
        self._sets = [founders]

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1]

    @property
    def latest_offset(self) -> int:
        """Of the record that made them voters."""
        return self._offsets[-1]

    def before(self, offset: int) -> VoterSet:
        """Who votes, as the log up to this offset has it."""
        return self._sets[max(bisect_left(self._offsets, offset) - 1, 0)]

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self._offsets[-1]
        self._offsets.append(offset)
        self._sets.append(voters)

    def restart(self, offset: int, voters: VoterSet) -> None:
        """A snapshot says who votes; whatever was known before is older."""
        self._offsets, self._sets = [offset], [voters]

    def truncate(self, end_offset: int) -> None:
        """What stood at this offset or behind it was never said."""
        keep = max(bisect_left(self._offsets, end_offset), 1)
        del self._offsets[keep:], self._sets[keep:]

    def start_at(self, offset: int) -> None:
        """What counted just before this offset is the beginning of the history now."""
        first = max(bisect_left(self._offsets, offset) - 1, 0)
        del self._offsets[:first], self._sets[:first]
