"""`trioka segments`: inspects the log files of trioka or Apache Kafka without a broker.

    trioka segments ls --data ./data                trioka segments dump orders:0 --data ./data --records
    trioka segments verify ./data                   trioka segments dump ./data/orders-0/00000000000000000000.log

A location is a log directory, the folder of a partition, a file, or TOPIC:PARTITION below `--data`. The commands only
read.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ..command_group import group
from ..options import with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr, write_stdout
from ..terminal.progress import BYTES, Progress
from ..terminal.time_parsing import show_moment
from .log_files import MappedSegment, Problem, batches, find_segments, is_sound, judge, records_of

LIST_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("BASE-OFFSET", "base_offset"),
    Column("LAST-OFFSET", "last_offset"),
    Column("BATCHES", "batches"),
    Column("RECORDS", "records"),
    Column("SIZE", "bytes", "bytes"),
    Column("NEWEST", "newest"),
    Column("FILE", "file", wide=True),
)
BATCH_COLUMNS: Final = (
    Column("POSITION", "position"),
    Column("BASE-OFFSET", "base_offset"),
    Column("LAST-OFFSET", "last_offset"),
    Column("RECORDS", "records"),
    Column("SIZE", "bytes", "bytes"),
    Column("CODEC", "codec"),
    Column("EPOCH", "leader_epoch"),
    Column("PRODUCER", "producer_id"),
    Column("P-EPOCH", "producer_epoch", wide=True),
    Column("SEQUENCE", "base_sequence", wide=True),
    Column("TXN", "transactional", wide=True),
    Column("CONTROL", "control", wide=True),
    Column("TIME", "time"),
    Column("CRC", "crc"),
)
RECORD_COLUMNS: Final = (
    Column("OFFSET", "offset"),
    Column("TIME", "time"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("HEADERS", "headers"),
)
PROBLEM_COLUMNS: Final = (
    Column("FILE", "file"),
    Column("POSITION", "position"),
    Column("STATUS", "status"),
    Column("WHAT", "what"),
)

segments = group("segments", "Log files, of trioka or of Apache Kafka.", list="ls", check="verify")


@segments.command("ls")
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option("--data", default="data", metavar="DIR", help="the log directory; default ./data")
@with_output
def ls(places: tuple[str, ...], data: str, output: str) -> None:
    """The segments, what they hold and how large they are."""
    rows = []
    for segment in _one_by_one("ls", _found(places, data)):
        with segment.opened() as buffer:
            headers = list(batches(buffer))
        newest = max((header.max_timestamp for header in headers), default=-1)
        rows.append(
            {
                "partition": segment.partition,
                "base_offset": segment.base_offset,
                "last_offset": headers[-1].last_offset if headers else None,
                "batches": len(headers),
                "records": sum(header.record_count for header in headers),
                "bytes": segment.size,
                "newest": None if newest < 0 else show_moment(newest),
                "file": str(segment.path),
            }
        )
    show(rows, LIST_COLUMNS, output, name="file")


@segments.command("dump")
@click.argument("places", nargs=-1, required=True, metavar="FILE|TOPIC:P...")
@click.option("--data", default="data", metavar="DIR", help="the log directory; default ./data")
@click.option("--records", is_flag=True, help="show the records instead of their batches")
@with_output
def dump(places: tuple[str, ...], data: str, records: bool, output: str) -> None:
    """Batches, or with --records the records."""
    rows = [row for segment in _found(places, data) for row in _dumped(segment, records)]
    show(rows, RECORD_COLUMNS if records else BATCH_COLUMNS, output, name="offset" if records else "base_offset")


@segments.command("verify")
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option("--data", default="data", metavar="DIR", help="the log directory; default ./data")
@with_output
def verify(places: tuple[str, ...], data: str, output: str) -> int:
    """Checksums, offsets and indexes; exit code 10 if something is damaged."""
    found = _found(places, data)
    problems: list[Problem] = [problem for segment in _one_by_one("verify", found) for problem in judge(segment)]
    if problems:
        show([problem._asdict() for problem in problems], PROBLEM_COLUMNS, output, name="file")
    elif output in ("json", "yaml"):
        write_stdout("[]")
    is_damaged = any(problem.status == "damaged" for problem in problems)
    write_stderr(f"{len(found)} segments, {'damaged' if is_damaged else 'none damaged'}")
    return Exit.UNHEALTHY if is_damaged else Exit.OK


def _found(places: tuple[str, ...], data: str) -> list[MappedSegment]:
    found = [segment for place in places or (data,) for segment in find_segments(_path(place, data))]
    if not found:
        where = ", ".join(places) or data
        hints = ["name the log directory: --data DIR"]
        raise Failure(f"there is no log file in {where}", exit_code=Exit.NOT_FOUND, hints=hints)
    return found


def _one_by_one(what: str, segments: Sequence[MappedSegment]) -> Iterator[MappedSegment]:
    """Yield each segment; the progress counts their sizes."""
    with Progress(what, BYTES, sum(segment.size for segment in segments)) as progress:
        for segment in segments:
            yield segment
            progress.add(segment.size)


def _path(place: str, data: str) -> Path:
    path = Path(place)
    topic, _, partition = place.rpartition(":")
    if not path.exists() and topic and partition.isdigit():
        path = Path(data) / f"{topic}-{partition}"
    if not path.exists():
        raise Failure(f"there is no {path}", exit_code=Exit.NOT_FOUND, hints=["name the log directory: --data DIR"])
    return path


def _dumped(segment: MappedSegment, records: bool) -> Iterator[dict[str, Any]]:
    with segment.opened() as buffer:
        for header in batches(buffer):
            if not records:
                yield {
                    "file": str(segment.path),
                    "position": header.position,
                    "base_offset": header.base_offset,
                    "last_offset": header.last_offset,
                    "records": header.record_count,
                    "bytes": header.size,
                    "codec": header.codec.name.lower(),
                    "leader_epoch": header.leader_epoch,
                    "producer_id": None if header.producer_id < 0 else header.producer_id,
                    "producer_epoch": None if header.producer_epoch < 0 else header.producer_epoch,
                    "base_sequence": None if header.base_sequence < 0 else header.base_sequence,
                    "transactional": header.is_transactional,
                    "control": header.is_control,
                    "time": show_moment(header.max_timestamp) if header.max_timestamp >= 0 else None,
                    "crc": "ok" if is_sound(buffer, header) else "damaged",
                }
                continue
            for record in records_of(buffer, header):
                yield {
                    "partition": segment.partition,
                    "offset": record.offset,
                    "time": show_moment(record.timestamp) if record.timestamp >= 0 else None,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": {key: _text(value) for key, value in record.headers},
                }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
