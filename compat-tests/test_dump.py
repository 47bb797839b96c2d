"""The judge judges: DumpLogSegments, as we ask and read it, is content with sound files and names planted faults."""

import json
import struct
from pathlib import Path

import pytest
from dump import complaints, parse_dump
from oracle import dump_log

pytestmark = pytest.mark.usefixtures("apache_kafka")

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "batches"
LOG, INDEX, TIME_INDEX = "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"
# The batch of one transaction, its marker, the batch of the next, its marker: offsets 0 to 13 without a gap.
BATCHES = ("java-transactional", "java-commit", "java-transactional-aborted", "java-abort")


def golden_lines(name: str) -> list[str]:
    return (GOLDEN / f"{name}.hex").read_text().splitlines()


def golden_bytes(name: str) -> bytes:
    return bytes.fromhex("".join(line for line in golden_lines(name) if not line.startswith("#")))


def sound_files(folder: Path) -> Path:
    """A segment of four golden batches with an index and a time index that point to its third batch."""
    folder.mkdir()
    batches = [golden_bytes(name) for name in BATCHES]
    position, last_offset = len(batches[0] + batches[1]), 12
    [largest_timestamp] = struct.unpack_from(">q", batches[1], 35)  # of the marker, which has the newest time so far
    (folder / LOG).write_bytes(b"".join(batches))
    (folder / INDEX).write_bytes(struct.pack(">ii", last_offset, position))
    (folder / TIME_INDEX).write_bytes(struct.pack(">qi", largest_timestamp, 6))
    return folder


def damage(file: Path, position: int) -> Path:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    return file


def test_sound_files_are_read_without_a_complaint_and_with_the_golden_headers(tmp_path: Path) -> None:
    folder = sound_files(tmp_path / "sound")
    files = parse_dump(dump_log(folder / LOG, folder / INDEX, folder / TIME_INDEX, data=True))
    assert complaints(files) == []
    for name, batch in zip(BATCHES, files[0].batches, strict=True):
        [header] = [json.loads(line[10:]) for line in golden_lines(name) if line.startswith("# header: ")]
        assert {field: getattr(batch, field) for field in header} == header
    first = files[0].batches[0].records
    assert [record.key for record in first] == ["key", None, "no value", "", "long", "headers"]
    assert [record.value for record in first][:4] == ["value", "no key", None, ""]
    assert [batch.records[0].marker for batch in files[0].batches] == [None, "COMMIT", None, "ABORT"]


def test_a_flipped_bit_and_a_torn_tail_are_complaints(tmp_path: Path) -> None:
    flipped = damage(sound_files(tmp_path / "flipped") / LOG, 100)
    torn = sound_files(tmp_path / "torn") / LOG
    torn.write_bytes(torn.read_bytes()[:-1])
    text = complaints(parse_dump(dump_log(flipped, torn)))
    assert text == [f"{LOG}: the batch at 0 is not valid", f"{LOG}: Found 77 invalid bytes at the end of {LOG}"]


@pytest.mark.parametrize(("file", "position"), [(INDEX, 3), (TIME_INDEX, 7), (TIME_INDEX, 11)])
def test_an_index_entry_that_does_not_fit_the_log_is_a_complaint(tmp_path: Path, file: str, position: int) -> None:
    damaged = damage(sound_files(tmp_path / "damaged") / file, position)
    assert complaints(parse_dump(dump_log(damaged, index="verify", deep=False))) != []
