"""The crash search finds the classic mistakes, and lets the classic right ways pass.

Each wrong protocol below is one line away from the right one above it.
"""

import errno
import zlib
from collections.abc import Sequence

import pytest
from support.crash_enumeration import CrashFound, Promise, Protocol, Report, crash_everywhere, fail_each_operation

from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.disk_faults import ALWAYS
from trioka.testing.disks.memory_disk import MemoryDisk

OLD, NEW = b"old" * 400, b"new" * 400  # three sectors, so that a write can be torn


# A checkpoint: one small file that is replaced as a whole.


def old_checkpoint(disk: MemoryDisk) -> None:
    disk.make_directory("/d")
    disk.open("/d/checkpoint", create=True).write(0, OLD)


def replace(disk: MemoryDisk, promise: Promise) -> None:
    disk.replace("/d/checkpoint", NEW)
    promise(NEW)


def replace_without_sync(disk: MemoryDisk, promise: Promise) -> None:
    disk.open("/d/checkpoint.tmp", create=True).write(0, NEW)
    disk.rename("/d/checkpoint.tmp", "/d/checkpoint")
    disk.sync_directory("/d")
    promise(NEW)


def replace_without_directory_sync(disk: MemoryDisk, promise: Promise) -> None:
    file = disk.open("/d/checkpoint.tmp", create=True)
    file.write(0, NEW)
    file.sync()
    disk.rename("/d/checkpoint.tmp", "/d/checkpoint")
    promise(NEW)


def write_in_place(disk: MemoryDisk, promise: Promise) -> None:
    file = disk.open("/d/checkpoint")
    file.write(0, NEW)
    file.sync()
    promise(NEW)


def read_checkpoint(disk: MemoryDisk) -> bytes:
    return disk.read("/d/checkpoint")


def old_or_new_and_new_once_promised(found: bytes, promises: Sequence[bytes]) -> None:
    assert found in (promises[-1:] or (OLD, NEW)), "neither the old nor the promised content"


def search_checkpoint(protocol: Protocol, *models: CrashModel) -> Report:
    return crash_everywhere(
        protocol,
        recover=read_checkpoint,
        check=old_or_new_and_new_once_promised,
        prepare=old_checkpoint,
        models=models or tuple(CrashModel),
    )


def test_the_right_order_of_a_replace_survives_every_crash() -> None:
    report = search_checkpoint(replace)
    # The old file alone; beside it an empty temporary file; beside it that file torn in four ways, full of zeros,
    # full of garbage, complete; the new file; and the new file once more, now that it was promised.
    assert report.states == 1 + 1 + 4 + 1 + 1 + 1 + 1 + 1
    assert report.clipped == 0


def test_a_rename_of_unsynced_bytes_is_found() -> None:
    with pytest.raises(CrashFound, match="neither the old nor the promised"):
        search_checkpoint(replace_without_sync)


@pytest.mark.parametrize("model", CrashModel)
def test_a_rename_without_a_directory_sync_is_found_under_every_model(model: CrashModel) -> None:
    with pytest.raises(CrashFound, match="promised: b'new"):
        search_checkpoint(replace_without_directory_sync, model)


@pytest.mark.parametrize("model", [CrashModel.ORDERED_PREFIX, CrashModel.ANY_SUBSET])
def test_a_checkpoint_written_in_place_is_found_torn(model: CrashModel) -> None:
    with pytest.raises(CrashFound, match="torn, of 3 sectors"):
        search_checkpoint(write_in_place, model)


def test_the_story_of_a_crash_names_the_operations_and_what_became_of_them() -> None:
    with pytest.raises(CrashFound) as found:
        search_checkpoint(replace_without_directory_sync, CrashModel.ORDERED_PREFIX)
    story = str(found.value)
    assert "rename /d/checkpoint.tmp to /d/checkpoint  ← lost" in story
    assert "/d/checkpoint: 1200 bytes b'old" in story
    assert "make directory" not in story  # what `prepare` did is no part of it


# A marker that says "all the data is there": it has to come last.


def write_data_then_marker(disk: MemoryDisk, promise: Promise) -> None:
    file = disk.open("/data", create=True)
    file.write(0, NEW)
    file.sync()
    disk.sync_directory("/")
    disk.replace("/clean", b"")


def write_marker_then_sync_data(disk: MemoryDisk, promise: Promise) -> None:
    file = disk.open("/data", create=True)
    file.write(0, NEW)
    disk.replace("/clean", b"")
    file.sync()
    disk.sync_directory("/")


def marker_and_data(disk: MemoryDisk) -> tuple[bool, bytes]:
    return disk.exists("/clean"), disk.read("/data") if disk.exists("/data") else b""


def the_marker_tells_the_truth(found: tuple[bool, bytes], promises: Sequence[object]) -> None:
    marked, data = found
    assert not marked or data == NEW


def test_a_marker_written_last_always_tells_the_truth() -> None:
    crash_everywhere(write_data_then_marker, recover=marker_and_data, check=the_marker_tells_the_truth)


def test_a_marker_written_before_the_data_is_found_lying() -> None:
    with pytest.raises(CrashFound):
        crash_everywhere(write_marker_then_sync_data, recover=marker_and_data, check=the_marker_tells_the_truth)


# A log of checked entries: what a crash leaves is a prefix, and it has what was promised.


def entry(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + zlib.crc32(text).to_bytes(4, "big") + text


ENTRIES = [bytes([65 + index]) * size for index, size in enumerate((30, 700, 5, 1300, 10, 600))]


def empty_log(disk: MemoryDisk) -> None:
    disk.open("/log", create=True)


def append(disk: MemoryDisk, promise: Promise, synced: bool = True) -> None:
    file = disk.open("/log")
    for number, text in enumerate(ENTRIES):
        file.write(file.size(), entry(text))
        if number % 3 == 2:
            if synced:
                file.sync()
            promise(number + 1)


def append_and_retry_the_sync(disk: MemoryDisk, promise: Promise) -> None:
    file = disk.open("/log")
    for number, text in enumerate(ENTRIES):
        file.write(file.size(), entry(text))
        try:
            file.sync()
        except OSError:
            file.sync()
        promise(number + 1)


def read_entries(disk: MemoryDisk, checked: bool = True) -> list[bytes]:
    data, position, found = disk.read("/log"), 0, []
    while position + 6 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big")
        text = data[position + 6 : position + 6 + size]
        if (
            len(text) < size
            or size == 0
            or (checked and zlib.crc32(text).to_bytes(4, "big") != data[position + 2 : position + 6])
        ):
            break
        found.append(text)
        position += 6 + size
    return found


def a_prefix_with_all_that_was_promised(found: list[bytes], promises: Sequence[int]) -> None:
    assert found == ENTRIES[: len(found)], "an entry that was not written"
    assert len(found) >= max(promises, default=0), "a promised entry is lost"


def test_a_checked_log_survives_every_crash() -> None:
    report = crash_everywhere(
        append, recover=read_entries, check=a_prefix_with_all_that_was_promised, prepare=empty_log
    )
    assert report.states >= 50
    assert set(report.by_model) == set(CrashModel)
    assert all(report.by_model.values())


def test_a_promise_before_the_sync_is_found() -> None:
    with pytest.raises(CrashFound, match="a promised entry is lost"):
        crash_everywhere(
            lambda disk, promise: append(disk, promise, synced=False),
            recover=read_entries,
            check=a_prefix_with_all_that_was_promised,
            prepare=empty_log,
        )


def test_a_reader_that_does_not_check_sums_is_found() -> None:
    with pytest.raises(CrashFound, match="an entry that was not written"):
        crash_everywhere(
            append,
            recover=lambda disk: read_entries(disk, checked=False),
            check=a_prefix_with_all_that_was_promised,
            prepare=empty_log,
        )


def test_a_recovery_that_raises_is_found() -> None:
    with pytest.raises(CrashFound, match="FileNotFoundError"):
        crash_everywhere(
            lambda disk, promise: disk.remove("/log"),
            recover=read_entries,
            check=a_prefix_with_all_that_was_promised,
            prepare=empty_log,
        )


def twelve_writes(disk: MemoryDisk, promise: Promise) -> None:
    for number in range(12):
        disk.open(f"/{number}").write(0, b"x")


def twelve_files(disk: MemoryDisk) -> None:
    for number in range(12):
        disk.open(f"/{number}", create=True)


def test_twelve_pending_operations_are_tried_in_every_combination() -> None:
    report = crash_everywhere(
        twelve_writes,
        recover=MemoryDisk.files,
        check=lambda found, promises: None,
        prepare=twelve_files,
        models=[CrashModel.ANY_SUBSET],
    )
    assert report.most_pending == 12
    assert report.states == 2**12
    assert report.clipped == 0


def test_more_pending_operations_than_the_limit_are_reported_as_clipped() -> None:
    report = crash_everywhere(
        twelve_writes,
        recover=MemoryDisk.files,
        check=lambda found, promises: None,
        prepare=twelve_files,
        models=[CrashModel.ANY_SUBSET],
        pending_limit=4,
    )
    assert report.clipped > 0
    assert report.states < 2**12


# The k-th operation fails, for every k.


@pytest.mark.parametrize("times", [1, ALWAYS])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failure_of_any_operation_breaks_no_promise_of_a_replace(error: int, times: int) -> None:
    report = fail_each_operation(
        replace,
        recover=read_checkpoint,
        check=old_or_new_and_new_once_promised,
        prepare=old_checkpoint,
        error=error,
        times=times,
    )
    # create, truncate, write, sync, rename, sync directory; half a write; a sync that drops its pages
    assert report.failed_operations == 6 + 1 + 1


def test_a_failure_of_any_operation_breaks_no_promise_of_the_log() -> None:
    fail_each_operation(append, recover=read_entries, check=a_prefix_with_all_that_was_promised, prepare=empty_log)


def test_a_sync_that_is_tried_again_after_an_error_is_found() -> None:
    with pytest.raises(CrashFound, match="a promised entry is lost"):
        fail_each_operation(
            append_and_retry_the_sync,
            recover=read_entries,
            check=a_prefix_with_all_that_was_promised,
            prepare=empty_log,
        )


def test_an_exception_that_is_no_refusal_is_not_hidden() -> None:
    def clumsy(disk: MemoryDisk, promise: Promise) -> None:
        try:
            disk.open("/log").sync()
        except OSError:
            raise KeyError("a mistake of our own") from None

    with pytest.raises(KeyError):
        fail_each_operation(clumsy, recover=read_entries, check=lambda found, promises: None, prepare=empty_log)
