"""Who may connect."""

import pytest

from trioka.broker.network.connection_quotas import Admittance, ConnectionLimits

MANY = 1 << 31


def limits(total: int = MANY, per_address: int = MANY, per_second: int = MANY, **overrides: int) -> ConnectionLimits:
    named = {name.replace("_", "."): count for name, count in overrides.items()}
    return ConnectionLimits(total=total, per_address=per_address, per_second=per_second, overrides=named)


def test_without_limits_everybody_may_connect() -> None:
    door = Admittance()
    assert all(door.enter("10.0.0.1", limits(), now=0.0) for _ in range(10_000))
    assert len(door) == 10_000


def test_no_more_than_so_many_at_once() -> None:
    door = Admittance()
    assert [door.enter(f"10.0.0.{n}", limits(total=2), now=0.0) for n in range(3)] == [True, True, False]
    door.leave("10.0.0.0")
    assert door.enter("10.0.0.9", limits(total=2), now=0.0)


def test_no_more_than_so_many_from_one_address() -> None:
    door, strict = Admittance(), limits(per_address=1)
    assert door.enter("10.0.0.1", strict, now=0.0)
    assert not door.enter("10.0.0.1", strict, now=0.0)
    assert door.enter("10.0.0.2", strict, now=0.0)
    door.leave("10.0.0.1")
    assert door.enter("10.0.0.1", strict, now=0.0)


def test_single_addresses_have_limits_of_their_own() -> None:
    parsed = ConnectionLimits.parse_overrides("10.0.0.1:2, [::1]:5 ,::ffff:10.0.0.3:7,nonsense")
    assert parsed == {"10.0.0.1": 2, "0:0:0:0:0:0:0:1": 5, "10.0.0.3": 7}
    door = Admittance()
    strict = ConnectionLimits(total=MANY, per_address=0, per_second=MANY, overrides=parsed)
    assert [door.enter("10.0.0.1", strict, now=0.0) for _ in range(3)] == [True, True, False]
    assert not door.enter("10.0.0.2", strict, now=0.0)


@pytest.mark.parametrize("rate", [1, 10])
def test_no_more_than_so_many_in_a_second(rate: int) -> None:
    door, strict = Admittance(), limits(per_second=rate)
    assert sum(door.enter("a", strict, now=0.0) for _ in range(50)) == rate
    assert sum(door.enter("a", strict, now=0.5) for _ in range(50)) == rate // 2
    assert sum(door.enter("a", strict, now=60.0) for _ in range(50)) == rate  # what is not used is not saved


def test_who_is_refused_does_not_count() -> None:
    door, strict = Admittance(), limits(total=0)
    assert not door.enter("a", strict, now=0.0)
    assert len(door) == 0
