"""Two leaders uploaded the same offsets with different records: the archive is the log of the one that led last."""

from pathlib import Path

import pytest
from support.archive_objects import digest
from support.archive_stores import put_objects
from support.command_line import command
from support.two_leaders import LATER_EPOCH, both

from trioka.archive import Archive
from trioka.protocol.remote_segment.object_key import ObjectSuffix


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
