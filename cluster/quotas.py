"""Client quotas: limits by user, client id and IP.

An entity is one or two of user, client id and ip, each with a name or without (None): then it means all of its
kind that have no quota of their own.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from trioka.protocol.internal_records.metadata import ClientQuotaRecord

from .metadata_log import MetadataRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

# Pairs of type and name, in the order of types, so that the same entity is always the same key.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]

ChargeMutations: TypeAlias = Callable[[int], None]
"""Called with the number of partitions that a client creates or deletes, after all other checks. Raises
ThrottlingQuotaExceeded if the client has used up its controller_mutation_rate."""


def no_mutation_charge(partitions: int) -> None:
    """For changes without a client, and where there are no quotas."""


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items()))


def _order(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kind, name is not None, name or "") for kind, name in entity)


class QuotaStamp:
    """Identifies one state of the quotas. Cached limits are valid while their stamp is the same object."""


class Quotas:
    def __init__(self) -> None:
        self._by_entity: dict[QuotaEntity, dict[str, float]] = {}
        self.stamp = QuotaStamp()  # replaced with each change

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        for entity in sorted(self._by_entity, key=_order):
            yield entity, MappingProxyType(self._by_entity[entity])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotas) and self._by_entity == other._by_entity

    __hash__ = None  # type: ignore[assignment]

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._by_entity.get(entity, {})

    def copy(self) -> "Quotas":
        quotas = Quotas()
        quotas._by_entity = {entity: dict(values) for entity, values in self._by_entity.items()}
        return quotas

    # --- replay

    def replay(self, record: ClientQuotaRecord) -> QuotaEntity:
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        if not record.remove:
            self._by_entity.setdefault(entity, {})[record.key] = record.value
        else:
            values = self._by_entity.get(entity, {})
            values.pop(record.key, None)
            if not values:
                self._by_entity.pop(entity, None)
        self.stamp = QuotaStamp()
        return entity

    def records(self) -> Iterator[MetadataRecord]:
        for entity, values in self:
            for key, value in sorted(values.items()):
                yield quota_record(entity, key, value)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Sets a quota; None removes it."""
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )
