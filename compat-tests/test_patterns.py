"""Patterns of topic names mean what they mean to Apache Kafka, whose library is another one with the same syntax."""

import json
from random import Random

import pytest
from oracle import run_program
from support.known_topics import KnownTopics

from trioka.coordinator.consumer.subscription_pattern import check_pattern, matching_topics
from trioka.protocol.errors import InvalidRegularExpression

pytestmark = pytest.mark.usefixtures("apache_kafka")

PIECES = (
    *(
        "a",
        "b",
        "B",
        "-",
        "_",
        r"\.",
        ".",
        "1",
        "ab",
        "^",
        "$",
        r"\b",
        r"\d",
        r"\w+",
        r"\W",
        r"\pL",
        r"\p{Lu}",
        r"\x61",
    ),
    *("*", "+", "?", "*?", "{2}", "{1,3}", "{,2}", "|", "(", ")", "(?:", "(?i)", "(?P<n>", "[ab]", "[^a]", "[a-", "]"),
    *("[[:alnum:]]", "[[:nonsense:]]", r"\Qa.b\E", r"\1", "(?=a)", "(?<!a)", r"\z", r"\A", "\\"),
)
NAMES = ["a", "b", "ab", "aab", "B", "a.b", "a-b", "a_1", "b1", "abab", "1", "Ab", "aaa"]
PATTERNS = 5000


def test_random_patterns_mean_the_same() -> None:
    random = Random(7)
    patterns = ["".join(random.choices(PIECES, k=random.randint(1, 6))) for _ in range(PATTERNS)]
    text = run_program("Patterns", stdin="\n".join(json.dumps([pattern, *NAMES]) for pattern in patterns))
    theirs = [json.loads(line) for line in text.splitlines()]
    ours = list(map(matched, patterns))
    assert [p for p, one, other in zip(patterns, ours, theirs, strict=True) if one != other] == []
    assert sum(one is None for one in ours) > PATTERNS // 10 and sum(bool(one) for one in ours) > PATTERNS // 10


def matched(pattern: str) -> list[str] | None:
    try:
        check_pattern(pattern)
    except InvalidRegularExpression:
        return None
    found = matching_topics([pattern], KnownTopics(**dict.fromkeys(NAMES, 1)))[pattern]
    return [name for name in NAMES if name in found]
