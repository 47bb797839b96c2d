"""The places of the fetch session cache: who gets one, and who gives way to whom."""

from dataclasses import dataclass, replace
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.fetch_requests import (
    EVICTION_MS,
    LAST,
    answered,
    cache,
    fetch,
    is_there,
    opened,
    places,
    request,
    result,
    started,
)

from trioka.broker.replication import fetch_session_cache as fetch_sessions
from trioka.protocol.errors import FetchSessionIdNotFound


@pytest.fixture
def broker() -> ModuleType:
    return fetch_sessions


def test_without_a_slot_there_is_no_session_and_a_whole_answer(broker: ModuleType) -> None:
    for slots in (0, 1):
        sessions = cache(broker, slots)
        for _ in range(slots):
            assert started(sessions, ("a", 0)) != 0
        response = fetch(sessions, request(0, 0, *places(3)))
        assert response.session_id == 0 and answered(response) == places(3)
        assert len(sessions) == slots and sessions.evictions == 0


def test_a_session_unused_for_too_long_gives_way_to_anyone(broker: ModuleType) -> None:
    sessions = cache(broker, 1)
    old = started(sessions, *places(5), follower=True)
    assert started(sessions, ("a", 0), now_ms=EVICTION_MS) == 0
    new = started(sessions, ("a", 0), now_ms=EVICTION_MS + 1)
    assert new != 0 and not is_there(sessions, old)
    assert sessions.evictions == 1


def test_the_session_unused_for_longest_gives_way_first(broker: ModuleType) -> None:
    sessions = cache(broker, 2)
    first, second = started(sessions, ("a", 0)), started(sessions, ("a", 0), now_ms=1)
    fetch(sessions, request(first, 1), now_ms=2)
    assert started(sessions, ("a", 0), now_ms=EVICTION_MS + 3) != 0
    assert is_there(sessions, first) and not is_there(sessions, second)


def test_an_older_smaller_session_gives_way_to_a_larger_one(broker: ModuleType) -> None:
    for size, gives_way in ((1, False), (2, False), (3, True)):
        sessions = cache(broker, 1)
        old = started(sessions, *places(2))
        fetch(sessions, request(old, 1), now_ms=EVICTION_MS + 1)
        new = started(sessions, *places(size), now_ms=EVICTION_MS + 1)
        assert (new != 0) == gives_way == (not is_there(sessions, old)), size


def test_a_young_session_does_not_give_way_to_a_larger_one(broker: ModuleType) -> None:
    sessions = cache(broker, 1)
    young = started(sessions, ("a", 0))
    fetch(sessions, request(young, 1), now_ms=EVICTION_MS)
    assert started(sessions, *places(9), now_ms=EVICTION_MS) == 0
    assert is_there(sessions, young)


def test_the_smallest_gives_way_at_its_size_of_today(broker: ModuleType) -> None:
    sessions = cache(broker, 3)
    grows, shrinks, stays = (started(sessions, *places(size)) for size in (1, 3, 2))
    later = EVICTION_MS + 1
    fetch(sessions, request(grows, 1, *places(4)), now_ms=later)
    fetch(sessions, request(shrinks, 1), now_ms=later)
    fetch(sessions, request(stays, 1), now_ms=later)
    fetch(sessions, request(shrinks, 2, forget=places(2)), now_ms=later)
    assert started(sessions, *places(5), now_ms=later) != 0
    assert [is_there(sessions, id) for id in (grows, shrinks, stays)] == [True, False, True]
    assert started(sessions, *places(5), now_ms=later) != 0
    assert [is_there(sessions, id) for id in (grows, shrinks, stays)] == [True, False, False]
    assert started(sessions, *places(5), now_ms=later) != 0
    assert not is_there(sessions, grows)


def test_a_young_consumer_gives_way_to_a_follower(broker: ModuleType) -> None:
    sessions = cache(broker, 1)
    consumer = started(sessions, *places(9))
    follower = started(sessions, ("a", 0), follower=True)
    assert follower != 0 and not is_there(sessions, consumer)
    assert started(sessions, *places(9), follower=True) == 0  # a young follower is not evicted


def test_an_older_follower_gives_way_to_a_larger_follower_only(broker: ModuleType) -> None:
    sessions = cache(broker, 1)
    later = EVICTION_MS + 1
    old = started(sessions, ("a", 0), follower=True)
    fetch(sessions, request(old, 1), now_ms=later)
    assert started(sessions, *places(9), now_ms=later) == 0
    assert started(sessions, ("a", 0), now_ms=later, follower=True) == 0
    assert is_there(sessions, old)
    assert started(sessions, *places(2), now_ms=later, follower=True) != 0


def test_consumers_give_way_before_followers(broker: ModuleType) -> None:
    sessions = cache(broker, 2)
    later = EVICTION_MS + 1
    follower, consumer = started(sessions, ("a", 0), follower=True), started(sessions, *places(9))
    fetch(sessions, request(follower, 1), now_ms=later)
    fetch(sessions, request(consumer, 1), now_ms=later)
    assert started(sessions, *places(2), now_ms=later, follower=True) != 0
    assert is_there(sessions, follower) and not is_there(sessions, consumer)


def test_a_session_begins_when_it_is_answered(broker: ModuleType) -> None:
    sessions = cache(broker, 1)
    context = opened(sessions, request(0, 0, ("a", 0)), now_ms=0)
    id = context.answer([(asked, result(0)) for asked in context.selected], EVICTION_MS).session_id
    assert started(sessions, *places(2), now_ms=2 * EVICTION_MS) == 0  # not unused for long
    assert is_there(sessions, id)


def test_sessions_partitions_and_evictions_are_counted(broker: ModuleType) -> None:
    sessions = cache(broker, 2)
    first, second = started(sessions, *places(3)), started(sessions, *places(2))
    assert (len(sessions), sessions.partitions, sessions.evictions) == (2, 5, 0)
    fetch(sessions, request(first, 1, ("b", 0), ("b", 1), ("a", 0), forget=[("a", 2)]))
    assert sessions.partitions == 6
    fetch(sessions, request(second, -1))
    assert (len(sessions), sessions.partitions, sessions.evictions) == (1, 4, 0)
    started(sessions, *places(7)), started(sessions, *places(1), follower=True)
    assert (len(sessions), sessions.partitions, sessions.evictions) == (2, 8, 1)


class Dice(Random):
    """Throws the given values."""

    def __init__(self, *throws: int) -> None:
        super().__init__(0)
        self.throws = list(throws)
        self.drawn: list[tuple[int, int]] = []

    def randint(self, a: int, b: int) -> int:
        self.drawn.append((a, b))
        return self.throws.pop(0)


def test_a_session_id_is_random_positive_and_not_in_use(broker: ModuleType) -> None:
    dice = Dice(7, 7, 7, 8)
    sessions = cache(broker, random=dice)
    assert [started(sessions, ("a", 0)), started(sessions, ("a", 0))] == [7, 8]
    assert set(dice.drawn) == {(1, LAST)}


def test_the_partitions_of_all_sessions_are_limited(broker: ModuleType) -> None:
    sessions = cache(broker, max_partitions=4)
    first = started(sessions, *places(3))
    assert started(sessions, *places(2)) == 0
    second = started(sessions, *places(1))
    assert second != 0 and sessions.partitions == 4
    response = fetch(sessions, request(second, 1, *places(2)))
    assert response.error_code == FetchSessionIdNotFound.code and not is_there(sessions, second)
    assert fetch(sessions, request(first, 1)).error_code == 0 and sessions.partitions == 3


def test_unused_sessions_make_room_for_partitions_too(broker: ModuleType) -> None:
    sessions = cache(broker, max_partitions=4)
    for _ in range(4):
        started(sessions, ("a", 0))
    assert started(sessions, *places(5), now_ms=EVICTION_MS + 1) == 0 and len(sessions) == 4
    assert started(sessions, *places(2), now_ms=EVICTION_MS + 1) != 0
    assert (len(sessions), sessions.partitions, sessions.evictions) == (3, 4, 2)


# All of it together.


@pytest.mark.parametrize("seed", range(30))
def test_the_evicted_session_is_that_of_a_plain_search(broker: ModuleType, seed: int) -> None:
    """The cache keeps its ranks sorted; here all sessions are searched each time."""
    random = Random(seed)
    sessions = cache(broker, 4, random=random)
    alive: dict[int, Known] = {}
    now = 0
    for _ in range(300):
        now += random.choice((1, 30_000, 60_000, 130_000) if random.random() < 0.2 else (1, 1000))
        if alive and random.random() < 0.6:
            id = random.choice(sorted(alive))
            known = alive[id]
            size = random.randint(1, 5)
            forget = places(5)[size:]
            response = fetch(sessions, request(id, known.epoch, *places(size), forget=forget), now_ms=now)
            assert response.session_id == id
            alive[id] = replace(known, size=size, used_ms=now, epoch=known.epoch + 1)
        else:
            follower, size = random.random() < 0.4, random.randint(1, 5)
            loser = loser_to(follower, size, alive, now)
            id = started(sessions, *places(size), now_ms=now, follower=follower)
            assert (id != 0) == (len(alive) < 4 or loser is not None)
            if len(alive) == 4 and loser is not None:
                del alive[loser]
            if id != 0:
                alive[id] = Known(follower=follower, size=size, created_ms=now, used_ms=now, epoch=1)
        assert {id for id in alive if is_there(sessions, id)} == set(alive)
        assert (len(sessions), sessions.partitions) == (len(alive), sum(known.size for known in alive.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    follower: bool
    size: int
    created_ms: int
    used_ms: int
    epoch: int


def loser_to(follower: bool, size: int, alive: dict[int, Known], now: int) -> int | None:
    """Who would give way to a new session, in the words of the rule."""
    if not alive:
        return None
    unused = min(alive, key=lambda id: alive[id].used_ms)
    if now - alive[unused].used_ms > EVICTION_MS:
        return unused
    may = [
        (known.follower, known.size, id)
        for id, known in alive.items()
        # Whether it is old enough was seen when it was used last.
        if known.used_ms - known.created_ms > EVICTION_MS or (follower and not known.follower)
    ]
    return min(may)[2] if may and (follower, size) > min(may)[:2] else None


MISTAKES: list[tuple[str, str, Rule]] = [
    ("len(self._sessions) >= self._slots", "len(self._sessions) > self._slots",
     test_without_a_slot_there_is_no_session_and_a_whole_answer),
    ("if now_ms - oldest.last_used_ms > self._eviction_ms:", "if now_ms - oldest.last_used_ms >= self._eviction_ms:",
     test_a_session_unused_for_too_long_gives_way_to_anyone),
    ("if now_ms - oldest.last_used_ms > self._eviction_ms:", "if False:",
     test_a_session_unused_for_too_long_gives_way_to_anyone),
    ("        self._sessions.move_to_end(session.id)\n", "",
     test_the_session_unused_for_longest_gives_way_first),
    ("        session.last_used_ms = now_ms\n", "", test_an_older_smaller_session_gives_way_to_a_larger_one),
    ("rank < evictable[0]", "rank[:2] < evictable[0][:2]", test_an_older_smaller_session_gives_way_to_a_larger_one),
    ("        if session.is_settled:\n", "        if False:\n",
     test_an_older_smaller_session_gives_way_to_a_larger_one),
    ("now_ms - session.created_ms > self._eviction_ms", "now_ms - session.created_ms >= self._eviction_ms",
     test_a_young_session_does_not_give_way_to_a_larger_one),
    ("evictable = self._evictable_by_followers if is_follower else self._evictable",
     "evictable = self._evictable_by_followers", test_a_young_session_does_not_give_way_to_a_larger_one),
    ("size != session.size or is_settled != session.is_settled", "is_settled != session.is_settled",
     test_the_smallest_gives_way_at_its_size_of_today),
    ("self._drop_rank(session)\n" "self.partitions += size - session.size", "self.partitions += size - session.size",
     test_the_smallest_gives_way_at_its_size_of_today),
    ("                del ranks[place]\n", "                pass\n", test_the_smallest_gives_way_at_its_size_of_today),
    ("            insort(self._evictable, session.rank)", "            self._evictable.append(session.rank)",
     test_the_smallest_gives_way_at_its_size_of_today),
    ("evictable = self._evictable_by_followers if is_follower else self._evictable", "evictable = self._evictable",
     test_a_young_consumer_gives_way_to_a_follower),
    ("if session.is_settled or not session.is_follower:", "if True:", test_a_young_consumer_gives_way_to_a_follower),
    ("return self.is_follower, self.size, self.id", "return False, self.size, self.id",
     test_an_older_follower_gives_way_to_a_larger_follower_only),
    ("if session.is_settled or not session.is_follower:", "if not session.is_follower:",
     test_an_older_follower_gives_way_to_a_larger_follower_only),
    ("return self.is_follower, self.size, self.id", "return not self.is_follower, self.size, self.id",
     test_consumers_give_way_before_followers),
    ("self.created_ms = self.last_used_ms = now_ms", "self.created_ms = self.last_used_ms = 0",
     test_a_session_begins_when_it_is_answered),
    ("        self.partitions -= session.size\n", "", test_sessions_partitions_and_evictions_are_counted),
    ("            self.partitions += size - session.size\n", "", test_sessions_partitions_and_evictions_are_counted),
    ("        self.partitions += session.size\n", "", test_sessions_partitions_and_evictions_are_counted),
    ("        self.evictions += 1\n", "", test_sessions_partitions_and_evictions_are_counted),
    ("            if id not in self._sessions:\n", "            if True:\n",
     test_a_session_id_is_random_positive_and_not_in_use),
    ("self._random.randint(1, MAX_SESSION_ID)", "self._random.randint(0, MAX_SESSION_ID)",
     test_a_session_id_is_random_positive_and_not_in_use),
    (" or self.partitions + size > self._max_partitions", "", test_the_partitions_of_all_sessions_are_limited),
    ("if self.partitions > self._max_partitions:", "if False:", test_the_partitions_of_all_sessions_are_limited),
    ("if size > self._max_partitions:", "if False:", test_unused_sessions_make_room_for_partitions_too),
    ("while len(self._sessions) >= self._slots or self.partitions + size > " "self._max_partitions:\n"
     "    if not self._evict((is_follower, size, NO_SESSION), now_ms):\n" "        return NO_SESSION",
     "if len(self._sessions) >= self._slots or self.partitions + size > self._max_partitions:\n"
     "    if not self._evict((is_follower, size, NO_SESSION), now_ms):\n" "        return NO_SESSION",
     test_unused_sessions_make_room_for_partitions_too),
    ("            insort(self._evictable_by_followers, session.rank)",
     "            self._evictable_by_followers.append(session.rank)",
     lambda broker: test_the_evicted_session_is_that_of_a_plain_search(broker, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(fetch_sessions, right, wrong, rule)
