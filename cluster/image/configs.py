"""The configuration that was set while the cluster ran; keys that are not set here have their values from elsewhere.

Only values that were set are kept here, never defaults: a tool that compares configurations would treat them as set.
The broker resource with an empty name applies to all brokers.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from trioka.protocol.internal_records.metadata import ConfigRecord

from ..quorum.metadata_log import MetadataRecord


class ConfigResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """What can be configured. The type is a number, as in requests and records."""

    type: int
    name: str


def topic_resource(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


ALL_BROKERS: Final = ConfigResource(ConfigResourceType.BROKER, "")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Configs:
    def __init__(self) -> None:
        self._by_resource: dict[ConfigResource, dict[str, str]] = {}

    def __iter__(self) -> Iterator[ConfigResource]:
        """Every resource with a configuration of its own."""
        return iter(sorted(self._by_resource))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configs) and self._by_resource == other._by_resource

    __hash__ = None  # type: ignore[assignment]

    def get(self, resource: ConfigResource) -> Mapping[str, str]:
        """The values that were set for the resource; read-only."""
        keys = self._by_resource.get(resource)
        return _NOTHING if keys is None else MappingProxyType(keys)

    def value(self, resource: ConfigResource, key: str) -> str | None:
        return self._by_resource.get(resource, _NOTHING).get(key)

    def copy(self) -> "Configs":
        configs = Configs()
        configs._by_resource = {resource: dict(keys) for resource, keys in self._by_resource.items()}
        return configs

    # --- replay

    def replay(self, record: ConfigRecord) -> ConfigResource:
        resource = ConfigResource(record.resource_type, record.resource_name)
        if record.value is not None:
            self._by_resource.setdefault(resource, {})[record.name] = record.value
        else:
            keys = self._by_resource.get(resource, {})
            keys.pop(record.name, None)
            if not keys:
                self._by_resource.pop(resource, None)
        return resource

    def replay_topic_removal(self, name: str) -> None:
        self._by_resource.pop(topic_resource(name), None)

    def records(self) -> Iterator[MetadataRecord]:
        for resource in self:
            for key, value in sorted(self._by_resource[resource].items()):
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=value)
