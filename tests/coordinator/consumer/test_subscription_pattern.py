"""Patterns of topic names, in RE2's syntax. How groups use them: test_consumer_*.py."""

import subprocess
import sys

import pytest
from support.known_topics import KnownTopics

from trioka.coordinator.consumer.subscription_pattern import check_pattern, matching_topics
from trioka.protocol.errors import InvalidRegularExpression

TOPICS = KnownTopics(orders=1, orders_eu=1, Returns=1, returns2=1)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders_eu"}),
        ("order", set()),
        ("(?i)returns[[:digit:]]?", {"Returns", "returns2"}),
        ("^orders$", {"orders"}),
        (r"\pL+", {"orders", "Returns"}),
        (r"\Qorders\E|returns\d", {"orders", "returns2"}),
        ("", set()),
        (".*", {"orders", "orders_eu", "Returns", "returns2"}),
    ],
)
def test_a_pattern_means_the_topics_whose_whole_name_it_matches(pattern: str, names: set[str]) -> None:
    check_pattern(pattern)
    assert matching_topics([pattern], TOPICS) == {pattern: names}


@pytest.mark.parametrize(
    "pattern",
    [
        "orders(",
        "orders)",
        "[a",
        "a**",
        "*",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "a{1001}",
        "(a{1000}){1000}",
        "\\",
        "\ud800",
    ],
)
def test_what_re2_does_not_know_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="is not a valid regular expression"):
        check_pattern(pattern)


def test_a_pattern_that_would_take_much_memory_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression):
        check_pattern(r"(\pL{200}){5}|" * 20 + "x")


def test_a_pattern_that_would_take_for_ever_elsewhere_is_answered() -> None:
    topics = KnownTopics(**{"a" * 200 + "b": 1})
    assert matching_topics(["(a|aa)+|(a+)+"], topics) == {"(a|aa)+|(a+)+": frozenset()}


def test_a_pattern_that_got_into_the_log_though_it_is_none_matches_nothing() -> None:
    assert matching_topics(["orders", "("], TOPICS) == {"orders": {"orders"}, "(": frozenset()}


def test_the_library_is_not_loaded_before_the_first_pattern() -> None:
    program = "import sys, trioka.coordinator.groups as g; assert 're2' not in sys.modules, 'loaded too early'"
    subprocess.run([sys.executable, "-c", program], check=True)
