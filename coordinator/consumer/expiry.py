"""Deadlines of a consumer group's members, and how members are removed.

    (group, "session", member)     no heartbeat for the group's session timeout: the member is removed
    (group, "rebalance", member)   it has not revoked its partitions within its rebalance timeout: it is removed
    (group, "join", member)        the same for a member of the classic protocol that has to rejoin
    (group, "sync", member)        … and then for its SyncGroup
    (group, "regex")               the group's patterns must be resolved now

Removing a member writes the tombstones of its records and moves the group to its next epoch, so that the next heartbeat
of any member computes a target without it. A static member that left temporarily keeps its session: it must return
within that time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trioka.protocol.errors import KafkaError

from ..client import NO_CLIENT
from ..decision import NOTHING, Decision, Now, Reply, StoredRecord
from . import records
from .member import ConsumerMember, Phase
from .state import ConsumerState
from .subscription_pattern import matching_topics
from .subscriptions import Resolved

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
REGEX: Final = "regex"
JOIN: Final = "join"  # JOIN and SYNC are for members that use the classic protocol
SYNC: Final = "sync"

RETRY_MS: Final = 500  # before a failed write is repeated


def begin(group: ConsumerState, now: Now) -> Decision:
    for member in group.members.values():
        set_session(group, member, now)
        if member.phase is Phase.REVOKING and member.classic is None:
            set_rebalance(group, member, now)
    return NOTHING


def expire(group: ConsumerState, key: tuple[str, ...], now: Now) -> Decision:
    kind = key[1]
    if kind == REGEX:
        return Decision(records=tuple(resolve_patterns(group, now)))
    member = group.members.get(key[2])
    if member is None:
        return NOTHING
    if kind == REBALANCE and (member.phase is not Phase.REVOKING or member.epoch < 0):
        return NOTHING  # a failed write should have set or cancelled this deadline
    return fence(group, (member,))


def fence(group: ConsumerState, members: Iterable[ConsumerMember], replies: tuple[Reply, ...] = ()) -> Decision:
    """Removes these members. If the records cannot be written, the members stay and their deadlines continue."""
    gone = list(members)
    for member in gone:
        cancel(group, member.id)

    def on_committed(error: KafkaError | None, now: Now) -> Decision:
        for member in gone if error is not None else ():
            if member.id in group.members:
                group.context.deadlines.set((group.id, SESSION, member.id), now.steady_ms + RETRY_MS)
        return NOTHING

    return Decision(records=tuple(_without(group, gone)), replies=replies, on_committed=on_committed)


def _without(group: ConsumerState, gone: list[ConsumerMember]) -> Iterable[StoredRecord]:
    for member in gone:
        yield from records.member_tombstones(group.id, member.id)
    for pattern in group.subscriptions.dropped_patterns(gone, ()):
        yield records.expression_tombstone(group.id, pattern)
    metadata_hash = group.subscriptions.hash_after(group.context.topics, gone, ())
    yield records.group_epoch(group.id, group.epoch + 1, metadata_hash)


def resolve_patterns(group: ConsumerState, now: Now) -> list[StoredRecord]:
    """Resolves the group's patterns, among the topics that the last requesting member may describe, and increments the
    group epoch if the result has changed. An unchanged result is written from time to time, so that a new coordinator
    need not resolve the patterns at once."""
    subscriptions, topics = group.subscriptions, group.context.topics
    matched = matching_topics(subscriptions.patterns, topics)
    asker = group.context.pattern_askers.get(group.id, NO_CLIENT)
    known = {name for name in set[str]().union(*matched.values()) if group.context.may_describe(asker, name)}
    resolved = {
        pattern: Resolved(topics=names & known, version=topics.version, at_ms=now.wall_ms)
        for pattern, names in matched.items()
    }
    is_same = _is_same(subscriptions.resolved, resolved)
    if is_same and now.wall_ms <= _resolved_ms(group) + group.settings.regex_refresh_interval_ms:
        group.patterns_seen = (topics.version, now.wall_ms)
        return []
    kept = [
        records.expression(group.id, pattern, found.topics, found.version, found.at_ms)
        for pattern, found in resolved.items()
    ]
    metadata_hash = subscriptions.hash_resolved(topics, resolved)
    has_changed = any(
        found.topics != (before.topics if (before := subscriptions.resolved.get(pattern)) else frozenset())
        for pattern, found in resolved.items()
    )
    if has_changed or metadata_hash != group.metadata_hash:
        kept.append(records.group_epoch(group.id, group.epoch + 1, metadata_hash))
    return kept


def _is_same(before: Mapping[str, Resolved], now: Mapping[str, Resolved]) -> bool:
    return all(pattern in before and before[pattern].topics == found.topics for pattern, found in now.items())


def _resolved_ms(group: ConsumerState) -> int:
    return max((resolved.at_ms for resolved in group.subscriptions.resolved.values()), default=0)


# -- deadlines ---------------------------------------------------------------------------------------------------------


def set_session(group: ConsumerState, member: ConsumerMember, now: Now) -> None:
    """Sets the session deadline. A member of the classic protocol has sent its own session timeout."""
    timeout_ms = group.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
    group.context.deadlines.set((group.id, SESSION, member.id), now.steady_ms + timeout_ms)


def set_rebalance(group: ConsumerState, member: ConsumerMember, now: Now) -> None:
    key = (group.id, REBALANCE, member.id)
    if member.phase is Phase.REVOKING:
        group.context.deadlines.set(key, now.steady_ms + member.rebalance_timeout_ms)
    else:
        group.context.deadlines.cancel(key)


def cancel(group: ConsumerState, member_id: str) -> None:
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        group.context.deadlines.cancel((group.id, kind, member_id))
