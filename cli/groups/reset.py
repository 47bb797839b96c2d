"""The plan of an offset reset: the new offsets of a group, before anything is changed.

An offset outside of the log is moved to its nearer end, as Kafka's own script does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from ..client.cluster_client import Kafka, TopicPartition
from ..client.offsets import EARLIEST, LATEST, offsets_or_fail
from ..terminal.failure import Exit, Failure
from ..terminal.time_parsing import parse_moment_ms

MOVES: Final = ("to_earliest", "to_latest", "to_current", "to_offset", "to_datetime", "by_duration", "shift_by")


class Target(NamedTuple):
    """`how` is one of `MOVES`; `value` an offset, a distance, or a time in milliseconds since 1970."""

    how: str
    value: int = 0

    def __str__(self) -> str:
        flag = f"--{self.how.replace('_', '-')}"
        return flag if self.how in ("to_earliest", "to_latest", "to_current") else f"{flag} {self.value}"


def target_of(where: Mapping[str, Any], now_ms: int) -> Target:
    """The target from the options of the command, exactly one of which must be given."""
    message = [how for how in MOVES if where[how] is not None and where[how] is not False]
    if len(message) != 1:
        flags = ", ".join(f"--{how.replace('_', '-')}" for how in MOVES)
        raise click.UsageError(f"give one target: {flags}.")
    (how,) = message
    if how == "to_datetime":
        try:
            return Target(how, parse_moment_ms(where[how], now_ms))
        except ValueError as error:
            raise click.UsageError(f"{error}.") from None
    if how == "by_duration":
        return Target(how, now_ms - where[how])
    return Target(how, 0 if where[how] is True else int(where[how]))


def places(kafka: Kafka, texts: Sequence[str]) -> list[TopicPartition]:
    """The partitions of arguments: `orders` is all of its partitions, `orders:0,2` two of them."""
    found: list[TopicPartition] = []
    for text in texts:
        name, _, chosen = text.partition(":")
        (topic,) = kafka.topics([name])
        there = sorted(partition.partition_index for partition in topic.partitions)
        try:
            wanted = [int(number) for number in chosen.split(",")] if chosen else there
        except ValueError:
            raise click.UsageError(f"--topic {text} must be TOPIC or TOPIC:PARTITION,PARTITION.") from None
        for index in wanted:
            if index not in there:
                what = f"topic '{name}' has no partition {index}: they are {there[0]} to {there[-1]}"
                raise Failure(what, exit_code=Exit.NOT_FOUND)
            found.append(TopicPartition(name, index))
    return list(dict.fromkeys(found))


def plan(
    kafka: Kafka, target: Target, committed: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The new offset of each partition. A partition without a committed offset counts as committed at its end."""
    first = offsets_or_fail(kafka, dict.fromkeys(partitions, EARLIEST))
    end = offsets_or_fail(kafka, dict.fromkeys(partitions, LATEST))
    now = {place: committed.get(place, end[place]) for place in partitions}
    wanted: Mapping[TopicPartition, int]
    if target.how == "to_earliest":
        wanted = first
    elif target.how == "to_latest":
        wanted = end
    elif target.how == "to_offset":
        wanted = dict.fromkeys(partitions, target.value)
    elif target.how == "shift_by":
        wanted = {place: now[place] + target.value for place in partitions}
    elif target.how in ("to_datetime", "by_duration"):
        at = offsets_or_fail(kafka, dict.fromkeys(partitions, target.value))
        wanted = {place: end[place] if at[place] < 0 else at[place] for place in partitions}
    else:
        wanted = now
    return {place: min(max(wanted[place], first[place]), end[place]) for place in partitions}
