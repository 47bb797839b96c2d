"""Producer snapshots: Kafka's bytes, damage refused, and the right ones kept."""

from types import ModuleType

import pytest
from crc32c import crc32c
from mutants.plant import Rule, assert_noticed

from trioka.storage import producer_snapshot
from trioka.storage.layout import CorruptFile
from trioka.storage.producer_snapshot import ProducerSnapshot, SnapshotBatch, SnapshotEntry, SnapshotFiles
from trioka.testing.disks.memory_disk import MemoryDisk

DIRECTORY = "/logs/orders-0"

# Written by Kafka 4.3.1.
KAFKA = bytes.fromhex(
    "0001acb71f3a00000003"
    "00000000000003e8000300000004000000000000000e000000040000018bcfe56800ffffffffffffffffffffffff"
    "00000000000003e90000000000010000000000000016000000010000018bcfe56802000000070000000000000012"
    "00000000000003ea0009ffffffffffffffffffffffff000000000000018bcfe568030000000cffffffffffffffff"
)
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
THREE = [
    SnapshotEntry(1000, 3, 4, 14, 4, 1700000000000, -1, -1),
    SnapshotEntry(1001, 0, 1, 22, 1, 1700000000002, 7, 18),
    SnapshotEntry(1002, 9, -1, -1, 0, 1700000000003, 12, -1),
]
EARLIER = SnapshotBatch(1000, 0, 3, 0, 1699999999000)
BATCHES = [EARLIER, SnapshotBatch(1000, 0, 10, 4, 1700000000000)]


@pytest.fixture
def storage() -> ModuleType:
    return producer_snapshot


def files(storage: ModuleType, *offsets: int) -> tuple[SnapshotFiles, MemoryDisk]:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    found = storage.SnapshotFiles(disk, DIRECTORY)
    for offset in offsets:
        found.write(offset, ProducerSnapshot([]), sync=True)
    return found, disk


def test_snapshots_are_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    assert storage.encode(ProducerSnapshot(THREE)) == KAFKA
    assert storage.decode("path", KAFKA) == ProducerSnapshot(THREE)
    assert storage.encode(ProducerSnapshot([])) == EMPTY_SNAPSHOT
    assert storage.decode("path", EMPTY_SNAPSHOT) == ProducerSnapshot([])


def test_our_batches_stand_behind_kafkas_bytes_under_the_same_checksum(storage: ModuleType) -> None:
    data = storage.encode(ProducerSnapshot(THREE, BATCHES))
    assert data[6 : len(KAFKA)] == KAFKA[6:]
    assert data[2:6] == crc32c(data[6:]).to_bytes(4, "big")
    assert data[len(KAFKA) :].hex() == (
        b"TRIOKA-1".hex() + "00000002"
        "00000000000003e80000000000000000000000030000000000000" + "18bcfe56418"
        "00000000000003e8000000000000000000000" + "00a00000004" + "0000018bcfe56800"
    )
    assert storage.decode("path", data) == ProducerSnapshot(THREE, BATCHES)
    assert storage.decode("path", storage.encode(ProducerSnapshot(THREE, []))) == ProducerSnapshot(THREE, [])


def with_checksum(body: bytes) -> bytes:
    return b"\0\1" + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "batches",
    [
        [EARLIER],  # the last one is not the one of the entry
        [*BATCHES, BATCHES[-1]],
        [BATCHES[1], BATCHES[0]],
        [BATCHES[0]._replace(offset_delta=-1), BATCHES[1]],
        [BATCHES[0]._replace(producer_id=7)],
    ],
)
def test_batches_that_do_not_belong_to_the_entries_are_refused(
    storage: ModuleType, batches: list[SnapshotBatch]
) -> None:
    with pytest.raises(CorruptFile):
        storage.decode("path", storage.encode(ProducerSnapshot(THREE, batches)))


def test_unknown_bytes_behind_the_entries_are_refused(storage: ModuleType) -> None:
    body = storage.encode(ProducerSnapshot(THREE, BATCHES))[6:]
    for strange in (body[:-1], body + b"\0", body[:150], body.replace(b"TRIOKA-1", b"TRIOKA-2"), KAFKA[6:] + bytes(12)):
        with pytest.raises(CorruptFile):
            storage.decode("path", with_checksum(strange))


@pytest.mark.parametrize("whole", [KAFKA, producer_snapshot.encode(ProducerSnapshot(THREE, BATCHES))])
def test_any_flipped_bit_and_any_missing_byte_is_noticed(whole: bytes) -> None:
    notice_any_damage(producer_snapshot, whole)


def notice_any_damage(storage: ModuleType, whole: bytes = KAFKA) -> None:
    for position in range(len(whole)):
        with pytest.raises(CorruptFile):
            storage.decode("path", whole[:position])
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptFile):
                storage.decode("path", bytes(damaged))
    with pytest.raises(CorruptFile):
        storage.decode("path", whole + b"\0")
    with pytest.raises(CorruptFile):
        storage.decode("path", bytes(200))


def test_a_count_that_does_not_fit_or_a_producer_that_cannot_be_is_refused(storage: ModuleType) -> None:
    for entry in (
        THREE[0]._replace(producer_id=-1),
        THREE[0]._replace(offset_delta=-1),
        THREE[0]._replace(epoch=-2),
    ):
        with pytest.raises(CorruptFile, match="cannot be"):
            storage.decode("path", storage.encode(ProducerSnapshot([entry])))
    for count in (4, -1):
        with pytest.raises(CorruptFile, match=f"announces {count}"):
            storage.decode("path", with_checksum(count.to_bytes(4, "big", signed=True) + KAFKA[10:]))


def test_only_whole_names_are_found_in_the_directory(storage: ModuleType) -> None:
    names = ["00000000000000000042.snapshot", "00000000000000000007.snapshot", "00000000000000000008.snapshot.deleted",
             "00000000000000000009.log", "00000000000000000042.snapshot.tmp"]  # fmt: skip
    disk = MemoryDisk({f"{DIRECTORY}/{name}": KAFKA for name in names})
    found = storage.SnapshotFiles.scan(disk, DIRECTORY)
    assert found.offsets == [7, 42]
    assert found.latest == 42
    assert found.read(42) == ProducerSnapshot(THREE)


def test_an_unsynced_snapshot_replaces_a_longer_one_whole(storage: ModuleType) -> None:
    found, disk = files(storage)
    for sync in (True, False):
        found.write(42, ProducerSnapshot(THREE), sync=sync)
        assert disk.read(found.path(42)) == KAFKA
        found.write(42, ProducerSnapshot([]), sync=sync)
        assert disk.read(found.path(42)) == EMPTY_SNAPSHOT
        assert found.offsets == [42]


def test_a_snapshot_beyond_all_reason_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = files(producer_snapshot, 42)
    monkeypatch.setattr(producer_snapshot, "MAX_SNAPSHOT_BYTES", 9)
    with pytest.raises(CorruptFile, match="no snapshot has more"):
        found.read(42)


def test_snapshots_before_an_offset_are_removed(storage: ModuleType) -> None:
    found, disk = files(storage, 10, 20, 30)
    found.remove_before(20)
    assert found.offsets == [20, 30]
    assert not disk.exists(found.path(10))


def test_only_snapshots_inside_of_the_log_are_kept_its_ends_among_them(storage: ModuleType) -> None:
    found, disk = files(storage, 10, 20, 30, 40)
    found.remove_outside(20, 30)
    assert found.offsets == [20, 30]
    assert disk.list(DIRECTORY) == ["00000000000000000020.snapshot", "00000000000000000030.snapshot"]


def test_strays_are_removed_but_not_the_one_of_the_clean_stop(storage: ModuleType) -> None:
    for offsets, bases, kept in [
        ([10, 15, 20, 25], [0, 10, 20], [10, 20, 25]),
        ([10, 15, 20, 22, 25], [0, 10, 20], [10, 20, 25]),
        ([10, 15, 20], [0, 10, 20], [10, 20]),
        ([5, 7], [], [7]),
    ]:
        found, disk = files(storage, *offsets)
        found.remove_strays(bases)
        assert found.offsets == kept
        assert len(disk.list(DIRECTORY)) == len(kept)


def test_removing_what_is_gone_already_is_no_error(storage: ModuleType) -> None:
    found, disk = files(storage, 10)
    disk.remove(found.path(10))
    found.remove(10)
    found.remove(11)
    assert found.offsets == []
    assert found.latest is None


def refuse_strange_batches(storage: ModuleType) -> None:
    test_batches_that_do_not_belong_to_the_entries_are_refused(storage, [EARLIER])


def refuse_the_same_batch_twice(storage: ModuleType) -> None:
    test_batches_that_do_not_belong_to_the_entries_are_refused(storage, [*BATCHES, BATCHES[-1]])


MISTAKES: list[tuple[str, str, Rule]] = [
    ('struct.Struct(">qhiqiqiq")', 'struct.Struct(">qhiqiqqi")', test_snapshots_are_kafkas_bytes_in_both_directions),
    ("crc32c(view[_HEAD.size :]) != crc", "crc32c(view[_HEAD.size :]) == -1", notice_any_damage),
    ("if version != VERSION:", "if False:", notice_any_damage),
    ("if not start <= end <= len(data):", "if False:",
     test_a_count_that_does_not_fit_or_a_producer_that_cannot_be_is_refused),
    ("and not file.suffix", "", test_only_whole_names_are_found_in_the_directory),
    ("                file.truncate(len(data))\n", "", test_an_unsynced_snapshot_replaces_a_longer_one_whole),
    ("start <= offset <= end", "start < offset <= end",
     test_only_snapshots_inside_of_the_log_are_kept_its_ends_among_them),
    ('struct.Struct(">qiqiq")', 'struct.Struct(">qiqqi")',
     test_our_batches_stand_behind_kafkas_bytes_under_the_same_checksum),
    ("if count * _BATCH.size != len(view) - start:", "if False:",
     test_unknown_bytes_behind_the_entries_are_refused),
    ("bytes(view[: len(_BATCHES_MAGIC)]) != _BATCHES_MAGIC", "False",
     test_unknown_bytes_behind_the_entries_are_refused),
    ("if last_offsets.get(producer_id) != last_offset:", "if False:", refuse_strange_batches),
    (" or batch.first_offset <= newest.get(batch.producer_id, -1):", ":", refuse_the_same_batch_twice),
    ("if offset != strays[-1] or offset < newest_base:", "if True:",
     test_strays_are_removed_but_not_the_one_of_the_clean_stop),
    ("if offset != strays[-1] or offset < newest_base:", "if offset != strays[-1]:",
     test_strays_are_removed_but_not_the_one_of_the_clean_stop),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(producer_snapshot, right, wrong, rule)
