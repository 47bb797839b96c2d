"""`trioka tier`: tiered topics, as the remote log metadata and the object store have them.

    trioka tier status                       which offsets of each tiered partition are in the object store
    trioka tier ls orders                    its segments, in any state
    trioka tier verify s3://bucket/prefix    are all objects there, and does each belong to a segment?
    trioka tier sweep s3://bucket/prefix     deletes objects that belong to no segment
    trioka tier lifecycle --print            rules for the bucket
    trioka tier restore --from s3://bucket/prefix --data DIR --plan    a cluster from the object store alone

`status` and `ls` read `__remote_log_metadata` over the Kafka protocol, so they need no access to the store.
`trioka archive verify` also reads the objects, and compares them with their manifests.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from trioka.cluster.remote_log.jobs import ManifestKey
from trioka.cluster.remote_log.metadata import RemotePartition, RemoteSegment, SegmentState
from trioka.cluster.remote_log.sweep import Orphan, garbage, is_complete, orphans
from trioka.protocol.primitives import uuid_text
from trioka.protocol.remote_segment import object_key
from trioka.protocol.remote_segment.object_key import ObjectSuffix

from ..archive.options import explained, with_store_options
from ..client.cluster_client import Kafka, TopicPartition
from ..client.offsets import LATEST, list_offsets
from ..command_group import group
from ..options import confirmed, with_execute_option, with_kafka, with_output
from ..terminal.failure import Exit
from ..terminal.output import Column, show, write_stderr, write_stdout
from ..terminal.time_parsing import show_moment
from .bucket import Bucket
from .lifecycle import lifecycle
from .ownership import require_latest_incarnation
from .records import of_topics, read_metadata
from .restore import restore

STATUS_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("SEGMENTS", "segments"),
    Column("SIZE", "bytes", "bytes"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("LOG-END", "log_end_offset"),
    Column("NOT-TIERED", "not_tiered"),
    Column("COPYING", "copying"),
    Column("DELETING", "deleting"),
    Column("TOPIC-ID", "topic_id", wide=True),
)
SEGMENT_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("SIZE", "bytes", "bytes"),
    Column("NEWEST", "newest"),
    Column("STATE", "state"),
    Column("EPOCH", "leader_epoch"),
    Column("BROKER", "broker_id"),
    Column("ID", "segment_id", wide=True),
)
FINDING_COLUMNS: Final = (Column("SEGMENT", "segment"), Column("STATUS", "status"), Column("WHAT", "what"))

tier = group("tier", "Tiered topics: their records, and the object store.", list="ls", check="verify")
tier.add_command(lifecycle)
tier.add_command(restore)


@tier.command("status")
@with_kafka
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@with_output
def status(kafka: Kafka, topics: tuple[str, ...], output: str) -> None:
    """Which offsets of each partition are in the object store."""
    partitions = of_topics(read_metadata(kafka), topics)
    names = {topic.name for topic in kafka.cluster().topics}
    places = {TopicPartition(p.id.topic, p.id.partition): LATEST for p in partitions if p.id.topic in names}
    ends = {place: found.offset for place, found in list_offsets(kafka, places).items()} if places else {}
    show([_status_row(partition, ends) for partition in partitions], STATUS_COLUMNS, output, name="partition")


def _status_row(partition: RemotePartition, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    finished = partition.finished
    log_end = ends.get(TopicPartition(partition.id.topic, partition.id.partition))
    end = max((segment.next_offset for segment in finished), default=0)
    states = [segment.state for segment in partition.segments.values()]
    return {
        "topic": partition.id.topic,
        "topic_id": uuid_text(partition.id.topic_id),
        "partition": partition.id.partition,
        "segments": len(finished),
        "bytes": sum(segment.size_bytes for segment in finished),
        "start_offset": finished[0].start_offset if finished else None,
        "end_offset": end - 1 if finished else None,
        "log_end_offset": log_end,
        "not_tiered": None if log_end is None else max(0, log_end - end),
        "copying": states.count(SegmentState.COPY_SEGMENT_STARTED),
        "deleting": states.count(SegmentState.DELETE_SEGMENT_STARTED),
    }


@tier.command("ls")
@with_kafka
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@with_output
def ls(kafka: Kafka, topics: tuple[str, ...], output: str) -> None:
    """The segments of topics, in any state."""
    rows = [
        _segment_row(partition, segment)
        for partition in of_topics(read_metadata(kafka), topics)
        for segment in sorted(partition.segments.values(), key=lambda each: (each.start_offset, each.end_offset))
    ]
    show(rows, SEGMENT_COLUMNS, output, name="segment_id")


def _segment_row(partition: RemotePartition, segment: RemoteSegment) -> dict[str, Any]:
    return {
        "partition": f"{partition.id.topic}-{partition.id.partition}",
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.size_bytes,
        "newest": show_moment(segment.max_timestamp_ms),
        "state": segment.state.name,
        "leader_epoch": segment.uploader_epoch,
        "broker_id": segment.broker_id,
        "segment_id": uuid_text(segment.segment_id),
    }


@tier.command("verify")
@with_kafka
@with_store_options
@with_output
def verify(kafka: Kafka, url: str, options: Mapping[str, str], output: str) -> int:
    """Compares the records with the objects; exit code 10 if something is missing or left over."""
    kafka.cluster()  # a cluster that does not answer is reported before the store is listed
    with explained():
        bucket = Bucket(url, options, timeout_s=kafka.timeout_s)
        listed = list(bucket.listed())  # before the records: a record is older than its objects
        image = read_metadata(kafka)
        findings: list[dict[str, Any]] = []
        there = {(each.segment, each.suffix) for each in listed}
        known: set[bytes] = set()
        for partition in image:
            for segment in partition.segments.values():
                known.add(segment.segment_id)
                name = object_key.RemoteSegment(partition.id, segment.start_offset, segment.segment_id)
                missing = [suffix.value for suffix in ObjectSuffix if (name, suffix) not in there]
                if segment.is_finished and missing:
                    findings.append(_finding(name, "missing", f"has no {', '.join(missing)}"))
        for orphan in orphans(listed, known, int(time.time() * 1000)):
            findings.append(_orphan_finding(bucket, orphan))
    problems = [each for each in findings if each["status"] != "tombstone"]
    if findings or output in ("json", "yaml"):
        show(findings, FINDING_COLUMNS, output, name="segment")
    if known and not listed:
        write_stderr(f"{bucket.name} has no object of this cluster: is it trioka.tier.url of the brokers?")
    write_stderr(f"{len(known)} segments, {len(listed)} objects, {len(problems) or 'no'} problems")
    return Exit.UNHEALTHY if problems else Exit.OK


def _orphan_finding(bucket: Bucket, orphan: Orphan) -> dict[str, Any]:
    found = bucket.manifest_key(orphan.segment)
    if is_complete(orphan, found):
        return _finding(orphan.segment, "unknown", "is complete, and has no record: the metadata topic was damaged")
    if found is ManifestKey.TOMBSTONE and orphan.suffixes == {ObjectSuffix.MANIFEST}:
        return _finding(orphan.segment, "tombstone", "of a cancelled copy; it is deleted after a week")
    return _finding(orphan.segment, "orphan", f"{len(orphan.objects)} objects, {orphan.size} bytes, of no segment")


def _finding(segment: object_key.RemoteSegment, status: str, what: str) -> dict[str, Any]:
    return {"segment": segment.key(ObjectSuffix.LOG).removesuffix(".log"), "status": status, "what": what}


@tier.command("sweep")
@with_kafka
@with_store_options
@with_execute_option
def sweep(kafka: Kafka, url: str, options: Mapping[str, str], execute: bool) -> int:
    """Deletes objects that belong to no segment and are older than a day. Brokers do it daily."""
    now_ms = int(time.time() * 1000)
    with explained():
        bucket = Bucket(url, options, timeout_s=kafka.timeout_s)
        require_latest_incarnation(kafka, bucket)
        listed = list(bucket.listed())  # before the records
        image = read_metadata(kafka)
        known = {segment_id for partition in image for segment_id in partition.segments}
        keys = []
        for orphan in orphans(listed, known, now_ms):
            for suffix in garbage(orphan, bucket.manifest_key(orphan.segment), now_ms):
                keys.append(orphan.segment.key(suffix))
        for key in keys:
            write_stdout(key)
        if not keys:
            write_stderr("nothing to delete")
            return Exit.OK
        if not confirmed(execute, f"Delete these {len(keys)} objects?"):
            return Exit.OK
        for key in keys:
            bucket.delete(key)
    write_stderr(f"{len(keys)} objects deleted")
    return Exit.OK
