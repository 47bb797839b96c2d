"""Committed offsets: what counts is what was written last, and of a transaction only what its marker let through."""

from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.coordinator import offsets
from trioka.coordinator.decision import Producer, StoredRecord
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.primitives import NULL_UUID

P = Producer(7, 0)
Q = Producer(8, 0)
DAY_MS = 86_400_000


class Book:
    """Offsets and the log that they stand in."""

    def __init__(self, storage: ModuleType = offsets) -> None:
        self.offsets = storage.Offsets()
        self.end = 0

    def commit(
        self,
        offset: int,
        *,
        producer: Producer | None = None,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        at_ms: int = 1000,
        expire_ms: int = -1,
        topic_id: bytes = NULL_UUID,
    ) -> None:
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        value = OffsetCommitValue(
            offset=offset, metadata="", commit_timestamp=at_ms, expire_timestamp=expire_ms, topic_id=topic_id
        )
        self._write(StoredRecord(key, value), producer)

    def write(self, kept: list[StoredRecord]) -> None:
        for each in kept:
            self._write(each, None)

    def end_transaction(self, producer: Producer, *, commits: bool) -> None:
        self.end += 1
        self.offsets.replay_end(producer, commits)

    def at(self, group: str = "g", topic: str = "t", partition: int = 0) -> int | None:
        committed = self.offsets.get(group, topic, partition)
        return None if committed is None else int(committed.offset)

    def _write(self, kept: StoredRecord, producer: Producer | None) -> None:
        self.offsets.replay(kept.key, kept.value, self.end, producer)
        self.end += 1


class Group:
    """What the expiry of offsets depends on."""

    def __init__(self, *subscribed: str, since_ms: int | None = None, never: bool = False) -> None:
        self._subscribed = subscribed
        self._since_ms = since_ms
        self._never = never

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._subscribed

    def offsets_expire_since(self, commit_ms: int) -> int | None:
        if self._never:
            return None
        return commit_ms if self._since_ms is None else self._since_ms


@pytest.fixture
def storage() -> ModuleType:
    return offsets


def test_a_later_commit_counts(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(5)
    book.commit(3)
    assert book.at() == 3 and len(book.offsets) == 1


def test_a_tombstone_forgets_one_partition(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(5)
    book.commit(6, partition=1)
    book.write([storage.tombstone("g", "t", 0)])
    assert (book.at(), book.at(partition=1), len(book.offsets)) == (None, 6, 1)
    book.write([storage.tombstone("g", "t", 1), storage.tombstone("nobody", "t", 1)])
    assert list(book.offsets.of_group("g")) == []


def test_what_a_transaction_commits_is_hidden_until_its_marker(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(5)
    book.commit(9, producer=P)
    assert book.at() == 5
    assert book.offsets.is_pending("g", "t", 0) and not book.offsets.is_pending("g", "t", 1)
    book.end_transaction(P, commits=True)
    assert book.at() == 9 and not book.offsets.is_pending("g", "t", 0)
    assert not book.offsets.has_open_transactions("g")


def test_what_an_aborted_transaction_commits_is_never_seen(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(5)
    book.commit(9, producer=P)
    book.end_transaction(P, commits=False)
    assert book.at() == 5 and not book.offsets.is_pending("g", "t", 0)


def test_a_transaction_does_not_undo_what_was_committed_after_it(storage: ModuleType) -> None:
    """Compaction keeps the record that was written last: a load of the log must have the same result."""
    book = Book(storage)
    book.commit(9, producer=P)
    book.commit(5)
    book.end_transaction(P, commits=True)
    assert book.at() == 5


def test_of_two_transactions_the_one_that_wrote_last_counts(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1, producer=P)
    book.commit(2, producer=Q)
    book.end_transaction(Q, commits=True)
    book.end_transaction(P, commits=True)
    assert book.at() == 2


def test_a_marker_ends_one_producers_transaction(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1, producer=P)
    book.commit(2, producer=Q, partition=1)
    book.end_transaction(P, commits=True)
    assert (book.at(), book.at(partition=1)) == (1, None)
    assert book.offsets.has_open_transactions("g")
    book.end_transaction(P, commits=True)
    book.end_transaction(Q, commits=True)
    assert book.at(partition=1) == 2


def test_a_tombstone_forgets_what_is_pending_too(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(9, producer=P)
    book.write([storage.tombstone("g", "t", 0)])
    assert not book.offsets.is_pending("g", "t", 0)
    book.end_transaction(P, commits=True)
    assert book.at() is None
    assert not book.offsets.has_open_transactions("g")


def test_deleting_a_group_forgets_all_it_has_and_all_it_may_come_to_have(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1)
    book.commit(2, topic="u", partition=3)
    book.commit(3, partition=1, producer=P)
    book.commit(4, group="other", producer=P)
    book.write(list(book.offsets.tombstones_of("g")))
    book.end_transaction(P, commits=True)
    assert list(book.offsets.of_group("g")) == []
    assert book.at("other") == 4


def test_deleting_topics_forgets_them_in_every_group(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1)
    book.commit(2, group="other")
    book.commit(3, topic="u")
    book.commit(4, partition=1, producer=P)
    book.commit(5, group="third", producer=P)
    forget_topics(book, t=None, nothing=None)
    book.end_transaction(P, commits=True)
    assert (book.at(), book.at("other"), book.at(partition=1), book.at(topic="u")) == (None, None, None, 3)
    assert book.at("third") is None


def forget_topics(book: Book, **gone: bytes | None) -> None:
    for group in book.offsets.groups_in_topics(gone.keys()):
        book.write(list(book.offsets.tombstones_of_topics(group, gone)))


def test_what_is_committed_in_a_topic_that_was_created_again_stays(storage: ModuleType) -> None:
    old, new = b"o" * 16, b"n" * 16
    book = Book(storage)
    book.commit(1, topic_id=old)
    book.commit(2, partition=1, topic_id=new)
    book.commit(3, partition=2, topic_id=new, producer=P)
    book.commit(4, partition=3, topic_id=old)
    book.commit(5, partition=3, topic_id=new, producer=P)
    book.commit(6, partition=4, topic_id=old, producer=P)
    book.commit(7, partition=5)  # of a time when commits had no ids
    forget_topics(book, t=new)
    book.end_transaction(P, commits=True)
    assert [book.at(partition=index) for index in range(6)] == [None, 2, 3, 5, None, None]


# -- expiry ------------------------------------------------------------------------------------------------------------


def gone(
    book: Book, group: Group, now_ms: int, retention_ms: int = DAY_MS, limit: int = 9
) -> tuple[list[tuple[str, int]], bool]:
    tombstones, nothing_remains = book.offsets.expired("g", group, retention_ms, now_ms, limit)
    assert all(kept.value is None and kept.key.group == "g" for kept in tombstones)
    return [(kept.key.topic, kept.key.partition) for kept in tombstones], nothing_remains


def test_an_offset_expires_after_its_retention(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1, at_ms=1000)
    assert gone(book, Group(), 1000 + DAY_MS - 1) == ([], False)
    assert gone(book, Group(), 1000 + DAY_MS) == ([("t", 0)], True)


def test_expiry_comes_in_parts_and_the_last_one_is_marked(storage: ModuleType) -> None:
    book = Book(storage)
    for partition in range(5):
        book.commit(1, partition=partition)
    parts = []
    for _ in range(3):
        tombstones, nothing_remains = book.offsets.expired("g", Group(), DAY_MS, 2 * DAY_MS, 2)
        parts.append((len(tombstones), nothing_remains))
        book.write(tombstones)
    assert parts == [(2, False), (2, False), (1, True)]
    assert gone(book, Group(), 2 * DAY_MS) == ([], True)


def test_the_retention_counts_from_when_the_group_became_empty(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1, at_ms=1000)
    since = 1000 + 5 * DAY_MS
    assert gone(book, Group(since_ms=since), since + DAY_MS - 1) == ([], False)
    assert gone(book, Group(since_ms=since), since + DAY_MS) == ([("t", 0)], True)


def test_a_group_at_work_keeps_its_offsets(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1)
    book.commit(2, topic="u")
    assert gone(book, Group(never=True), 1000 * DAY_MS) == ([], False)
    assert gone(book, Group("t"), 1000 * DAY_MS) == ([("u", 0)], False)


def test_a_commit_may_have_its_own_expiry(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1, at_ms=1000, expire_ms=2000)
    assert gone(book, Group(), 1999) == ([], False)
    assert gone(book, Group(), 2000) == ([("t", 0)], True)
    assert gone(book, Group(never=True), 2000) == ([], False)


def test_nothing_expires_that_a_transaction_is_about_to_change(storage: ModuleType) -> None:
    book = Book(storage)
    book.commit(1)
    book.commit(2, partition=1)
    book.commit(3, producer=P)
    assert gone(book, Group(), 1000 * DAY_MS) == ([("t", 1)], False)


def test_a_group_without_offsets_may_go_unless_it_is_about_to_get_some(storage: ModuleType) -> None:
    book = Book(storage)
    assert gone(book, Group(), 0) == ([], True)
    book.commit(3, producer=P)
    assert gone(book, Group(), 0) == ([], False)


# -- all orders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_of_the_log_finds_what_was_written_last(seed: int) -> None:
    """Against the definition: of the records that count, the last; G3: those of open transactions do not count."""
    random = Random(seed)
    book = Book()
    log: list[tuple[Producer | None, int | None, bool | None]] = []
    for n in range(200):
        producer = random.choice([None, P, Q])
        if producer is not None and random.random() < 0.3:
            verdict = random.random() < 0.6
            book.end_transaction(producer, commits=verdict)
            log.append((producer, None, verdict))
        elif random.random() < 0.1:
            book.write([offsets.tombstone("g", "t", 0)])
            log = [(each[0], None, each[2]) if each[2] is not None else (None, None, None) for each in log]
        else:
            book.commit(n, producer=producer)
            log.append((producer, n, None))
        assert book.at() == last_that_counts(log)


def last_that_counts(log: list[tuple[Producer | None, int | None, bool | None]]) -> int | None:
    counts: list[tuple[int, int]] = []
    for place, (producer, offset, _) in enumerate(log):
        if offset is None:
            continue
        verdict = next((after[2] for after in log[place:] if after[0] == producer and after[2] is not None), None)
        if producer is None or verdict:
            counts.append((place, offset))
    return max(counts)[1] if counts else None


# -- planted mistakes --------------------------------------------------------------------------------------------------

MISTAKES = [
    ("                    return gone, False\n", "                    return gone, not remains\n",
     test_expiry_comes_in_parts_and_the_last_one_is_marked),
    ("(committed, *self._pending_at(place))", "(committed,)",
     test_what_is_committed_in_a_topic_that_was_created_again_stays),
    ("one.topic_id != gone[topic]", "True", test_what_is_committed_in_a_topic_that_was_created_again_stays),
    ("one.topic_id != gone[place.topic]", "True", test_what_is_committed_in_a_topic_that_was_created_again_stays),
    ("committed | pending", "committed", test_deleting_topics_forgets_them_in_every_group),
    ("producer is None", "True",
     test_what_a_transaction_commits_is_hidden_until_its_marker),
    ("before.written_at < committed.written_at", "True",
     test_a_transaction_does_not_undo_what_was_committed_after_it),
    ("        if not is_committed:\n            return\n", "",
     test_what_an_aborted_transaction_commits_is_never_seen),
    ("            self._pending[producer_id].commits.pop(place, None)", "            pass",
     test_a_tombstone_forgets_what_is_pending_too),
    ("                    is_subscribed\n                    or", "                   ",
     test_a_group_at_work_keeps_its_offsets),
    ("                    or self.is_pending(group_id, topic, partition)\n", "",
     test_nothing_expires_that_a_transaction_is_about_to_change),
    ("remains = self.has_open_transactions(group_id)", "remains = False",
     test_a_group_without_offsets_may_go_unless_it_is_about_to_get_some),
    ("    return now_ms - since >= retention_ms", "    return now_ms - committed.commit_ms >= retention_ms",
     test_the_retention_counts_from_when_the_group_became_empty),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(offsets, right, wrong, rule)
