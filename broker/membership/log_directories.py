"""The log directories of a broker: opened first when it starts, closed last when it stops.

A directory that fails is offline until the next start; the others stay in use. A node without a working directory, or
whose metadata directory has failed, ends, as in Kafka, so that its supervisor notices it.
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
from ..quorum.store import METADATA_PARTITION, QuorumSettings, QuorumStore
from .identity import Identity, check_directory_owner, identify, initial_voters, may_bootstrap


class LogDirectoriesOffline(Exception):
    """This node cannot continue: no log directory works, or the metadata directory has failed. The message says
    which."""


class LogDirs(NamedTuple):
    directories: list[LogDirectory]
    identity: Identity
    quorum_files: QuorumStore


def open_directories(
    disk: Disk, config: Config, node: Node, clock: Clock, random: Random, on_failure: Callable[[OSError], None]
) -> LogDirs:
    """Opens the directories of log.dirs and that of the metadata log. Raises LogDirectoriesOffline if the working ones
    are not sufficient. Blocks."""
    default = log_config(config.topic())
    of_quorum = QuorumSettings.of(config)

    def config_of(name: TopicPartition) -> LogConfig:
        # The topics' own settings are in the metadata, which is in one of these directories; they are applied later.
        return of_quorum.log if name == METADATA_PARTITION else default

    directories: list[LogDirectory] = []
    paths = list(dict.fromkeys((*node.log_dirs, node.metadata_log_dir)))
    check_directory_owner(disk, paths, node.id)
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
            opened.in_memory = opened.path in node.memory_log_dirs
            directories.append(opened)
        reason = fatal_reason(directories, node)
        if reason is not None:
            raise LogDirectoriesOffline(reason)
        identity = identify(
            directories,
            node_id=node.id,
            metadata_path=node.metadata_log_dir,
            random=random,
            may_bootstrap=may_bootstrap(node),
        )
        quorum_files = QuorumStore.open(
            identity.metadata_directory,
            clock,
            of_quorum,
            VoterSet.of(ReplicaKey(voter.id) for voter in node.voters),
            initial_voters(identity, node),
        )
    except BaseException:
        for directory in directories:
            directory.close_handles()
        raise
    return LogDirs(directories, identity, quorum_files)


def of_partitions(directories: Sequence[LogDirectory], node: Node) -> list[LogDirectory]:
    """The directories of log.dirs. The metadata log may have one of its own, without partitions."""
    paths = {path.rstrip("/") for path in node.log_dirs}
    return [directory for directory in directories if directory.path in paths]


def fatal_reason(directories: Sequence[LogDirectory], node: Node) -> str | None:
    """Why a node with these directories cannot continue; None if it can."""
    of_metadata = node.metadata_log_dir.rstrip("/")
    for directory in directories:
        if directory.path == of_metadata and directory.failure is not None:
            return f"the log directory of the metadata, {directory.path}, is offline: {directory.failure}"
    held = of_partitions(directories, node)
    if held and all(directory.failure is not None for directory in held):
        reasons = ", ".join(f"{directory.path}: {directory.failure}" for directory in held)
        return f"all log directories are offline: {reasons}"
    return None
