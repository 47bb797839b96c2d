"""`trioka archive`: what it lists, reads and verifies, and how it ends when something is wrong."""

import json
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet
import pytest
from support.archive_objects import append_records, digest, new_log, objects_of, read_log, sample_log
from support.archive_stores import put_objects
from support.command_line import command
from support.log_fixtures import NOW_MS

from trioka.archive import Archive
from trioka.protocol.record import Record

ROUNDS = 8


@pytest.fixture
def store(tmp_path: Path) -> str:
    directory = tmp_path / "tiered"
    directory.mkdir()
    put_objects(directory.as_uri(), objects_of(sample_log(rounds=ROUNDS)))
    return str(directory)


def damage(store: str, pattern: str) -> None:
    path = next(Path(store).glob(f"*/*/{pattern}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_ls_and_describe_show_topics_segments_and_offsets(store: str) -> None:
    assert command("archive", "ls", store, "-o", "json").rows == [
        {"topic": "orders", "topic_id": "MWJ6FHTfRYy67jzwZdeqSQ", "partitions": 1}
    ]
    segments = command("archive", "ls", store, "orders:0", "-o", "json").rows
    assert [segments[0]["start_offset"], segments[0]["leader_epoch"]] == [0, 3]
    assert all(before["end_offset"] + 1 == after["start_offset"] for before, after in pairwise(segments))
    (row,) = command("archive", "describe", store, "orders", "-o", "json").rows
    assert (row["start_offset"], row["end_offset"]) == (0, segments[-1]["end_offset"] + 1)
    assert (row["leader_epochs"], row["missing"], row["last_stable_offset"]) == ([0, 3], [], row["end_offset"])


def test_read_prints_what_the_log_returns(store: str) -> None:
    log = sample_log(rounds=ROUNDS)
    for isolation in ("read_committed", "read_uncommitted"):
        ended = command("archive", "read", store, "orders", "--isolation", isolation, "--decode", "hex")
        lines = [json.loads(line) for line in ended.out.splitlines()]
        expected = [
            {
                "topic": "orders",
                "partition": 0,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestampType": "CreateTime",
                "leaderEpoch": header.leader_epoch,
                "key": None if record.key is None else record.key.hex(),
                "value": None if record.value is None else record.value.hex(),
                "headers": [[key, None if value is None else value.hex()] for key, value in record.headers],
            }
            for header, record in read_log(log, isolation)
        ]
        assert lines == expected


def test_a_parquet_file_has_the_same_records(store: str, tmp_path: Path) -> None:
    out = str(tmp_path / "orders.parquet")
    assert command("archive", "read", store, "orders", "--to", "parquet", "--out", out).code == 0
    rows = pyarrow.parquet.read_table(out).to_pylist()
    expected = list(Archive(f"file://{store}").records("orders", 0))
    assert digest((row["offset"], row["key"], row["value"], row["leaderEpoch"]) for row in rows) == digest(
        (each.offset, each.key, each.value, each.leader_epoch) for each in expected
    )
    assert rows[0]["timestamp"].timestamp() * 1000 == NOW_MS
    assert [tuple((each["key"], each["value"]) for each in row["headers"] or ()) for row in rows] == [
        each.headers for each in expected
    ]
    assert command("archive", "read", store, "orders", "--to", "parquet", "--out", out).code == 6
    assert not Path(f"{out}.part").exists()


def test_read_ends_after_the_number_that_was_asked_for(store: str) -> None:
    ended = command("archive", "read", store, "orders", "-n", "7", "--offsets", "3:")
    assert json.loads(ended.out.splitlines()[0])["offset"] >= 3
    assert len(ended.out.splitlines()) == 7


def test_verify_names_the_damaged_object_and_ends_with_10(store: str) -> None:
    whole = command("archive", "verify", store, "-o", "json")
    assert (whole.code, whole.rows) == (0, [])
    for pattern in ("*.log", "*.indexes", "*.rsm-manifest"):
        damage(store, pattern)
        ended = command("archive", "verify", store, "-o", "json")
        assert ended.code == 10
        assert [row for row in ended.rows if row["object"].endswith(pattern[1:]) and row["status"] == "damaged"], ended
        damage(store, pattern)
    assert command("archive", "verify", store).code == 0


def test_verify_tells_missing_objects_from_unfinished_uploads(store: str) -> None:
    manifests = sorted(Path(store).glob("*/*/*.rsm-manifest"))
    manifests[-1].unlink()
    ended = command("archive", "verify", store, "-o", "json")
    assert (ended.code, [row["status"] for row in ended.rows]) == (0, ["unfinished"])
    next(Path(store).glob(f"*/*/{manifests[0].stem}.log")).unlink()
    ended = command("archive", "verify", store, "-o", "json")
    assert (ended.code, sorted(row["status"] for row in ended.rows)) == (10, ["missing", "unfinished"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("ls", "ftp://host"), 2),
        (("ls", "s3://bucket", "--store-option", "region"), 2),
        (("describe", "{store}", "ordres"), 5),
        (("read", "{store}", "orders:9"), 5),
        (("read", "{store}", "orders", "--offsets", "x"), 2),
        (("read", "{store}", "orders", "--from-time", "soon"), 2),
        (("read", "{store}", "orders", "--out", "x"), 2),
        (("read", "{store}", "orders", "--topic-id", "x"), 1),
        (("read", "{store}", "orders:x"), 2),
    ],
)
def test_a_mistake_is_one_sentence_and_its_exit_code(store: str, arguments: tuple[str, ...], code: int) -> None:
    ended = command("archive", *(each.format(store=store) for each in arguments))
    assert ended.code == code, ended
    assert ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


def test_a_damaged_segment_ends_a_read_with_10(store: str) -> None:
    damage(store, "*.log")
    ended = command("archive", "read", store, "orders", "--isolation", "read_uncommitted")
    assert ended.code == 10 and "a batch fails its CRC" in ended.stderr


def test_missing_offsets_end_a_read_unless_they_are_skipped(store: str) -> None:
    log = new_log()
    for number in range(3):
        append_records(log, Record(0, NOW_MS, b"k", b"%d" % number))
        log.roll(now_ms=NOW_MS)
    objects = {key: data for key, data in objects_of(log, topic="gaps").items() if "00001-" not in key}
    put_objects(f"file://{store}", objects)
    assert command("archive", "read", store, "gaps").code == 10
    ended = command("archive", "read", store, "gaps", "--skip-missing")
    assert [json.loads(line)["offset"] for line in ended.out.splitlines()] == [0, 2]
