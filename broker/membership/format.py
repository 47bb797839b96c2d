"""What must be in a node's directories before it is started for the first time: Kafka's `StorageTool format`.

    <metadata log dir>/bootstrap.checkpoint                        the cluster's first records: levels of features
    <metadata log dir>/__cluster_metadata-0/00…0-00…0.checkpoint   who votes at first, unless the configuration says so
    <each log dir>/meta.properties                                 whose directory this is; written last: now it is done

A node that is the whole quorum by itself is formatted when it starts, if nobody has done it. All others must be told
which cluster they belong to: if each made up an id of its own, they would never find to each other.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from trioka.cluster.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.metadata_log import MetadataRecord
from trioka.cluster.partition import random_uuid
from trioka.cluster.snapshot import build_snapshot, snapshot_name
from trioka.protocol.internal_records.control import VotersRecord
from trioka.storage.checkpoint import MetaProperties, write_meta_properties
from trioka.storage.disk import Disk, make_durable_directory
from trioka.storage.layout import BOOTSTRAP, META_PROPERTIES

from ..config.listeners import Node
from ..quorum.store import METADATA_PARTITION, OF_NOTHING

METADATA_FOLDER: Final = f"{METADATA_PARTITION.topic}-{METADATA_PARTITION.partition}"


class AlreadyFormatted(Exception):
    """There is something in a directory that formatting would overwrite."""


class Founder(NamedTuple):
    """One of the first voters of a quorum."""

    id: int
    directory: bytes
    host: str
    port: int


def voters_record(founders: Iterable[Founder], listener: str) -> VotersRecord:
    voter, kraft = VotersRecord.Voter, SUPPORTED[KRAFT_VERSION]
    return VotersRecord(
        version=0,
        voters=[
            voter(
                voter_id=each.id,
                voter_directory_id=each.directory,
                endpoints=[voter.Endpoint(name=listener, host=each.host, port=each.port)],
                kraft_version_feature=voter.KRaftVersionFeature(
                    min_supported_version=kraft.first, max_supported_version=kraft.last
                ),
            )
            for each in sorted(founders)
        ],
    )


def directories_of(node: Node) -> list[str]:
    """All that a node has, each once: those of the logs, and that of the metadata's."""
    return list(dict.fromkeys(path.rstrip("/") or "/" for path in (*node.log_dirs, node.metadata_log_dir)))


def format_node(
    disk: Disk,
    node: Node,
    *,
    cluster_id: str,
    records: Sequence[MetadataRecord],
    founders: Sequence[Founder],
    has_voters_in_log: bool,
    random: Random,
    now_ms: int,
    ignore_formatted: bool = False,
) -> list[str]:
    """The directories that were formatted. With `has_voters_in_log` and no founders, this node joins a quorum that is
    there, and learns who votes. Blocks."""
    paths = directories_of(node)
    formatted = [path for path in paths if disk.exists(f"{path}/{META_PROPERTIES}")]
    if formatted and not ignore_formatted:
        raise AlreadyFormatted(f"{formatted[0]} is formatted already; --ignore-formatted leaves it as it is")
    fresh = [path for path in paths if path not in formatted]
    metadata_path = node.metadata_log_dir.rstrip("/") or "/"
    own = next((each.directory for each in founders if each.id == node.id), None)
    for path in fresh:
        make_durable_directory(disk, path)
    if metadata_path in fresh:
        if disk.exists(f"{metadata_path}/{METADATA_FOLDER}"):
            raise AlreadyFormatted(f"{metadata_path} has no meta.properties, and a log of metadata all the same")
        if founders and has_voters_in_log:
            listener = node.controller_names[0]
            first_voters = build_snapshot(
                [],
                epoch=0,
                now_ms=now_ms,
                last_contained_log_timestamp_ms=now_ms,
                kraft_version=1,
                voters=voters_record(founders, listener),
            )
            disk.make_directory(f"{metadata_path}/{METADATA_FOLDER}")
            disk.replace(f"{metadata_path}/{METADATA_FOLDER}/{snapshot_name(OF_NOTHING)}", b"".join(first_voters))
        first = build_snapshot(records, epoch=0, now_ms=now_ms, last_contained_log_timestamp_ms=0)
        disk.replace(f"{metadata_path}/{BOOTSTRAP}", b"".join(first))
    for path in fresh:
        directory = own if own is not None and path == metadata_path else random_uuid(random)
        meta = MetaProperties(cluster_id=cluster_id, node_id=node.id, directory_id=directory)
        write_meta_properties(disk, f"{path}/{META_PROPERTIES}", meta)
    return fresh
