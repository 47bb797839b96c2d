"""Objects of tiered segments for tests: a real log of `trioka.storage`, and the three objects of each of its segments.

`sample_log` has batches of all codecs, two leader epochs, headers, nulls, committed, aborted and overlapping
transactions. `objects_of` makes the objects as the broker's copier would.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from random import Random

from trioka.protocol.batch import CONTROL, NO_EPOCH, BatchHeader, build, build_marker, headers, records
from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.primitives import uuid_from_text
from trioka.protocol.record import EndTxnMarker, Record
from trioka.protocol.remote_segment.indexes import LeaderEpoch, SegmentIndexes, encode_leader_epochs
from trioka.protocol.remote_segment.manifest import (
    SegmentContent,
    SegmentManifest,
    Uploader,
    decode_manifest,
    encode_manifest,
)
from trioka.protocol.remote_segment.object_key import ObjectSuffix, RemoteSegment, TopicIdPartition
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.files.layout import Kind
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.segments.segment import Segment

from .log_fixtures import NOW_MS, open_log

TOPIC = "orders"
TOPIC_ID = uuid_from_text("MWJ6FHTfRYy67jzwZdeqSQ")
CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"
SMALL_SEGMENTS = LogConfig(segment_bytes=3000, index_interval_bytes=300, max_message_bytes=2500)

Objects = dict[str, bytes]


def new_log(config: LogConfig = SMALL_SEGMENTS) -> Log:
    return open_log(config=config)


def append_records(
    log: Log,
    *made: Record,
    epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, NO_EPOCH, -1),
    transactional: bool = False,
) -> None:
    """One batch. The offsets of the records count from 0; `producer` is id, epoch and sequence."""
    data = build(
        made,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )
    log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)


def end_transaction(log: Log, producer: int, *, commit: bool, epoch: int = 0, time: int = NOW_MS) -> None:
    marker = build_marker(
        EndTxnMarker(commit, 0), offset=0, timestamp=time, leader_epoch=0, producer_id=producer, producer_epoch=0
    )
    log.append_as_leader(marker, leader_epoch=epoch, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def some_records(random: Random, number: int, *, time: int = NOW_MS) -> list[Record]:
    """Records with and without keys, values and headers; some times go back."""
    return [
        Record(
            offset,
            time + offset - 3 * (offset % 2),
            random.choice((None, b"", b"key-%d" % random.randrange(9))),
            random.choice((None, b"", random.randbytes(5), b"value %d " % offset * random.randrange(1, 9))),
            random.choice(((), (("trace", b"\x00\xff"),), (("a", None), ("a", b""), ("ü", b"x")))),
        )
        for offset in range(number)
    ]


def sample_log(seed: int = 1, *, rounds: int = 30, config: LogConfig = SMALL_SEGMENTS) -> Log:
    """All codecs, two leader epochs, plain, committed, aborted and overlapping transactions over several segments."""
    random = Random(seed)
    log = new_log(config)
    sequences = {producer: count() for producer in (100, 101, 102)}
    for number in range(rounds):
        epoch = 0 if number < rounds // 2 else 3
        time = NOW_MS + 1000 * number
        append_records(log, *some_records(random, 6, time=time), epoch=epoch, codec=Codec(number % 5))
        for producer in (100, 101, 102):  # their transactions overlap, and 102's last over several segments
            content = [record._replace(headers=()) for record in some_records(random, 2, time=time)]
            sequence = next(sequences[producer]) * 2
            append_records(
                log,
                *content,
                epoch=epoch,
                codec=Codec((number + producer) % 5),
                producer=(producer, 0, sequence),
                transactional=True,
            )
        end_transaction(log, 100, commit=number % 3 == 0, epoch=epoch, time=time)
        if number % 2 == 1:
            end_transaction(log, 101, commit=number % 4 == 1, epoch=epoch, time=time)
        if number % 10 == 9:
            end_transaction(log, 102, commit=number % 20 == 9, epoch=epoch, time=time)
    if (rounds - 1) % 2 != 1:
        end_transaction(log, 101, commit=True, epoch=3)
    if (rounds - 1) % 10 != 9:
        end_transaction(log, 102, commit=False, epoch=3)
    log.advance_high_watermark(log.log_end_offset)
    return log


def objects_of(
    log: Log,
    *,
    partition: int = 0,
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
    uploader_epoch: int | None = None,
    upto: int | None = None,
    ids: Random | None = None,
) -> Objects:
    """The objects of all segments, the active one included, or of those that end at or before `upto`."""
    random = ids or Random(f"{topic}-{partition}")
    chain = tuple(LeaderEpoch(*entry) for entry in log.epochs.entries)
    place = TopicIdPartition(topic_id, topic, partition)
    ends = [segment.base_offset for segment in list(log.segments)[1:]] + [log.log_end_offset]
    segments = list(log.segments)
    log.close()
    made: Objects = {}
    for segment, end in zip(segments, ends, strict=True):
        if segment.size and (upto is None or end <= upto):
            remote = RemoteSegment(place, segment.base_offset, random.randbytes(16))
            made |= _objects_of(segment, end, remote, chain, uploader_epoch)
    return made


def _objects_of(
    segment: Segment, end: int, remote: RemoteSegment, chain: tuple[LeaderEpoch, ...], uploader_epoch: int | None
) -> Objects:
    disk = segment.files.disk
    data = disk.read(segment.log_path)
    transactions = segment.path(Kind.TXN_INDEX)
    whole_chain = tuple(entry for entry in chain if entry.start_offset < end)
    indexes = SegmentIndexes(
        offset=disk.read(segment.path(Kind.INDEX)),
        timestamp=disk.read(segment.path(Kind.TIME_INDEX)),
        producer_snapshot=disk.read(f"{segment.directory}/{end:020d}.snapshot"),
        leader_epoch=encode_leader_epochs(whole_chain),
        transaction=disk.read(transactions) if disk.exists(transactions) else None,
    )
    own = [entry for entry in whole_chain if entry.start_offset > remote.start_offset]
    before = [entry for entry in whole_chain if entry.start_offset <= remote.start_offset]
    if before:
        own.insert(0, LeaderEpoch(before[-1].epoch, remote.start_offset))
    batches = list(headers(data))
    encoded = indexes.encode()
    manifest = SegmentManifest(
        segment=remote,
        end_offset=end - 1,
        max_timestamp_ms=max(header.max_timestamp for header in batches),
        broker_id=1,
        event_timestamp_ms=NOW_MS,
        leader_epochs=tuple(own),
        size=len(data),
        indexes=indexes.ranges(),
        uploader=Uploader(
            cluster_id=CLUSTER_ID,
            incarnation=1,
            leader_epoch=chain[-1].epoch if uploader_epoch is None else uploader_epoch,
        ),
        content=content_of(data, batches, encoded),
    )
    return {
        remote.key(ObjectSuffix.LOG): data,
        remote.key(ObjectSuffix.INDEXES): encoded,
        remote.key(ObjectSuffix.MANIFEST): encode_manifest(manifest),
    }


def content_of(data: bytes, batches: list[BatchHeader], indexes: bytes) -> SegmentContent:
    return SegmentContent(
        crc32c=crc32c(data),
        indexes_crc32c=crc32c(indexes),
        min_timestamp_ms=min(record.timestamp for header in batches for record in records(data, header)),
        records=sum(header.record_count for header in batches),
        batches=len(batches),
        control_batches=sum(header.attributes & CONTROL != 0 for header in batches),
        codecs=frozenset(header.codec for header in batches),
        retention_until_ms=None,
    )


def as_kafka_writes(objects: Mapping[str, bytes]) -> Objects:
    """The same objects as Kafka writes them with Aiven's plugin: manifests without a block."""
    made = dict(objects)
    for key, data in objects.items():
        if key.endswith(ObjectSuffix.MANIFEST):
            manifest = decode_manifest(data)
            assert isinstance(manifest, SegmentManifest)
            made[key] = encode_manifest(replace(manifest, uploader=None, content=None))
    return made


# --- what the log itself says


def read_log(log: Log, isolation: str) -> Iterator[tuple[BatchHeader, Record]]:
    """The data records of the log, as a consumer of that isolation level gets them from the broker."""
    end = log.log_end_offset if isolation == "read_uncommitted" else log.last_stable_offset
    aborted = log.aborted_transactions(log.log_start_offset, end) if isolation == "read_committed" else []
    for segment in log.segments:
        data = log.files.disk.read(segment.log_path)
        for header in headers(data):
            is_aborted = header.is_transactional and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            if header.base_offset < end and not header.is_control and not is_aborted:
                yield from ((header, record) for record in records(data, header))


def digest_of_log(log: Log, isolation: str) -> str:
    return digest(
        (record.offset, record.timestamp, record.key, record.value, record.headers, header.leader_epoch)
        for header, record in read_log(log, isolation)
    )


def digest(rows: Iterable[object]) -> str:
    """One hash of all rows, in their order."""
    found = hashlib.sha256()
    for row in rows:
        found.update(repr(row).encode())
    return found.hexdigest()
