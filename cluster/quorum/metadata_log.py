"""The format of the metadata's records in `__cluster_metadata-0`, and the version of each that is written.

A record of the log has no key and no headers; its value is

    frame version   uvarint    1
    key             uvarint    which record this is: the `key` of its declaration
    version         uvarint    of that record
    the record                 as declared in protocol/internal_records/metadata.py

The records of one decision are in one batch, so that they are appended, replicated and truncated together. Its leader
epoch is the epoch of the quorum's leader. Batches with the control bit are the quorum's own: the leader, the voters,
the version of the quorum's protocol, the beginning and the end of a snapshot.

A reader knows every version of a record; a writer must use a version that every node of the cluster reads, which the
level of the feature `metadata.version` determines. Fields that this version does not have are left out, such as the
directories of replicas in a cluster of 3.5. BrokerRegistrationChangeRecord is written in the lowest version that can
represent it, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from trioka.protocol import batch
from trioka.protocol.batch import BatchHeader
from trioka.protocol.codec import decode, decoder, encode
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records import metadata as ledger
from trioka.protocol.internal_records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from trioka.protocol.internal_records.metadata import RegisterBrokerRecord as RegisterBroker
from trioka.protocol.primitives import read_uvarint, uvarint
from trioka.protocol.record import ControlType, Record, control_key, read_control_key
from trioka.protocol.schema import Entry

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MetadataRecord: TypeAlias = Entry
ControlMessage: TypeAlias = (
    LeaderChangeMessage | KRaftVersionRecord | VotersRecord | SnapshotHeaderRecord | SnapshotFooterRecord
)

FRAME_VERSION: Final = 1
NO_EPOCH: Final = -1
LATEST_METADATA_VERSION: Final = 30  # 4.3-IV0
DIRECTORIES_SINCE: Final = 17  # 3.7-IV2: the metadata has the log directory of each replica

# A decision that needs more records than this is refused (PolicyViolation): they must fit into one batch.
MAX_RECORDS_PER_BATCH: Final = 10_000
# No batch of the metadata log is larger than 8 MiB, Kafka's limit too; a little stays free for the header.
MAX_BATCH_BYTES: Final = (8 << 20) - 1024
RECORD_OVERHEAD_BYTES: Final = 24  # of a record around its value, at most

RECORDS: Final[dict[int, type[MetadataRecord]]] = {
    declared.__key__: declared
    for declared in vars(ledger).values()
    if isinstance(declared, type) and issubclass(declared, Entry) and declared.__key__ is not None
}

# For each record, the levels of metadata.version from which on a version of it is written, the newest first. Other
# records have only a version 0.
VERSIONS: Final[dict[type[MetadataRecord], tuple[tuple[int, int], ...]]] = {
    RegisterBroker: ((30, 4), (DIRECTORIES_SINCE, 3), (8, 2), (7, 1)),
    PartitionRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (7, 0)),
    PartitionChangeRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (7, 0)),
}

CONTROL_TYPES: Final[dict[type[ControlMessage], ControlType]] = {
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    SnapshotHeaderRecord: ControlType.SNAPSHOT_HEADER,
    SnapshotFooterRecord: ControlType.SNAPSHOT_FOOTER,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}
_CONTROL_MESSAGES: Final = {kind: declared for declared, kind in CONTROL_TYPES.items()}


class LogEntry(NamedTuple):
    """One record of the log. A control record of an unknown type, which readers skip, has neither of the two."""

    offset: int
    epoch: int
    timestamp_ms: int
    record: MetadataRecord | None
    control: ControlMessage | None


def written_version(record: MetadataRecord, metadata_version: int = LATEST_METADATA_VERSION) -> int:
    """The version in which a cluster at this level writes the record."""
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    for level, version in VERSIONS.get(type(record), ()):
        if metadata_version >= level:
            return version
    return 0


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The value of a record of the log."""
    if version is None:
        version = written_version(record)
    assert record.__key__ is not None and RECORDS.get(record.__key__) is type(record), type(record)
    return uvarint(FRAME_VERSION) + uvarint(record.__key__) + uvarint(version) + encode(record, version)


def decode_record(value: "ReadableBuffer") -> tuple[MetadataRecord, int]:
    """The record, and the version that it was written in. ProtocolError for a record unknown to this version."""
    view = memoryview(value)
    try:
        frame, position = read_uvarint(view, 0)
        key, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
    except IndexError:
        raise ProtocolError(f"metadata record: {len(view)} bytes are too few for its frame") from None
    if frame != FRAME_VERSION:
        raise ProtocolError(f"metadata record: frame version {frame}, and only {FRAME_VERSION} is known")
    declared = RECORDS.get(key)
    if declared is None:
        raise ProtocolError(f"metadata record: key {key} is not known; was it written by a newer version?")
    return decode(declared, version, view[position:]), version


def _as_of(record: MetadataRecord, version: int) -> MetadataRecord:
    if type(record) not in VERSIONS or version == type(record).__versions__.last:
        return record
    values = {f.name: getattr(record, f.name) if version in f.versions else f.fallback() for f in record.__fields__}
    return type(record)(**values)


def build_batch(
    records: Iterable[MetadataRecord],
    *,
    base_offset: int,
    epoch: int,
    now_ms: int,
    metadata_version: int = LATEST_METADATA_VERSION,
) -> bytearray:
    """A batch of records with the same timestamp. The records of one client request fit into one batch; those that
    follow from a broker's shutdown may not, and then become several consecutive batches."""
    batches, values, size = bytearray(), list[Record](), 0
    for offset, record in enumerate(records, start=base_offset):
        version = written_version(record, metadata_version)
        value = encode_record(_as_of(record, version), version)
        if len(values) == MAX_RECORDS_PER_BATCH or (values and size + len(value) > MAX_BATCH_BYTES):
            batches += batch.build(values, base_offset=values[0].offset, leader_epoch=epoch)
            values, size = [], 0
        values.append(Record(offset, now_ms, None, value))
        size += len(value) + RECORD_OVERHEAD_BYTES
    assert values, "a batch has at least one record"
    return batches + batch.build(values, base_offset=values[0].offset, leader_epoch=epoch)


def build_control_batch(messages: Sequence[ControlMessage], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of the quorum's own records. Each is encoded in the version of its field `version`: always 0 in what
    Kafka 4.3 writes. Kafka's tools read only version 0 of LeaderChangeMessage, though version 1 is declared."""
    return batch.build(
        [
            Record(
                base_offset + index, now_ms, control_key(CONTROL_TYPES[type(message)]), encode(message, message.version)
            )
            for index, message in enumerate(messages)
        ],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def read_batch(buffer: "ReadableBuffer", header: BatchHeader) -> Iterator[LogEntry]:
    """The records of a batch whose CRC has been verified."""
    epoch = header.leader_epoch
    for offset, timestamp, key, value, _ in batch.records(buffer, header):
        if header.is_control:
            yield LogEntry(offset, epoch, timestamp, None, _decode_control(key, value))
        elif value is None:
            raise ProtocolError(f"metadata record at offset {offset}: it has no value")
        else:
            yield LogEntry(offset, epoch, timestamp, decode_record(value)[0], None)


def _decode_control(key: bytes | None, value: bytes | None) -> ControlMessage | None:
    kind = read_control_key(key)
    declared = None if kind is None else _CONTROL_MESSAGES.get(kind)
    if declared is None:
        return None
    if value is None or len(value) < 2:
        raise ProtocolError(f"{declared.__name__}: a control record without a value")
    # Each of these messages begins with its own version. A newer version only adds fields to the known ones.
    version = min(int.from_bytes(value[:2], "big", signed=True), declared.__versions__.last)
    if version < 0:
        raise ProtocolError(f"{declared.__name__}: version {version}")
    message, _ = decoder(declared, version)(memoryview(value), 0, len(value))
    return message  # type: ignore[no-any-return]
