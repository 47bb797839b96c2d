"""A damaged range is replaced by a good copy of another replica, and nothing else of the log changes."""

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
from mutants.plant import assert_noticed, planted
from support.crash_enumeration import CrashFound, Promise, crash_everywhere, fail_each_operation
from support.log_fixtures import DIRECTORY, NOW_MS, SMALL, append, batch, open_log, reopen, values, verify

from trioka.protocol.batch import build_marker, check_crc, headers
from trioka.protocol.errors import CorruptMessage
from trioka.protocol.record import EndTxnMarker
from trioka.storage import segment_repair
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.batch_scan import BadBatch
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.quarantine import Damage, read_damages
from trioka.testing.disks.memory_disk import MemoryDisk

COUNT = 30
EPOCHS = (-1, -1)


@pytest.fixture
def storage() -> ModuleType:
    return segment_repair


def filled(disk: MemoryDisk | None = None, config: LogConfig = SMALL) -> Log:
    """One record to a batch, in three or four segments, all of it durable."""
    log = open_log(disk, config=config)
    for number in range(COUNT):
        append(log, f"{number}:{'x' * 20}", epoch=number // 12, producer=(7, 0, number))
    log.sync()
    log.advance_high_watermark(COUNT)
    return log


def flip(log: Log, offset: int, where: int = 80) -> None:
    """A bit of the batch that holds this offset, behind the log's back."""
    segment = log.segments.holding(offset)
    place = segment.locate(offset)
    assert place is not None
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)
    disk.flip_bit(segment.log_path, place.position + where, 3)


def good(first: int, end: int, log: Log | None = None) -> bytes:
    """What a replica that is whole answers to who asks for these offsets; a little more, as it comes."""
    log = log or filled()
    found, at = b"", first
    while at < end:
        answer = log.read(at, 250)
        assert answer.records is not None
        found, at = found + answer.records.read(), answer.next_offset
    return found


def heal(storage: ModuleType, log: Log, source: Callable[[Damage], bytes | None]) -> int:
    """All that can be: how many segments were mended."""
    healed = 0
    for segment, damages in storage.repairable_segments(log).items():
        patches = []
        for damage in damages:
            data = source(damage)
            if data is not None:
                epochs = storage.epochs_around(log, damage)
                patches.append(storage.accept(damage, data, epochs, compacted=log.config.compacts))
        if patches:
            storage.prepare(log, segment, now_ms=NOW_MS)
            log.sync()
            work = storage.begin(log, segment, now_ms=NOW_MS)
            storage.install_repair(work, storage.build(work, patches), patches)
            healed += 1
    return healed


def from_another(damage: Damage) -> bytes:
    return good(damage.first_offset, damage.end_offset)


def files(log: Log) -> dict[str, bytes]:
    """The logs and indexes of the closed segments, by name."""
    disk = log.files.disk
    names = [name for name in disk.list(DIRECTORY) if name.endswith((".log", ".index", ".txnindex"))]
    return {name: disk.read(f"{DIRECTORY}/{name}") for name in sorted(names)}


# What is good enough -------------------------------------------------------------------------------------------------


def damage_of(first: int, end: int) -> Damage:
    return Damage(first_offset=first, end_offset=end, base_offset=0, position=0, end_position=9, reason="")


def three(*, epoch: int = 2, base: int = 10) -> list[bytearray]:
    return [batch(f"{base + n}", base_offset=base + n, leader_epoch=epoch) for n in range(3)]


def test_of_an_answer_only_the_batches_of_the_damage_are_taken(storage: ModuleType) -> None:
    before, wanted, behind = three()
    patch = storage.accept(damage_of(11, 12), bytes(before + wanted + behind), (2, 2), compacted=False)
    assert (patch.data, patch.end_offset, patch.is_whole) == (bytes(wanted), 12, True)
    torn = storage.accept(damage_of(11, 13), bytes(wanted + behind[:-1]), (2, 2), compacted=False)
    assert (torn.data, torn.end_offset, torn.is_whole) == (bytes(wanted), 12, False), "the rest is asked for later"


def test_a_copy_with_a_wrong_crc_is_refused(storage: ModuleType) -> None:
    data = bytearray(b"".join(three()))
    data[-1] ^= 1
    with pytest.raises(storage.BadPatch, match="CRC"):
        storage.accept(damage_of(10, 13), bytes(data), EPOCHS, compacted=False)


def test_a_copy_with_another_leader_epoch_is_refused(storage: ModuleType) -> None:
    """It is another batch, written by a leader of which this log has not heard, or which it has outlived."""
    for epoch in (1, 4):
        with pytest.raises(storage.BadPatch, match="epoch"):
            storage.accept(damage_of(10, 13), b"".join(three(epoch=epoch)), (2, 3), compacted=False)
    assert storage.accept(damage_of(10, 13), b"".join(three(epoch=3)), (2, 3), compacted=False).is_whole


def test_only_a_compacted_log_may_lack_offsets(storage: ModuleType) -> None:
    first, _, third = three()
    with pytest.raises(storage.BadPatch, match="not compacted"):
        storage.accept(damage_of(10, 13), bytes(first + third), EPOCHS, compacted=False)
    assert storage.accept(damage_of(10, 13), bytes(first + third), EPOCHS, compacted=True).is_whole
    nothing = storage.accept(damage_of(11, 12), bytes(third), EPOCHS, compacted=True)
    assert (nothing.data, nothing.is_whole) == (b"", True), "what comes behind says that there is nothing"
    with pytest.raises(storage.BadPatch, match="nothing"):
        storage.accept(damage_of(11, 12), bytes(third), EPOCHS, compacted=False)


def test_what_lies_before_the_start_of_the_log_may_be_missing(storage: ModuleType) -> None:
    """The other replica may have deleted it. The batch that holds the first offset is there as a whole."""
    _, second, third = three()
    data = bytes(second + third)
    for start in (11, 12):
        patch = storage.accept(damage_of(10, 13), data, EPOCHS, compacted=False, log_start_offset=start)
        assert (patch.data, patch.is_whole) == (data, True)
    with pytest.raises(storage.BadPatch, match="not compacted"):
        storage.accept(damage_of(10, 13), data, EPOCHS, compacted=False, log_start_offset=10)
    wide = bytes(batch("a", "b", "c", base_offset=10, leader_epoch=2))
    assert storage.accept(damage_of(10, 13), wide, EPOCHS, compacted=False, log_start_offset=12).is_whole


def test_a_batch_that_reaches_beyond_the_damage_is_refused(storage: ModuleType) -> None:
    wide = bytes(batch("a", "b", "c", base_offset=10, leader_epoch=2))
    for damage in (damage_of(10, 12), damage_of(11, 13)):
        with pytest.raises(storage.BadPatch):
            storage.accept(damage, wide, EPOCHS, compacted=False)


@pytest.mark.parametrize("data", [b"", b"x" * 5, b"\0" * 100, b"\2" * 100])
def test_an_answer_that_is_no_batch_is_refused(storage: ModuleType, data: bytes) -> None:
    with pytest.raises(storage.BadPatch):
        storage.accept(damage_of(10, 13), data, EPOCHS, compacted=True)


# Mending -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [6, 10, 16, 30, 80])
def test_a_mended_log_is_as_it_was_to_the_byte(where: int) -> None:
    """In the offset, the length, the magic, the header, the records: in a closed segment and in the active one."""
    log = filled()
    wanted = values(log)
    for offset in (4, 15, COUNT - 1):
        flip(log, offset, where)
    log.files.close()
    assert len(list(verify(log))) == 3
    for offset in (4, 15, COUNT - 1):
        with pytest.raises(CorruptMessage):
            log.read(offset, 100)
    assert heal(segment_repair, log, from_another) == 3
    assert not log.quarantine
    assert values(log) == wanted
    assert [name for name in log.files.disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))] == []
    for name, content in files(filled()).items():
        assert not name.endswith(".log") or files(log)[name] == content
    append(log, "on", epoch=9)
    assert values(reopen(log, clean=False)) == [*wanted, "on"]


def test_damage_without_a_good_copy_stays_listed_and_all_else_is_repaired() -> None:
    log = filled()
    for offset in (1, 3, 5):
        flip(log, offset)
    log.files.close()
    assert len(list(verify(log))) == 3
    assert heal(segment_repair, log, lambda damage: None if damage.holds(3) else from_another(damage)) == 1
    (left,) = log.quarantine.damages
    assert (left.first_offset, left.end_offset) == (3, 4)
    for clean in (True, False):
        log = reopen(log, clean=clean)
        assert log.quarantine.damages == (left,)
        assert [int(each.partition(":")[0]) for each in (*values_upto(log, 3), *values(log, 4))] == [
            number for number in range(COUNT) if number != 3
        ]
    assert heal(segment_repair, log, from_another) == 1
    assert not log.quarantine


def values_upto(log: Log, end: int) -> list[str]:
    answer = log.read(0, 10_000, upto=end)
    assert answer.records is not None
    data = answer.records.read()
    assert all(check_crc(data, header) for header in headers(data))
    return [f"{header.base_offset}:" for header in headers(data)]


def test_a_range_is_mended_piece_by_piece() -> None:
    """Of a wide range, say a whole segment, an answer has a part."""
    log = filled()
    segment = log.segments[1]
    disk = log.files.disk
    disk.open(segment.log_path).write(0, b"\2" * segment.size)
    log.files.close()
    assert len(list(verify(log))) == 1
    rounds = 0
    while log.quarantine:
        heal(segment_repair, log, lambda damage: good(damage.first_offset, damage.first_offset + 2))
        rounds += 1
    assert rounds > 2
    assert files(log)[f"{segment.base_offset:020d}.log"] == files(filled())[f"{segment.base_offset:020d}.log"]


def test_bytes_that_are_missing_are_put_in_where_they_belong() -> None:
    disk = filled().files.disk
    assert isinstance(disk, MemoryDisk)
    last = [name for name in disk.list(DIRECTORY) if name.endswith(".log")][-1]
    disk.open(f"{DIRECTORY}/{last}").truncate(100)
    log = open_log(disk, clean=False, recovery_point=COUNT)
    (damage,) = log.quarantine.damages
    assert (damage.first_offset, damage.end_offset) == (int(last[:20]) + 1, COUNT)
    heal(segment_repair, log, from_another)
    assert not log.quarantine.damages
    assert values(log) == values(filled())
    assert values(reopen(log, clean=False)) == values(filled())


def test_damage_that_is_not_known_yet_stops_the_work_and_nothing_is_replaced() -> None:
    log = filled()
    flip(log, 1)
    log.files.close()
    assert list(verify(log))
    flip(log, 4)
    log.files.close()
    before = files(log)
    with pytest.raises(BadBatch):
        heal(segment_repair, log, from_another)
    assert files(log) == before
    assert not any(name.endswith(".cleaned") for name in log.files.disk.list(DIRECTORY))


def test_a_log_that_has_changed_meanwhile_is_left_as_it_is(storage: ModuleType) -> None:
    def cut(log: Log) -> None:
        log.truncate_to(2, now_ms=NOW_MS)

    def forget(log: Log) -> None:
        log.delete_segments(log.segments[:1], now_ms=NOW_MS)

    def find_more(log: Log) -> None:
        flip(log, 4)
        log.files.close()
        assert list(verify(log))

    for change in (cut, forget, find_more, Log.close_handles):
        log = filled()
        flip(log, 1)
        log.files.close()
        (damage,) = verify(log)
        work = storage.begin(log, log.segments[0], now_ms=NOW_MS)
        patch = storage.accept(damage, from_another(damage), EPOCHS, compacted=False)
        built = storage.build(work, [patch])
        change(log)
        before = {name: data for name, data in files(log).items() if "cleaned" not in name}
        with pytest.raises(storage.LogChanged):
            storage.install_repair(work, built, [patch])
        assert files(log) == before


def test_neither_the_active_segment_nor_what_is_not_durable_is_mended(storage: ModuleType) -> None:
    log = open_log()
    for number in range(3):
        append(log, str(number))
    with pytest.raises(storage.LogChanged):
        storage.begin(log, log.segments.active, now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    with pytest.raises(storage.LogChanged):
        storage.begin(log, log.segments[0], now_ms=NOW_MS)


def test_a_repair_restores_producer_state_that_recovery_lacked() -> None:
    """The last batch of a producer, the beginning of a transaction and an abort, in damage that a crash left."""

    def made() -> Log:
        log = open_log()
        append(log, "a", producer=(7, 0, 0))
        append(log, "b", producer=(8, 0, 0), transactional=True)
        marker = build_marker(
            EndTxnMarker(False, 0), offset=0, timestamp=NOW_MS, leader_epoch=0, producer_id=8, producer_epoch=0
        )
        log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
        append(log, "c", producer=(9, 0, 0), transactional=True)
        append(log, "d", producer=(7, 0, 1))
        append(log, "e")
        log.sync()
        log.advance_high_watermark(log.log_end_offset)
        return log

    def known(log: Log) -> object:
        log.advance_high_watermark(log.log_end_offset)
        return (
            {key: (each.last_sequence, each.last_offset) for key, each in log.producers.producers.items()},
            log.last_stable_offset,
            log.aborted_transactions(0, 6),
        )

    whole, log = made(), made()
    for offset in (2, 3, 4):
        flip(log, offset, where=62)
    log.files.close()
    log = open_log(log.files.disk, clean=False, recovery_point=6)
    assert [(damage.first_offset, damage.end_offset) for damage in log.quarantine.damages] == [(2, 5)]
    assert known(log) != known(whole)
    heal(segment_repair, log, lambda damage: good(damage.first_offset, damage.end_offset, whole))
    assert known(log) == known(whole)


# Crashes -------------------------------------------------------------------------------------------------------------


def prepared(disk: MemoryDisk) -> None:
    disk.make_directory(DIRECTORY)
    log = open_log(disk)
    for number in range(12):
        append(log, f"{number}:{'x' * 20}", epoch=0, producer=(7, 0, number))
    log.roll(now_ms=NOW_MS)
    log.sync()
    flip(log, 3)
    disk.settle()


def mending(storage: ModuleType) -> Callable[[MemoryDisk, Promise], None]:
    def run(disk: MemoryDisk, promise: Promise) -> None:
        log = open_log(disk, clean=False, recovery_point=12)
        list(verify(log))
        heal(storage, log, lambda damage: good(3, 4))
        promise("mended")

    return run


def recover(disk: MemoryDisk) -> Log:
    return open_log(disk, clean=False, recovery_point=12)


def check(log: Log, promised: Sequence[str]) -> None:
    """The one bad batch is bad or mended; every other one is there, in any case."""
    list(verify(log))
    for offset in range(12):
        try:
            answer = log.read(offset, 1, upto=offset + 1)
        except CorruptMessage:
            assert offset == 3, offset
            assert not promised
            continue
        assert answer.records is not None, offset
        data = answer.records.read()
        assert [(header.base_offset, check_crc(data, header)) for header in headers(data)] == [(offset, True)]
    if promised:
        assert read_damages(log.files.disk, DIRECTORY) == ()
    heal(segment_repair, log, lambda damage: good(3, 4))
    assert not log.quarantine
    assert len(values(log)) == 12


@pytest.mark.slow
def test_a_crash_at_any_step_of_mending_loses_no_good_byte() -> None:
    report = crash_everywhere(mending(segment_repair), prepare=prepared, recover=recover, check=check)
    assert report.states > 50


@pytest.mark.nightly
def test_mending_on_a_disk_that_fails_at_any_operation_loses_no_good_byte() -> None:
    report = fail_each_operation(
        mending(segment_repair), prepare=prepared, recover=recover, check=check, pending_limit=4
    )
    assert report.failed_operations > 20


@pytest.mark.slow
def test_a_mending_that_loses_a_good_batch_would_be_found() -> None:
    hasty = planted(segment_repair, "        self._copy(file, position, self._work.held.size)\n", "")
    with pytest.raises(CrashFound):
        crash_everywhere(mending(hasty), prepare=prepared, recover=recover, check=check)


MISTAKES = [
    (
        "        if not kept and header.base_offset <= log_start_offset:\n",
        "        if not kept:\n",
        test_what_lies_before_the_start_of_the_log_may_be_missing,
    ),
    ("    if not check_crc(data, header):\n", "    if False:\n", test_a_copy_with_a_wrong_crc_is_refused),
    ("(before >= 0 and header.leader_epoch < before)", "False", test_a_copy_with_another_leader_epoch_is_refused),
    ("(0 <= after < header.leader_epoch)", "False", test_a_copy_with_another_leader_epoch_is_refused),
    (
        "    if header.base_offset != expected and not compacted:",
        "    if False:",
        test_only_a_compacted_log_may_lack_offsets,
    ),
    (" or header.last_offset >= damage.end_offset:", ":", test_a_batch_that_reaches_beyond_the_damage_is_refused),
    (
        " and repairable_segments(log).get(old, ()) == work.damages",
        "",
        test_a_log_that_has_changed_meanwhile_is_left_as_it_is,
    ),
    (" or log.recovery_point < limit", "", test_neither_the_active_segment_nor_what_is_not_durable_is_mended),
    (
        "        if header.last_offset < damage.first_offset:\n            continue\n",
        "",
        test_of_an_answer_only_the_batches_of_the_damage_are_taken,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(segment_repair, right, wrong, rule)
