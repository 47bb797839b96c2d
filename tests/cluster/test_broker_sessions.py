"""Who is alive, as the active controller hears it (I14, I15)."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster

from trioka.cluster import broker_sessions

TIMEOUT_S = 9.0


@pytest.fixture
def module() -> ModuleType:
    return broker_sessions


def three_brokers(module: ModuleType) -> tuple[SmallCluster, broker_sessions.BrokerSessions]:
    cluster = SmallCluster(brokers=3)
    made: broker_sessions.BrokerSessions = module.BrokerSessions(cluster.metadata.brokers, TIMEOUT_S, 0.0)
    return cluster, made


def pass_time(sessions: broker_sessions.BrokerSessions, start: float, end: float) -> None:
    """The controller listens all the while."""
    now = start
    while now < end:
        now = min(now + sessions.check_interval_s, end)
        sessions.look(now)


def test_a_silent_broker_expires_and_one_with_heartbeats_does_not(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    brokers = cluster.metadata.brokers
    pass_time(sessions, 0.0, 5.0)
    sessions.on_heartbeat(1, 10, 5.0)
    sessions.on_heartbeat(3, 10, 5.0)
    pass_time(sessions, 5.0, TIMEOUT_S)
    assert sessions.expired(brokers, TIMEOUT_S) is None  # not a moment before its time is over
    assert sessions.expired(brokers, TIMEOUT_S + 0.1) == 2
    assert sessions.is_alive(brokers, 1, TIMEOUT_S + 0.1) and not sessions.is_alive(brokers, 2, TIMEOUT_S + 0.1)


def test_the_one_that_was_silent_for_longest_goes_first(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    sessions.on_heartbeat(1, 10, 2.0)
    sessions.on_heartbeat(2, 10, 3.0)
    sessions.on_heartbeat(3, 10, 1.0)
    pass_time(sessions, 0.0, 20.0)
    order = []
    while (broker_id := sessions.expired(cluster.metadata.brokers, 20.0)) is not None:
        order.append(broker_id)
        cluster.fence(broker_id)
    assert order == [3, 1, 2]


def test_a_fenced_broker_has_no_session_and_its_next_life_need_not_wait(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    cluster.fence(2)
    sessions.on_heartbeat(2, 10, 1.0)
    assert not sessions.is_alive(cluster.metadata.brokers, 2, 1.0)
    pass_time(sessions, 0.0, 20.0)
    sessions.on_heartbeat(1, 10, 20.0)
    sessions.on_heartbeat(3, 10, 20.0)
    assert sessions.expired(cluster.metadata.brokers, 20.0) is None


def test_a_controller_that_was_paused_fences_no_broker_for_that(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    sessions.on_heartbeat(1, 10, 1.0)
    pass_time(sessions, 0.0, 4.0)
    sessions.look(64.0)  # it was paused for a minute
    assert sessions.expired(cluster.metadata.brokers, 64.0) is None
    pass_time(sessions, 64.0, 67.5)
    assert sessions.expired(cluster.metadata.brokers, 67.5) is None  # four seconds before, and not quite five after
    pass_time(sessions, 67.5, 68.5)
    assert sessions.expired(cluster.metadata.brokers, 68.5) == 2  # the pause counts for nothing, what was before does


def test_a_broker_that_waited_for_a_slow_quorum_is_not_fenced(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    pass_time(sessions, 0.0, 5.0)
    # It wanted to look at 5, and may decide at 13. Heartbeats were not answered meanwhile, and so no others were sent.
    assert sessions.expired(cluster.metadata.brokers, 13.0) is None
    sessions.on_heartbeat(1, 10, 13.0)
    sessions.on_heartbeat(3, 10, 13.0)
    pass_time(sessions, 13.0, 13.0 + 4.5)
    assert sessions.expired(cluster.metadata.brokers, 13.0 + 4.5) == 2  # who is still silent then


def test_no_heartbeat_is_in_the_future(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    pass_time(sessions, 0.0, 4.0)
    sessions.on_heartbeat(1, 10, 64.0)  # the first that is done after the pause
    sessions.look(64.0)
    pass_time(sessions, 64.0, 64.0 + TIMEOUT_S + 0.5)
    cluster.fence(2)
    cluster.fence(3)
    assert sessions.expired(cluster.metadata.brokers, 64.0 + TIMEOUT_S + 0.5) == 1


def test_a_broker_that_leaves_waits_until_all_serving_brokers_know(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    brokers = cluster.metadata.brokers
    assert sessions.others_caught_up(brokers, 1)
    sessions.leaves(1, 100)
    sessions.leaves(1, 200)  # the first word counts
    sessions.on_heartbeat(2, 100, 1.0)
    sessions.on_heartbeat(3, 99, 1.0)
    assert not sessions.others_caught_up(brokers, 1)
    sessions.on_heartbeat(3, 100, 2.0)
    assert sessions.others_caught_up(brokers, 1)


def test_a_fenced_broker_is_not_waited_for(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    sessions.leaves(1, 100)
    sessions.on_heartbeat(2, 100, 1.0)
    assert not sessions.others_caught_up(cluster.metadata.brokers, 1)  # 3 was never sessions of
    cluster.fence(3)
    assert sessions.others_caught_up(cluster.metadata.brokers, 1)


def test_a_new_life_has_seen_nothing_and_leaves_nothing(module: ModuleType) -> None:
    cluster, sessions = three_brokers(module)
    sessions.leaves(1, 100)
    sessions.on_heartbeat(2, 100, 1.0)
    sessions.on_heartbeat(3, 100, 1.0)
    sessions.begin(2, 2.0)
    assert not sessions.others_caught_up(cluster.metadata.brokers, 1)
    sessions.begin(1, 2.0)
    assert sessions.others_caught_up(cluster.metadata.brokers, 1)


MISTAKES = [
    (
        "now - self._heard.setdefault(broker_id, now) > self.timeout_s",
        "now - self._heard.setdefault(broker_id, now) >= self.timeout_s",
        test_a_silent_broker_expires_and_one_with_heartbeats_does_not,
    ),
    ("(self._heard.get(broker_id, now), broker_id)", "broker_id", test_the_one_that_was_silent_for_longest_goes_first),
    (
        "broker is not None and not broker.fenced and not self._is_over(broker_id, now)",
        "broker is not None and not self._is_over(broker_id, now)",
        test_a_fenced_broker_has_no_session_and_its_next_life_need_not_wait,
    ),
    (
        "not broker.fenced and self._is_over(broker.broker_id, now)",
        "self._is_over(broker.broker_id, now)",
        test_a_fenced_broker_has_no_session_and_its_next_life_need_not_wait,
    ),
    ("late > self.check_interval_s", "False", test_a_controller_that_was_paused_fences_no_broker_for_that),
    (
        "self.look(now)  #",
        "pass  #",
        test_a_broker_that_waited_for_a_slow_quorum_is_not_fenced,
    ),
    ("min(now, self._heard[broker_id] + late)", "now", test_a_controller_that_was_paused_fences_no_broker_for_that),
    (
        "min(now, self._heard[broker_id] + late)",
        "self._heard[broker_id] + late",
        test_no_heartbeat_is_in_the_future,
    ),
    (
        "self._leaving.setdefault(broker_id, offset)",
        "self._leaving[broker_id] = offset",
        test_a_broker_that_leaves_waits_until_all_serving_brokers_know,
    ),
    (
        "self._offsets.get(other.broker_id, NOTHING_SEEN) >= until",
        "self._offsets.get(other.broker_id, NOTHING_SEEN) > until",
        test_a_broker_that_leaves_waits_until_all_serving_brokers_know,
    ),
    (
        "other.is_active and other.broker_id != broker_id",
        "other.broker_id != broker_id",
        test_a_fenced_broker_is_not_waited_for,
    ),
    ("self._offsets.pop(broker_id, None)", "pass", test_a_new_life_has_seen_nothing_and_leaves_nothing),
    ("self._leaving.pop(broker_id, None)", "pass", test_a_new_life_has_seen_nothing_and_leaves_nothing),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(broker_sessions, right, wrong, rule)
