"""The features of the cluster, each at the level that all its nodes work at.

`metadata.version` is one of them; it determines which records may be written. kraft.version, the version of the
quorum's own protocol, is no feature of the metadata: it is in control records of the log.

A level that no node supports is not reported to clients and cannot be requested. The log may contain it all the same,
if Apache Kafka has written it: then it is kept, and can be lowered.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from trioka.protocol.internal_records.metadata import FeatureLevelRecord

from ..quorum.metadata_log import LATEST_METADATA_VERSION, MetadataRecord
from .brokers import FeatureRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"

MINIMUM_METADATA_VERSION: Final = 7  # 3.3-IV3, the oldest that Kafka 4 starts from

# The features that this version serves, of those of Kafka 4.3.
SUPPORTED: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            FeatureRange(name=ELIGIBLE_LEADER_REPLICAS_VERSION, first=0, last=1),
            FeatureRange(name=GROUP_VERSION, first=0, last=1),
            FeatureRange(name=KRAFT_VERSION, first=0, last=1),
            FeatureRange(name=METADATA_VERSION, first=MINIMUM_METADATA_VERSION, last=LATEST_METADATA_VERSION),
            FeatureRange(name=TRANSACTION_VERSION, first=0, last=2),
        )
    }
)

# The features that this version tolerates and does not serve: a cluster of Apache Kafka starts with level 1.
NOT_SERVED: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            FeatureRange(name=SHARE_VERSION, first=0, last=1),
            FeatureRange(name=STREAMS_VERSION, first=0, last=1),
        )
    }
)

# In the registration of a broker with a memory log directory (memory_topics.py); no level of it is ever finalized.
LOG_DIR_CLASS_FEATURE: Final = FeatureRange(name="trioka.log.dir.class", first=0, last=1)

# The levels of a fresh cluster, in the order in which Kafka 4.3 writes them, as far as they are served.
FRESH_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        METADATA_VERSION: LATEST_METADATA_VERSION,
        ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
        GROUP_VERSION: 1,
        TRANSACTION_VERSION: 2,
    }
)


class Features:
    """The finalized levels. A feature without one is at 0: off."""

    def __init__(self) -> None:
        self._levels: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self._levels == other._levels

    __hash__ = None  # type: ignore[assignment]

    def level(self, name: str) -> int:
        return self._levels.get(name, 0)

    @property
    def levels(self) -> Mapping[str, int]:
        return MappingProxyType(self._levels)

    @property
    def metadata_version(self) -> int:
        """The level from the log; the oldest level if the log has none yet."""
        return self._levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)

    @property
    def has_eligible_leader_replicas(self) -> bool:
        return self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0

    def copy(self) -> "Features":
        features = Features()
        features._levels.update(self._levels)
        return features

    # --- replay

    def replay(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level
            self._levels = dict(sorted(self._levels.items()))

    def records(self) -> Iterator[MetadataRecord]:
        """metadata.version first: it determines how to read the rest."""
        for name, level in sorted(self._levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0])):
            yield FeatureLevelRecord(name=name, feature_level=level)
