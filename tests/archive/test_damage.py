"""A damaged bit in any of the three objects is noticed, or changes nothing that a reader gets.

Of a manifest every bit is noticed (tests/protocol/test_remote_segment.py). Here are the other two.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.archive_objects import Objects, as_kafka_writes, objects_of, sample_log

from trioka.archive import ArchivedRecord, ArchiveError, DamagedSegment
from trioka.archive import partition as partition_module
from trioka.archive import segment_reader as reader_module
from trioka.archive.errors import MissingObject
from trioka.archive.partition import OffsetRange
from trioka.archive.records import Isolation, RecordIterator
from trioka.archive.store import ReadOnlyStore
from trioka.protocol.batch import headers
from trioka.protocol.remote_segment.indexes import OffsetPosition, decode_offset_index
from trioka.protocol.remote_segment.manifest import SegmentManifest, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix


class MemoryStore(ReadOnlyStore):
    """Objects in memory, so that thousands of damaged ones can be read."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.url = self.name = "memory"
        self.contents = dict(objects)

    def read(self, key: str, *, limit: int) -> bytes:
        if key not in self.contents:
            raise MissingObject(key)
        return self.contents[key]

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        return memoryview(self.contents[key])[start : start + size]


@cache
def sample() -> Objects:
    return objects_of(sample_log(11, rounds=10))


def manifests_of(objects: Objects) -> list[SegmentManifest]:
    found = [decode_manifest(data) for key, data in objects.items() if key.endswith(ObjectSuffix.MANIFEST)]
    return [each for each in found if isinstance(each, SegmentManifest)]


def flipped(data: bytes, bits: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(damaged)


def outcome(read: Callable[[], object]) -> object:
    """What a reader got, or that it noticed the damage."""
    try:
        return read()
    except ArchiveError:
        return "noticed"


def consumed(reader: reader_module.SegmentReader, how: dict[str, object]) -> list[reader_module.Batch]:
    return list(reader.batches(**how))  # type: ignore[arg-type]


@pytest.fixture
def readers() -> ModuleType:
    return reader_module


def log_reads(readers: ModuleType, objects: Objects, bits: Callable[[bytes], Iterable[int]]) -> None:
    """Every flipped bit of a .log object raises, in reads from the start, up to an offset, and from an index entry."""
    manifest = next(each for each in manifests_of(objects) if len(each.leader_epochs) == 2)
    store = MemoryStore(objects)
    partition = partition_module.ArchivedPartition(store, "orders", 0, manifests_of(objects))
    key = manifest.segment.key(ObjectSuffix.LOG)
    batches = list(headers(objects[key]))
    middle = batches[len(batches) // 2].base_offset
    entries = decode_offset_index(partition.indexes(manifest).offset, manifest.start_offset)
    start = next(entry for entry in entries if entry.position > 0)
    at_start = next(header for header in batches if header.position == start.position)
    reads: tuple[tuple[dict[str, object], int, int], ...] = (
        ({}, 0, manifest.size),
        ({"end_offset": middle}, 0, next(header.position for header in batches if header.base_offset == middle)),
        ({"start": start, "start_offset": at_start.base_offset}, start.position, manifest.size),
    )
    for how, first, end in reads:
        expected = [
            bytes(each.data) for each in readers.SegmentReader(store, manifest, partition.lineage).batches(**how)
        ]
        assert b"".join(expected) == objects[key][first:end]
        chosen = [bit for bit in bits(objects[key]) if first * 8 <= bit < end * 8]
        for bit, damaged in flipped(objects[key], chosen):
            reader = readers.SegmentReader(MemoryStore({**objects, key: damaged}), manifest, partition.lineage)
            found = outcome(partial(consumed, reader, how))
            assert found == "noticed", f"byte {bit // 8}, bit {bit % 8} of {how}"


def bits_outside_of_the_crc(data: bytes) -> list[int]:
    """Base offset, length, leader epoch, magic and CRC of some batches, and some bits of the rest."""
    positions = [header.position for header in headers(data)]
    chosen = [*positions[:3], *positions[-2:], positions[len(positions) // 2]]
    found = {8 * position + bit for position in chosen for bit in range(8 * 21)}
    return sorted(found | {Random(1).randrange(8 * len(data)) for _ in range(100)})


def test_a_flipped_bit_of_a_segment_is_noticed(readers: ModuleType) -> None:
    log_reads(readers, sample(), bits_outside_of_the_crc)


def test_a_flipped_bit_is_noticed_without_a_checksum_in_the_manifest(readers: ModuleType) -> None:
    log_reads(readers, as_kafka_writes(sample()), bits_outside_of_the_crc)


def test_an_index_entry_that_is_wrong_loses_no_records(readers: ModuleType) -> None:
    objects = as_kafka_writes(sample())  # nothing says that this index is whole
    manifest = manifests_of(objects)[0]
    third = list(headers(objects[manifest.segment.key(ObjectSuffix.LOG)]))[2]
    wrong = OffsetPosition(third.base_offset - 1, third.position)
    reader = readers.SegmentReader(MemoryStore(objects), manifest)
    with pytest.raises(DamagedSegment, match="the index says offset"):
        list(reader.batches(start=wrong, start_offset=third.base_offset - 1))


@pytest.mark.nightly
def test_every_flipped_bit_of_a_segment_is_noticed(readers: ModuleType) -> None:
    for objects in (sample(), as_kafka_writes(sample())):
        log_reads(readers, objects, lambda data: range(8 * len(data)))


@pytest.fixture
def partitions() -> ModuleType:
    return partition_module


def test_every_flipped_bit_of_the_indexes_is_noticed(partitions: ModuleType) -> None:
    """By a reader of the object; and no other reader gets other records."""
    objects = sample()
    manifests = manifests_of(objects)

    def read(contents: Objects, offsets: OffsetRange) -> list[ArchivedRecord]:
        partition = partitions.ArchivedPartition(MemoryStore(contents), "orders", 0, manifests)
        return list(RecordIterator(partition, offsets=offsets, isolation=Isolation.READ_COMMITTED))

    for manifest in (manifests[0], manifests[-1]):
        key = manifest.segment.key(ObjectSuffix.INDEXES)
        offsets = OffsetRange(manifest.start_offset + 20, None)
        expected = read(objects, offsets)
        for bit, damaged in flipped(objects[key], range(8 * len(objects[key]))):
            found = outcome(partial(read, {**objects, key: damaged}, offsets))
            assert found in ("noticed", expected), f"bit {bit} of {key}"
            assert found == "noticed" or manifest is not manifests[-1], f"bit {bit} of {key} is not noticed"


def read_all(store: ReadOnlyStore, manifests: list[SegmentManifest]) -> list[ArchivedRecord]:
    return list(RecordIterator(partition_module.ArchivedPartition(store, "orders", 0, manifests)))


def test_objects_that_are_cut_off_are_noticed() -> None:
    objects = sample()
    manifests = manifests_of(objects)
    for suffix in (ObjectSuffix.LOG, ObjectSuffix.INDEXES):
        key = manifests[-1].segment.key(suffix)
        for size in range(0, len(objects[key]), 97):
            store = MemoryStore({**objects, key: objects[key][:size]})
            with pytest.raises(DamagedSegment):
                read_all(store, manifests)


def test_offsets_that_compaction_removed_are_not_taken_for_damage() -> None:
    """A topic that was compacted before it was tiered has gaps between its batches."""
    objects = as_kafka_writes(sample())
    manifest = manifests_of(objects)[0]
    key = manifest.segment.key(ObjectSuffix.LOG)
    data = objects[key]
    first, second, *_ = headers(data)
    compacted = data[: first.end] + data[second.end :]
    smaller = replace(manifest, size=len(compacted))
    found = list(reader_module.SegmentReader(MemoryStore({key: compacted}), smaller).batches())
    assert found[1].header.base_offset == second.next_offset
    with_checksum = replace(manifests_of(sample())[0], size=len(compacted))
    with pytest.raises(DamagedSegment, match="checksum of its manifest"):
        list(reader_module.SegmentReader(MemoryStore({key: compacted}), with_checksum).batches())


WITH_CHECKSUM = test_a_flipped_bit_of_a_segment_is_noticed
WITHOUT_CHECKSUM = test_a_flipped_bit_is_noticed_without_a_checksum_in_the_manifest
READER_MISTAKES = [
    ("not check_crc(data, header)", "False", WITH_CHECKSUM),
    ("epoch != header.leader_epoch", "False", WITH_CHECKSUM),
    ("crc != self._manifest.content.crc32c", "False", WITH_CHECKSUM),
    (
        "expected is not None and header.base_offset > expected and not may_have_gaps",
        "False",
        WITH_CHECKSUM,
    ),
    ("not lowest <= first <= last <= self._manifest.end_offset", "not lowest <= first", WITHOUT_CHECKSUM),
    (
        "not lowest <= first <= last <= self._manifest.end_offset",
        "not first <= last <= self._manifest.end_offset",
        WITHOUT_CHECKSUM,
    ),
    (
        "expected is None and start is not None and not first <= start.offset <= last",
        "False",
        test_an_index_entry_that_is_wrong_loses_no_records,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), READER_MISTAKES)
def test_a_planted_mistake_of_the_reader_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(reader_module, right, wrong, rule)


PARTITION_MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "manifest.content is not None and crc32c(data) != manifest.content.indexes_crc32c",
        "False",
        test_every_flipped_bit_of_the_indexes_is_noticed,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), PARTITION_MISTAKES)
def test_a_planted_mistake_of_the_partition_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(partition_module, right, wrong, rule)
