"""Which quota counts for a client, and with whom the client shares it."""

from collections.abc import Mapping
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.broker.config.layers import Config
from trioka.broker.security import client_quotas
from trioka.cluster import quota_rates
from trioka.cluster.image.quotas import Quotas, quota_entity, quota_record
from trioka.protocol.errors import ThrottlingQuotaExceeded

KEY = client_quotas.PRODUCE
LEVELS: list[Mapping[str, str | None]] = [
    {"user": "ann", "client-id": "work"},
    {"user": "ann", "client-id": None},
    {"user": "ann"},
    {"user": None, "client-id": "work"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "work"},
    {"client-id": None},
]
BOTH, USER, CLIENT = ("ann", "work"), ("ann", ""), ("", "work")
TAGS = [BOTH, BOTH, USER, BOTH, BOTH, USER, CLIENT, CLIENT]


def image(*entities: Mapping[str, str | None], key: str = KEY) -> Quotas:
    """The n-th of them has a quota of n + 1."""
    quotas = Quotas()
    for number, entity in enumerate(entities, start=1):
        quotas.replay(quota_record(quota_entity(entity), key, float(number)))
    return quotas


def table(module: ModuleType, quotas: Quotas) -> client_quotas.QuotaTable:
    made: client_quotas.QuotaTable = module.QuotaTable(KEY, 11, 1000, has_buckets=True)
    made.load(quotas)
    return made


@pytest.fixture
def module() -> ModuleType:
    return client_quotas


def test_the_narrowest_quota_counts(module: ModuleType) -> None:
    for first in range(len(LEVELS) - 1):
        quotas = table(module, image(*LEVELS[first:]))
        tags = quotas.tags("ann", "work")
        assert tags == TAGS[first], LEVELS[first]
        assert quotas.limit(tags) == 1.0


def test_with_quotas_of_one_shape_all_clients_are_counted_by_it(module: ModuleType) -> None:
    for entity, tags in (
        ({"user": "ann"}, ("bob", "")),
        ({"client-id": "work"}, ("", "home")),
        ({"user": "ann", "client-id": "work"}, ("bob", "home")),
    ):
        quotas = table(module, image(entity))
        assert quotas.tags("bob", "home") == tags
        assert quotas.limit(tags) is None


def test_quotas_of_addresses_and_of_other_kinds_do_not_count(module: ModuleType) -> None:
    assert table(module, image({"ip": None}, key="connection_creation_rate")).levels == 0
    assert table(module, image({"user": None}, key=client_quotas.FETCH)).levels == 0


def test_a_counter_goes_on_when_its_quota_changes(module: ModuleType) -> None:
    quotas = table(module, image({"user": "ann"}))
    counter = quotas.counter("ann", "work", 0)
    assert counter.record(1000, 0) > 0
    quotas.load(image({"user": "bob"}, {"user": "ann"}))
    assert quotas.counter("ann", "home", 0) is counter
    assert counter.limit == 2.0
    assert counter.rate.per_second(0) == 100


def test_counters_are_bounded_and_the_ones_in_use_stay(module: ModuleType) -> None:
    quotas = table(module, image({"user": None, "client-id": None}))
    kept = quotas.counter("ann", "kept", 0)
    for number in range(client_quotas.MAX_COUNTERS + 10):
        now_ms = number // 10
        kept.record(1, now_ms)
        quotas.counter("ann", str(number), now_ms)
    assert len(quotas.counters) <= client_quotas.MAX_COUNTERS
    assert quotas.counter("ann", "kept", now_ms) is kept


def test_a_counter_without_use_is_forgotten_after_an_hour(module: ModuleType) -> None:
    quotas = table(module, image({"user": None}))
    quotas.counter("ann", "", 0)
    quotas.counter("bob", "", 1000)
    quotas.expire(3_600_001)
    assert list(quotas.counters) == [("bob", "")]


def test_strictly_nothing_is_taken_from_an_overdrawn_bucket(module: ModuleType) -> None:
    counter = table(module, image({"user": "ann"})).counter("ann", "", 0)
    assert counter.take_permits(20, 0, is_strict=True) == 0
    assert counter.take_permits(20, 0, is_strict=True) == 9000
    assert counter.tokens(0) == -9
    assert counter.take_permits(20, 0, is_strict=False) == 29_000
    assert counter.tokens(0) == -29


def test_the_time_to_wait_gets_shorter_until_the_response_is_made(module: ModuleType) -> None:
    class Clock:
        seconds = 100.0

        def now(self) -> float:
            return self.seconds

        def now_ms(self) -> int:
            return 0

    clock = Clock()
    quotas = module.ClientQuotas(Config({}), clock)
    quotas.load(image({"user": "ann"}, key=client_quotas.MUTATION))
    charge = module.MutationCharge(quotas, "ann", "", is_free=False, is_strict=True)
    charge(20)
    with pytest.raises(ThrottlingQuotaExceeded):
        charge(1)
    assert charge.throttle_time_ms == 9000
    clock.seconds += 2
    assert charge.throttle_time_ms == 7000
    clock.seconds += 20
    assert charge.throttle_time_ms == 0


MISTAKES = [
    ("if levels == USER_LEVEL:", "if levels & USER_LEVEL:", test_the_narrowest_quota_counts),
    (
        "        if (user, ABSENT) in limits:",
        "        if (user, client_id) in limits:",
        test_the_narrowest_quota_counts,
    ),
    (
        "((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))",
        "((user, client_id), (DEFAULT, client_id), (user, DEFAULT), (DEFAULT, DEFAULT))",
        test_the_narrowest_quota_counts,
    ),
    (
        "if levels == PAIR_LEVEL:",
        "if levels == CLIENT_LEVEL:",
        test_with_quotas_of_one_shape_all_clients_are_counted_by_it,
    ),
    ("self.key not in values or ", "", test_quotas_of_addresses_and_of_other_kinds_do_not_count),
    ("            counter.limit = self.limit(tags)", "            pass", test_a_counter_goes_on_when_its_quota_changes),
    (
        within("QuotaTable._evict", "if len(self.counters) >= MAX_COUNTERS:"),
        "if False:",
        test_counters_are_bounded_and_the_ones_in_use_stay,
    ),
    (
        "        if is_strict and throttle_ms:",
        "        if False:",
        test_strictly_nothing_is_taken_from_an_overdrawn_bucket,
    ),
    (
        "self._throttle_ms - (self._quotas.now_ms() - self._told_ms)",
        "self._throttle_ms",
        test_the_time_to_wait_gets_shorter_until_the_response_is_made,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(client_quotas, right, wrong, rule)


@pytest.fixture
def rates() -> ModuleType:
    return quota_rates


def test_a_burst_of_ten_windows_is_free_and_then_all_that_is_over_is_waited_for(rates: ModuleType) -> None:
    rate = rates.Rate(11, 1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(500, 0)
    assert rate.throttle_ms(1000, 0) == 500
    assert rate.throttle_ms(1000, 10_500) == 0


def test_samples_are_forgotten_when_all_windows_are_over(rates: ModuleType) -> None:
    rate = rates.Rate(11, 1000)
    rate.record(10_000, 0)
    rate.record(1000, 5000)
    assert rate.per_second(10_999) == pytest.approx(11_000 / 10.999)
    assert rate.per_second(11_000) == pytest.approx(1000 / 10.0)
    assert rate.per_second(16_000) == 0


RATE_MISTAKES = [
    (
        "missing = self._windows - 1 - elapsed // self._window_ms",
        "missing = self._windows - elapsed // self._window_ms",
        test_a_burst_of_ten_windows_is_free_and_then_all_that_is_over_is_waited_for,
    ),
    ("if now_ms - last >= age:", "if now_ms - last > age:", test_samples_are_forgotten_when_all_windows_are_over),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), RATE_MISTAKES)
def test_a_planted_mistake_in_rates_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(quota_rates, right, wrong, rule)
