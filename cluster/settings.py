"""The controller's part of the configuration: defaults of the broker, and the rules of its keys.

The keys of brokers, topics, groups and client metrics are declared in broker/config. The controller needs only three
functions of them, which are passed in as `ConfigRules`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from trioka.protocol.lazy_dataclass import frozen

from .image.brokers import FeatureRange
from .image.configs import ConfigResource
from .image.features import SUPPORTED


class ConfigRules(Protocol):
    def validate(self, resource: ConfigResource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        """Raises a KafkaError (mostly InvalidConfig) unless this configuration of the resource is valid. It is
        complete, with unchanged keys. The resource's name was checked before."""

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether a key takes a list, so that one can append to it and subtract from it."""

    def default(self, resource_type: int, key: str) -> str | None:
        """The value that counts while nothing is set, as text."""


class NoRules:
    """Everything is allowed, nothing is a list."""

    def validate(self, resource: ConfigResource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        return None

    def is_list(self, resource_type: int, key: str) -> bool:
        return False

    def default(self, resource_type: int, key: str) -> str | None:
        return None


@frozen
class ControllerSettings:
    """The controller's own configuration, by the names of its keys."""

    node_id: int
    cluster_id: str
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    supported_features: Mapping[str, FeatureRange] = field(default_factory=lambda: SUPPORTED)
    kraft_version: int = 1  # of the quorum, from its control records
    voter_ids: tuple[int, ...] = ()  # the other controllers of the quorum, if there are any
    # The kraft.version ranges that the voters reported, while the voters are set in the configuration.
    voter_ranges: Mapping[int, FeatureRange] = field(default_factory=dict)
    rules: ConfigRules = field(default_factory=NoRules)
