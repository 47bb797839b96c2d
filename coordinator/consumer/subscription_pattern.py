"""Subscriptions by pattern: the topics that a regular expression matches.

The syntax is RE2's, as in Apache Kafka: without back references and lookaround, so that matching takes linear time. A
pattern that would need more than `MEMORY_BYTES` is rejected like a malformed one. A pattern must match the whole name.
The library is imported with the first pattern; most brokers never need it.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from trioka.protocol.errors import InvalidRegularExpression

from ..topics import Topics

MEMORY_BYTES: Final = 1 << 20
COMPILED: Final = 256

Matches: TypeAlias = Callable[[bytes], object]  # returns None if the name does not match


def check_pattern(pattern: str) -> None:
    """Raises InvalidRegularExpression for an invalid pattern."""
    _compiled(pattern)


def matching_topics(patterns: Iterable[str], topics: Topics) -> dict[str, frozenset[str]]:
    """The names that each pattern matches. An invalid pattern, which another broker may have accepted, matches
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
    """A function that returns whether a name matches. Raises InvalidRegularExpression for an invalid pattern."""
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
