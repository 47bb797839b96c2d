"""The log directories of a broker: opened when it starts, before anything else, and closed last when it stops.

One that fails is offline until the next start, and the others go on. A node without a single one that works has nothing
to do, and neither has one that cannot write the metadata: as in Kafka, it ends, and whoever looks after processes sees
that it did.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from trioka.cluster.voters import ReplicaKey, VoterSet
from trioka.storage.directory import LogDirectory
from trioka.storage.disk import Disk
from trioka.storage.layout import TopicPartition
from trioka.storage.log_config import LogConfig

from ..clock import Clock
from ..config.layers import Config, log_config
from ..config.listeners import Node
from ..quorum.store import METADATA_PARTITION, QuorumFiles, QuorumSettings
from .identity import Identity, check_whose, founders, identify, may_found


class LogDirectoriesOffline(Exception):
    """This node cannot go on: no log directory works, or that of the metadata does not. The sentence says why."""


class Opened(NamedTuple):
    directories: list[LogDirectory]
    identity: Identity
    quorum_files: QuorumFiles


def open_directories(
    disk: Disk, config: Config, node: Node, clock: Clock, random: Random, on_failure: Callable[[OSError], None]
) -> Opened:
    """Those of log.dirs, and that of the metadata's log, if it has one of its own. LogDirectoriesOffline if the node
    cannot do with those that work. Blocks."""
    default = log_config(config.topic())
    of_quorum = QuorumSettings.of(config)

    def config_of(name: TopicPartition) -> LogConfig:
        # The topics' own settings stand in the metadata, which is in one of these directories; they follow later.
        return of_quorum.log if name == METADATA_PARTITION else default

    directories: list[LogDirectory] = []
    paths = list(dict.fromkeys((*node.log_dirs, node.metadata_log_dir)))
    check_whose(disk, paths, node.id)
    try:
        for path in paths:
            opened = LogDirectory.open(
                disk,
                path,
                config_of,
                now_ms=clock.now_ms(),
                random=random,
                on_failure=on_failure,
                pools=len(paths),
            )
            directories.append(opened)
        reason = why_it_must_end(directories, node)
        if reason is not None:
            raise LogDirectoriesOffline(reason)
        identity = identify(
            directories,
            node_id=node.id,
            metadata_path=node.metadata_log_dir,
            random=random,
            may_found=may_found(node),
        )
        quorum_files = QuorumFiles.open(
            identity.metadata_directory,
            clock,
            of_quorum,
            VoterSet.of(ReplicaKey(voter.id) for voter in node.voters),
            founders(identity, node),
        )
    except BaseException:
        for directory in directories:
            directory.let_go()
        raise
    return Opened(directories, identity, quorum_files)


def of_partitions(directories: Sequence[LogDirectory], node: Node) -> list[LogDirectory]:
    """Those of log.dirs. The metadata's log may have one of its own, where no partition goes."""
    paths = {path.rstrip("/") for path in node.log_dirs}
    return [directory for directory in directories if directory.path in paths]


def why_it_must_end(directories: Sequence[LogDirectory], node: Node) -> str | None:
    """Why a node with these directories cannot go on; None if it can."""
    of_metadata = node.metadata_log_dir.rstrip("/")
    for directory in directories:
        if directory.path == of_metadata and directory.failure is not None:
            return f"the log directory of the metadata, {directory.path}, is offline: {directory.failure}"
    held = of_partitions(directories, node)
    if held and all(directory.failure is not None for directory in held):
        reasons = ", ".join(f"{directory.path}: {directory.failure}" for directory in held)
        return f"all log directories are offline: {reasons}"
    return None
