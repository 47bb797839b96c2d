"""`trioka segments` on the files of a broker, whole and damaged."""

import json
import shutil
from pathlib import Path

import pytest
from support.command_line import broker_at, command

from trioka.cli.terminal.failure import Exit


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that was stopped: one topic, several segments."""
    directory = tmp_path_factory.mktemp("kept")
    with broker_at(directory) as at:
        command("topics", "create", "orders", "-c", "segment.bytes=1048576", "-c", "index.interval.bytes=64", at=at)
        for number in range(4):
            values = b"".join(b"value %d of %d %s\n" % (each, number, b"x" * 5000) for each in range(100))
            assert command("produce", "orders", "-k", "key", at=at, stdin=values).code == Exit.OK
    return directory


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(kept, tmp_path / "copy"))


def logs(directory: Path) -> list[Path]:
    return sorted((directory / "orders-0").glob("*.log"))


def test_segments_are_listed_with_what_they_hold(kept: Path) -> None:
    rows = [
        row
        for row in command("segments", "ls", "--data", str(kept), "-o", "json").rows
        if row["partition"] == "orders-0"
    ]
    assert len(rows) == len(logs(kept)) > 1
    assert sum(row["records"] for row in rows) == 400
    assert rows[-1]["last_offset"] == 399
    assert [row["base_offset"] for row in rows[1:]] == [row["last_offset"] + 1 for row in rows[:-1]]


def test_batches_and_records_are_dumped(kept: Path) -> None:
    batches = command("segments", "dump", "orders:0", "--data", str(kept), "-o", "json").rows
    assert {row["crc"] for row in batches} == {"ok"} and sum(row["records"] for row in batches) == 400
    records = command("segments", "dump", str(logs(kept)[0]), "--records", "-o", "json").rows
    assert (records[0]["offset"], records[0]["key"], records[0]["value"][:12]) == (0, "key", "value 0 of 0")


def test_whole_files_are_found_whole(kept: Path) -> None:
    for place in (kept, kept / "orders-0", logs(kept)[0]):
        ended = command("segments", "verify", str(place))
        assert (ended.code, ended.out) == (Exit.OK, ""), ended


def test_a_flipped_bit_is_damage(copy: Path) -> None:
    data = bytearray(logs(copy)[0].read_bytes())
    data[200] ^= 1
    logs(copy)[0].write_bytes(data)
    ended = command("segments", "verify", str(copy), "-o", "json")
    assert ended.code == Exit.UNHEALTHY
    (problem,) = json.loads(ended.out)
    assert (problem["position"], problem["status"], problem["what"]) == (
        0,
        "damaged",
        "the checksum of a batch is wrong",
    )


def test_the_end_that_a_crash_leaves_is_torn_and_no_damage(copy: Path) -> None:
    last = logs(copy)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    assert command("segments", "verify", str(copy)).code == Exit.UNHEALTHY  # it was stopped cleanly, so nothing is torn
    (copy / ".kafka_cleanshutdown").unlink()
    for index in (copy / "orders-0").glob(f"{last.stem}.*index"):
        index.write_bytes(b"")
    ended = command("segments", "verify", str(copy), "-o", "json")
    assert ended.code == Exit.OK
    assert [problem["status"] for problem in json.loads(ended.out)] == ["torn"]


def test_an_index_that_points_nowhere_is_damage(copy: Path) -> None:
    index = next(file for file in sorted((copy / "orders-0").glob("*.index")) if file.stat().st_size >= 8)
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    ended = command("segments", "verify", str(copy))
    assert ended.code == Exit.UNHEALTHY and "where it is not" in ended.out


def test_a_time_index_with_an_unknown_offset_is_damage(copy: Path) -> None:
    index = next(file for file in sorted((copy / "orders-0").glob("*.timeindex")) if file.stat().st_size >= 12)
    data = bytearray(index.read_bytes())
    data[8] ^= 1
    index.write_bytes(data)
    assert "which is not in the segment" in command("segments", "verify", str(copy)).out


def test_an_empty_list_is_reported(tmp_path: Path) -> None:
    assert command("segments", "ls", "--data", str(tmp_path)).code == Exit.NOT_FOUND
    assert command("segments", "dump", "orders:0", "--data", str(tmp_path)).code == Exit.NOT_FOUND
