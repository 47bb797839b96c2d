"""Where the network's thread sleeps: by whom requests come, if that is good for somebody, and bound to nowhere else."""

from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from mutants.plant import Rule, assert_noticed, planted

from trioka.broker.network import cpu_affinity as nearness_module
from trioka.broker.network import server as network_module
from trioka.broker.network.cpu_affinity import Nearness

STAY_S = 0.005
TURNS = 5  # of a stay
LONG_S = 1000.0


class Thread:
    """It says where it is bound, and how long it had to wait."""

    def __init__(self) -> None:
        self.bound: int | None = None
        self.asked = 0
        self.may_bind = True
        self.waited = 0.0
        self.turns = 0

    def bind(self, processor: int) -> bool:
        assert self.bound is None
        self.asked += 1
        self.bound = processor if self.may_bind else None
        return self.may_bind

    def release(self, processor: int) -> None:
        assert self.bound == processor
        self.bound = None

    def waits(self) -> tuple[float, int]:
        return self.waited, self.turns


class Client:
    def __init__(self, at: int) -> None:
        self.at = at

    def processor(self) -> int:
        return self.at


class Stays:
    """One after the other, as the network has them."""

    def __init__(self, broker: ModuleType) -> None:
        self.thread = Thread()
        self.near = cast(Any, broker).Nearness(self.thread)
        self.now = 0.0
        self.client = Client(1)

    def stay(self, count: int = 1, *, asleep: float = 0.9, waits_s: float = 0.0) -> int | None:
        """So many, of which a share is slept. Where the thread was bound in the last one."""
        bound = None
        for _ in range(count):
            self.now += STAY_S
            self.near.settle()
            bound = self.thread.bound
            self.thread.waited += TURNS * waits_s
            self.thread.turns += TURNS
            self.near.stayed(self.now, STAY_S, asleep * STAY_S, self.client)
            assert self.thread.bound is None, "when others have their turn"
        return bound

    def stays_until_bound(self) -> int:
        return next(number for number in range(10**6) if self.stay() is not None)


@pytest.fixture
def broker() -> ModuleType:
    return nearness_module


def test_the_processor_by_which_all_requests_come_is_followed(broker: ModuleType) -> None:
    stays = Stays(broker)
    assert stays.stay(5) is None
    assert stays.stay(20) == 1
    assert stays.stay(100) == 1


def test_who_comes_by_one_and_by_another_is_not_followed(broker: ModuleType) -> None:
    stays = Stays(broker)
    for number in range(100):
        stays.client.at = number % 2
        assert stays.stay(3) is None


def test_who_moves_away_is_left_alone_for_a_while(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.stay(20)
    stays.client.at = 0
    stays.stay()
    assert stays.stay(100) is None
    assert stays.stay(500) == 0, "where it went, if it stays there"


def test_who_always_moves_away_is_tried_ever_more_seldom_and_not_never(broker: ModuleType) -> None:
    stays = Stays(broker)
    rests = []
    for number in range(12):
        rests.append(stays.stays_until_bound() * STAY_S)
        stays.client.at = number % 2 + 2
        stays.stay()
    assert rests[2] > 1.9 * rests[1]
    assert rests[3] > 1.9 * rests[2]
    assert rests[-1] == pytest.approx(rests[-2], rel=0.01)
    assert 200 < rests[-1] < 400


def test_who_has_stayed_for_long_before_it_moved_is_soon_tried_again(broker: ModuleType) -> None:
    stays = Stays(broker)
    for number in range(6):
        stays.stays_until_bound()
        stays.client.at = number % 2 + 2
        stays.stay()
    stays.stays_until_bound()
    stays.stay(int(LONG_S / STAY_S))
    stays.client.at = 7
    stays.stay()
    assert stays.stays_until_bound() * STAY_S < 2


def test_a_processor_at_which_one_waits_is_left(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.stay(20)
    assert stays.stay(50, waits_s=20e-6) == 1, "as long as a client takes to fall asleep"
    stays.stay(4, waits_s=200e-6)
    assert stays.stay(100) is None


def test_what_is_waited_for_elsewhere_does_not_count(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.stay(20)
    for _ in range(20):
        stays.thread.waited += 0.01  # while others had their turn
        assert stays.stay() == 1


def test_with_much_to_do_nobody_is_followed(broker: ModuleType) -> None:
    stays = Stays(broker)
    assert stays.stay(100, asleep=0.5) is None
    stays.stay(20)
    stays.stay(4, asleep=0.5)
    assert stays.stay(100) is None
    assert stays.stay(500) == 1


def test_one_bad_moment_is_no_reason_to_leave(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.stay(20)
    for _ in range(20):
        stays.stay(asleep=0.5)
        stays.stay(waits_s=0.001)
        assert stays.stay() == 1


def test_stays_without_requests_and_short_ones_say_nothing(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.stay(20)
    for _ in range(20):
        stays.near.stayed(stays.now, STAY_S, STAY_S, None)
        stays.near.stayed(stays.now, STAY_S / 10, 0.0, stays.client)
    assert stays.stay() == 1


def test_a_system_that_refuses_is_not_asked_again(broker: ModuleType) -> None:
    stays = Stays(broker)
    stays.thread.may_bind = False
    stays.now += LONG_S
    assert stays.stay(1000) is None
    assert stays.thread.asked == 1


MISTAKES: list[tuple[str, str, Rule]] = [
    ("self._stays + 1 if", "0 if", test_the_processor_by_which_all_requests_come_is_followed),
    (" if processor == self._last else 0", "", test_who_comes_by_one_and_by_another_is_not_followed),
    ("elif processor != self.followed:", "elif False:", test_who_moves_away_is_left_alone_for_a_while),
    (" and now >= self._again_at", "", test_who_moves_away_is_left_alone_for_a_while),
    ("min(2 * self._rest_s, MAX_REST_S)", "REST_S", test_who_always_moves_away_is_tried_ever_more_seldom_and_not_never),
    (", MAX_REST_S)", ", 1e9)", test_who_always_moves_away_is_tried_ever_more_seldom_and_not_never),
    (" if is_like_before else REST_S", "", test_who_has_stayed_for_long_before_it_moved_is_soon_tried_again),
    (" > WAIT_S", " > 1e6 * WAIT_S", test_a_processor_at_which_one_waits_is_left),
    ("        self._waits = self._thread.waits()\n", "", test_what_is_waited_for_elsewhere_does_not_count),
    ("asleep_s >= CALM_SHARE * seconds", "True", test_with_much_to_do_nobody_is_followed),
    ("        self.roam()\n", "", test_the_processor_by_which_all_requests_come_is_followed),
    ("elif not is_calm or (", "elif (", test_one_bad_moment_is_no_reason_to_leave),
    ("            self._bad_stays = 0\n", "            pass\n", test_one_bad_moment_is_no_reason_to_leave),
    (
        "self._bad_stays >= BAD_STAYS",
        "self._bad_stays > 10**9",
        test_with_much_to_do_nobody_is_followed,
    ),
    ("by is None or ", "", test_stays_without_requests_and_short_ones_say_nothing),
    (" or seconds < TELLING_S", "", test_stays_without_requests_and_short_ones_say_nothing),
    (', float("inf")', ", 0.0", test_a_system_that_refuses_is_not_asked_again),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(nearness_module, right, wrong, rule)


# -- the network -------------------------------------------------------------------------------------------------------


class Rounds:
    """A network at whose epoll something comes each millisecond, for so many clients at once."""

    def __init__(self, broker: ModuleType) -> None:
        self.now = 100.0
        self.clients = 1
        self.thread = Thread()
        self.slept_at: list[int | None] = []
        self.served_at: list[int | None] = []
        mine = cast(Any, broker)
        mine.perf_counter = lambda: self.now
        self.network = mine.Network(None, None, lambda: self.now, SimpleNamespace(is_open=False))
        self.network.nearness = Nearness(self.thread)
        self.network.is_alone = lambda: True
        self.network._epoll.close()
        self.network._epoll = SimpleNamespace(poll=self.poll)
        self.network._serve = lambda ready, events: self.served_at.append(self.thread.bound)
        self.network._channels = {number: Client(1) for number in range(9)}

    def poll(self, timeout: float, _: int) -> list[tuple[int, int]]:
        if not timeout:
            return []
        self.slept_at.append(self.thread.bound)
        self.now += 0.001
        return [(number, 1) for number in range(self.clients)]

    def serve(self, stays: int) -> None:
        for _ in range(stays):
            self.slept_at, self.served_at = [], []
            self.network._serve_rounds()
            assert self.thread.bound is None, "when others have their turn"


def test_the_network_sleeps_and_serves_where_requests_come(network: ModuleType) -> None:
    rounds = Rounds(network)
    rounds.serve(30)
    assert set(rounds.slept_at) == set(rounds.served_at) == {1}


def test_with_company_it_serves_anywhere(network: ModuleType) -> None:
    rounds = Rounds(network)
    rounds.serve(30)
    rounds.clients = 2
    rounds.serve(1)
    assert set(rounds.slept_at) == {1}
    assert set(rounds.served_at) == {None}


@pytest.fixture
def network() -> ModuleType:
    return planted(network_module, "import errno", "import errno")  # a copy, whose clock is ours


NETWORK_MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "            self.nearness.settle()\n",
        "            pass\n",
        test_the_network_sleeps_and_serves_where_requests_come,
    ),
    ("                self.nearness.roam()\n", "                pass\n", test_with_company_it_serves_anywhere),
    ("        self._asleep_s += slept_s\n", "", test_the_network_sleeps_and_serves_where_requests_come),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), NETWORK_MISTAKES)
def test_a_mistake_planted_in_the_network_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    with pytest.raises(AssertionError):
        rule(planted(network_module, right, wrong))
