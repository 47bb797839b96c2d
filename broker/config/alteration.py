"""Validation of configuration changes.

The controller applies a client's request to a configuration (cluster/controller/config_changes.py); `check` validates
the whole resulting configuration of a resource. Logger levels are not persisted: `alter_loggers` computes them here.

Error codes are Kafka's: an invalid value is INVALID_CONFIG for topics and groups, INVALID_REQUEST for brokers. Unknown
keys of brokers are accepted, since they may belong to plug-ins.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from trioka.cluster.image.configs import ConfigOperation
from trioka.protocol.errors import InvalidConfig, InvalidRequest

from . import log_keys as log
from . import network_keys as network
from . import replication_keys as replication
from .group_keys import LEVELS, LOGGERS, ROOT_LOGGER
from .key import BROKER_KEYS, LISTENER_PREFIX, Key, Mode, Resource, broker_key_of
from .layers import EMPTY, Config, ConfigError
from .validation import did_you_mean, validate_broker, validate_client_metrics, validate_group, validate_topic

# Dynamic TLS keys need a listener prefix. Keys with such a prefix are per broker, except these three.
_LISTENER_ONLY: Final = "ssl."
_CLUSTER_WIDE_PER_LISTENER: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)

# In Kafka a change can at most double or halve a number of threads. trioka has no such threads, but the same rule.
THREADS: Final[tuple[Key[int], ...]] = (
    network.NUM_IO_THREADS,
    network.NUM_NETWORK_THREADS,
    network.BACKGROUND_THREADS,
    replication.NUM_REPLICA_FETCHERS,
    log.NUM_RECOVERY_THREADS_PER_DATA_DIR,
)


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


def _check_unique(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequest(f"{name[:200]} appears twice in one request.")
        seen.add(name)


def _check_no_nulls(names: Iterable[str]) -> None:
    if nulls := list(names):
        raise InvalidRequest(f"Only DELETE takes a null value, but {', '.join(nulls)[:200]} is set to null.")


def check(
    resource: Resource,
    name: str,
    config: Config,
    after: Mapping[str, str],
    *,
    before: Mapping[str, str] = EMPTY,
) -> None:
    """Validate the whole configuration `after` of a resource; raise InvalidConfig or InvalidRequest.

    `name` is the topic, the group, the subscription, or the broker id; empty means all brokers. The caller checks that
    the resource exists.
    """
    match resource:
        case Resource.TOPIC:
            validate_topic(after, config, before=before)
        case Resource.GROUP:
            validate_group(after, config)
        case Resource.CLIENT_METRICS:
            validate_client_metrics(after)
        case Resource.BROKER:
            check_broker(config, after, per_broker=bool(name))
        case _:
            raise InvalidRequest("Loggers only have levels, which are not persisted.")


def check_broker(config: Config, after: Mapping[str, str], *, per_broker: bool) -> Config:
    """Validate the dynamic configuration of one or all brokers; raise InvalidRequest."""
    _check_modes(after, per_broker)
    for name, text in after.items():
        if (key := broker_key_of(name)) is not None:
            try:
                key.parse(text)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None
    changed = config.changed(broker=after) if per_broker else config.changed(cluster=after)
    try:
        validate_broker(changed)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    for key in THREADS:
        old, new = config[key], changed[key]
        if new > old * 2 or new < old // 2:
            raise InvalidRequest(f"{key.name} is {old}; one change can at most double or halve it, but sets {new}.")
    return changed


def _check_modes(names: Collection[str], per_broker: bool) -> None:
    """Reject keys that need a restart, listener keys without a listener, and per-broker keys set for all brokers."""
    if read_only := [name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].mode is Mode.READ_ONLY]:
        raise InvalidRequest(f"Cannot update these configs dynamically, they need a restart: {', '.join(read_only)}.")
    if unprefixed := [name for name in names if name.startswith(_LISTENER_ONLY) and name in BROKER_KEYS]:
        example = f"{LISTENER_PREFIX}<listener>.{unprefixed[0]}"
        raise InvalidRequest(
            f"A running broker can change {', '.join(unprefixed)} for one listener at a time only: set {example}."
        )
    if per_broker:
        return
    if broker_only := [name for name in names if _is_per_broker(name)]:
        raise InvalidRequest(f"These can be set for one broker at a time only, by its id: {', '.join(broker_only)}.")


def _is_per_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return name.removeprefix(LISTENER_PREFIX).partition(".")[2] not in _CLUSTER_WIDE_PER_LISTENER
    return name in BROKER_KEYS and BROKER_KEYS[name].mode is Mode.PER_BROKER


def alter_loggers(changes: Sequence[Change], loggers: Collection[str] = LOGGERS) -> dict[str, str | None]:
    """The new level of each changed logger; None makes the logger inherit its parent's level."""
    _check_unique(change.name for change in changes)
    _check_no_nulls(
        change.name for change in changes if change.value is None and change.operation != ConfigOperation.DELETE
    )
    levels: dict[str, str | None] = {}
    for name, operation, value in changes:
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequest("The level of a logger can only be set or deleted: it is not a list.")
        if name not in loggers:
            raise InvalidConfig(f"Logger {name[:200]} does not exist{did_you_mean(name, loggers)}")
        if operation == ConfigOperation.DELETE and name == ROOT_LOGGER:
            raise InvalidRequest("The level of the root logger cannot be deleted.")
        if operation == ConfigOperation.SET and value not in LEVELS:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {value}, which is not a supported log level: "
                f"use one of {', '.join(LEVELS)}."
            )
        levels[name] = value if operation == ConfigOperation.SET else None
    return levels
