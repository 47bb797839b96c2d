"""What becomes of a consumer group's members when time passes, and how one is removed.

    (group, "session", member)     no heartbeat for the group's session timeout: the member is removed
    (group, "rebalance", member)   it was told to give up partitions and has not, for its own rebalance timeout: removed
    (group, "join", member)        the same for a member of the classic protocol that was told to join again
    (group, "sync", member)        … and, once it has, for its asking what it has got
    (group, "regex")               the group's patterns are to be resolved, now

Removing a member forgets all records of it and moves the group to its next epoch, so that the next heartbeat of anyone
computes a target without it. A static member that left for a while keeps its session: it has that long to come back.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trioka.protocol.errors import KafkaError

from . import consumer_records as records
from .client import NOBODY
from .consumer_member import ConsumerMember, Phase
from .consumer_state import ConsumerState
from .decision import NOTHING, Answer, Decision, Kept, Moment
from .subscription_pattern import matching_topics
from .subscriptions import Resolved

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
REGEX: Final = "regex"
JOIN: Final = "join"  # these two are of members that speak the classic protocol
SYNC: Final = "sync"

RETRY_MS: Final = 500  # after which what could not be written is tried again


def begin(group: ConsumerState, now: Moment) -> Decision:
    for member in group.members.values():
        set_session(group, member, now)
        if member.phase is Phase.REVOKING and member.classic is None:
            set_rebalance(group, member, now)
    return NOTHING


def expire(group: ConsumerState, key: tuple[str, ...], now: Moment) -> Decision:
    kind = key[1]
    if kind == REGEX:
        return Decision(records=tuple(resolve_patterns(group, now)))
    member = group.members.get(key[2])
    if member is None:
        return NOTHING
    if kind == REBALANCE and (member.phase is not Phase.REVOKING or member.epoch < 0):
        return NOTHING  # what should have set or cancelled this deadline could not be written
    return fence(group, (member,))


def fence(group: ConsumerState, members: Iterable[ConsumerMember], answers: tuple[Answer, ...] = ()) -> Decision:
    """Without these members. If that cannot be written they are still there, and time goes on for them."""
    gone = list(members)
    for member in gone:
        cancel(group, member.id)

    def afterwards(error: KafkaError | None, now: Moment) -> Decision:
        for member in gone if error is not None else ():
            if member.id in group.members:
                group.surroundings.deadlines.set((group.id, SESSION, member.id), now.steady_ms + RETRY_MS)
        return NOTHING

    return Decision(records=tuple(_without(group, gone)), answers=answers, afterwards=afterwards)


def _without(group: ConsumerState, gone: list[ConsumerMember]) -> Iterable[Kept]:
    for member in gone:
        yield from records.member_gone(group.id, member.id)
    for pattern in group.subscriptions.dropped_patterns(gone, ()):
        yield records.expression_gone(group.id, pattern)
    metadata_hash = group.subscriptions.hash_after(group.surroundings.topics, gone, ())
    yield records.group_epoch(group.id, group.epoch + 1, metadata_hash)


def resolve_patterns(group: ConsumerState, now: Moment) -> list[Kept]:
    """Which topics the group's patterns match now, of those that the last member to ask may know of; and the group's
    next epoch, if they are others than before. If they are the same it is written down once in a while, so that the
    next coordinator need not look at once."""
    subscriptions, topics = group.subscriptions, group.surroundings.topics
    matched = matching_topics(subscriptions.patterns, topics)
    asker = group.surroundings.pattern_askers.get(group.id, NOBODY)
    known = {name for name in set[str]().union(*matched.values()) if group.surroundings.may_describe(asker, name)}
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


def set_session(group: ConsumerState, member: ConsumerMember, now: Moment) -> None:
    """A member of the classic protocol has said itself how long it may be silent."""
    timeout_ms = group.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
    group.surroundings.deadlines.set((group.id, SESSION, member.id), now.steady_ms + timeout_ms)


def set_rebalance(group: ConsumerState, member: ConsumerMember, now: Moment) -> None:
    key = (group.id, REBALANCE, member.id)
    if member.phase is Phase.REVOKING:
        group.surroundings.deadlines.set(key, now.steady_ms + member.rebalance_timeout_ms)
    else:
        group.surroundings.deadlines.cancel(key)


def cancel(group: ConsumerState, member_id: str) -> None:
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        group.surroundings.deadlines.cancel((group.id, kind, member_id))
