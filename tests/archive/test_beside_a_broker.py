"""What a broker copies to the object store, the archive reads as a consumer reads it from the broker."""

from pathlib import Path

import pytest
from support.archive_objects import digest
from support.beside_a_broker import CODECS, consumed, two_epochs
from support.command_line import command

from trioka.archive import Archive


def archived(archive: Archive, isolation: str, end: int) -> str:
    records = archive.records("orders", 0, isolation=isolation, offsets=(0, end))
    return digest((each.offset, each.timestamp, each.key, each.value, each.headers) for each in records)


@pytest.mark.slow
def test_archive_and_consumer_agree_to_the_hash(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    archive = Archive(store.as_uri())
    for bootstrap, end in two_epochs(tmp_path, store):
        for isolation in ("read_committed", "read_uncommitted"):
            assert archived(archive, isolation, end) == consumed(bootstrap, isolation, end)
    partition = archive.partition("orders", 0)
    assert len(partition.lineage.chain) == 2 and len(partition.slices) > 3
    codecs = {codec for each in partition.manifests if each.content is not None for codec in each.content.codecs}
    assert len(codecs) == len(CODECS)
    ended = command("archive", "verify", str(store), "-o", "json")
    assert (ended.code, [row for row in ended.rows if row["status"] != "foreign"]) == (0, [])
