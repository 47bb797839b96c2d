"""The subscriptions of a consumer group's members: topic names, and patterns of names.

The number of members of each name and pattern is counted, so that the removal of the last one is noticed. A pattern
represents the topics that it was resolved to: these are in the log, and change when the pattern is resolved again.
"""

from collections import Counter
from collections.abc import Iterable

from trioka.protocol.lazy_dataclass import frozen

from ..topics import Topics
from .member import ConsumerMember
from .topic_hash import metadata_hash


@frozen
class Resolved:
    """The topics that a pattern matched, with the time and the metadata version of the resolution."""

    topics: frozenset[str]
    version: int
    at_ms: int


class Subscriptions:
    def __init__(self) -> None:
        self.patterns: Counter[str] = Counter()  # the number of members with each pattern
        self.resolved: dict[str, Resolved] = {}
        self._names: Counter[str] = Counter()
        self._changes = 0
        self._hash = (-1, -1, 0)  # change number, metadata version, and the hash at that time

    # -- replay --------------------------------------------------------------------------------------------------------

    def exchange(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Replays a change of a member: new, changed or removed."""
        if before is not None and after is not None and _equal(before, after):
            return
        self._changes += 1
        if before is not None:
            _remove(self._names, before.topics)
            _remove(self.patterns, _patterns(before))
        if after is not None:
            self._names.update(after.topics)
            self.patterns.update(_patterns(after))

    def resolve(self, pattern: str, resolved: Resolved | None) -> None:
        self._changes += 1
        if resolved is None:
            self.resolved.pop(pattern, None)
        else:
            self.resolved[pattern] = resolved

    # -- queries -------------------------------------------------------------------------------------------------------

    def includes(self, topic: str) -> bool:
        return topic in self._names or any(topic in resolved.topics for resolved in self.resolved.values())

    def topic_ids(self, member: ConsumerMember, topics: Topics) -> frozenset[bytes]:
        """The ids of the existing topics that a member subscribes to. An unresolved pattern matches nothing."""
        names = member.topics
        if member.pattern and member.pattern in self.resolved:
            names |= self.resolved[member.pattern].topics
        return frozenset(topic.id for name in names if (topic := topics.by_name(name)) is not None)

    def hash(self, topics: Topics) -> int:
        """The hash of the present topics. Cached until something changes, because each heartbeat needs it."""
        if self._hash[:2] != (self._changes, topics.version):
            self._hash = (self._changes, topics.version, self.hash_after(topics, (), ()))
        return self._hash[2]

    def hash_after(self, topics: Topics, gone: Iterable[ConsumerMember], come: Iterable[ConsumerMember]) -> int:
        """The hash after some members are removed and others added."""
        gone, come = list(gone), list(come)
        names = self._names.copy()
        for member in gone:
            _remove(names, member.topics)
        subscribed = set(names).union(*(member.topics for member in come))
        dropped = self.dropped_patterns(gone, come)
        for pattern, resolved in self.resolved.items():
            if pattern not in dropped:
                subscribed |= resolved.topics
        return metadata_hash(subscribed, topics)

    def hash_resolved(self, topics: Topics, resolved: dict[str, Resolved]) -> int:
        """The hash after patterns are resolved again."""
        subscribed = set(self._names).union(
            *((self.resolved | resolved)[name].topics for name in self.resolved | resolved)
        )
        return metadata_hash(subscribed, topics)

    def dropped_patterns(self, gone: Iterable[ConsumerMember], come: Iterable[ConsumerMember]) -> list[str]:
        """The patterns without subscribers after the change."""
        if not self.patterns:
            return []
        leaving = Counter(pattern for member in gone for pattern in _patterns(member))
        kept = {pattern for member in come for pattern in _patterns(member)}
        return [p for p, count in leaving.items() if self.patterns[p] == count and p not in kept]


def _patterns(member: ConsumerMember) -> tuple[str, ...]:
    return (member.pattern,) if member.pattern else ()


def _equal(one: ConsumerMember, other: ConsumerMember) -> bool:
    return one.topics == other.topics and (one.pattern or "") == (other.pattern or "")


def _remove(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
