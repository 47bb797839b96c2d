"""The asking side of a fetch session, against the answering one."""

from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.broker.replication import fetch_session_client as standing_fetch
from trioka.broker.replication.fetch_session_cache import FetchSessions
from trioka.broker.replication.fetch_session_client import VERSION, Key, Limits, Position
from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import FetchSessionIdNotFound
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

LIMITS = Limits(max_wait_ms=500, min_bytes=1, max_bytes=1000, partition_max_bytes=100)
A, B = bytes(15) + b"a", bytes(15) + b"b"
Result = FetchResponse.Topic.Partition


@pytest.fixture
def module() -> ModuleType:
    return standing_fetch


def at(offset: int, leader_epoch: int = 3) -> Position:
    return Position(offset, 2, 1, leader_epoch)


class Pair:
    """A follower and its leader, which answers whatever is asked with nothing."""

    def __init__(self, module: ModuleType, slots: int = 10) -> None:
        self.asking = module.FetchSessionClient(7)
        self.leader = FetchSessions(slots, 1000, Random(1))

    def ask(self, wanted: dict[Key, Position]) -> tuple[FetchRequest, list[Key], bool]:
        """The request, how the leader reads it, and whether its response counts."""
        request: FetchRequest = self.asking.request(wanted, 11, LIMITS)
        request = decode(FetchRequest, VERSION, encode(request, VERSION))
        context = self.leader.open(request, VERSION, 0, lambda topic_id: topic_id.hex(), is_follower=True)
        asked = [(each.topic_id, each.partition) for each in context.selected]
        offsets = {(each.topic_id, each.partition): each.fetch_offset for each in context.selected}
        assert context.error_code or offsets == {key: place.offset for key, place in wanted.items()}
        answer = context.answer([(each, nothing(each)) for each in context.selected], 0)
        return request, asked, self.asking.handle_response(answer)


def nothing(asked: Any) -> Result:
    return Result(
        partition_index=asked.partition, error_code=0, high_watermark=5, aborted_transactions=None, records=b""
    )


def said(request: FetchRequest) -> list[Key]:
    return [(topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[Key]:
    return [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


def test_after_the_first_request_only_changes_are_sent(module: ModuleType) -> None:
    pair = Pair(module)
    wanted = {(A, 0): at(5), (A, 1): at(6), (B, 0): at(7)}
    request, asked, counts = pair.ask(wanted)
    assert (sorted(said(request)), sorted(asked), counts) == (sorted(wanted), sorted(wanted), True)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (7, 11)
    changes: list[dict[Key, Position]] = [{}, {(A, 1): at(8)}, {}, {(B, 0): at(7, 4)}, {(B, 1): at(0)}]
    for change in changes:
        wanted |= change
        request, asked, counts = pair.ask(wanted)
        assert (said(request), sorted(asked), counts) == (list(change), sorted(wanted), True)


def test_what_is_followed_no_longer_is_forgotten(module: ModuleType) -> None:
    pair = Pair(module)
    pair.ask({(A, 0): at(5), (B, 0): at(7)})
    request, asked, _ = pair.ask({(B, 0): at(7)})
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(A, [0])]
    assert asked == [(B, 0)]
    request, asked, _ = pair.ask({(A, 0): at(5), (B, 0): at(7)})
    assert (said(request), sorted(asked)) == ([(A, 0)], [(A, 0), (B, 0)])


def test_a_session_with_known_changes_checks_only_those(module: ModuleType) -> None:
    pair = Pair(module)
    wanted = {(A, 0): at(5), (A, 1): at(6), (B, 0): at(7)}
    pair.ask(wanted)
    moved = {(A, 0): at(8), (A, 1): at(9)}  # and B is wanted no longer
    request = pair.asking.request(moved, 11, LIMITS, {(A, 1), (B, 0)})
    assert (said(request), forgotten(request)) == ([(A, 1)], [(B, 0)])
    request = pair.asking.request(moved, 11, LIMITS, {(A, 1), (B, 0)})
    assert (said(request), forgotten(request)) == ([], [])  # of an earlier request
    request = pair.asking.request(moved, 11, LIMITS)
    assert said(request) == [(A, 0)]
    pair.asking.reset()
    request = pair.asking.request(moved, 11, LIMITS, {(A, 0)})
    assert said(request) == [(A, 0), (A, 1)]  # to who knows nothing, everything


def test_a_leader_without_the_session_gets_every_partition_again(module: ModuleType) -> None:
    pair = Pair(module)
    wanted = {(A, 0): at(5), (B, 0): at(7)}
    pair.ask(wanted)
    pair.leader = FetchSessions(10, 1000, Random(1))
    _, _, counts = pair.ask(wanted)
    assert not counts
    request, asked, counts = pair.ask(wanted)
    assert (sorted(said(request)), sorted(asked), counts) == (sorted(wanted), sorted(wanted), True)


def test_after_a_lost_response_everything_is_sent_again(module: ModuleType) -> None:
    pair = Pair(module)
    wanted = {(A, 0): at(5), (B, 0): at(7)}
    pair.ask(wanted)
    pair.asking.request(wanted, 11, LIMITS)
    pair.asking.reset()
    request, _, counts = pair.ask(wanted)
    assert (sorted(said(request)), counts) == (sorted(wanted), True)


def test_without_a_session_every_request_is_full(module: ModuleType) -> None:
    pair = Pair(module, slots=0)
    wanted = {(A, 0): at(5), (B, 0): at(7)}
    for _ in range(3):
        request, _, counts = pair.ask(wanted)
        assert (sorted(said(request)), counts) == (sorted(wanted), True)


def test_an_answer_of_another_session_does_not_count(module: ModuleType) -> None:
    pair = Pair(module)
    wanted = {(A, 0): at(5)}
    pair.ask(wanted)
    assert not pair.asking.handle_response(FetchResponse(throttle_time_ms=0, session_id=12345, responses=[]))
    error = FetchResponse(throttle_time_ms=0, error_code=FetchSessionIdNotFound.code, session_id=0, responses=[])
    assert not pair.asking.handle_response(error)
    assert not module.FetchSessionClient(7).handle_response(error)  # even to the first request


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "self._sent.get(key) != wanted[key]",
        "key not in self._sent",
        test_after_the_first_request_only_changes_are_sent,
    ),
    ("self._sent = dict(wanted)", "pass", test_after_the_first_request_only_changes_are_sent),
    ("            self._sent |= changed\n", "", test_a_session_with_known_changes_checks_only_those),
    (
        "                del self._sent[key]\n",
        "                pass\n",
        test_a_session_with_known_changes_checks_only_those,
    ),
    (
        "{**self._sent, **wanted} if changed_keys is None else changed_keys",
        "{**self._sent, **wanted}",
        test_a_session_with_known_changes_checks_only_those,
    ),
    (
        "[key for key in keys if key in self._sent and key not in wanted]",
        "[] and [key for key in keys if key in self._sent and key not in wanted]",
        test_what_is_followed_no_longer_is_forgotten,
    ),
    (
        "response.error_code != NONE or not is_ours",
        "not is_ours",
        test_an_answer_of_another_session_does_not_count,
    ),
    (
        "response.error_code != NONE or not is_ours",
        "response.error_code != NONE",
        test_an_answer_of_another_session_does_not_count,
    ),
    ("next_epoch(self._epoch)", "self._epoch", test_after_the_first_request_only_changes_are_sent),
    ("        self._epoch = INITIAL_EPOCH\n", "", test_after_a_lost_response_everything_is_sent_again),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(standing_fetch, right, wrong, rule)
