"""Rules across several keys of a configuration.

`Key.parse` validates single values. The functions here validate whole configurations: of topics and groups before a
change, of brokers before a start or a change. A violation in a client's request raises an error with Kafka's code, one
in a file raises `ConfigError`. Each message is one sentence.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trioka.cluster.placement.topic_overrides import LINEARIZABLE
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
from . import trioka_keys as own
from .authorization import authorizer_of
from .key import CLIENT_METRICS_KEYS, GROUP_KEYS, MIB, TOPIC_KEYS, Key
from .layers import EMPTY, Config, ConfigError, GroupConfig, TopicConfig

SIMILAR: Final = 0.75  # minimum similarity of a suggested name (see difflib)

# Java classes that restrict or identify clients. Ignoring them would allow more than the configuration does.
POLICY_CLASSES: Final[tuple[Key[str | None], ...]] = (
    node.CREATE_TOPIC_POLICY_CLASS_NAME,
    node.ALTER_CONFIG_POLICY_CLASS_NAME,
    security.PRINCIPAL_BUILDER_CLASS,
)
# Pairs of broker keys: the first must be at most the second.
AT_MOST: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
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
# Pairs of broker keys: the first must be less than the second.
LESS_THAN: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
    (coordinator.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, coordinator.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, share.GROUP_SHARE_SESSION_TIMEOUT_MS),
    (share.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, share.GROUP_STREAMS_SESSION_TIMEOUT_MS),
)
# Pairs of group keys: the first must be less than the second.
GROUP_LESS_THAN: Final[tuple[tuple[Key[int], Key[int]], ...]] = (
    (group.CONSUMER_HEARTBEAT_INTERVAL_MS, group.CONSUMER_SESSION_TIMEOUT_MS),
    (group.SHARE_HEARTBEAT_INTERVAL_MS, group.SHARE_SESSION_TIMEOUT_MS),
    (group.STREAMS_HEARTBEAT_INTERVAL_MS, group.STREAMS_SESSION_TIMEOUT_MS),
)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence: a suggestion of a similar name, or a full stop."""
    from difflib import get_close_matches

    matches = get_close_matches(name, names, n=1, cutoff=SIMILAR)
    return f"; did you mean {matches[0]}?" if matches else "."


def validate_topic(
    configs: Mapping[str, str | None], config: Config | None = None, *, before: Mapping[str, str] = EMPTY
) -> TopicConfig:
    """Validate the whole configuration of a topic; `before` is the previous one. Raises InvalidConfig."""
    if nulls := [name for name, text in configs.items() if text is None]:
        raise InvalidConfig(f"Topic configs must not be null, but {', '.join(nulls)} is.")
    texts = {name: text for name, text in configs.items() if text is not None}
    _check_known(texts, TOPIC_KEYS, "topic")
    after = (config or Config()).topic(texts)
    if after.rejected:
        raise InvalidConfig(after.rejected[0])
    for key in (topic.LEADER_REPLICATION_THROTTLED_REPLICAS, topic.FOLLOWER_REPLICATION_THROTTLED_REPLICAS):
        if "*" in after[key] and len(after[key]) > 1:
            raise InvalidConfig(f"{key.name} is '{texts[key.name]}', but * cannot be combined with other replicas.")
    low, high = after[topic.MIN_COMPACTION_LAG_MS], after[topic.MAX_COMPACTION_LAG_MS]
    if low > high:
        raise InvalidConfig(f"min.compaction.lag.ms is {low}, but must be at most max.compaction.lag.ms ({high}).")
    if after[topic.READ_CONSISTENCY] == LINEARIZABLE and after[topic.UNCLEAN_LEADER_ELECTION_ENABLE]:
        raise InvalidConfig(
            "trioka.read.consistency=linearizable requires unclean.leader.election.enable=false: a leader does not "
            "learn of another one that was not in sync."
        )
    _check_tiers(after, before)
    return after


def _check_known(texts: Iterable[str], keys: Mapping[str, Key[object]], kind: str) -> None:
    for name in texts:
        if name not in keys:
            suggestion = did_you_mean(name, (known for known, key in keys.items() if not key.hidden))
            raise InvalidConfig(f"Unknown {kind} config name: {name[:200]}{suggestion}")


def _check_tiers(after: TopicConfig, before: Mapping[str, str]) -> None:
    if not after[topic.REMOTE_STORAGE_ENABLE]:
        was_on = before.get(topic.REMOTE_STORAGE_ENABLE.name, "").strip().lower() == "true"
        if was_on and not after[topic.REMOTE_LOG_DELETE_ON_DISABLE]:
            raise InvalidConfig(
                "remote.storage.enable can only be set to false if remote.log.delete.on.disable is true; "
                "to stop copying and keep the remote segments, use remote.log.copy.disable."
            )
        return
    if not after.config[tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        raise InvalidConfig(
            "remote.storage.enable requires remote.log.storage.system.enable, which is false on this broker."
        )
    if "compact" in after[topic.CLEANUP_POLICY]:
        raise InvalidConfig("remote.storage.enable is not supported for topics whose cleanup.policy is compact.")
    for local, whole in (
        (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
        (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
    ):
        if after[local] == -2 or after[whole] == -1:
            continue
        if after[local] == -1 or after[local] > after[whole]:
            raise InvalidConfig(f"{local.name} is {after[local]}, but must be at most {whole.name} ({after[whole]}).")
    if after[topic.REMOTE_LOG_COPY_DISABLE]:
        for local, whole in (
            (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
            (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
        ):
            if after[local] not in (-2, after[whole]):
                raise InvalidConfig(
                    f"With remote.log.copy.disable, {local.name} must be equal to {whole.name} ({after[whole]})."
                )


def validate_group(configs: Mapping[str, str], config: Config) -> GroupConfig:
    """Validate the whole configuration of a group; raises InvalidConfig."""
    _check_known(configs, GROUP_KEYS, "group")
    after = config.group(configs)
    if after.rejected:
        raise InvalidConfig(after.rejected[0])
    for key, low, high in group.GROUP_BOUNDS:
        if (text := configs.get(key.name)) is None:
            continue
        value = key.parse(text)
        if low is not None and value < config[low]:
            raise InvalidConfig(
                f"{key.name} is {value}, but must be greater than or equal to {low.name} ({config[low]})."
            )
        if value > config[high]:
            raise InvalidConfig(f"{key.name} is {value}, but must be at most {high.name} ({config[high]}).")
    for less, more in GROUP_LESS_THAN:
        if after[less] >= after[more]:
            raise InvalidConfig(f"{less.name} is {after[less]}, but must be less than {more.name} ({after[more]}).")
    return after


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """Validate the configuration of a client metrics subscription. As in Kafka, an unknown key is InvalidRequest."""
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
            f"interval.ms is {interval_ms}, but must be between {group.MIN_INTERVAL_MS} and {group.MAX_INTERVAL_MS}."
        )
    for pattern in group.MATCH.parse(configs.get("match", "")):
        label, _, expression = (part.strip() for part in pattern.partition("="))
        if label not in group.MATCH_LABELS or not expression or not _is_expression(expression):
            labels = ", ".join(group.MATCH_LABELS)
            raise InvalidConfig(f"match has '{pattern}', which must be label=pattern with one of the labels {labels}.")


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def validate_broker(config: Config) -> None:
    """Validate the keys of a broker except listeners (see listeners.py); raises ConfigError."""
    for low, high in AT_MOST:
        if config[low] > config[high]:
            raise ConfigError(f"{low.name} is {config[low]}, but must be at most {high.name} ({config[high]}).")
    for low, high in LESS_THAN:
        if config[low] >= config[high]:
            raise ConfigError(f"{low.name} is {config[low]}, but must be less than {high.name} ({config[high]}).")
    roll_ms, jitter_ms = config[log.LOG_ROLL_MS], config[log.LOG_ROLL_JITTER_MS]
    if roll_ms is not None and roll_ms < 1:
        raise ConfigError(f"log.roll.ms is {roll_ms}, but must be at least 1.")
    if jitter_ms is not None and jitter_ms < 0:
        raise ConfigError(f"log.roll.jitter.ms is {jitter_ms}, but must be at least 0.")
    if config.inherited(topic.RETENTION_MS) == 0:
        raise ConfigError("log.retention.ms is 0, but must be at least 1, or -1 for no limit.")
    threads, memory = config[log.LOG_CLEANER_THREADS], config[log.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
    if threads and memory // threads <= MIB:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size is {memory}, but must be more than 1048576 per cleaner thread."
        )
    queued, largest = config[network.QUEUED_MAX_REQUEST_BYTES], config[network.SOCKET_REQUEST_MAX_BYTES]
    if 0 < queued < largest:
        raise ConfigError(
            f"queued.max.request.bytes is {queued}, but must be at least socket.request.max.bytes ({largest})."
        )
    codec = config[coordinator.OFFSETS_TOPIC_COMPRESSION_CODEC]
    if not 0 <= codec <= max(Codec):
        raise ConfigError(f"offsets.topic.compression.codec is {codec}, but must be between 0 and {max(Codec)}.")
    _check_object_store(config)
    connections_per_address(config)
    authorizer_of(config)
    for policy in POLICY_CLASSES:
        if config[policy] != policy.default:
            raise ConfigError(
                f"{policy.name} is '{str(config[policy])[:200]}', but must not be set: trioka has no Java runtime, "
                "and ignoring the class would allow more than is configured."
            )


def _check_object_store(config: Config) -> None:
    is_on, url = config[tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE], config[own.TIER_URL]
    if is_on and url is None:
        raise ConfigError("remote.log.storage.system.enable is true, which requires trioka.tier.url.")
    if url is not None and not is_on:
        raise ConfigError("trioka.tier.url is set, which requires remote.log.storage.system.enable=true.")
    if (config[own.TIER_ACCESS_KEY] is None) != (config[own.TIER_SECRET_KEY] is None):
        raise ConfigError("trioka.tier.access.key and trioka.tier.secret.key must be set together.")


def connections_per_address(config: Config) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides into limits by host; raises ConfigError."""
    text = config[network.MAX_CONNECTIONS_PER_IP_OVERRIDES]
    limits = {}
    for pair in text.split(",") if text.strip() else ():
        host, _, count = pair.strip().rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,9}", count.strip()):
            raise ConfigError(f"max.connections.per.ip.overrides has '{pair.strip()}', which must be host:count.")
        limits[host.strip()] = int(count)
    if config[network.MAX_CONNECTIONS_PER_IP] == 0 and not limits:
        raise ConfigError("max.connections.per.ip is 0, which requires max.connections.per.ip.overrides.")
    return limits
