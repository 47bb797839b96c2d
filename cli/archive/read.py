"""`trioka archive read`: records of the object store as JSON lines or as a Parquet file.

A line has what the record has, headers in their order and with repeated names:

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestampType": "CreateTime",
     "leaderEpoch": 3, "key": "k", "value": {"id": 7}, "headers": [["trace", "a1"]]}

A Parquet file has the columns of Spark's Kafka source, and `leaderEpoch`. It is written beside its name and renamed at
the end, so that a file of that name is whole.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from trioka.archive import Archive, ArchivedRecord
from trioka.archive.arrow import write_parquet
from trioka.archive.records import Isolation, RecordIterator

from ..terminal.failure import Exit, Failure
from ..terminal.output import flush, is_terminal, write_stdout
from ..terminal.progress import Progress
from ..topics.record_format import PLAIN_DECODERS, decode_bytes
from .options import parse_location, parse_offsets, parse_times, partitions_of, with_archive, with_topic_id

FORMATS: Final = ("jsonl", "parquet")


@click.command("read")
@with_archive
@click.argument("place", metavar="TOPIC[:P]")
@click.option("--offsets", metavar="A:B", help="from A up to B, exclusive; either may be left out")
@click.option("--from-time", metavar="TIME", help="2026-11-16T08:00:00, milliseconds, or -1h")
@click.option("--until-time", metavar="TIME", help="exclusive")
@click.option(
    "--isolation",
    type=click.Choice([each.value for each in Isolation]),
    default=Isolation.READ_COMMITTED.value,
    metavar="LEVEL",
    help="read_committed (default) or read_uncommitted",
)
@click.option("--max-messages", "-n", "limit", type=click.IntRange(min=1), metavar="N", help="stop after so many")
@click.option("--to", "form", type=click.Choice(FORMATS), default="jsonl", metavar="FORM", help="jsonl or parquet")
@click.option("--out", metavar="FILE", help="of --to parquet, which needs it; default standard output")
@click.option(
    "--decode", type=click.Choice(PLAIN_DECODERS), default="auto", metavar="HOW", help="of jsonl: keys, values"
)
@click.option("--skip-missing", is_flag=True, help="read on behind offsets that are missing")
@with_topic_id
def read(
    archive: Archive,
    place: str,
    offsets: str | None,
    from_time: str | None,
    until_time: str | None,
    isolation: str,
    limit: int | None,
    form: str,
    out: str | None,
    decode: str,
    skip_missing: bool,
    topic_id: str | None,
) -> int:
    """The records of TOPIC, partition by partition."""
    where = parse_location(place)
    if (form == "parquet") != (out is not None):
        raise click.UsageError("--to parquet writes a file: name it with --out; jsonl goes to standard output.")
    limits, times = parse_offsets(offsets), parse_times(from_time, until_time)
    topic = archive.catalog.topic(where.topic, topic_id)
    found = [
        archive.records(
            topic.name,
            partition,
            offsets=limits,
            times=times,
            isolation=isolation,
            topic_id=topic.topic_id,
            fail_on_data_loss=not skip_missing,
        )
        for partition in partitions_of(archive, topic, where)
    ]
    if out is None:
        _write_lines(topic.name, _limited(found, limit), decode)
    else:
        _write_parquet(topic.name, _limited(found, limit), out)
    return Exit.OK


def _limited(found: Sequence[RecordIterator], limit: int | None) -> Iterator[list[ArchivedRecord]]:
    left = limit
    with Progress("read", "records", is_silent=is_terminal()) as progress:
        for records in found:
            for batch in records.batches():
                if left is not None:
                    batch = batch[:left]
                    left -= len(batch)
                progress.add(len(batch))
                yield batch
                if left == 0:
                    records.close()
                    return


def _write_lines(topic: str, batches: Iterator[list[ArchivedRecord]], decode: str) -> None:
    try:
        for batch in batches:
            for record in batch:
                write_stdout(json.dumps(_line(topic, record, decode), ensure_ascii=False))
    finally:
        flush()


def _line(topic: str, record: ArchivedRecord, decode: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.value,
        "leaderEpoch": record.leader_epoch,
        "key": None if record.key is None else decode_bytes(decode, record.key),
        "value": None if record.value is None else decode_bytes(decode, record.value),
        "headers": [
            [key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _header(value, decode)]
            for key, value in record.headers
        ],
    }


def _header(value: bytes | None, decode: str) -> Any:
    return None if value is None else decode_bytes(decode, value)


def _write_parquet(topic: str, batches: Iterator[list[ArchivedRecord]], out: str) -> None:
    if os.path.exists(out):
        raise Failure(f"{out} exists already", exit_code=Exit.EXISTS, hints=["name another file"])
    part = f"{out}.part"
    try:
        write_parquet(part, topic, batches)
        os.replace(part, out)
    except OSError as error:
        raise Failure(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)
