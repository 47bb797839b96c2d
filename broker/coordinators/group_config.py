"""Provides the group settings of coordinators (`coordinator/settings.py`) from the current configuration.

A configuration is immutable, so values read from it are cached until another one replaces it.
"""

import logging
from typing import TYPE_CHECKING, Final

from trioka.cluster.configs import ConfigResource, ConfigResourceType
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, OffsetSettings

from ..config import coordinator_keys as keys
from ..config import group_keys
from ..config.key import MINUTE_MS
from ..config.layers import Config, GroupConfig

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.groups")

NEVER: Final = -2  # before the metadata's first offset, and before there is one

# An assignor is configured by its name or, as in Kafka, by its Java class.
ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


class GroupConfigs:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._consumer: ConsumerSettings
        self._last: ConsumerSettings  # the last group's, because one heartbeat reads them five times
        self._last_group = ""
        self._last_seen_at = NEVER
        self._read(broker.config)

    def classic(self) -> ClassicSettings:
        self._refresh()
        return self._classic

    def offsets(self) -> OffsetSettings:
        self._refresh()
        return self._offsets

    def consumer(self, group_id: str) -> ConsumerSettings:
        self._refresh()
        metadata = self._broker.metadata
        if self._last_group != group_id or self._last_seen_at != metadata.offset:
            own = metadata.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id))
            self._last = _consumer(self._config.group(own)) if own else self._consumer
            self._last_group, self._last_seen_at = group_id, metadata.offset
        return self._last

    def _refresh(self) -> None:
        if self._broker.config is not self._config:
            self._read(self._broker.config)

    def _read(self, config: Config) -> None:
        self._config = config
        self._classic = ClassicSettings(
            initial_rebalance_delay_ms=config[keys.GROUP_INITIAL_REBALANCE_DELAY_MS],
            min_session_timeout_ms=config[keys.GROUP_MIN_SESSION_TIMEOUT_MS],
            max_session_timeout_ms=config[keys.GROUP_MAX_SESSION_TIMEOUT_MS],
            max_size=config[keys.GROUP_MAX_SIZE],
        )
        self._offsets = OffsetSettings(
            retention_ms=config[keys.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
            check_interval_ms=config[keys.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
            max_metadata_bytes=config[keys.OFFSET_METADATA_MAX_BYTES],
        )
        self._consumer = _consumer(config.group())
        self._last_seen_at = NEVER
        unknown = [name for name in config[keys.GROUP_CONSUMER_ASSIGNORS] if name not in ASSIGNORS]
        if unknown:
            log.warning("group.consumer.assignors: unknown assignor %s", ", ".join(unknown))


def _consumer(group: GroupConfig) -> ConsumerSettings:
    config = group.config
    policy = config[keys.GROUP_CONSUMER_MIGRATION_POLICY]
    named = (ASSIGNORS[name] for name in config[keys.GROUP_CONSUMER_ASSIGNORS] if name in ASSIGNORS)
    return ConsumerSettings(
        assignors=tuple(dict.fromkeys(named)) or ("uniform",),
        session_timeout_ms=group[group_keys.CONSUMER_SESSION_TIMEOUT_MS],
        heartbeat_interval_ms=group[group_keys.CONSUMER_HEARTBEAT_INTERVAL_MS],
        assignment_interval_ms=group[group_keys.CONSUMER_ASSIGNMENT_INTERVAL_MS],
        max_size=config[keys.GROUP_CONSUMER_MAX_SIZE],
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
        regex_refresh_interval_ms=config[keys.GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS],
    )
