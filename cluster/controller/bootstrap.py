"""What a controller writes first when it begins to lead.

An empty log gets its first records in a transaction, so that a cluster has all of them or none: the levels of its
features, and with eligible leader replicas the min.insync.replicas that they are reckoned with. If a leader before this
one has left a transaction open, it is given up.
"""

from collections.abc import Iterable
from typing import Final

from trioka.protocol.internal_records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

from ..image.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FRESH_LEVELS
from ..image.metadata import Metadata
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings
from .feature_changes import elr_safety_records

TRANSACTION_NAME: Final = "Bootstrap records"


def fresh_records() -> list[MetadataRecord]:
    """The content of a bootstrap.checkpoint without options of the user."""
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in FRESH_LEVELS.items()]


def activation_records(
    metadata: Metadata, settings: ControllerSettings, bootstrap: Iterable[MetadataRecord] | None = None
) -> tuple[MetadataRecord, ...]:
    """`bootstrap` are the records of bootstrap.checkpoint; without that file, those of a fresh cluster."""
    aborted: list[MetadataRecord] = []
    if metadata.in_transaction:
        aborted.append(AbortTransactionRecord(reason="Controller failover"))
    if metadata.features.levels:
        return tuple(aborted)
    first = fresh_records() if bootstrap is None else list(bootstrap)
    is_elr_on = any(
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS_VERSION
        and record.feature_level > 0
        for record in first
    )
    safety = elr_safety_records(metadata, settings) if is_elr_on else []
    return (*aborted, BeginTransactionRecord(name=TRANSACTION_NAME), *first, *safety, EndTransactionRecord())
