"""The URL of an archive, what to read of it, and its errors as those of a command."""

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from trioka.archive import Archive, ArchivedTopic
from trioka.archive.errors import (
    AccessDenied,
    AmbiguousTopic,
    ArchiveError,
    DamagedSegment,
    InvalidUrl,
    MissingObject,
    MissingOffsets,
    StoreUnavailable,
    UnknownPartition,
)

from ..terminal.failure import Exit, Failure
from ..terminal.time_parsing import parse_moment_ms

R = TypeVar("R")

EXIT_CODES: Final[tuple[tuple[type[ArchiveError], Exit], ...]] = (
    (InvalidUrl, Exit.USAGE),
    (AmbiguousTopic, Exit.USAGE),
    (StoreUnavailable, Exit.UNREACHABLE),
    (AccessDenied, Exit.UNAUTHORISED),
    (UnknownPartition, Exit.NOT_FOUND),
    (MissingObject, Exit.UNHEALTHY),
    (MissingOffsets, Exit.UNHEALTHY),
    (DamagedSegment, Exit.UNHEALTHY),
)
HINTS: Final[Mapping[type[ArchiveError], str]] = {
    AmbiguousTopic: "name one of them: --topic-id ID",
    MissingOffsets: "read on behind them: --skip-missing",
    MissingObject: "look for more: trioka archive verify",
}


class ArchiveLocation(NamedTuple):
    """TOPIC or TOPIC:PARTITION of the command line."""

    topic: str
    partition: int | None


def with_store_options(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the URL and the options of the store, and passes them on as `url` and `options`."""

    @click.argument("url")
    @click.option(
        "--store-option", "options", multiple=True, metavar="KEY=VALUE", help="of the store: region, endpoint, …"
    )
    @functools.wraps(function)
    def wrapped(*arguments: Any, url: str, options: tuple[str, ...], **keywords: Any) -> R:
        pairs = parse_pairs("--store-option", options)
        return function(*arguments, url=archive_url(url), options=pairs, **keywords)

    return wrapped


def with_archive(function: Callable[..., R]) -> Callable[..., R]:
    """Adds the same, and passes on the `archive`."""

    @with_store_options
    @functools.wraps(function)
    def wrapped(*arguments: Any, url: str, options: dict[str, str], **keywords: Any) -> R:
        with explained(), Archive(url, options) as archive:
            return function(*arguments, archive=archive, **keywords)

    return wrapped


def with_topic_id(function: Callable[..., R]) -> Callable[..., R]:
    return click.option("--topic-id", metavar="ID", help="of a topic whose name was used several times")(function)


@contextmanager
def explained() -> Iterator[None]:
    """Errors of the archive as failures with an exit code."""
    try:
        yield
    except ArchiveError as error:
        code = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), Exit.FAILED)
        hints = [hint for kind, hint in HINTS.items() if isinstance(error, kind)]
        raise Failure(str(error), exit_code=code, hints=hints) from None


def parse_location(text: str) -> ArchiveLocation:
    topic, colon, partition = text.rpartition(":")
    if not colon:
        return ArchiveLocation(text, None)
    if not topic or not partition.isascii() or not partition.isdigit():
        raise click.UsageError(f"{text} is not TOPIC or TOPIC:PARTITION.")
    return ArchiveLocation(topic, int(partition))


def partitions_of(archive: Archive, topic: ArchivedTopic, place: ArchiveLocation | None) -> list[int]:
    """The partitions that a place means; all of the topic without one."""
    if place is not None and place.partition is not None:
        return [place.partition]
    found = archive.catalog.partitions(topic)
    if not found:
        raise UnknownPartition(f"{archive.store.name} has no partition of {topic.name}")
    return found


def parse_offsets(text: str | None) -> tuple[int | None, int | None] | None:
    """`10:20`, `10:`, `:20`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{0,19}):(\d{0,19})", text)
    if found is None or text == ":":
        raise click.UsageError(f"--offsets {text} must be START:END, START: or :END; END is exclusive.")
    start, end = (int(each) if each else None for each in found.groups())
    return start, end


def parse_times(start: str | None, end: str | None) -> tuple[int | None, int | None] | None:
    if start is None and end is None:
        return None
    now_ms = int(time.time() * 1000)
    try:
        first, last = (None if each is None else parse_moment_ms(each, now_ms) for each in (start, end))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    return first, last


def archive_url(text: str) -> str:
    """A directory of this machine may be named by its path."""
    return Path(text).resolve().as_uri() if "://" not in text and Path(text).is_dir() else text


def parse_pairs(name: str, options: tuple[str, ...]) -> dict[str, str]:
    """Values of an option that is given as KEY=VALUE, several times."""
    pairs = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{name} {option} must be KEY=VALUE.")
        pairs[key] = value
    return pairs
