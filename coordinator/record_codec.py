"""The format of a coordinator's records: keys and values.

    key      int16 type of the record · the declared key
    value    int16 version · the declared value, in that version; no value for a tombstone

Readers support all versions of a value. Writers use the versions that Apache Kafka writes.
"""

import struct
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final

from trioka.protocol.codec import Decoder, decoder, encoder
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records import classic_groups, consumer_groups, transactions
from trioka.protocol.schema import Entry

from .decision import StoredRecord

if TYPE_CHECKING:
    from types import ModuleType

_INT16: Final = Struct(">h")
_unpack: Final = _INT16.unpack_from
_ABSENT: Final = 1 << 16  # the version of a missing value; no int16 is so large


class RecordCodec:
    """The record types of one topic."""

    def __init__(
        self, modules: "tuple[ModuleType, ...]", versions: Mapping[type[Entry], int | Callable[[Entry], int]]
    ) -> None:
        self._keys: dict[int, type[Entry]] = {}
        self._values: dict[int, type[Entry]] = {}
        self._versions = versions
        self._readers: dict[tuple[int, int], tuple[Decoder, Decoder]] = {}  # for key and value, by type and version
        for module in modules:
            for declared in vars(module).values():
                if isinstance(declared, type) and issubclass(declared, Entry) and declared.__key__ is not None:
                    kinds = self._keys if declared.__name__.endswith("Key") else self._values
                    kinds[declared.__key__] = declared

    def encode(self, kept: StoredRecord) -> tuple[bytes, bytes | None]:
        kind = kept.key.__key__
        assert kind is not None and self._keys[kind] is type(kept.key)
        key = _written(kept.key, 0, kind)
        if kept.value is None:
            return key, None
        version = self._versions.get(type(kept.value), 0)
        if not isinstance(version, int):
            version = version(kept.value)
        return key, _written(kept.value, version, version)

    def decode(self, key: bytes, value: bytes | None) -> StoredRecord | None:
        """None for an unknown record type: it belongs to another feature and is kept. Loading a log reads hundreds of
        thousands of records, so decoders are cached by type and version."""
        try:
            kind: int = _unpack(key)[0]
            version: int = _ABSENT if value is None else _unpack(value)[0]
            read_key, read_value = self._readers[kind, version]
        except struct.error:
            raise ProtocolError("a record of an internal topic is too short for its type") from None
        except KeyError:
            if kind not in self._keys:
                return None
            read_key, read_value = self._readers[kind, version] = self._new_readers(kind, version)
        known = read_key(memoryview(key), _INT16.size, MAX_ELEMENTS)[0]
        if value is None:
            return StoredRecord(known, None)
        return StoredRecord(known, read_value(memoryview(value), _INT16.size, MAX_ELEMENTS)[0])

    def _new_readers(self, kind: int, version: int) -> tuple[Decoder, Decoder]:
        read_key = decoder(self._keys[kind], 0)
        return read_key, read_key if version == _ABSENT else decoder(self._values[kind], version)


def _written(entry: Entry, version: int, first: int) -> bytes:
    (written,) = encoder(type(entry), version)(entry, bytearray(_INT16.pack(first)))  # no field contains records
    assert isinstance(written, bytearray)
    return bytes(written)


def _version_of_commit(value: Entry) -> int:
    """The latest version, unless the commit has an expiry time, which only the older one has a field for."""
    assert isinstance(value, classic_groups.OffsetCommitValue)
    return 4 if value.expire_timestamp == -1 else 1


GROUPS: Final = RecordCodec(
    (classic_groups, consumer_groups),
    {classic_groups.OffsetCommitValue: _version_of_commit, classic_groups.GroupMetadataValue: 3},
)
TRANSACTIONS: Final = RecordCodec((transactions,), {transactions.TransactionLogValue: 1})
