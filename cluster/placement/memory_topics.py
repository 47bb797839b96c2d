"""Memory topics: topics whose replicas are in log directories of class `memory` (tmpfs), which a restart of the machine
empties.

`trioka.log.dir.class=memory` of a topic makes each broker put its replicas into a memory directory. A record survives
as long as one in-sync replica keeps its directory, so the rules are:

- Only brokers that have a memory directory get replicas. A broker announces it in its registration, by the range of the
  feature LOG_DIR_CLASS_FEATURE.
- A partition with several replicas needs min.insync.replicas of 2 or more, set for the topic itself, so that no
  acknowledged record is in one directory alone. One replica is possible only if the request names that number.
- The class of a topic never changes.
- TM1: a replica that lost its directory is in no ISR and no ELR, and is not the last known leader, until it has caught
  up. An emptied directory has a new id: a registration without the recorded id proves the loss, whatever the broker
  says about its last shutdown. While the broker has not reported the directory of a replica yet, each directory that is
  missing from its registration counts as the one.
- TM2: no unclean election happens without a request: an empty replica would discard the records of the others.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from trioka.protocol.errors import InvalidConfig, InvalidReplicaAssignment, InvalidReplicationFactor

from ..image.brokers import Broker
from ..image.features import LOG_DIR_CLASS_FEATURE
from ..image.metadata import Metadata
from ..image.partition import Partition, is_reserved_directory
from ..image.topics import Topic
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings
from .partition_change import PartitionTarget, change_partition, election_context
from .topic_overrides import LOG_DIR_CLASS, MEMORY, MIN_INSYNC_REPLICAS, is_memory_topic

LEAST_MIN_INSYNC: Final = 2


def has_memory_directory(broker: Broker) -> bool:
    """If only one directory of the broker is online, it is the one on a disk, with the metadata log."""
    return len(broker.directories) > 1 and any(
        feature.name == LOG_DIR_CLASS_FEATURE.name for feature in broker.features
    )


def brokers_for(metadata: Metadata, configs: Mapping[str, str]) -> list[Broker]:
    """The brokers that can have replicas of a topic with this configuration."""
    if not _is_memory(configs):
        return list(metadata.brokers)
    found = [broker for broker in metadata.brokers if has_memory_directory(broker)]
    if not found:
        raise InvalidReplicationFactor(
            f"no broker has a memory log directory, which {LOG_DIR_CLASS}={MEMORY} requires: "
            "set trioka.log.dirs.memory on the brokers"
        )
    return found


def check_assigned_brokers(metadata: Metadata, configs: Mapping[str, str], replicas: Collection[int]) -> None:
    """Raises InvalidReplicaAssignment if one of these brokers cannot have a replica of the topic."""
    if not _is_memory(configs):
        return
    able = {broker.broker_id for broker in metadata.brokers if has_memory_directory(broker)}
    if unable := sorted(set(replicas) - able):
        raise InvalidReplicaAssignment(
            f"the topic has {LOG_DIR_CLASS}={MEMORY}, and {_named(unable)} no memory log directory: "
            "set trioka.log.dirs.memory there, or choose other brokers"
        )


def check_new_topic(
    metadata: Metadata, configs: Mapping[str, str], partitions: Collection[Partition], *, is_factor_named: bool
) -> None:
    """Raises an error if no such memory topic may be created."""
    if not _is_memory(configs):
        return
    if not metadata.features.has_eligible_leader_replicas:
        raise InvalidConfig(
            f"{LOG_DIR_CLASS}={MEMORY} requires eligible.leader.replicas.version 1: without it, a replica that lost "
            "its memory may stay the only one in the ISR"
        )
    for partition in partitions:
        check_assigned_brokers(metadata, configs, partition.replicas)
    factor = max(len(partition.replicas) for partition in partitions)
    if factor == 1 and not is_factor_named:
        raise InvalidReplicationFactor(
            f"{LOG_DIR_CLASS}={MEMORY} with one replica loses all records when that broker's machine restarts, and is "
            "possible only if the request itself names a replication factor of 1"
        )
    check_min_insync(configs, factor)


def check_changed_configs(topic: Topic, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises InvalidConfig if the change is not possible for an existing topic."""
    if _is_memory(before) != _is_memory(after):
        raise InvalidConfig(f"{LOG_DIR_CLASS} of an existing topic cannot be changed: create another topic")
    check_min_insync(after, _most_replicas(topic))


def check_min_insync(configs: Mapping[str, str], replicas: int) -> None:
    if _is_memory(configs) and replicas > 1:
        text = configs.get(MIN_INSYNC_REPLICAS)
        if text is None or int(text) < LEAST_MIN_INSYNC:
            raise InvalidConfig(
                f"{LOG_DIR_CLASS}={MEMORY} with {replicas} replicas requires {MIN_INSYNC_REPLICAS} of "
                f"{LEAST_MIN_INSYNC} or more, set for the topic: an acknowledged record must not be in one memory alone"
            )


def on_directories_lost(
    metadata: Metadata, settings: ControllerSettings, broker_id: int, before: Broker | None, now: Collection[bytes]
) -> Iterator[MetadataRecord]:
    """A broker registers with the directories `now`, after the registration `before`: its replicas of memory topics
    that were in another directory leave ISR and ELR, and are not the last known leader (TM1)."""
    is_any_missing = before is None or not set(before.directories) <= set(now)

    def is_active(other: int) -> bool:
        return other != broker_id and metadata.brokers.is_active(other)

    for topic in metadata.topics:
        if not is_memory_topic(metadata, topic.name):
            continue
        for partition in topic.partitions.values():
            if broker_id not in partition.replicas or not partition.may_lead_without_fetching(broker_id):
                continue
            directory = partition.directory(broker_id)
            is_lost = is_any_missing if is_reserved_directory(directory) else directory not in now
            if is_lost:
                isr = tuple(replica for replica in partition.isr if replica != broker_id)
                context = election_context(metadata, settings, topic, partition, is_active)
                target = PartitionTarget(isr=isr, crashed=(broker_id,), lost=(broker_id,))
                record = change_partition(topic.topic_id, partition, context, target)
                if record is not None:
                    yield record


def _is_memory(configs: Mapping[str, str]) -> bool:
    return configs.get(LOG_DIR_CLASS, "").strip() == MEMORY


def _most_replicas(topic: Topic) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _named(broker_ids: list[int]) -> str:
    if len(broker_ids) == 1:
        return f"broker {broker_ids[0]} has"
    return f"brokers {', '.join(map(str, broker_ids))} have"
