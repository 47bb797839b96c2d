"""Subscriptions by pattern: which topics a regular expression means.

The syntax is RE2's, which Apache Kafka uses too: no back references and no looking ahead, and therefore no pattern that
takes for ever. One that would need more than `MEMORY_BYTES` is refused like one with a mistake. Names match whole.
The library is loaded when the first pattern comes; most brokers never see one.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from trioka.protocol.errors import InvalidRegularExpression

from .topics import Topics

MEMORY_BYTES: Final = 1 << 20
COMPILED: Final = 256

Matches: TypeAlias = Callable[[bytes], object]  # None, if it does not


def check_pattern(pattern: str) -> None:
    """InvalidRegularExpression, if it is none."""
    _compiled(pattern)


def matching_topics(patterns: Iterable[str], topics: Topics) -> dict[str, frozenset[str]]:
    """For each pattern the names that it matches. One that is none, as another broker may have let in, matches
    nothing."""
    names = [(name, name.encode()) for name in topics.names()]
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            matches = _compiled(pattern)
        except InvalidRegularExpression:
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(name for name, encoded in names if matches(encoded) is not None)
    return found


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name, of whatever, matches. InvalidRegularExpression, if this is no pattern."""
    matches = _compiled(pattern)
    return lambda name: matches(name.encode()) is not None


@lru_cache(COMPILED)
def _compiled(pattern: str) -> Matches:
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        matches: Matches = re2.compile(pattern.encode(), options).fullmatch
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "not unicode text"
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
        ) from None
    return matches
