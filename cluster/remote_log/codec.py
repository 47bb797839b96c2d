"""The format of the records in `__remote_log_metadata`, and the partition that has them.

A record has no key. Its value is framed as those of the cluster metadata are:

    frame version   uvarint    1
    key             uvarint    which record this is
    version         uvarint    0
    the record                 as declared in protocol/internal_records/remote_log.py

Its header `trioka-epoch` (int32) is the leader epoch of its author; Kafka's readers skip it.

The records of a partition are all in the same partition of the topic: murmur2 over the four bytes of Java's
`Objects.hash(low half of the topic id, high half, partition)`. Kafka computes the same.
"""

from struct import Struct, error
from typing import Final

from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records import remote_log
from trioka.protocol.primitives import read_uvarint, uvarint
from trioka.protocol.record import Headers
from trioka.protocol.schema import Entry

from .metadata import NO_EPOCH

EPOCH_HEADER: Final = "trioka-epoch"

_FRAME_VERSION: Final = 1
_INT32: Final = Struct(">i")
_RECORDS: Final[dict[int, type[Entry]]] = {
    declared.__key__: declared
    for declared in vars(remote_log).values()
    if isinstance(declared, type) and issubclass(declared, Entry) and declared.__key__ is not None
}


def encode_record(record: Entry) -> bytes:
    assert record.__key__ is not None and _RECORDS.get(record.__key__) is type(record), type(record)
    return uvarint(_FRAME_VERSION) + uvarint(record.__key__) + uvarint(0) + bytes(encode(record, 0))


def decode_record(value: bytes) -> Entry:
    """ProtocolError for a record that this version does not know."""
    view = memoryview(value)
    try:
        frame, position = read_uvarint(view, 0)
        key, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
    except IndexError:
        raise ProtocolError(f"remote log metadata record: {len(view)} bytes are too few for its frame") from None
    declared = _RECORDS.get(key)
    if frame != _FRAME_VERSION or declared is None or version != 0:
        raise ProtocolError(f"remote log metadata record: frame {frame}, key {key}, version {version} is not known")
    return decode(declared, version, view[position:])


def epoch_headers(epoch: int) -> Headers:
    return ((EPOCH_HEADER, _INT32.pack(epoch)),)


def read_epoch(headers: Headers) -> int:
    """NO_EPOCH if there is no such header."""
    for name, value in headers:
        if name == EPOCH_HEADER and value is not None:
            try:
                return int(_INT32.unpack(value)[0])
            except error:
                raise ProtocolError(f"the header {EPOCH_HEADER} has {len(value)} bytes instead of 4") from None
    return NO_EPOCH


def partition_of(topic_id: bytes, index: int, count: int) -> int:
    """The partition of the topic that has the records about a partition."""
    high, low = int.from_bytes(topic_id[:8], "big"), int.from_bytes(topic_id[8:], "big")
    value = 1
    for part in (_hash_of_long(low), _hash_of_long(high), index):
        value = (31 * value + part) & 0xFFFFFFFF
    return (_murmur2(value.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _hash_of_long(value: int) -> int:
    return (value ^ (value >> 32)) & 0xFFFFFFFF


def _murmur2(data: bytes) -> int:
    """Of four bytes, with Kafka's seed."""
    assert len(data) == 4
    mix = 0x5BD1E995
    k = int.from_bytes(data, "little") * mix & 0xFFFFFFFF
    k = (k ^ (k >> 24)) * mix & 0xFFFFFFFF
    h = ((0x9747B28C ^ 4) * mix & 0xFFFFFFFF) ^ k
    h = (h ^ (h >> 13)) * mix & 0xFFFFFFFF
    return h ^ (h >> 15)
