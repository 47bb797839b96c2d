"""Fetch sessions: requests and responses; each rule with the mistake that it would notice."""

from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed
from support.fetch_requests import (
    BY_ID,
    BY_NAME,
    LAST,
    Place,
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
from trioka.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from trioka.protocol.messages.fetch import FetchResponse

A, B = bytes([1] * 16), bytes([2] * 16)  # topic ids


@pytest.fixture
def broker() -> ModuleType:
    return fetch_sessions


# What a request is.


def test_a_final_full_fetch_gets_everything_and_no_session(broker: ModuleType) -> None:
    sessions = cache(broker)
    for version in (4, BY_NAME):
        response = fetch(sessions, request(0, -1, ("a", 0), ("b", 1)), version)
        assert answered(response) == [("a", 0), ("b", 1)] and response.session_id == 0
    assert len(sessions) == 0


def test_an_initial_full_fetch_gets_everything_and_a_session(broker: ModuleType) -> None:
    sessions = cache(broker)
    response = fetch(sessions, request(0, 0, ("a", 0), ("b", 1)))
    assert answered(response) == [("a", 0), ("b", 1)] and response.error_code == 0
    assert response.session_id != 0 and is_there(sessions, response.session_id)


def test_each_request_of_a_session_has_the_next_epoch(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    for epoch in (1, 2, 3):
        response = fetch(sessions, request(id, epoch))
        assert (response.error_code, response.session_id) == (0, id)


def test_a_wrong_epoch_is_an_error_and_changes_nothing(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    fetch(sessions, request(id, 1))
    for epoch in (1, 3, -2):
        context = opened(sessions, request(id, epoch, ("a", 1), forget=[("a", 0)]))
        assert context.error_code == InvalidFetchSessionEpoch.code and not context.selected
        response = context.answer([], 0)
        assert (response.error_code, response.session_id, answered(response)) == (InvalidFetchSessionEpoch.code, 0, [])
    assert [asked.key for asked in opened(sessions, request(id, 2)).selected] == [("a", 0)]


def test_behind_the_last_epoch_comes_one(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    sessions._sessions[id].epoch = LAST
    assert fetch(sessions, request(id, LAST)).error_code == 0
    assert fetch(sessions, request(id, 1)).session_id == id


def test_an_unknown_session_is_an_error(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    for unknown in (0, id + 1, -1, LAST):
        response = fetch(sessions, request(unknown, 1, ("a", 0)))
        assert (response.error_code, response.session_id) == (FetchSessionIdNotFound.code, 0)
        assert not response.responses


def test_a_session_names_topics_or_uses_ids(broker: ModuleType) -> None:
    sessions = cache(broker)
    by_name, by_id = started(sessions, ("a", 0)), started(sessions, (A, 0), version=BY_ID, names={A: "a"})
    assert fetch(sessions, request(by_name, 1), BY_ID).error_code == FetchSessionTopicIdError.code
    assert fetch(sessions, request(by_id, 1), BY_NAME).error_code == FetchSessionTopicIdError.code
    assert fetch(sessions, request(by_name, 1), 7).error_code == 0
    assert fetch(sessions, request(by_id, 1), 18).error_code == 0


def test_a_full_fetch_closes_the_session_it_names(broker: ModuleType) -> None:
    sessions = cache(broker)
    first = started(sessions, ("a", 0))
    response = fetch(sessions, request(first, 0, ("b", 0)))
    assert response.session_id not in (0, first) and answered(response) == [("b", 0)]
    assert not is_there(sessions, first)
    response = fetch(sessions, request(response.session_id, -1, ("c", 0)))
    assert response.session_id == 0 and answered(response) == [("c", 0)]
    assert len(sessions) == 0 and sessions.partitions == 0
    assert fetch(sessions, request(first, -1)).error_code == 0  # there is none to close; that is fine


# What is asked.


def test_what_is_asked_has_every_word_of_the_request(broker: ModuleType) -> None:
    (asked,) = opened(cache(broker), request(0, 0, (A, 3), offset=10, max_bytes=99), BY_ID, names={A: "a"}).selected
    assert (asked.topic, asked.topic_id, asked.partition, asked.fetch_offset, asked.max_bytes) == ("a", A, 3, 10, 99)
    assert (asked.current_leader_epoch, asked.last_fetched_epoch, asked.log_start_offset) == (11, 12, 13)


def test_incremental_requests_add_change_and_forget(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0), ("a", 1), ("b", 0))
    changes = request(id, 1, ("c", 0), ("a", 1), forget=[("a", 0), ("nobody", 9)], offset=20, max_bytes=7)
    asked = opened(sessions, changes).selected
    assert [(a.topic, a.partition, a.fetch_offset, a.max_bytes) for a in asked] == [
        ("a", 1, 20, 7),
        ("b", 0, 0, 1000),
        ("c", 0, 20, 7),
    ]
    assert [(a.current_leader_epoch, a.last_fetched_epoch, a.log_start_offset) for a in asked][:2] == [
        (21, 22, 23),
        (-1, -1, -1),
    ]


def test_partitions_are_forgotten_by_id_too(broker: ModuleType) -> None:
    sessions = cache(broker)
    names = {A: "a", B: "b"}
    id = started(sessions, (A, 0), (B, 0), version=BY_ID, names=names)
    context = opened(sessions, request(id, 1, forget=[(A, 0)]), BY_ID, names=names)
    assert [a.topic for a in context.selected] == ["b"]


def test_what_is_added_and_forgotten_at_once_is_forgotten(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    context = opened(sessions, request(id, 1, ("a", 1), forget=[("a", 1)]))
    assert [a.key for a in context.selected] == [("a", 0)]


def test_a_repeated_partition_keeps_its_place_and_takes_the_last_value(broker: ModuleType) -> None:
    asking = request(0, 0, ("a", 0), ("b", 0))
    asking.topics.extend(request(0, 0, ("a", 0), offset=44).topics)
    asked = opened(cache(broker), asking).selected
    assert [(a.topic, a.fetch_offset) for a in asked] == [("a", 44), ("b", 0)]


def test_a_session_without_partitions_ends(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    response = fetch(sessions, request(id, 1, forget=[("a", 0)]))
    assert (response.error_code, response.session_id, answered(response)) == (0, 0, [])
    assert fetch(sessions, request(id, 2)).error_code == FetchSessionIdNotFound.code


def test_an_unknown_topic_id_stays_and_gets_its_name_later(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, (A, 0), version=BY_ID)
    names: dict[bytes, str] = {}

    def topics(epoch: int, *more: Place) -> list[str]:
        return [a.topic for a in opened(sessions, request(id, epoch, *more), BY_ID, names=names).selected]

    assert topics(1, (B, 0)) == ["", ""]
    names[B] = "b"
    assert topics(2) == ["", "b"]
    names[A] = "a"
    assert topics(3) == ["a", "b"]
    names.clear()
    assert topics(4) == ["a", "b"]  # a client without changes need not repeat its partitions


def test_a_session_that_begins_with_an_unknown_topic_id_gets_its_name_later(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, (A, 0), version=BY_ID)
    assert [a.topic for a in opened(sessions, request(id, 1), BY_ID, names={A: "a"}).selected] == ["a"]


def test_a_topic_added_before_it_is_known_gets_its_name_later(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, (A, 0), version=BY_ID, names={A: "a"})
    opened(sessions, request(id, 1, (B, 0)), BY_ID, names={A: "a"})
    assert [a.topic for a in opened(sessions, request(id, 2), BY_ID, names={B: "b"}).selected] == ["a", "b"]


def test_where_topics_have_names_they_are_not_requested(broker: ModuleType) -> None:
    def never(_: bytes) -> str:
        raise AssertionError("asked")

    sessions = cache(broker)
    context = sessions.open(request(0, 0, ("", 0)), BY_NAME, 0, never, is_follower=False)
    id = context.answer([(asked, result(0)) for asked in context.selected], 0).session_id
    sessions.open(request(id, 1), BY_NAME, 0, never, is_follower=False)
    context = sessions.open(request(id, 2, ("", 1)), BY_NAME, 0, never, is_follower=False)
    assert [a.topic for a in context.selected] == ["", ""]


# Responses.


def test_what_the_client_knows_is_left_out(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0), ("a", 1))
    assert answered(fetch(sessions, request(id, 1))) == []
    assert answered(fetch(sessions, request(id, 2), said={("a", 1): {"records": b""}})) == []


def test_a_full_fetch_gets_every_partition_again(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    assert answered(fetch(sessions, request(id, 0, ("a", 0)))) == [("a", 0)]


def _changes_are_sent(broker: ModuleType, news: dict[str, Any], is_news_again: bool) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0), ("a", 1), ("a", 2))
    said = {("a", 1): news}
    assert answered(fetch(sessions, request(id, 1), said=said)) == [("a", 1)]
    assert answered(fetch(sessions, request(id, 2), said=said)) == [("a", 1)] * is_news_again


def test_records_errors_replicas_and_divergence_are_news(broker: ModuleType) -> None:
    for news in (
        {"records": b"x"},
        {"error_code": 6},
        {"preferred_read_replica": 0},
        {"diverging_epoch": FetchResponse.Topic.Partition.DivergingEpoch(epoch=0, end_offset=0)},
    ):
        _changes_are_sent(broker, news, True)


def test_a_moved_high_watermark_or_log_start_is_news_once(broker: ModuleType) -> None:
    for news in ({"high_watermark": 6}, {"log_start_offset": 1}):
        _changes_are_sent(broker, news, False)


def test_an_error_is_reported_each_time(broker: ModuleType) -> None:
    """Also when it comes with offsets of -1, as errors do, which also marks "nothing was sent"."""
    _changes_are_sent(broker, {"error_code": 6, "high_watermark": -1, "log_start_offset": -1}, True)


def test_an_error_that_went_away_is_reported(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    fetch(sessions, request(id, 1), said={("a", 0): {"error_code": 3}})
    assert answered(fetch(sessions, request(id, 2))) == [("a", 0)]
    assert answered(fetch(sessions, request(id, 3))) == []


def test_a_session_that_begins_with_an_error_tells_when_it_goes_away(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0), said={("a", 0): {"error_code": 3}})
    assert answered(fetch(sessions, request(id, 1))) == [("a", 0)]


def test_an_added_partition_is_sent_and_so_is_one_that_was_forgotten_before(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    assert answered(fetch(sessions, request(id, 1, ("a", 1)))) == [("a", 1)]
    fetch(sessions, request(id, 2, forget=[("a", 1)]))
    assert answered(fetch(sessions, request(id, 3, ("a", 1)))) == [("a", 1)]


def test_asking_from_another_offset_is_no_news(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    assert answered(fetch(sessions, request(id, 1, ("a", 0), offset=5))) == []


def test_a_reader_sees_what_the_client_knows(broker: ModuleType) -> None:
    sessions = cache(broker)
    context = opened(sessions, request(0, 0, ("a", 0)))
    (asked,) = context.selected
    assert not context.is_incremental and not asked.is_up_to_date(5, 0)
    id = context.answer([(asked, result(0))], 0).session_id
    context = opened(sessions, request(id, 1))
    (asked,) = context.selected
    assert context.is_incremental
    assert asked.is_up_to_date(5, 0) and not asked.is_up_to_date(6, 0) and not asked.is_up_to_date(5, 1)
    assert answered(context.answer([], 0)) == []  # so it may pass the partition by


def test_a_full_fetch_knows_nothing_yet(broker: ModuleType) -> None:
    (asked,) = opened(cache(broker), request(0, 0, ("a", 0))).selected
    assert not asked.is_up_to_date(5, 0) and not asked.is_up_to_date(0, 0)


def test_a_throttled_answer_tells_nothing_and_the_session_goes_on(broker: ModuleType) -> None:
    sessions = cache(broker)
    response = opened(sessions, request(0, 0, ("a", 0))).throttled(70)
    assert (response.throttle_time_ms, response.session_id, len(sessions)) == (70, 0, 0)
    id = started(sessions, ("a", 0))
    response = opened(sessions, request(id, 1, ("a", 1))).throttled(70)
    assert (response.throttle_time_ms, response.error_code, response.session_id) == (70, 0, id)
    assert answered(fetch(sessions, request(id, 2))) == [("a", 1)]


def test_a_request_overtaken_by_the_next_is_answered_with_an_error(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    waiting = opened(sessions, request(id, 1))
    results = [(asked, result(0, high_watermark=6)) for asked in waiting.selected]
    next = opened(sessions, request(id, 2))
    for response in (waiting.answer(results, 0), waiting.throttled(1)):
        assert (response.error_code, response.session_id) == (InvalidFetchSessionEpoch.code, id)
        assert not response.responses
    assert answered(next.answer(results, 0)) == [("a", 0)]  # the first one did not count as sent


def test_a_request_overtaken_by_the_end_of_its_session_is_answered_with_an_error(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    waiting = opened(sessions, request(id, 1))
    results = [(asked, result(0, records=b"x")) for asked in waiting.selected]
    fetch(sessions, request(id, 2, forget=[("a", 0)]))
    assert waiting.answer(results, 0).error_code == InvalidFetchSessionEpoch.code


def test_a_request_whose_session_is_closed_meanwhile_is_answered(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, ("a", 0))
    waiting = opened(sessions, request(id, 1))
    results = [(asked, result(0, records=b"x")) for asked in waiting.selected]
    fetch(sessions, request(id, -1))
    assert answered(waiting.answer(results, 0)) == [("a", 0)]


def test_partitions_with_records_go_to_the_end(broker: ModuleType) -> None:
    sessions = cache(broker)
    id = started(sessions, *places(4))
    records = {"records": b"x"}
    fetch(sessions, request(id, 1), said={("a", 0): records, ("a", 2): records, ("a", 1): {"high_watermark": 6}})
    response = fetch(sessions, request(id, 2), said={place: {"high_watermark": 9} for place in places(4)})
    assert answered(response) == [("a", 1), ("a", 3), ("a", 0), ("a", 2)]


def test_a_session_keeps_the_order_of_its_first_answer(broker: ModuleType) -> None:
    sessions = cache(broker)
    context = opened(sessions, request(0, 0, *places(3)))
    id = context.answer(
        [(a, result(a.partition, records=b"x")) for a in reversed(list(context.selected))], 0
    ).session_id
    assert [a.partition for a in opened(sessions, request(id, 1)).selected] == [2, 1, 0]


def test_adjacent_partitions_of_one_topic_are_sent_together(broker: ModuleType) -> None:
    sessions = cache(broker)
    asked: list[Place] = [("a", 0), ("a", 1), ("b", 0), ("a", 2)]
    response = fetch(sessions, request(0, 0, *asked))
    assert [(t.topic, len(t.partitions)) for t in response.responses] == [("a", 2), ("b", 1), ("a", 1)]
    assert answered(response) == asked
    response = fetch(sessions, request(0, 0, (A, 0), (B, 0), (B, 1)), BY_ID)  # two ids, both without a name
    assert [(t.topic_id, len(t.partitions)) for t in response.responses] == [(A, 1), (B, 2)]


def test_the_answer_takes_along_the_throttle_time_and_the_endpoints(broker: ModuleType) -> None:
    endpoint = FetchResponse.NodeEndpoint(node_id=1, host="h", port=9092)
    response = opened(cache(broker), request(0, -1)).answer([], 0, throttle_time_ms=3, node_endpoints=[endpoint])
    assert response.throttle_time_ms == 3 and response.node_endpoints == [endpoint]


def test_a_full_answer_leaves_nothing_out(broker: ModuleType) -> None:
    context = opened(cache(broker), request(0, 0, ("a", 0)))
    with pytest.raises(AssertionError, match="0 results, 1 selected"):
        context.answer([], 0)


# All of it together.


@pytest.mark.parametrize("seed", range(30))
def test_a_client_always_knows_what_the_broker_knows(broker: ModuleType, seed: int) -> None:
    """Partitions change at random, a client asks at random; what it put together from the answers is never wrong."""
    random = Random(seed)
    sessions = cache(broker, random=random)
    truth = dict.fromkeys(places(6), (0, 5, 0))
    id = epoch = 0
    known: dict[Place, tuple[int, ...]] = {}
    for _ in range(200):
        for place in random.sample(places(6), random.randint(0, 3)):
            truth[place] = (random.choice((0, 0, 0, 3)), random.randint(0, 2), random.randint(0, 1))
        if id == 0 or random.random() < 0.1:
            epoch, known, wanted = 0, {}, set(random.sample(places(6), 3))
            asking = request(id, 0, *wanted)
        else:
            added, gone = random.choice(places(6)), random.choice(places(6))
            wanted = (wanted | {added}) - {gone}
            known.pop(gone, None)
            asking = request(id, epoch, added, forget=[gone])
        words = ("error_code", "high_watermark", "log_start_offset")
        said = {place: dict(zip(words, values, strict=True)) for place, values in truth.items()}
        response = fetch(sessions, asking, said=said)
        assert response.error_code == 0
        id, epoch = response.session_id, epoch + 1
        assert (id != 0) == bool(wanted)
        for topic in response.responses if id else ():
            for p in topic.partitions:
                known[topic.topic, p.partition_index] = (p.error_code, p.high_watermark, p.log_start_offset)
        assert known == {place: truth[place] for place in wanted}
        assert (len(sessions), sessions.partitions) == (id != 0, len(wanted))


MISTAKES: list[tuple[str, str, Rule]] = [
    ("creator = self if epoch == INITIAL_EPOCH else None", "creator = self",
     test_a_final_full_fetch_gets_everything_and_no_session),
    ("if epoch in (INITIAL_EPOCH, FINAL_EPOCH):", "if epoch == FINAL_EPOCH:",
     test_an_initial_full_fetch_gets_everything_and_a_session),
    ("        session.epoch = next_epoch(epoch)\n", "", test_each_request_of_a_session_has_the_next_epoch),
    ("        if session.epoch != epoch:\n", "        if False:\n",
     test_a_wrong_epoch_is_an_error_and_changes_nothing),
    ("return 1 if epoch == MAX_EPOCH else epoch + 1", "return epoch + 1", test_behind_the_last_epoch_comes_one),
    ("return 1 if epoch == MAX_EPOCH else epoch + 1", "return (epoch + 1) % (MAX_EPOCH + 1)",
     test_behind_the_last_epoch_comes_one),
    ("        if session is None:\n            return FetchContext(error_code=FetchSessionIdNotFound.code)",
     "        if session is None:\n            return FetchContext(error_code=InvalidFetchSessionEpoch.code)",
     test_an_unknown_session_is_an_error),
    ("if session.by_id != by_id:", "if session.by_id > by_id:", test_a_session_names_topics_or_uses_ids),
    ("if session.by_id != by_id:", "if session.by_id < by_id:", test_a_session_names_topics_or_uses_ids),
    ("if session is not None:\n" "    self._remove(session)",
     "",
     test_a_full_fetch_closes_the_session_it_names),
    ("self.last_fetched_epoch = wanted.last_fetched_epoch", "self.last_fetched_epoch = wanted.current_leader_epoch",
     test_what_is_asked_has_every_word_of_the_request),
    ("self.log_start_offset = wanted.log_start_offset", "self.log_start_offset = wanted.fetch_offset",
     test_what_is_asked_has_every_word_of_the_request),
    ("                asked.update(wanted)\n", "                pass\n",
     test_incremental_requests_add_change_and_forget),
    ("partitions.pop((name, partition), None)", "partitions.pop((name, partition))",
     test_incremental_requests_add_change_and_forget),
    ("partitions.pop((name, partition), None)", "pass", test_incremental_requests_add_change_and_forget),
    ("name = topic.topic_id if self.by_id else topic.topic", "name = topic.topic",
     test_partitions_are_forgotten_by_id_too),
    ("        if self.has_unresolved:\n",
     "        _add_partitions(partitions, request, names, by_id=self.by_id)\n        if self.has_unresolved:\n",
     test_what_is_added_and_forgotten_at_once_is_forgotten),
    ("                asked.update(wanted)\n", "                pass\n",
     test_a_repeated_partition_keeps_its_place_and_takes_the_last_value),
    ("                asked.update(wanted)\n",
     "                partitions[key] = partitions.pop(key)\n                asked.update(wanted)\n",
     test_a_repeated_partition_keeps_its_place_and_takes_the_last_value),
    ("if not session.partitions:", "if False:", test_a_session_without_partitions_ends),
    ("        if self.has_unresolved:\n", "        if False:\n",
     test_an_unknown_topic_id_stays_and_gets_its_name_later),
    ("by_id and any(not asked.topic for asked in partitions.values())",
     "False and any(not asked.topic for asked in partitions.values())",
     test_a_session_that_begins_with_an_unknown_topic_id_gets_its_name_later),
    ("self.has_unresolved = any(not asked.topic for asked in nameless)", "self.has_unresolved = False",
     test_an_unknown_topic_id_stays_and_gets_its_name_later),
    ("[asked for asked in partitions.values() if not asked.topic]", "[asked for asked in partitions.values()]",
     test_a_topic_added_before_it_is_known_gets_its_name_later),
    ("self.has_unresolved |= _add_partitions(partitions, request, names, by_id=self.by_id, " "watch=watch)",
     "_add_partitions(partitions, request, names, by_id=self.by_id, watch=watch)",
     test_a_topic_added_before_it_is_known_gets_its_name_later),
    ("by_id and any(not asked.topic for asked in partitions.values())",
     "any(not asked.topic for asked in partitions.values())",
     test_where_topics_have_names_they_are_not_requested),
    ("has_unresolved |= by_id and not name", "has_unresolved |= not name",
     test_where_topics_have_names_they_are_not_requested),
    ("            asked.note_sent(result)\n", "            pass\n", test_what_the_client_knows_is_left_out),
    ("bool(result.records)", "result.records is not None", test_what_the_client_knows_is_left_out),
    ("session_id = session.id", "session_id = NO_SESSION",
     test_each_request_of_a_session_has_the_next_epoch),
    ("{asked.key: asked for asked, _ in results}", "dict(sorted((asked.key, asked) for asked, _ in results))",
     test_a_session_keeps_the_order_of_its_first_answer),
    ("            or bool(result.records)\n", "", test_records_errors_replicas_and_divergence_are_news),
    ("            or result.error_code != NONE\n", "", test_an_error_is_reported_each_time),
    ("            or result.preferred_read_replica != -1\n", "", test_records_errors_replicas_and_divergence_are_news),
    ("result.preferred_read_replica != -1", "result.preferred_read_replica > 0",
     test_records_errors_replicas_and_divergence_are_news),
    ("            or result.diverging_epoch.epoch >= 0\n", "", test_records_errors_replicas_and_divergence_are_news),
    ("result.diverging_epoch.epoch >= 0", "result.diverging_epoch.epoch > 0",
     test_records_errors_replicas_and_divergence_are_news),
    ("high_watermark == self.sent_high_watermark and log_start_offset == " "self.sent_log_start_offset",
     "log_start_offset == self.sent_log_start_offset",
     test_a_moved_high_watermark_or_log_start_is_news_once),
    (" and log_start_offset == self.sent_log_start_offset", "", test_a_moved_high_watermark_or_log_start_is_news_once),
    ("        self.sent_log_start_offset = result.log_start_offset\n", "",
     test_a_moved_high_watermark_or_log_start_is_news_once),
    ("result.high_watermark if result.error_code == NONE else NOTHING_SENT", "result.high_watermark",
     test_an_error_that_went_away_is_reported),
    ("result.high_watermark if result.error_code == NONE else NOTHING_SENT", "result.high_watermark",
     test_a_session_that_begins_with_an_error_tells_when_it_goes_away),
    ("            if requested is None:\n", "            if True:\n", test_asking_from_another_offset_is_no_news),
    ("NOTHING_SENT: Final = -1", "NOTHING_SENT: Final = 0", test_a_full_fetch_knows_nothing_yet),
    ("NOTHING_SENT: Final = -1", "NOTHING_SENT: Final = 5", test_an_error_that_went_away_is_reported),
    ("        self.sent_high_watermark = NOTHING_SENT\n        self.sent_log_start_offset = NOTHING_SENT\n",
     "        self.sent_high_watermark, self.sent_log_start_offset = 5, 0\n",
     test_an_added_partition_is_sent_and_so_is_one_that_was_forgotten_before),
    ("return self._session is not None", "return True", test_a_reader_sees_what_the_client_knows),
    ("session_id=NO_SESSION if session is None else session.id", "session_id=NO_SESSION",
     test_a_throttled_answer_tells_nothing_and_the_session_goes_on),
    (" or (session is not None and session.epoch != self._epoch)", "",
     test_a_request_overtaken_by_the_next_is_answered_with_an_error),
    ("            error_code = InvalidFetchSessionEpoch.code\n", "            pass\n",
     test_a_request_overtaken_by_the_next_is_answered_with_an_error),
    ("        session.epoch = next_epoch(epoch)\n        session.update(request, names)\n",
     "        session.update(request, names)\n        session.epoch += bool(session.partitions)\n",
     test_a_request_overtaken_by_the_end_of_its_session_is_answered_with_an_error),
    ("        del self._sessions[session.id]\n",
     "        del self._sessions[session.id]\n        session.partitions.clear()\n",
     test_a_request_whose_session_is_closed_meanwhile_is_answered),
    ("partitions[asked.key] = partitions.pop(asked.key)", "pass", test_partitions_with_records_go_to_the_end),
    ("            if result.records:\n", "            if True:\n", test_partitions_with_records_go_to_the_end),
    ("if asked.key[0] != last:", "if True:", test_adjacent_partitions_of_one_topic_are_sent_together),
    ("if asked.key[0] != last:", "if not topics or topics[-1].topic != asked.topic:",
     test_adjacent_partitions_of_one_topic_are_sent_together),
    ("            throttle_time_ms=throttle_time_ms,\n            session_id=session_id,",
     "            throttle_time_ms=0,\n            session_id=session_id,",
     test_the_answer_takes_along_the_throttle_time_and_the_endpoints),
    ("            node_endpoints=list(node_endpoints),\n", "",
     test_the_answer_takes_along_the_throttle_time_and_the_endpoints),
    ("len(results) == len(self.selected)", "True",
     test_a_full_answer_leaves_nothing_out),
    (" and log_start_offset == self.sent_log_start_offset", "",
     lambda broker: test_a_client_always_knows_what_the_broker_knows(broker, 0)),
    ("result.high_watermark if result.error_code == NONE else NOTHING_SENT", "result.high_watermark",
     lambda broker: test_a_client_always_knows_what_the_broker_knows(broker, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(fetch_sessions, right, wrong, rule)
