"""Two leaders uploaded the same offsets with different records: the archive is the log of the one that led last."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.archive_objects import (
    SMALL_SEGMENTS,
    Objects,
    append_records,
    digest,
    digest_of_log,
    end_transaction,
    new_log,
    objects_of,
    sample_log,
    some_records,
)
from support.archive_stores import put_objects
from support.command_line import command
from support.log_fixtures import NOW_MS

from trioka.archive import Archive
from trioka.protocol.batch import headers
from trioka.protocol.remote_segment.object_key import ObjectSuffix
from trioka.storage.log import Log

LATER_EPOCH = 6
PRODUCERS = (100, 101, 102)


def new_leader_of(log: Log, seed: int) -> Log:
    """A replica with the beginning of a log, elected without its end: it aborts what is open, and goes on."""
    random = Random(seed)
    replica = new_log(replace(SMALL_SEGMENTS, segment_bytes=random.choice((2800, 4100))))
    cut = random.randrange(log.log_end_offset // 3, log.log_end_offset)
    for segment in log.segments:
        data = log.files.disk.read(segment.log_path)
        for header in headers(data):
            if header.next_offset <= cut:
                replica.append_as_follower(bytes(data[header.position : header.end]), now_ms=NOW_MS)
    for producer in PRODUCERS:
        end_transaction(replica, producer, commit=False, epoch=LATER_EPOCH)
    for _ in range(random.randrange(2, 20)):
        append_records(replica, *some_records(random, 5), epoch=LATER_EPOCH)
    replica.advance_high_watermark(replica.log_end_offset)
    return replica


def both(seed: int) -> tuple[Objects, dict[str, str], int]:
    """The objects of both leaders, what the later one's log says, and where it ends."""
    first = sample_log(seed, rounds=12)
    second = new_leader_of(first, seed)
    expected = {each: digest_of_log(second, each) for each in ("read_committed", "read_uncommitted")}
    end = second.log_end_offset
    objects = objects_of(first, ids=Random(1)) | objects_of(second, ids=Random(2))
    return objects, expected, end


@pytest.mark.parametrize("seed", range(12))
def test_the_archive_is_the_log_of_the_leader_that_led_last(tmp_path: Path, seed: int) -> None:
    objects, expected, end = both(seed)
    put_objects(tmp_path.as_uri(), objects)
    archive = Archive(tmp_path.as_uri())
    for isolation, wanted in expected.items():
        records = archive.records("orders", 0, isolation=isolation)
        found = digest(
            (each.offset, each.timestamp, each.key, each.value, each.headers, each.leader_epoch) for each in records
        )
        assert (found, records.position) == (wanted, end)
    ended = command("archive", "verify", str(tmp_path), "-o", "json")
    assert (ended.code, {row["status"] for row in ended.rows} <= {"superseded"}) == (0, True), ended


def test_a_straddling_segment_is_read_where_the_later_leader_has_nothing(tmp_path: Path) -> None:
    put_objects(tmp_path.as_uri(), both(3)[0])
    archive = Archive(tmp_path.as_uri())
    whole = list(archive.records("orders", 0, isolation="read_uncommitted"))
    partition = archive.partition("orders", 0)
    (changed,) = [entry.start_offset for entry in partition.lineage.chain if entry.epoch == LATER_EPOCH]
    for manifest in partition.manifests:
        if manifest.uploader_epoch == LATER_EPOCH and manifest.start_offset < changed:
            (tmp_path / manifest.segment.key(ObjectSuffix.MANIFEST)).unlink()
    found = list(archive.records("orders", 0, isolation="read_uncommitted", fail_on_data_loss=False))
    assert found == [record for record in whole if record in set(found)]
    assert [each for each in found if each.offset < changed] == [each for each in whole if each.offset < changed]
    owners = {each.manifest.uploader_epoch for each in archive.partition("orders", 0).slices}
    assert len(owners) == 2
