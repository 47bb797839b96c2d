"""Who this node is, as its log directories say: the cluster's id, the node's, and each directory's own.

Directories that hold nothing yet are given an identity. Kafka wants a separate step for that (`StorageTool format`),
and what that step wrote is found in order here. Directories of another node or another cluster are refused, and before
anything in them is touched: to open a log directory is to take it for one's own.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from trioka.cluster.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.partition import random_uuid
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text
from trioka.storage.checkpoint import MetaProperties, read_meta_properties, write_meta_properties
from trioka.storage.directory import ForeignDirectory, LogDirectory
from trioka.storage.disk import Disk
from trioka.storage.layout import META_PROPERTIES

from ..config.listeners import Node
from ..network.listener import local_host_name

NO_EPOCH: Final = -1


class NotFormatted(Exception):
    """A log directory that belongs to nobody yet, where that must be decided by somebody."""


@frozen
class Identity:
    cluster_id: str
    directory_ids: tuple[bytes, ...]
    metadata_directory: LogDirectory
    previous_broker_epoch: int  # of a clean stop; NO_EPOCH if the stop was not, or there was none


def check_whose(disk: Disk, paths: Iterable[str], node_id: int) -> None:
    """ForeignDirectory if one of them is not this node's, or they are not all of one cluster. What cannot be read is
    left to whoever opens it. Blocks."""
    metas: dict[str, MetaProperties] = {}
    for path in paths:
        with suppress(OSError):
            if disk.exists(f"{path}/{META_PROPERTIES}"):
                metas[path] = read_meta_properties(disk, f"{path}/{META_PROPERTIES}")
    for path, meta in metas.items():
        if meta.node_id != node_id:
            raise ForeignDirectory(f"{path} belongs to node {meta.node_id}, and this is node {node_id}")
    clusters = sorted({meta.cluster_id for meta in metas.values()})
    if len(clusters) > 1:
        raise ForeignDirectory(f"the log directories belong to different clusters: {', '.join(clusters)}")


def identify(
    directories: Sequence[LogDirectory],
    *,
    node_id: int,
    metadata_path: str,
    random: Random,
    may_found: bool = True,
) -> Identity:
    """Reads, and where nothing is written yet writes, `meta.properties`. Only a node that `may_found` a cluster begins
    where there is nothing at all. Blocks."""
    metadata_directory = next(d for d in directories if d.path == metadata_path.rstrip("/"))
    if metadata_directory.meta is None and not may_found:
        raise NotFormatted(
            f"{metadata_directory.path} is not formatted, and this node is not the only voter: "
            "use trioka storage format, with the same cluster id on every node"
        )
    known = {directory.meta.cluster_id for directory in directories if directory.meta is not None}
    assert len(known) <= 1, "whose directories these are was checked before they were opened"
    cluster = known.pop() if known else uuid_text(random_uuid(random))
    for directory in directories:
        if directory.failure is None:
            _own(directory, cluster, node_id, random)
    ids = [directory.meta.directory_id for directory in directories if directory.meta is not None]
    epochs = [directory.report.broker_epoch for directory in directories]
    return Identity(
        cluster_id=cluster,
        directory_ids=tuple(sorted(id for id in ids if id is not None)),
        metadata_directory=metadata_directory,
        previous_broker_epoch=min((NO_EPOCH if epoch is None else epoch for epoch in epochs), default=NO_EPOCH),
    )


def _own(directory: LogDirectory, cluster_id: str, node_id: int, random: Random) -> None:
    meta = directory.meta
    if meta is None:
        meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=random_uuid(random))
    elif meta.directory_id is not None:
        return
    else:
        meta = MetaProperties(
            cluster_id=meta.cluster_id, node_id=node_id, directory_id=random_uuid(random), others=meta.others
        )
    write_meta_properties(directory.volume, f"{directory.path}/{META_PROPERTIES}", meta)
    directory.meta = meta


def may_found(node: Node) -> bool:
    """Whether this node is the whole quorum by itself."""
    if not node.is_controller:
        return False
    return len(node.voters) == 1 if node.voters else len(node.bootstrap_servers) <= 1


def founders(identity: Identity, node: Node) -> VotersRecord | None:
    """The voters of a quorum that begins on this node: itself. None where the configuration names the voters, and where
    this is no controller."""
    meta = identity.metadata_directory.meta
    if node.voters or not may_found(node) or meta is None or meta.directory_id is None:
        return None
    voter, kraft = VotersRecord.Voter, SUPPORTED[KRAFT_VERSION]
    return VotersRecord(
        version=0,
        voters=[
            voter(
                voter_id=node.id,
                voter_directory_id=meta.directory_id,
                endpoints=[
                    voter.Endpoint(name=each.name, host=each.host or local_host_name(), port=each.port)
                    for each in node.controller_listeners
                ],
                kraft_version_feature=voter.KRaftVersionFeature(
                    min_supported_version=kraft.first, max_supported_version=kraft.last
                ),
            )
        ],
    )
