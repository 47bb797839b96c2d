"""Raises and lowers features: UpdateFeatures. All updates of a request happen, or none.

Checks and errors are those of Apache Kafka 4.3.1. metadata.version is never lowered: Kafka does so only between levels
whose records are the same, and this version writes those of the newest.

kraft.version is no feature of the metadata: the quorum leader writes it into the log, with the voters, right
before the records of this decision. These are a no-op record, so that there is an offset to wait for. Each
voter must have reported its supported versions and its directory id to this leader (UpdateRaftVoter).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import InvalidUpdateVersion, KafkaError
from trioka.protocol.internal_records.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord

from ..decision import DONE, Decision, ItemResult
from ..image.brokers import FeatureRange
from ..image.configs import ALL_BROKERS, ConfigResourceType
from ..image.features import ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION
from ..image.metadata import Metadata
from ..placement.topic_overrides import MIN_INSYNC_REPLICAS
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings

if TYPE_CHECKING:
    from trioka.protocol.messages.update_features import UpdateFeaturesRequest

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

# Which level of another feature a level needs.
NEEDED: Final[Mapping[tuple[str, int], tuple[str, int]]] = MappingProxyType(
    {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): (METADATA_VERSION, 23)}
)


def update_features(
    metadata: Metadata,
    settings: ControllerSettings,
    updates: "Sequence[UpdateFeaturesRequest.FeatureUpdate]",
    validate_only: bool,
) -> Decision[ItemResult]:
    """One reply for all. Of two updates of the same feature the latter counts."""
    requested = {update.feature: update for update in updates}
    levels = dict(metadata.features.levels) | {name: update.max_version_level for name, update in requested.items()}
    records: list[MetadataRecord] = []
    try:
        for update in requested.values():
            records += _update(metadata, settings, update, levels)
    except KafkaError as error:
        return Decision(records=(), replies=(ItemResult.of(error),))
    return Decision(records=() if validate_only else tuple(records), replies=(DONE,))


def _update(
    metadata: Metadata,
    settings: ControllerSettings,
    update: "UpdateFeaturesRequest.FeatureUpdate",
    levels: Mapping[str, int],
) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise InvalidUpdateVersion(f"{_update_of(name, level)}: upgrade type {update.upgrade_type} is not known")
    if level < 0:
        raise InvalidUpdateVersion(f"{_update_of(name, level)}: no level is less than 0")
    _check_support(metadata, settings, name, level)
    current = settings.kraft_version if name == KRAFT_VERSION else metadata.features.level(name)
    if level < current:
        if update.upgrade_type == UPGRADE:
            raise InvalidUpdateVersion(
                f"{_update_of(name, level)}: it is at {current}, and the request allows no safe or unsafe downgrade"
            )
        if name in (METADATA_VERSION, KRAFT_VERSION):
            raise InvalidUpdateVersion(
                f"unsupported {name} downgrade from {current} to {level}: metadata cannot be rewritten"
            )
    elif level > current:
        if update.upgrade_type != UPGRADE:
            raise InvalidUpdateVersion(
                f"{_update_of(name, level)}: it is at {current}, and the upgrade type does not allow a downgrade"
            )
        if name == KRAFT_VERSION:
            return _raise_quorum(settings, level)
    needed, least = NEEDED.get((name, level), (name, level))
    if levels.get(needed, 0) < least:
        raise InvalidUpdateVersion(
            f"{name}: level {level} needs {needed} at {least}, and it is at {levels.get(needed, 0)}"
        )
    if level == current:
        return []
    record = FeatureLevelRecord(name=name, feature_level=level)
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > 0:
        return [*elr_safety_records(metadata, settings), record]
    return [record]


def _raise_quorum(settings: ControllerSettings, level: int) -> list[MetadataRecord]:
    for voter_id in settings.voter_ids:
        known = settings.voter_ranges.get(voter_id)
        if known is None or level not in known:
            reported = (
                "has not reported its supported levels"
                if known is None
                else f"understands {known.first} to {known.last}"
            )
            raise InvalidUpdateVersion(f"{KRAFT_VERSION}: not all voters support {level}: node {voter_id} {reported}")
    return [NoOpRecord()]


def elr_safety_records(metadata: Metadata, settings: ControllerSettings) -> list[MetadataRecord]:
    """While eligible leader replicas are kept, min.insync.replicas is in the log, once for all brokers."""
    records: list[MetadataRecord] = []
    if metadata.configs.value(ALL_BROKERS, MIN_INSYNC_REPLICAS) is None:
        records.append(_min_isr_record("", str(settings.min_insync_replicas)))
    for resource in metadata.configs:
        is_broker = resource.type == ConfigResourceType.BROKER and resource != ALL_BROKERS
        if is_broker and metadata.configs.value(resource, MIN_INSYNC_REPLICAS) is not None:
            records.append(_min_isr_record(resource.name, None))
    return records


def _min_isr_record(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=int(ConfigResourceType.BROKER), resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value
    )


def _check_support(metadata: Metadata, settings: ControllerSettings, name: str, level: int) -> None:
    """Every node must support the level before the cluster uses it."""
    if level == 0 and name in metadata.features.levels and name not in settings.supported_features:
        return  # no node here supports the feature, so that it may be disabled
    if name not in settings.supported_features:
        raise InvalidUpdateVersion(
            f"{_update_of(name, level)}: controller {settings.node_id} does not support this feature"
        )
    _check_range(f"controller {settings.node_id}", settings.supported_features[name], name, level)
    for broker in metadata.brokers:
        _check_range(f"broker {broker.broker_id}", _range_of(broker.features, name), name, level)
    registered = {settings.node_id}
    for controller in metadata.brokers.controllers:
        registered.add(controller.controller_id)
        if controller.controller_id != settings.node_id:
            _check_range(f"controller {controller.controller_id}", _range_of(controller.features, name), name, level)
    missing = sorted(set(settings.voter_ids) - registered)
    if missing:
        raise InvalidUpdateVersion(f"{name}: controller {missing[0]} has not reported its supported levels")


def _update_of(name: str, level: int) -> str:
    return f"invalid update version {level} for feature {name}"


def _range_of(features: Sequence[FeatureRange], name: str) -> FeatureRange | None:
    return next((feature for feature in features if feature.name == name), None)


def _check_range(node_name: str, supported: FeatureRange | None, name: str, level: int) -> None:
    if supported is None:
        if level > 0:
            raise InvalidUpdateVersion(f"{_update_of(name, level)}: {node_name} does not support this feature")
    elif level not in supported:
        raise InvalidUpdateVersion(
            f"{_update_of(name, level)}: {node_name} only supports versions {supported.first}-{supported.last}"
        )
