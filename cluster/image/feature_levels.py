"""Releases of Apache Kafka, and the feature levels with which a cluster of each release starts.

A release is written as `3.9`, `3.9.1`, or exactly, as one of its levels of metadata.version: `3.9-IV0`. The short name
means the last of its levels. The table equals that of Kafka 4.3.1 (compat-tests/test_storage_tool.py), except for
features that trioka does not serve (features.py).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    TRANSACTION_VERSION,
)

# By metadata.version, from the oldest on.
_NAMES: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)
RELEASES: Final[Mapping[str, int]] = MappingProxyType(
    {name: level for level, name in enumerate(_NAMES, start=MINIMUM_METADATA_VERSION)}
)

# From which metadata.version on a fresh cluster has which level of a feature.
_SINCE: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: (26, 1),
        GROUP_VERSION: (22, 1),
        TRANSACTION_VERSION: (24, 2),
    }
)
SCRAM_SINCE: Final = 11  # 3.5-IV2: the metadata may contain credentials


def metadata_version_of(release: str) -> int | None:
    """None for an unknown release."""
    if release in RELEASES:
        return RELEASES[release]
    short = ".".join(release.split(".")[:2])
    found = [level for name, level in RELEASES.items() if name.partition("-")[0] == short]
    return found[-1] if found else None


def fresh_levels(metadata_version: int) -> dict[str, int]:
    """The levels of a new cluster, in the order in which Kafka writes them. Features that are off are left out."""
    levels = {METADATA_VERSION: metadata_version}
    return levels | {name: level for name, (since, level) in _SINCE.items() if metadata_version >= since}
