"""Values of config keys: read as Java reads them, refused in plain words, shown as Kafka shows them."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed, within

from trioka.broker.config import values
from trioka.broker.config.key import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, Key
from trioka.broker.config.values import Boolean, Double, Int, Password, Secret, String, java_double

EVERY_KEY = [key for keys in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS) for key in keys.values()]


@pytest.fixture
def module() -> ModuleType:
    return values


def refused(type_: values.ValueType[object], text: str) -> str:
    with pytest.raises(ValueError, match=r"^must ") as error:
        type_.parse(text)
    return str(error.value)


def test_blanks_around_a_value_do_not_count() -> None:
    assert Int().parse(" 5\t") == 5
    assert Boolean().parse(" TRUE ") is True
    assert String().parse(" a b ") == "a b"
    assert Password().parse(" secret ") == Secret("secret")


def test_whole_numbers_have_the_bits_of_their_type(module: ModuleType) -> None:
    assert module.Int().parse(str(2**31 - 1)) == 2**31 - 1
    assert module.Int().parse(str(-(2**31))) == -(2**31)
    for text in (str(2**31), str(-(2**31) - 1), "5L", "0x5", "5.0", "1_0", "", "٥", "9" * 5000):
        assert refused(module.Int(), text) == "must be a 32-bit integer"
    assert module.Long().parse("+" + "0" * 50 + "5") == 5


def test_a_range_holds_at_both_of_its_ends(module: ModuleType) -> None:
    level = module.Int(min=1, max=9, also=(-1,))
    assert [level.parse(text) for text in ("1", "9", "-1")] == [1, 9, -1]
    assert refused(level, "0") == "must be at least 1 or -1"
    assert refused(level, "10") == "must be at most 9 or -1"


def test_a_list_says_nothing_twice_and_has_no_gaps(module: ModuleType) -> None:
    assert module.List().parse(" a , b,a") == ("a", "b")
    assert module.List().parse("  ") == ()
    assert refused(module.List(empty=False), " ") == "must not be empty"
    for text in (",", "a,", ",a", "a, ,b"):
        assert refused(module.List(), text) == "must not have empty elements"
    assert refused(module.List(one_of=("compact", "delete")), "Delete") == "must only contain compact, delete"


def test_what_is_no_number_to_compare_with_is_no_double() -> None:
    assert Double().parse("0.5f") == 0.5 and Double().parse("1e-1") == 0.1
    for text in ("NaN", "nan", "inf", "0x1p-1", "1_0", "", "."):
        assert refused(Double(), text) == "must be a number"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012345, "1.2345E-4"),
        (-0.0001, "-1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_shown_as_by_java(value: float, shown: str) -> None:
    assert java_double(value) == shown


@given(st.floats(allow_nan=False))
def test_every_double_that_is_shown_reads_back(value: float) -> None:
    shown = java_double(value)
    if shown.endswith("Infinity"):
        return
    assert float(shown) == value and "." in shown
    assert ("E" in shown) == (value != 0 and not 1e-3 <= abs(value) < 1e7)


@pytest.mark.parametrize("key", EVERY_KEY, ids=lambda key: key.name)
def test_a_default_is_a_value_that_the_key_takes(key: Key[object]) -> None:
    if (text := key.default_text) is not None:
        assert key.parse(text) == key.default


def test_a_secret_is_shown_nowhere() -> None:
    key = BROKER_KEYS["ssl.key.password"]
    assert "hunter2" not in repr(key.parse("hunter2")) and "hunter2" not in f"{key.parse('hunter2')}"


def test_a_complaint_names_the_key_and_a_bounded_part_of_the_text() -> None:
    with pytest.raises(
        ValueError, match=r"^Invalid value 'x' for configuration retention\.ms: it must be a 64-bit integer\.$"
    ):
        TOPIC_KEYS["retention.ms"].parse("x")
    with pytest.raises(ValueError, match="it must be") as error:
        TOPIC_KEYS["retention.ms"].parse("x" * 100_000)
    assert len(str(error.value)) < 200


MISTAKES = [
    (within("Whole.parse", "value < self.min"), "value <= self.min", test_a_range_holds_at_both_of_its_ends),
    (within("Whole.parse", "value > self.max"), "value >= self.max", test_a_range_holds_at_both_of_its_ends),
    (
        "-(1 << self.bits - 1) <= value < 1 << self.bits - 1",
        "-(1 << self.bits - 1) <= value <= 1 << self.bits - 1",
        test_whole_numbers_have_the_bits_of_their_type,
    ),
    (
        "dict.fromkeys(re.split(_COMMA, stripped))",
        "re.split(_COMMA, stripped)",
        test_a_list_says_nothing_twice_and_has_no_gaps,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(values, right, wrong, rule)
