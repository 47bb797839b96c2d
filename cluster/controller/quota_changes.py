"""Client quotas are changed: AlterClientQuotas.

Checks and errors are those of Apache Kafka 4.3.1, but for three: an entity that is named twice keeps its quotas, while
Kafka reports the error and writes the first; "not a number" is refused; and the name of a host is not looked up, since
a decision must be the same on every node, so that any name that could be one is accepted.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from math import isnan
from types import MappingProxyType
from typing import Final

from trioka.protocol.errors import InvalidRequest, KafkaError, PolicyViolation
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

from ..decision import DONE, Decision, ItemResult
from ..image.metadata import Metadata
from ..image.quotas import CLIENT_ID, IP, USER, QuotaEntity, quota_entity, quota_record
from ..quorum.metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord

# The largest value of each key; None for those that may be fractions.
MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
CLIENT_KEYS: Final[Mapping[str, int | None]] = MappingProxyType(
    {
        "producer_byte_rate": MAX_LONG,
        "consumer_byte_rate": MAX_LONG,
        "request_percentage": None,
        "controller_mutation_rate": None,
    }
)
IP_KEYS: Final[Mapping[str, int | None]] = MappingProxyType({"connection_creation_rate": MAX_INT})
FRACTION: Final = 1e-6  # values within this distance of a whole number count as whole

_HOST: Final = re.compile(r"(?!-)[a-zA-Z0-9-]{1,63}(\.[a-zA-Z0-9-]{1,63})*\.?")


@frozen
class QuotaReply:
    entity: QuotaEntity
    outcome: ItemResult


def alter_client_quotas(
    metadata: Metadata, entries: Sequence[AlterClientQuotasRequest.Entry], validate_only: bool
) -> Decision[QuotaReply]:
    """One reply for each entity. Of two parts of the same type, in one entity, the latter counts."""
    entities = [quota_entity({part.entity_type: part.entity_name for part in entry.entity}) for entry in entries]
    times = Counter(entities)
    records: list[MetadataRecord] = []
    replies: dict[QuotaEntity, QuotaReply] = {}
    for entity, entry in zip(entities, entries, strict=True):
        outcome = DONE
        try:
            if times[entity] > 1:
                raise InvalidRequest("the request names this entity more than once")
            changed = _change(metadata, entity, entry.ops)
            if len(records) + len(changed) > MAX_RECORDS_PER_BATCH:
                raise PolicyViolation(f"a request can change {MAX_RECORDS_PER_BATCH} quotas, not more")
            records += changed
        except KafkaError as error:
            outcome = ItemResult.of(error)
        replies[entity] = QuotaReply(entity=entity, outcome=outcome)
    return Decision(records=() if validate_only else tuple(records), replies=tuple(replies.values()))


def _change(
    metadata: Metadata, entity: QuotaEntity, operations: Sequence[AlterClientQuotasRequest.Entry.Op]
) -> list[MetadataRecord]:
    if len({operation.key for operation in operations}) != len(operations):
        raise InvalidRequest("the request names a quota of this entity more than once")
    keys = _keys_of(entity)
    before = metadata.quotas.get(entity)
    records: list[MetadataRecord] = []
    for operation in operations:
        if operation.remove:
            if operation.key in before:
                records.append(quota_record(entity, operation.key, None))
        else:
            _check_value(keys, operation.key, operation.value)
            if before.get(operation.key) != operation.value:
                records.append(quota_record(entity, operation.key, operation.value))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, int | None]:
    """The quotas that an entity can have."""
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"unknown client quota entity type: {kind}; there are {USER}, {CLIENT_ID} and {IP}")
        if name == "":
            raise InvalidRequest(f"empty {kind} not supported: a quota is for a name, or for all")
    parts = dict(entity)
    if not parts:
        raise InvalidRequest("empty client quota entity: a quota needs a user, a client id or an IP")
    if IP not in parts:
        return CLIENT_KEYS
    if len(parts) > 1:
        raise InvalidRequest(f"invalid quota entity combination: {IP} cannot be combined with {USER} or {CLIENT_ID}")
    if not _may_be_address(parts[IP]):
        raise InvalidRequest(f"{parts[IP]} is not a valid IP, nor the name of a host")
    return IP_KEYS


def _may_be_address(text: str | None) -> bool:
    if text is None or _HOST.fullmatch(text):
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise InvalidRequest(f"invalid configuration key {key}: it is no quota of such an entity")
    if isnan(value) or value <= 0:
        raise InvalidRequest(f"{key} must be greater than 0, and {value} is not")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise InvalidRequest(f"{key} can be {largest} at most, and not {value}")
    if abs(value % 1.0) > FRACTION:
        raise InvalidRequest(f"{key} cannot be a fractional value such as {value}")
