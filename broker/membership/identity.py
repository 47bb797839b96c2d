"""The identity of this node in its log directories: cluster id, node id, and the id of each directory.

Empty directories get an identity. Kafka requires a separate step for that (`StorageTool format`), whose result is
accepted here too. Directories of another node or cluster are rejected before anything in them is read or written.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from trioka.cluster.image.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.image.partition import random_uuid
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text
from trioka.storage.directory import ForeignDirectory, LogDirectory
from trioka.storage.files.checkpoint import MetaProperties, read_meta_properties, write_meta_properties
from trioka.storage.files.disk import Disk
from trioka.storage.files.layout import META_PROPERTIES

from ..config.listeners import Node
from ..network.listener import local_host_name

log = logging.getLogger("trioka.membership")

NO_EPOCH: Final = -1


class NotFormatted(Exception):
    """A log directory is not formatted, and must be formatted explicitly."""


@frozen
class Identity:
    cluster_id: str
    directory_ids: tuple[bytes, ...]
    metadata_directory: LogDirectory
    previous_broker_epoch: int  # of a clean shutdown; NO_EPOCH after an unclean one, or before the first


def check_directory_owner(disk: Disk, paths: Iterable[str], node_id: int) -> None:
    """Raises ForeignDirectory if a directory belongs to another node, or if they belong to different clusters.
    Directories that cannot be read are left to the code that opens them. Blocks."""
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
    may_bootstrap: bool = True,
) -> Identity:
    """Reads `meta.properties`, or writes it in new directories. Only a node that `may_bootstrap` a cluster starts with
    empty directories. Blocks."""
    metadata_directory = next(d for d in directories if d.path == metadata_path.rstrip("/"))
    if metadata_directory.meta is None and not may_bootstrap:
        raise NotFormatted(
            f"{metadata_directory.path} is not formatted, and this node is not the only voter: "
            "use trioka storage format, with the same cluster id on every node"
        )
    known = {directory.meta.cluster_id for directory in directories if directory.meta is not None}
    assert len(known) <= 1, "the owner of the directories was checked before they were opened"
    cluster = known.pop() if known else uuid_text(random_uuid(random))
    # The controller sees the new id of an emptied memory directory, and what is on disks is as complete as before.
    emptied = [d for d in directories if d.in_memory and d.meta is None and d.failure is None]
    for directory in emptied:
        if metadata_directory.meta is not None:
            log.warning("%s is empty: it gets a new id, and its replicas are copied from other brokers", directory.path)
    for directory in directories:
        if directory.failure is None:
            _own(directory, cluster, node_id, random)
    ids = [directory.meta.directory_id for directory in directories if directory.meta is not None]
    epochs = [directory.report.broker_epoch for directory in directories if directory not in emptied]
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


def may_bootstrap(node: Node) -> bool:
    """Whether this node is the whole quorum by itself."""
    if not node.is_controller:
        return False
    return len(node.voters) == 1 if node.voters else len(node.bootstrap_servers) <= 1


def initial_voters(identity: Identity, node: Node) -> VotersRecord | None:
    """The voters of a quorum that starts on this node: the node itself. None if the configuration names the voters, or
    if the node is no controller."""
    meta = identity.metadata_directory.meta
    if node.voters or not may_bootstrap(node) or meta is None or meta.directory_id is None:
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
