"""Formatting of a node's directories before its first start: Kafka's `StorageTool format`.

    <metadata log dir>/bootstrap.checkpoint                        the cluster's first records: feature levels
    <metadata log dir>/__cluster_metadata-0/00…0-00…0.checkpoint   the first voters, unless they are configured
    <each log dir>/meta.properties                                 the directory's identity; written last

A node that is a quorum by itself formats its directories when it starts. All others must be given a cluster id: if each
generated its own, they could not form a cluster.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from trioka.cluster.image.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.image.partition import random_uuid
from trioka.cluster.quorum.metadata_log import MetadataRecord
from trioka.cluster.quorum.snapshot import build_snapshot, snapshot_name
from trioka.protocol.internal_records.control import VotersRecord
from trioka.storage.files.checkpoint import MetaProperties, write_meta_properties
from trioka.storage.files.disk import Disk, make_durable_directory
from trioka.storage.files.layout import BOOTSTRAP, META_PROPERTIES

from ..config.listeners import Node
from ..quorum.store import EMPTY_SNAPSHOT, METADATA_PARTITION

METADATA_FOLDER: Final = f"{METADATA_PARTITION.topic}-{METADATA_PARTITION.partition}"


class AlreadyFormatted(Exception):
    """A directory contains something that formatting would overwrite."""


class InitialVoter(NamedTuple):
    """One of the initial voters of a quorum."""

    id: int
    directory: bytes
    host: str
    port: int


def voters_record(initial_voters: Iterable[InitialVoter], listener: str) -> VotersRecord:
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
            for each in sorted(initial_voters)
        ],
    )


def directories_of(node: Node) -> list[str]:
    """All directories of a node without duplicates: of the logs and of the metadata log."""
    return list(dict.fromkeys(path.rstrip("/") or "/" for path in (*node.log_dirs, node.metadata_log_dir)))


def format_node(
    disk: Disk,
    node: Node,
    *,
    cluster_id: str,
    records: Sequence[MetadataRecord],
    initial_voters: Sequence[InitialVoter],
    has_voters_in_log: bool,
    random: Random,
    now_ms: int,
    ignore_formatted: bool = False,
) -> list[str]:
    """Returns the directories that were formatted. With `has_voters_in_log` and without initial_voters, this node joins
    an existing quorum and learns its voters. Blocks."""
    paths = directories_of(node)
    formatted = [path for path in paths if disk.exists(f"{path}/{META_PROPERTIES}")]
    if formatted and not ignore_formatted:
        raise AlreadyFormatted(f"{formatted[0]} is formatted already; --ignore-formatted leaves it as it is")
    fresh = [path for path in paths if path not in formatted]
    metadata_path = node.metadata_log_dir.rstrip("/") or "/"
    own = next((each.directory for each in initial_voters if each.id == node.id), None)
    for path in fresh:
        make_durable_directory(disk, path)
    if metadata_path in fresh:
        if disk.exists(f"{metadata_path}/{METADATA_FOLDER}"):
            raise AlreadyFormatted(f"{metadata_path} has no meta.properties, but a metadata log")
        if initial_voters and has_voters_in_log:
            listener = node.controller_names[0]
            first_voters = build_snapshot(
                [],
                epoch=0,
                now_ms=now_ms,
                last_contained_log_timestamp_ms=now_ms,
                kraft_version=1,
                voters=voters_record(initial_voters, listener),
            )
            disk.make_directory(f"{metadata_path}/{METADATA_FOLDER}")
            disk.replace(f"{metadata_path}/{METADATA_FOLDER}/{snapshot_name(EMPTY_SNAPSHOT)}", b"".join(first_voters))
        first = build_snapshot(records, epoch=0, now_ms=now_ms, last_contained_log_timestamp_ms=0)
        disk.replace(f"{metadata_path}/{BOOTSTRAP}", b"".join(first))
    for path in fresh:
        directory = own if own is not None and path == metadata_path else random_uuid(random)
        meta = MetaProperties(cluster_id=cluster_id, node_id=node.id, directory_id=directory)
        write_meta_properties(disk, f"{path}/{META_PROPERTIES}", meta)
    return fresh
