"""`trioka tier restore`: the data directories of new nodes, from the object store alone.

    trioka tier restore --from s3://bucket/prefix --data /data --plan     shows what comes back, and what is lost
    trioka tier restore --from s3://bucket/prefix --data /data --yes      shows it, and does it

The nodes are a cluster with the old one's id, topics and settings: one, or with --nodes as many as are named, whose
directories /data/1, /data/2, … are then copied to their machines. More nodes join them as they join any cluster, and
partitions are reassigned to them. Before anything is written the next incarnation is created in the store:
brokers of the old cluster that are still alive stop copying and deleting then.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import SystemRandom
from typing import Any, Final

import click

from trioka.broker.clock import SystemClock
from trioka.broker.restore.build import build_directories, check_directory
from trioka.broker.restore.plan import PartitionPlan, is_rewritten
from trioka.broker.restore.source import CannotRestore, RestorePlan, find_cluster, read_plan
from trioka.broker.tier.store.ownership import incarnation_key
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.primitives import uuid_text
from trioka.storage.files.disk import OsDisk
from trioka.storage.files.layout import CorruptFile

from ..archive.options import archive_url, explained, parse_pairs
from ..options import confirmed, with_output
from ..terminal.failure import Exit, Failure
from ..terminal.output import Column, show, write_stderr
from ..terminal.time_parsing import show_moment
from .bucket import Bucket

COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PART", "partition"),
    Column("BACK", "back"),
    Column("START", "start_offset"),
    Column("END", "end_offset"),
    Column("NEWEST", "newest"),
    Column("LOST", "lost"),
    Column("TOPIC-ID", "topic_id", wide=True),
)
MAX_NODES: Final = 99
MAX_NODE_ID: Final = (1 << 31) - 1 - MAX_NODES


@click.command("restore")
@click.option("--from", "url", required=True, metavar="URL", help="trioka.tier.url of the old cluster")
@click.option("--data", required=True, metavar="DIR", help="of the new nodes; must not exist yet")
@click.option("--plan", "is_plan", is_flag=True, help="only show what comes back and what is lost")
@click.option("--node-id", default=1, type=click.IntRange(0, MAX_NODE_ID), show_default=True, help="of the first node")
@click.option(
    "--nodes",
    "count",
    default=1,
    type=click.IntRange(1, MAX_NODES),
    show_default=True,
    help="so many, all of them voters",
)
@click.option("--cluster-id", metavar="ID", help="which cluster, if several used the same URL")
@click.option("--store-option", "options", multiple=True, metavar="KEY=VALUE", help="of the store: region, endpoint, …")
@click.option("--execute", "--yes", "-y", "execute", is_flag=True, help="do it; otherwise it is only shown")
@with_output
def restore(
    url: str,
    data: str,
    is_plan: bool,
    node_id: int,
    count: int,
    cluster_id: str | None,
    options: tuple[str, ...],
    execute: bool,
    output: str,
) -> int:
    """Builds the data directories of new nodes from the object store alone."""
    pairs = parse_pairs("--store-option", options)
    path = os.path.abspath(data)
    with _explained():
        if not is_plan:
            check_directory(OsDisk(), path)
            if os.path.ismount(path):
                raise CannotRestore(f"{path} is a mount point, which cannot be replaced; name a directory in it")
        bucket = Bucket(archive_url(url), pairs)
        plan = read_plan(bucket, find_cluster(bucket, cluster_id))
        _show(plan, output)
        if is_plan or not confirmed(execute, f"Build {data} from this?"):
            return Exit.OK
        _take_over(bucket, plan)
        # The old cluster may have gone on until now.
        found = replace(read_plan(bucket, plan.cluster_id), incarnation=plan.incarnation)
        if _loss(found) != _loss(plan):
            write_stderr("The old cluster was still alive, and has changed what comes back:")
            _show(found, output)
        for key, content in found.repaired.items():
            bucket.put(key, content)
        nodes = range(node_id, node_id + count)
        build_directories(found, path, nodes=nodes, disk=OsDisk(), clock=SystemClock(), random=SystemRandom())
    write_stderr(
        f"{data} is restored. {_how_to_start(data, nodes)}, with\n"
        f"  trioka.tier.url={bucket.name}\n"
        f"  trioka.tier.incarnation={plan.incarnation}"
    )
    return Exit.OK


def _how_to_start(data: str, nodes: Sequence[int]) -> str:
    if len(nodes) == 1:
        return f"Start node {nodes[0]} on it as the only voter of its quorum"
    return (
        f"Start the nodes {', '.join(map(str, nodes))} on {data.rstrip('/')}/<node.id>, or copies of it on their "
        "machines, all of them voters of one quorum (controller.quorum.voters)"
    )


@contextmanager
def _explained() -> Iterator[None]:
    with explained():
        try:
            yield
        except CannotRestore as error:
            raise Failure(str(error), exit_code=Exit.NOT_FOUND) from None
        except (KafkaError, ProtocolError, CorruptFile) as error:
            raise Failure(f"the directory cannot be built: {error}") from None
        except OSError as error:
            raise Failure(f"{error.filename}: {error.strerror}") from None


def _take_over(bucket: Bucket, plan: RestorePlan) -> None:
    content = json.dumps({"clusterId": plan.cluster_id, "incarnation": plan.incarnation}).encode()
    if not bucket.create(incarnation_key(plan.cluster_id, plan.incarnation), content):
        raise Failure(
            f"incarnation {plan.incarnation} of cluster {plan.cluster_id} was created at the same moment: another "
            "restore is under way",
            exit_code=Exit.EXISTS,
        )


# -- what is shown -----------------------------------------------------------------------------------------------------


def _show(plan: RestorePlan, output: str) -> None:
    show(_rows(plan), COLUMNS, output, name="topic")
    write_stderr(
        f"cluster {plan.cluster_id}, incarnation {plan.incarnation}; topics, configurations, ACLs, users and quotas as "
        f"of {show_moment(plan.snapshot_ms)}"
    )
    write_stderr(
        "Of each partition the records from END on are lost: the object store does not know how many there were."
    )
    offsets = plan.offsets
    write_stderr(f"{len(offsets.kept)} committed offsets, {len(offsets.cut)} of them cut to the end of their log")
    for place, was, becomes in offsets.cut:
        write_stderr(f"  group {place.group}, {place.topic}-{place.partition}: {was} becomes {becomes}")
    for place in offsets.dropped:
        write_stderr(f"  group {place.group}, {place.topic}-{place.partition}: dropped, the topic does not exist")
    for key in sorted(plan.repaired):
        write_stderr(f"{key} is damaged, and is written again: it follows from the segment")
    for name in plan.unknown_topics:
        write_stderr(f"topic {name} has segments, and is not in the metadata: it is not restored")


def _loss(plan: RestorePlan) -> object:
    """What the operator has agreed to."""
    return _rows(plan), plan.offsets.cut, plan.offsets.dropped, plan.unknown_topics


def _rows(plan: RestorePlan) -> list[Mapping[str, Any]]:
    return [_row(each) for each in plan.partitions]


def _row(plan: PartitionPlan) -> Mapping[str, Any]:
    holes = [f"{hole.start_offset} to {hole.end_offset - 1}" for hole in plan.holes]
    lost = [f"offsets {', '.join(holes)}"] if holes else []
    lost += [
        f"transaction of producer {producer} from offset {first} on: aborted"
        for producer, first in sorted(plan.open_transactions.items())
    ]
    back = "segments" if plan.log is not None else "rewritten" if is_rewritten(plan.topic) else "empty"
    if back != "rewritten":
        lost.append(f"from {plan.end_offset} on")
    return {
        "topic": plan.topic,
        "topic_id": uuid_text(plan.topic_id),
        "partition": plan.index,
        "back": back,
        "segments": plan.segments,
        "start_offset": plan.start_offset if plan.log is not None else None,
        "end_offset": plan.end_offset if plan.log is not None else None,
        "newest": show_moment(plan.newest_ms) if plan.newest_ms >= 0 else None,
        "lost": "; ".join(lost) or None,
        "holes": [[hole.start_offset, hole.end_offset] for hole in plan.holes],
        "open_transactions": [[producer, first] for producer, first in sorted(plan.open_transactions.items())],
    }
