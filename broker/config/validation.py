"""Which configurations contradict themselves.

That a value fits its key is the key's own business (`Key.parse`). Here it is looked at what keys say together: of a
topic or a group before it is changed, of a broker before it starts and before it is changed. What a client asked for
is refused with Kafka's error code; what stands in a file is a `ConfigError`. All complaints are one sentence.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trioka.protocol.compression import Codec
from trioka.protocol.errors import InvalidConfig, InvalidRequest

from . import coordinator_keys as coordinator
from . import group_keys as group
from . import log_keys as log
from . import network_keys as network
from . import node_keys as node
from . import replication_keys as replication
from . import security_keys as security
from . import share_keys as share
from . import tier_keys as tier
from . import topic_keys as topic
from .authorization import authorizer_of
from .key import CLIENT_METRICS_KEYS, GROUP_KEYS, MIB, TOPIC_KEYS, Key
from .layers import NOTHING, Config, ConfigError, GroupConfig, TopicConfig

SIMILAR: Final = 0.75  # how alike two names must be for one to be suggested in the place of the other

# Java classes that refuse something, or say who somebody is. Without them more would be allowed than was asked for.
JUDGES: Final[tuple[Key[str | None], ...]] = (
    node.CREATE_TOPIC_POLICY_CLASS_NAME,
    node.ALTER_CONFIG_POLICY_CLASS_NAME,
    security.PRINCIPAL_BUILDER_CLASS,
)
# In a broker's configuration the first of each pair must not be more than the second.
NOT_MORE: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
    (coordinator.GROUP_MIN_SESSION_TIMEOUT_MS, coordinator.GROUP_MAX_SESSION_TIMEOUT_MS),
    (coordinator.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS, coordinator.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    (coordinator.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
    (coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, coordinator.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS),
    (coordinator.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS, coordinator.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),
    (coordinator.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS, coordinator.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS),
    (share.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, share.GROUP_SHARE_SESSION_TIMEOUT_MS),
    (share.GROUP_SHARE_SESSION_TIMEOUT_MS, share.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (share.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
    (share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, share.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    (share.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS, share.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS),
    (share.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, share.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS),
    (share.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS, share.GROUP_SHARE_RECORD_LOCK_DURATION_MS),
    (share.GROUP_SHARE_RECORD_LOCK_DURATION_MS, share.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS),
    (share.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, share.GROUP_SHARE_DELIVERY_COUNT_LIMIT),
    (share.GROUP_SHARE_DELIVERY_COUNT_LIMIT, share.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    (share.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS, share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS),
    (share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, share.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS),
    (share.GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS, share.GROUP_STREAMS_SESSION_TIMEOUT_MS),
    (share.GROUP_STREAMS_SESSION_TIMEOUT_MS, share.GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS),
    (share.GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS, share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),
    (share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, share.GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS),
    (share.GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS, share.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS),
    (share.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, share.GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS),
    (share.GROUP_STREAMS_NUM_STANDBY_REPLICAS, share.GROUP_STREAMS_MAX_STANDBY_REPLICAS),
    (replication.REPLICA_FETCH_WAIT_MAX_MS, replication.REPLICA_SOCKET_TIMEOUT_MS),
    (replication.REPLICA_FETCH_WAIT_MAX_MS, replication.REPLICA_LAG_TIME_MAX_MS),
)
# And here it must be less.
LESS: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
    (coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, share.GROUP_SHARE_SESSION_TIMEOUT_MS),
    (share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, share.GROUP_STREAMS_SESSION_TIMEOUT_MS),
)
LESS_IN_A_GROUP: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
    (group.CONSUMER_HEARTBEAT_INTERVAL_MS, group.CONSUMER_SESSION_TIMEOUT_MS),
    (group.SHARE_HEARTBEAT_INTERVAL_MS, group.SHARE_SESSION_TIMEOUT_MS),
    (group.STREAMS_HEARTBEAT_INTERVAL_MS, group.STREAMS_SESSION_TIMEOUT_MS),
)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A suggestion to end a sentence with, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, names, n=1, cutoff=SIMILAR)
    return f"; did you mean {found[0]}?" if found else "."


def validate_topic(
    configs: Mapping[str, str | None], config: Config | None = None, *, before: Mapping[str, str] = NOTHING
) -> TopicConfig:
    """What a topic shall be configured with, whole, and what it was before: InvalidConfig if it cannot be."""
    if nulls := [name for name, text in configs.items() if text is None]:
        raise InvalidConfig(f"A topic's config has no null values, but {', '.join(nulls)} is null.")
    texts = {name: text for name, text in configs.items() if text is not None}
    _known(texts, TOPIC_KEYS, "topic")
    after = (config or Config()).topic(texts)
    if after.rejected:
        raise InvalidConfig(after.rejected[0])
    for key in (topic.LEADER_REPLICATION_THROTTLED_REPLICAS, topic.FOLLOWER_REPLICATION_THROTTLED_REPLICAS):
        if "*" in after[key] and len(after[key]) > 1:
            raise InvalidConfig(f"{key.name} is '{texts[key.name]}', and where all are meant, * stands alone.")
    low, high = after[topic.MIN_COMPACTION_LAG_MS], after[topic.MAX_COMPACTION_LAG_MS]
    if low > high:
        raise InvalidConfig(f"min.compaction.lag.ms is {low}, and must not be more than max.compaction.lag.ms, {high}.")
    _check_tiers(after, before)
    return after


def _known(texts: Iterable[str], keys: Mapping[str, Key[object]], kind: str) -> None:
    for name in texts:
        if name not in keys:
            suggestion = did_you_mean(name, (known for known, key in keys.items() if not key.hidden))
            raise InvalidConfig(f"Unknown {kind} config name: {name[:200]}{suggestion}")


def _check_tiers(after: TopicConfig, before: Mapping[str, str]) -> None:
    if not after[topic.REMOTE_STORAGE_ENABLE]:
        was_on = before.get(topic.REMOTE_STORAGE_ENABLE.name, "").strip().lower() == "true"
        if was_on and not after[topic.REMOTE_LOG_DELETE_ON_DISABLE]:
            raise InvalidConfig(
                "remote.storage.enable can only become false when remote.log.delete.on.disable is true; "
                "remote.log.copy.disable stops the copies and keeps what is there."
            )
        return
    if not after.config[tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        raise InvalidConfig("remote.storage.enable needs remote.log.storage.system.enable, which is false here.")
    if "compact" in after[topic.CLEANUP_POLICY]:
        raise InvalidConfig("remote.storage.enable is not for topics whose cleanup.policy is compact.")
    for local, whole in (
        (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
        (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
    ):
        if after[local] == -2 or after[whole] == -1:
            continue
        if after[local] == -1 or after[local] > after[whole]:
            raise InvalidConfig(
                f"{local.name} is {after[local]}, and must not be more than {whole.name}, {after[whole]}."
            )
    if after[topic.REMOTE_LOG_COPY_DISABLE]:
        for local, whole in (
            (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
            (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
        ):
            if after[local] not in (-2, after[whole]):
                raise InvalidConfig(f"With remote.log.copy.disable, {local.name} must be {whole.name}, {after[whole]}.")


def validate_group(configs: Mapping[str, str], config: Config) -> GroupConfig:
    """What a group shall be configured with, whole: InvalidConfig if it cannot be."""
    _known(configs, GROUP_KEYS, "group")
    after = config.group(configs)
    if after.rejected:
        raise InvalidConfig(after.rejected[0])
    for key, low, high in group.GROUP_BOUNDS:
        if (text := configs.get(key.name)) is None:
            continue
        value = key.parse(text)
        if low is not None and value < config[low]:
            raise InvalidConfig(
                f"{key.name} is {value}, and must be greater than or equal to {low.name}, {config[low]}."
            )
        if value > config[high]:
            raise InvalidConfig(f"{key.name} is {value}, and must not be more than {high.name}, {config[high]}.")
    for less, more in LESS_IN_A_GROUP:
        if after[less] >= after[more]:
            raise InvalidConfig(f"{less.name} is {after[less]}, and must be less than {more.name}, {after[more]}.")
    return after


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """What a subscription shall be configured with. Kafka's codes differ: an unknown key is an invalid request here."""
    for name in configs:
        if name not in CLIENT_METRICS_KEYS:
            raise InvalidRequest(
                f"Unknown client metrics configuration: {name[:200]}{did_you_mean(name, CLIENT_METRICS_KEYS)}"
            )
    for name, text in configs.items():
        try:
            CLIENT_METRICS_KEYS[name].parse(text)
        except ValueError as error:
            raise InvalidConfig(str(error)) from None
    interval_ms = group.INTERVAL_MS.parse(configs.get("interval.ms", str(group.INTERVAL_MS.default)))
    if not group.MIN_INTERVAL_MS <= interval_ms <= group.MAX_INTERVAL_MS:
        raise InvalidRequest(
            f"interval.ms is {interval_ms}, and must be between {group.MIN_INTERVAL_MS} and {group.MAX_INTERVAL_MS}."
        )
    for pattern in group.MATCH.parse(configs.get("match", "")):
        what, _, expression = (part.strip() for part in pattern.partition("="))
        if what not in group.MATCHED or not expression or not _is_expression(expression):
            raise InvalidConfig(f"match has '{pattern}', which must be one of {', '.join(group.MATCHED)} = a pattern.")


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def validate_broker(config: Config) -> None:
    """Whether a broker's keys go together: ConfigError if not. Listeners have their own file."""
    for low, high in NOT_MORE:
        if config[low] > config[high]:
            raise ConfigError(f"{low.name} is {config[low]}, and must not be more than {high.name}, {config[high]}.")
    for low, high in LESS:
        if config[low] >= config[high]:
            raise ConfigError(f"{low.name} is {config[low]}, and must be less than {high.name}, {config[high]}.")
    roll_ms, jitter_ms = config[log.LOG_ROLL_MS], config[log.LOG_ROLL_JITTER_MS]
    if roll_ms is not None and roll_ms < 1:
        raise ConfigError(f"log.roll.ms is {roll_ms}, and must be at least 1.")
    if jitter_ms is not None and jitter_ms < 0:
        raise ConfigError(f"log.roll.jitter.ms is {jitter_ms}, and must be at least 0.")
    if config.inherited(topic.RETENTION_MS) == 0:
        raise ConfigError("log.retention.ms is 0, and must be at least 1, or -1 to keep all.")
    threads, memory = config[log.LOG_CLEANER_THREADS], config[log.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
    if threads and memory // threads <= MIB:
        raise ConfigError(f"log.cleaner.dedupe.buffer.size is {memory}, and must be more than 1048576 for each thread.")
    queued, largest = config[network.QUEUED_MAX_REQUEST_BYTES], config[network.SOCKET_REQUEST_MAX_BYTES]
    if 0 < queued < largest:
        raise ConfigError(f"queued.max.request.bytes is {queued}, and must not be less than socket.request.max.bytes.")
    codec = config[coordinator.OFFSETS_TOPIC_COMPRESSION_CODEC]
    if not 0 <= codec <= max(Codec):
        raise ConfigError(f"offsets.topic.compression.codec is {codec}, and must be between 0 and {max(Codec)}.")
    connections_per_address(config)
    authorizer_of(config)
    for judge in JUDGES:
        if config[judge] != judge.default:
            raise ConfigError(
                f"{judge.name} is '{str(config[judge])[:200]}', and must not be set: no Java class is loaded here, "
                "and what it would refuse is not let through."
            )


def connections_per_address(config: Config) -> dict[str, int]:
    """max.connections.per.ip.overrides as a table of hosts; ConfigError if it is none."""
    text = config[network.MAX_CONNECTIONS_PER_IP_OVERRIDES]
    limits = {}
    for pair in text.split(",") if text.strip() else ():
        host, _, count = pair.strip().rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,9}", count.strip()):
            raise ConfigError(f"max.connections.per.ip.overrides has '{pair.strip()}', which must be host:count.")
        limits[host.strip()] = int(count)
    if config[network.MAX_CONNECTIONS_PER_IP] == 0 and not limits:
        raise ConfigError("max.connections.per.ip is 0, and may only be with max.connections.per.ip.overrides.")
    return limits
