"""The keys of a topic that the controller itself must read, as they count: its own, the brokers', the default."""

from typing import Final

from ..image.configs import ALL_BROKERS, ConfigResource, ConfigResourceType, topic_resource
from ..image.metadata import Metadata
from ..image.topics import Topic
from ..settings import ControllerSettings

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"
READ_CONSISTENCY: Final = "trioka.read.consistency"
LINEARIZABLE: Final = "linearizable"
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
LOG_DIR_CLASS: Final = "trioka.log.dir.class"
MEMORY: Final = "memory"
MEMORY_RESTORE: Final = "trioka.memory.restore"
AUTO: Final = "auto"


def min_insync_replicas(metadata: Metadata, settings: ControllerSettings, topic: Topic) -> int:
    """The configured value. For a partition with fewer replicas, it means all of them."""
    value = _effective(metadata, settings, topic.name, MIN_INSYNC_REPLICAS)
    return settings.min_insync_replicas if value is None else int(value)


def is_unclean_election_allowed(metadata: Metadata, settings: ControllerSettings, topic: Topic) -> bool:
    """Never for a topic with linearizable reads: its leader would not learn of a leader outside the ISR and ELR. Never
    for a memory topic: a replica that lost its memory would discard the records of the others."""
    if is_linearizable(metadata, topic.name) or is_memory_topic(metadata, topic.name):
        return False
    value = _effective(metadata, settings, topic.name, UNCLEAN_LEADER_ELECTION)
    return settings.unclean_leader_election_enable if value is None else value.lower() == "true"


def is_linearizable(metadata: Metadata, topic_name: str) -> bool:
    value = metadata.configs.value(topic_resource(topic_name), READ_CONSISTENCY)
    return value is not None and value.strip() == LINEARIZABLE


def is_memory_topic(metadata: Metadata, topic_name: str) -> bool:
    value = metadata.configs.value(topic_resource(topic_name), LOG_DIR_CLASS)
    return value is not None and value.strip() == MEMORY


def is_restored_automatically(metadata: Metadata, topic_name: str) -> bool:
    """Whether a memory topic that lost all replicas continues from the object store without a request."""
    value = metadata.configs.value(topic_resource(topic_name), MEMORY_RESTORE)
    is_auto = value is not None and value.strip() == AUTO
    return is_auto and is_memory_topic(metadata, topic_name) and is_tiered(metadata, topic_name)


def is_tiered(metadata: Metadata, topic_name: str) -> bool:
    value = metadata.configs.value(topic_resource(topic_name), REMOTE_STORAGE_ENABLE)
    return value is not None and value.strip().lower() == "true"


def _effective(metadata: Metadata, settings: ControllerSettings, topic_name: str, key: str) -> str | None:
    this_node = ConfigResource(ConfigResourceType.BROKER, str(settings.node_id))
    for resource in (topic_resource(topic_name), this_node, ALL_BROKERS):
        value = metadata.configs.value(resource, key)
        if value is not None:
            return value
    return None
