"""`trioka consume`: prints records to standard output.

    -o start      from the first record (this is the default)        -o end        only new records
    -o 7          from offset 7                                      -o 7:12       7 to 11
    -o +5         from the sixth record on                           -o -5         the last five of each partition
    -o @-1h       from an hour ago                                   -o @2026-11-16T08:00:00

Without a group nothing is committed. With one (`-g`) reading continues at the group's committed offsets, and the
offsets of printed records are committed.

`PartitionReader` reads partitions, `GroupReader` those that a group assigns.
"""

import re
import time
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import click

from ..client.cluster_client import Kafka, TopicPartition
from ..client.offsets import EARLIEST, LATEST, offsets_or_fail
from ..client.settings import Settings
from ..options import complete, with_settings
from ..terminal.failure import Exit, Failure
from ..terminal.output import flush, is_terminal, write_stdout_bytes
from ..terminal.progress import Progress
from ..terminal.time_parsing import parse_moment_ms
from .decoding import SCHEMAS, decoder_for
from .group_reader import GroupReader
from .partition_reader import PartitionReader, Window
from .record_format import DECODERS, Printer

MAX_POLL_RECORDS: Final = 500


@click.command("consume")
@click.argument("topics", nargs=-1, shell_complete=complete("topic"))
@click.option("--topic", "-t", "more_topics", multiple=True, metavar="TOPIC")
@click.option("--partition", "-p", "only", type=int, multiple=True, metavar="N", help="only this partition")
@click.option("--offset", "-o", "where", default=None, metavar="WHERE", help="start, end, N, +N, -N, A:B, @TIME, @-1h")
@click.option("--from-beginning", is_flag=True, help="the same as -o start")
@click.option("--group", "-g", metavar="GROUP", help="read as a member of a group, and commit")
@click.option("--max-messages", "-n", "limit", type=int, metavar="N", help="stop after N records")
@click.option("--exit", "-e", "is_finite", is_flag=True, help="stop at the end")
@click.option(
    "--format", "-f", "form", default=None, metavar="FORMAT", help="json, raw, or text with %t %p %o %k %s %T %h"
)
@click.option("--decode", type=click.Choice(DECODERS), default="auto", metavar="HOW", help=", ".join(DECODERS))
@click.option("--schema", metavar="FILE", help="for --decode avro (.avsc) or protobuf (a descriptor of protoc)")
@click.option("--registry", metavar="URL", help="for --decode registry or avro: the schema registry")
@click.option("--message", metavar="NAME", help="for --decode protobuf: the message type of the values")
@click.option("--framed", "is_framed", is_flag=True, help="for --schema: each value begins with a schema id")
@click.option("--grep", metavar="RE", help="only records whose key or value matches")
@click.option("--read-committed", is_flag=True, help="skip records of transactions that were not committed")
@with_settings
def consume(
    settings: Settings,
    topics: tuple[str, ...],
    more_topics: tuple[str, ...],
    only: tuple[int, ...],
    where: str | None,
    from_beginning: bool,
    group: str | None,
    limit: int | None,
    is_finite: bool,
    form: str | None,
    decode: str,
    grep: str | None,
    read_committed: bool,
    **schemas: Any,
) -> int:
    """The records of TOPICS."""
    names = tuple(dict.fromkeys((*topics, *more_topics)))
    if not names:
        raise click.UsageError("name a topic.")
    if where is not None and from_beginning:
        raise click.UsageError("use -o or --from-beginning, not both.")
    if group is not None and (only or where not in (None, "start", "end")):
        raise click.UsageError("in a group, the group decides: only -o start and -o end can be said, and no partition.")
    try:
        pattern = None if grep is None else re.compile(grep.encode())
    except re.error as error:
        raise click.UsageError(f"--grep {grep} is no regular expression: {error}.") from None
    decoder = decoder_for(decode, **schemas, timeout_s=settings.timeout_s) if decode in SCHEMAS else None
    if decoder is None and any(schemas.values()):
        raise click.UsageError("a schema goes with --decode avro, protobuf or registry.")
    printer = Printer(form, decode, decoder)
    with settings.kafka() as kafka:
        places = _partitions(kafka, names, only)
        windows = {} if group is not None else find_windows(kafka, places, where or "start", is_finite, read_committed)
    from_end = where == "end"
    reader: Reader
    if group is not None:
        reader = GroupReader(settings, group, names, from_end=from_end, is_committed=read_committed)
    else:
        reader = PartitionReader(settings, windows, resets_to_end=from_end, is_committed=read_committed)
    # No progress: the records are visible on the terminal, or their number is unknown.
    with Progress("consume", "records", reader.most, is_silent=reader.most is None or is_terminal()) as progress:
        _Copy(printer, pattern, limit, is_finite, progress).run(reader)
    return Exit.OK if decoder is None else decoder.verdict()


def _partitions(kafka: Kafka, names: Sequence[str], only: Sequence[int]) -> list[TopicPartition]:
    """The partitions of the topics, or those of them whose numbers are in `only`, each of which a topic must have."""
    places = [
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in kafka.topics(names)
        for partition in topic.partitions
        if not only or partition.partition_index in only
    ]
    if missing := sorted(set(only) - {place.partition for place in places}):
        what = f"{', '.join(names)} has no partition {', '.join(map(str, missing))}"
        raise Failure(what, exit_code=Exit.NOT_FOUND)
    return sorted(places)


def find_windows(
    kafka: Kafka, places: Sequence[TopicPartition], where: str, is_finite: bool, is_committed: bool = False
) -> dict[TopicPartition, Window]:
    """The window of each partition. With `is_committed` an open transaction ends the log."""
    first = offsets_or_fail(kafka, dict.fromkeys(places, EARLIEST))
    end = offsets_or_fail(kafka, dict.fromkeys(places, LATEST), is_committed=is_committed)
    start: dict[TopicPartition, int]
    stop: dict[TopicPartition, int] = dict(end) if is_finite else {}
    if where in ("start", "beginning", "earliest"):
        start = first
    elif where in ("end", "latest"):
        start = end
    elif where.startswith("@"):
        try:
            moment = parse_moment_ms(where[1:], int(time.time() * 1000))
        except ValueError as error:
            raise click.UsageError(f"{error}.") from None
        at = offsets_or_fail(kafka, dict.fromkeys(places, moment))
        start = {place: end[place] if at[place] < 0 else at[place] for place in places}
    elif span := re.fullmatch(r"(\d+):(\d+)", where):
        start = dict.fromkeys(places, int(span[1]))
        stop = {place: min(int(span[2]), end[place]) for place in places}
    elif re.fullmatch(r"[+-]?\d+", where):
        number = int(where)
        start = {
            place: first[place] + number if where[0] == "+" else end[place] + number if where[0] == "-" else number
            for place in places
        }
    else:
        raise click.UsageError(f"-o {where} must be start, end, N, +N, -N, A:B or @TIME.")
    return {place: Window(min(max(start[place], first[place]), end[place]), stop.get(place)) for place in places}


Reader: TypeAlias = GroupReader | PartitionReader


class _Copy:
    """Prints records until the reader is at its end, or the limit is reached."""

    def __init__(self, printer: Printer, pattern: Any, limit: int | None, is_finite: bool, progress: Progress) -> None:
        self._printer = printer
        self._pattern = pattern
        self._left = limit
        self._is_finite = is_finite
        self._progress = progress

    def run(self, reader: Reader) -> None:
        """Copy, and close the reader."""
        line_end = self._printer.line_end
        is_bulk = line_end is not None and self._pattern is None and self._left is None
        try:
            while self._left is None or self._left > 0:
                count = self._print_lines(reader, line_end or b"") if is_bulk else self._print_records(reader)
                if count:
                    flush()
                    reader.commit()
                elif (self._is_finite or reader.is_bounded) and reader.is_at_the_end():
                    return
        finally:
            flush()
            reader.close()

    def _print_lines(self, reader: Reader, line_end: bytes) -> int:
        total = 0
        for lines, count in reader.poll_lines(line_end):
            self._progress.add(count)
            write_stdout_bytes(lines)
            total += count
        return total

    def _print_records(self, reader: Reader) -> int:
        records = reader.poll(MAX_POLL_RECORDS if self._left is None else min(self._left, MAX_POLL_RECORDS))
        self._progress.add(len(records))
        pattern = self._pattern
        for record in records:
            if pattern is None or pattern.search(record.key or b"") or pattern.search(record.value or b""):
                write_stdout_bytes(self._printer.render(record))
                if self._left is not None:
                    self._left -= 1
        return len(records)
