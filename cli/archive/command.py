"""`trioka archive`: what is in the object store, and whether it is whole.

    trioka archive ls s3://bucket/prefix               trioka archive ls s3://bucket/prefix orders:0
    trioka archive describe s3://bucket/prefix orders  trioka archive verify s3://bucket/prefix
    trioka archive read s3://bucket/prefix orders --from-time -1h

The commands only read. A directory of this machine may be named by its path instead of a URL. Credentials are those
that obstore finds (environment variables, the machine's own), or come from `--store-option`.
"""

from collections.abc import Sequence
from typing import Any, Final

import click

from trioka.archive import Archive, ArchivedTopic
from trioka.archive.errors import UnknownPartition
from trioka.archive.partition import ArchivedPartition
from trioka.archive.verify import Finding, verify_partition
from trioka.protocol.primitives import uuid_text
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix

from ..command_group import group
from ..options import with_output
from ..terminal.failure import Exit
from ..terminal.output import Column, show, write_stderr, write_stdout
from ..terminal.progress import BYTES, Progress
from ..terminal.time_parsing import show_moment
from .options import ArchiveLocation, parse_location, partitions_of, with_archive, with_topic_id
from .read import read

TOPIC_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("ID", "topic_id"),
    Column("PARTITIONS", "partitions"),
)
SEGMENT_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("RECORDS", "records"),
    Column("SIZE", "bytes", "bytes"),
    Column("NEWEST", "newest"),
    Column("CODECS", "codecs"),
    Column("EPOCH", "leader_epoch"),
    Column("BROKER", "broker_id", wide=True),
    Column("OBJECT", "object", wide=True),
)
PARTITION_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("STABLE-END", "last_stable_offset"),
    Column("SEGMENTS", "segments"),
    Column("SIZE", "bytes", "bytes"),
    Column("NEWEST", "newest"),
    Column("EPOCHS", "leader_epochs"),
    Column("MISSING", "missing"),
    Column("TOPIC-ID", "topic_id", wide=True),
)
FINDING_COLUMNS: Final = (
    Column("OBJECT", "object"),
    Column("STATUS", "status"),
    Column("WHAT", "what"),
)

archive = group("archive", "Tiered topics in an object store, read without a broker.", list="ls", check="verify")
archive.add_command(read)


@archive.command("ls")
@with_archive
@click.argument("place", required=False, metavar="[TOPIC[:P]]")
@with_topic_id
@with_output
def ls(archive: Archive, place: str | None, topic_id: str | None, output: str) -> None:
    """The topics, or the segments of one."""
    if place is None:
        rows = [_topic_row(archive, topic) for topic in archive.topics()]
        show(rows, TOPIC_COLUMNS, output, name="topic")
        return
    where = parse_location(place)
    topic = archive.catalog.topic(where.topic, topic_id)
    segments = [
        _segment_row(partition, manifest)
        for partition in partitions_of(archive, topic, where)
        for manifest in archive.catalog.manifests(topic, partition)
    ]
    show(segments, SEGMENT_COLUMNS, output, name="object")


@archive.command("describe")
@with_archive
@click.argument("place", metavar="TOPIC[:P]")
@with_topic_id
@with_output
def describe(archive: Archive, place: str, topic_id: str | None, output: str) -> None:
    """Which offsets of each partition can be read, and which are missing."""
    where = parse_location(place)
    topic = archive.catalog.topic(where.topic, topic_id)
    rows = [
        _partition_row(topic, archive.partition(topic.name, partition, topic_id=topic.topic_id))
        for partition in partitions_of(archive, topic, where)
    ]
    show(rows, PARTITION_COLUMNS, output, name="partition")


@archive.command("verify")
@with_archive
@click.argument("place", required=False, metavar="[TOPIC[:P]]")
@with_topic_id
@with_output
def verify(archive: Archive, place: str | None, topic_id: str | None, output: str) -> int:
    """Reads every object and compares it with its manifest; exit code 10 if something is damaged or missing."""
    where = None if place is None else parse_location(place)
    topics = archive.topics() if where is None else [archive.catalog.topic(where.topic, topic_id)]
    findings: list[Finding] = []
    segments = 0
    with Progress("verify", BYTES) as progress:
        for topic in topics:
            for partition in _partitions_to_verify(archive, topic, where):
                for step in verify_partition(archive.store, topic, partition):
                    findings += step.findings
                    segments += step.bytes_read > 0
                    progress.add(step.bytes_read)
    if findings:
        show([finding._asdict() for finding in findings], FINDING_COLUMNS, output, name="object")
    elif output in ("json", "yaml"):
        write_stdout("[]")
    problems = sum(finding.is_problem for finding in findings)
    write_stderr(f"{segments} segments, {problems or 'no'} problem{'' if problems == 1 else 's'}")
    return Exit.UNHEALTHY if problems else Exit.OK


def _partitions_to_verify(archive: Archive, topic: ArchivedTopic, place: ArchiveLocation | None) -> Sequence[int]:
    try:
        return partitions_of(archive, topic, place)
    except UnknownPartition:
        if place is not None:
            raise
        return ()  # a topic whose directory holds something else


def _topic_row(archive: Archive, topic: ArchivedTopic) -> dict[str, Any]:
    partitions = archive.catalog.partitions(topic)
    return {"topic": topic.name, "topic_id": topic.id_text, "partitions": len(partitions)}


def _segment_row(partition: int, manifest: SegmentManifest) -> dict[str, Any]:
    content = manifest.content
    return {
        "partition": partition,
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "records": None if content is None else content.records,
        "bytes": manifest.size,
        "newest": _moment(manifest.max_timestamp_ms),
        "codecs": [] if content is None else [codec.name.lower() for codec in sorted(content.codecs)],
        "leader_epoch": manifest.uploader_epoch,
        "broker_id": manifest.broker_id,
        "segment_id": uuid_text(manifest.segment.segment_id),
        "object": manifest.segment.key(ObjectSuffix.LOG),
    }


def _partition_row(topic: ArchivedTopic, found: ArchivedPartition) -> dict[str, Any]:
    newest = max((each.max_timestamp_ms for each in found.manifests), default=-1)
    return {
        "topic": topic.name,
        "topic_id": topic.id_text,
        "partition": found.partition,
        "start_offset": found.start_offset,
        "end_offset": found.end_offset,
        "last_stable_offset": found.last_stable_offset,
        "segments": len(found.manifests),
        "bytes": sum(each.manifest.size for each in found.slices),
        "newest": _moment(newest),
        "leader_epochs": [entry.epoch for entry in found.lineage.chain],
        "missing": [f"{hole.start_offset}-{hole.end_offset - 1}" for hole in found.holes],
    }


def _moment(ms: int) -> str | None:
    return None if ms < 0 else show_moment(ms)
