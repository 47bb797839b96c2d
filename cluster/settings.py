"""What the controller must be told from outside: defaults of the broker's configuration, and the rules of its keys.

The keys of brokers, topics, groups and client metrics are declared in the broker's room. The controller needs only to
ask them three things, so that they come in as `ConfigRules`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from trioka.protocol.lazy_dataclass import frozen

from .brokers import FeatureRange
from .configs import Resource
from .features import SUPPORTED


class ConfigRules(Protocol):
    def validate(self, resource: Resource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        """Raise a KafkaError (mostly InvalidConfig) unless the resource may have this configuration, which is all
        that would be set for it and not only what changes. Its name was checked before."""

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether a key takes a list, so that one can append to it and subtract from it."""

    def default(self, resource_type: int, key: str) -> str | None:
        """The value that counts while nothing is set, as text."""


class NoRules:
    """Everything is allowed, nothing is a list."""

    def validate(self, resource: Resource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
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
    kraft_version: int = 1  # of the quorum, as its control records say
    voter_ids: tuple[int, ...] = ()  # the other controllers of the quorum, if there are any
    # What these have said that they understand of kraft.version, while the configuration says who votes.
    voter_ranges: Mapping[int, FeatureRange] = field(default_factory=dict)
    rules: ConfigRules = field(default_factory=NoRules)
