"""Changes of a configuration: whether a resource may be configured so.

What a client's request makes of a configuration is the controller's business (cluster/config_changes.py). `check` looks
at the resource as it would be, whole. Only the levels of loggers, which nobody keeps, are changed here: `alter_loggers`
says to what.

The codes are Kafka's. A topic's or group's bad value is INVALID_CONFIG, a broker's is INVALID_REQUEST. A key that
brokers do not know is taken, as if it belonged to a plug-in.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from trioka.cluster.configs import Operation
from trioka.protocol.errors import InvalidConfig, InvalidRequest

from . import log_keys as log
from . import network_keys as network
from . import replication_keys as replication
from .group_keys import LEVELS, LOGGERS, ROOT_LOGGER
from .key import BROKER_KEYS, LISTENER_PREFIX, Key, Mode, Resource, broker_key_of
from .layers import NOTHING, Config, ConfigError
from .validation import did_you_mean, validate_broker, validate_client_metrics, validate_group, validate_topic

# Security settings hold for a listener each: as a dynamic key they are written with its prefix. Listeners themselves
# and some of their settings are the exceptions.
_FOR_A_LISTENER: Final = "ssl."
_OF_ALL_BROKERS_TOO: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})

# Kafka lets the number of threads at most double or halve at a time. We have none, and refuse the same.
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


def _each_once(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequest(f"{name[:200]} is changed twice in one request.")
        seen.add(name)


def _no_nulls(names: Iterable[str]) -> None:
    if nulls := list(names):
        raise InvalidRequest(f"Only a DELETE has no value, but {', '.join(nulls)[:200]} is set to null.")


def check(
    resource: Resource,
    name: str,
    config: Config,
    after: Mapping[str, str],
    *,
    before: Mapping[str, str] = NOTHING,
) -> None:
    """Whether a resource may be configured so, whole: InvalidConfig or InvalidRequest if not.

    `name` is the topic, the group, the subscription, the broker's number, or nothing for all brokers. The name itself,
    and whether it exists, is the caller's business.
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
            raise InvalidRequest("Loggers have levels, and no configuration that is kept.")


def check_broker(config: Config, after: Mapping[str, str], *, per_broker: bool) -> Config:
    """Whether brokers may be configured so while they run, one or all of them: InvalidRequest if not."""
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
            raise InvalidRequest(f"{key.name} is {old}, and can at most double or halve at a time; {new} is too far.")
    return changed


def _check_modes(names: Collection[str], per_broker: bool) -> None:
    """A key that only a new start changes; a listener's key without its listener; a broker's key without a broker."""
    if fixed := [name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].mode is Mode.READ_ONLY]:
        raise InvalidRequest(f"Cannot update these configs dynamically: only a new start changes {', '.join(fixed)}.")
    if bare := [name for name in names if name.startswith(_FOR_A_LISTENER) and name in BROKER_KEYS]:
        example = f"{LISTENER_PREFIX}<listener>.{bare[0]}"
        raise InvalidRequest(f"A running broker changes {', '.join(bare)} for one listener at a time: set {example}.")
    if per_broker:
        return
    if single := [name for name in names if _is_of_one_broker(name)]:
        raise InvalidRequest(f"These are set for one broker at a time, by its number: {', '.join(single)}.")


def _is_of_one_broker(name: str) -> bool:
    if name.startswith(LISTENER_PREFIX):
        return name.removeprefix(LISTENER_PREFIX).partition(".")[2] not in _OF_ALL_BROKERS_TOO
    return name in BROKER_KEYS and BROKER_KEYS[name].mode is Mode.PER_BROKER


def alter_loggers(changes: Sequence[Change], loggers: Collection[str] = LOGGERS) -> dict[str, str | None]:
    """The levels that a change of BROKER_LOGGER sets; None gives a logger back to the one above it."""
    _each_once(change.name for change in changes)
    _no_nulls(change.name for change in changes if change.value is None and change.operation != Operation.DELETE)
    levels: dict[str, str | None] = {}
    for name, operation, value in changes:
        if operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequest("A logger's level is set or deleted; it is no list.")
        if name not in loggers:
            raise InvalidConfig(f"Logger {name[:200]} does not exist{did_you_mean(name, loggers)}")
        if operation == Operation.DELETE and name == ROOT_LOGGER:
            raise InvalidRequest("The root logger always has a level.")
        if operation == Operation.SET and value not in LEVELS:
            raise InvalidConfig(
                f"The log level of {name} cannot be {value}, which is not a supported log level: {', '.join(LEVELS)}."
            )
        levels[name] = value if operation == Operation.SET else None
    return levels
