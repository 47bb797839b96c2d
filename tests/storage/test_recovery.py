"""What a start makes of what it finds: torn tails are cut, damage is not (S1, S5, S6), and what is beside a log is
made again."""

import pytest
from support.log_fixtures import DIRECTORY, NOW_MS, SMALL, append, batch, open_log, read_all, reopen, values, verify

from trioka.protocol.errors import CorruptMessage
from trioka.storage.disk import Disk
from trioka.storage.index_rebuild import epochs_of
from trioka.storage.log import Log
from trioka.storage.quarantine import FILE_NAME, MAX_RANGES, Damage, merge, read_damages, write_damages
from trioka.storage.segment import Segment
from trioka.testing.disks.memory_disk import MemoryDisk


def value(number: int) -> str:
    return f"{number}:{'x' * 20}"


def stopped(count: int = 30, *, clean: bool = True) -> MemoryDisk:
    """A log of `count` records, one to a batch, in three or four segments."""
    log = open_log()
    for number in range(count):
        append(log, value(number), epoch=number // 12, producer=(7, 0, number))
    if clean:
        log.close()
    else:
        log.sync()
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)
    return disk


def segments(disk: Disk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".log")]


def base(disk: Disk, number: int) -> int:
    return int(segments(disk)[number][-24:-4])


def damage(disk: MemoryDisk, number: int, position: int) -> None:
    disk.flip_bit(segments(disk)[number], position, 3)


def readable(log: Log) -> list[int]:
    """Every offset that can be read, asked one by one; what comes back must be what was written."""
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            first = read_all(log, offset, upto=offset + 1)
        except CorruptMessage:
            continue
        assert [(record.offset, record.value) for record in first] == [(offset, value(offset).encode())]
        found.append(offset)
    return found


# A torn tail ---------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    disk = stopped(25, clean=False)
    last = segments(disk)[-1]
    whole = disk.read(last)
    ends = [place.end for place in open_log(MemoryDisk(disk.files()), recovery_point=25).segments[-1].places()]
    for size in range(len(whole)):
        torn = MemoryDisk(disk.files())
        torn.open(last).truncate(size)
        log = open_log(torn, clean=False, recovery_point=int(last[-24:-4]))
        kept = sum(end <= size for end in ends)
        assert log.log_end_offset == int(last[-24:-4]) + kept
        assert not log.quarantine
        assert len(values(log)) == log.log_end_offset
        assert log.epochs.entries == epochs_of(log.segments)


def test_segments_behind_a_torn_one_go_with_it() -> None:
    disk = stopped(30, clean=False)
    second = segments(disk)[1]
    disk.open(second).truncate(100)
    log = open_log(disk, clean=False, recovery_point=0)
    assert len(log.segments) == 2
    assert log.report is not None
    assert log.report.dropped_segments >= 1
    assert log.report.cut_bytes > 100
    assert values(log) == [f"{number}:{'x' * 20}" for number in range(log.log_end_offset)]


def test_a_segment_behind_a_lost_write_goes_though_both_are_whole() -> None:
    disk = stopped(30, clean=False)
    log = open_log(MemoryDisk(disk.files()), recovery_point=30)
    place = list(log.segments[1].places())[-1]
    disk.open(segments(disk)[1]).truncate(place.position)
    log = open_log(disk, clean=False, recovery_point=5)
    assert log.log_end_offset == place.base_offset
    assert not log.quarantine


def test_batches_of_an_older_epoch_behind_newer_ones_are_cut() -> None:
    log = open_log()
    append(log, "a", epoch=5)
    append(log, "b", epoch=6)
    log.sync()
    path = log.segments[0].log_path
    log.files.disk.open(path).write(log.segments[0].size, batch("old", base_offset=2, leader_epoch=3))
    assert values(open_log(log.files.disk, clean=False)) == ["a", "b"]


def test_zeros_and_garbage_at_the_end_are_cut() -> None:
    for tail in (bytes(300), b"\xff" * 300, bytes(range(256)), batch("x")[:40]):
        disk = stopped(5, clean=False)
        path = segments(disk)[-1]
        disk.open(path).write(disk.size(path), tail)
        log = open_log(disk, clean=False, recovery_point=5)
        assert len(values(log)) == 5
        assert not log.quarantine


def test_indexes_epochs_and_snapshots_are_made_again() -> None:
    disk = stopped(30, clean=False)
    expected = open_log(MemoryDisk(disk.files()), clean=False)
    for name in disk.list(DIRECTORY):
        if not name.endswith(".log"):
            disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, clean=False)
    assert log.epochs.entries == expected.epochs.entries == epochs_of(log.segments)
    assert append(log, f"29:{'x' * 20}", producer=(7, 0, 29), epoch=2).duplicate
    for mine, other in zip(log.segments, expected.segments, strict=True):
        for kind in ("index", "time_index"):
            getattr(mine, kind).entries.write_out()
            assert disk.read(getattr(mine, kind).entries.path) == expected.files.disk.read(
                getattr(other, kind).entries.path
            )


def test_a_start_after_a_clean_stop_reads_hardly_anything() -> None:
    disk = stopped(30)
    before = disk.operation_count
    log = open_log(disk, recovery_point=30)
    assert log.log_end_offset == 30
    assert log.report is None
    assert disk.operation_count - before < 12


def test_indexes_without_a_log_are_strays() -> None:
    disk = stopped(3)
    disk.open(f"{DIRECTORY}/{77:020d}.index", create=True)
    open_log(disk, recovery_point=3)
    assert f"{77:020d}.index" not in disk.list(DIRECTORY)


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [6, 10, 16, 30, 90])
def test_damage_below_the_recovery_point_is_quarantined_and_not_cut(where: int) -> None:
    """In the offset, the length, the magic, the header, the records: the rest of the log stays."""
    disk = stopped(30, clean=False)
    sizes = [disk.size(path) for path in segments(disk)]
    damage(disk, 1, where)
    log = open_log(disk, clean=False, recovery_point=base(disk, 1) + 2)
    assert [disk.size(path) for path in segments(disk)] == sizes, "nothing is cut"
    assert log.quarantine
    (found,) = log.quarantine.damages
    first = log.segments[1].base_offset
    assert (found.first_offset, found.end_offset) == (first, first + 1)
    assert readable(log) == [offset for offset in range(30) if offset != first]
    assert append(log, value(30), epoch=9).first_offset == 30, "the log goes on at its end"
    log.append_as_follower(batch(value(31), base_offset=31, leader_epoch=9), now_ms=NOW_MS)
    assert readable(log) == [offset for offset in range(32) if offset != first]
    log = reopen(log, clean=False)
    assert log.quarantine.damages == (found,)
    assert readable(log) == [offset for offset in range(32) if offset != first]


def test_damage_above_the_recovery_point_is_a_torn_tail() -> None:
    disk = stopped(30, clean=False)
    damage(disk, 1, 90)
    log = open_log(disk, clean=False, recovery_point=5)
    assert not log.quarantine
    assert log.log_end_offset == int(segments(disk)[1][-24:-4])


def test_damage_after_a_clean_stop_is_met_by_the_first_read_and_never_served() -> None:
    disk = stopped(30)
    damage(disk, 1, 90)
    log = open_log(disk, recovery_point=30)
    assert not log.quarantine
    first = log.segments[1].base_offset
    assert [offset for offset in range(30) if offset != first] == readable(log)
    assert log.quarantine
    assert log.quarantine.damages[0].reason == "fails its CRC"


def test_a_read_ends_before_the_damage() -> None:
    disk = stopped(30)
    log = open_log(MemoryDisk(disk.files()), recovery_point=30)
    places = list(log.segments[1].places())
    damage(disk, 1, places[2].position + 80)
    log = open_log(disk, recovery_point=30)
    answer = log.read(places[0].base_offset, 100_000)
    assert answer.records is not None
    assert len(answer.records) == places[2].position
    assert answer.next_offset == places[2].base_offset


def test_quarantine_outlives_a_clean_restart_and_ends_with_the_damaged_part() -> None:
    disk = stopped(30)
    damage(disk, 1, 90)
    log = open_log(disk, recovery_point=30)
    (found,) = verify(log)
    log = reopen(log)
    assert log.quarantine.damages == (found,)
    log.truncate_to(found.first_offset, now_ms=NOW_MS)
    assert not log.quarantine
    append(log, "again", epoch=9)
    assert not reopen(log).quarantine


@pytest.mark.parametrize("clean", [True, False])
def test_a_recovery_point_beyond_the_end_is_logged_and_the_log_goes_on_at_its_end(clean: bool) -> None:
    """As in Kafka. What is there is whole: a wrong checkpoint must not make a partition refuse all that comes."""
    disk = stopped(30, clean=False)
    last = segments(disk)[-1]
    base = int(last[-24:-4])
    disk.open(last).truncate(0)
    log = open_log(disk, clean=clean, recovery_point=30)
    assert not log.quarantine
    assert (log.log_end_offset, log.recovery_point) == (base, base)
    assert log.report is not None
    assert log.report.missing_offsets == 30 - base
    assert readable(log) == list(range(base))
    assert append(log, "again", epoch=9).first_offset == base


def test_a_log_of_which_nothing_is_left_begins_where_it_started() -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    log = open_log(disk, clean=False, recovery_point=30, log_start=20)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (20, 20, 20)
    assert not log.quarantine


def test_a_scrub_finds_damage_without_a_read() -> None:
    disk = stopped(30)
    log = open_log(disk, recovery_point=30)
    assert list(verify(log)) == []
    damage(disk, 0, 70)
    damage(disk, 2, 70)
    log.files.close()
    assert [found.base_offset for found in verify(log)] == [0, log.segments[2].base_offset]
    assert list(verify(log)) == [], "it is known now"


def test_a_segment_that_is_rubbish_from_some_point_on_is_damaged_up_to_the_next_one() -> None:
    disk = stopped(30, clean=False)
    path = segments(disk)[1]
    disk.open(path).write(200, b"\x02" * (disk.size(path) - 200))
    log = open_log(disk, clean=False, recovery_point=base(disk, 2) - 1)
    (found,) = log.quarantine.damages
    assert found.end_offset == log.segments[2].base_offset
    assert readable(log) == [*range(found.first_offset), *range(found.end_offset, 30)]


def test_the_list_of_damages_is_written_whole_and_read_whole() -> None:
    disk = stopped(3)
    found = (
        Damage(first_offset=1, end_offset=2, base_offset=0, position=10, end_position=20, reason="a\nb"),
        Damage(first_offset=7, end_offset=9, base_offset=5, position=0, end_position=0, reason=""),
    )
    write_damages(disk, DIRECTORY, found)
    read = read_damages(disk, DIRECTORY)
    assert [each.reason for each in read] == ["a b", ""]
    path = f"{DIRECTORY}/{FILE_NAME}"
    whole = disk.read(path)
    for size in range(len(whole)):
        disk.replace(path, whole[:size])
        log = open_log(MemoryDisk(disk.files()), recovery_point=3)
        assert log.report is not None
        assert not log.quarantine, "a list that cannot be read is made again, from the log"
    write_damages(disk, DIRECTORY, ())
    assert not disk.exists(path)


def test_damages_that_touch_become_one_and_never_too_many() -> None:
    one = Damage(first_offset=1, end_offset=3, base_offset=0, position=10, end_position=20, reason="x")
    two = Damage(first_offset=2, end_offset=5, base_offset=0, position=15, end_position=40, reason="y")
    (merged,) = merge((two, one))
    assert (merged.first_offset, merged.end_offset, merged.position, merged.end_position) == (1, 5, 10, 40)
    many = [
        Damage(first_offset=n * 10, end_offset=n * 10 + 1, base_offset=0, position=n, end_position=n, reason="")
        for n in range(MAX_RANGES + 10)
    ]
    assert len(merge(many)) == MAX_RANGES
    assert merge(many)[-1].end_offset == many[-1].end_offset


def test_a_mistake_in_the_scan_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: reads that do not check what they hand out."""
    disk = stopped(30)
    damage(disk, 1, 90)
    log = open_log(disk, recovery_point=30)
    monkeypatch.setattr(Segment, "check", lambda self, position, end: None)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever a reader of wrong bytes runs into
        readable(log)


def test_small_is_what_these_tests_think() -> None:
    assert len(segments(stopped(30))) >= 3
    assert SMALL.index_interval_bytes < SMALL.segment_bytes
