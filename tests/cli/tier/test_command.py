"""`trioka tier`, against a broker with a tiered topic and its object store in a directory."""

import json
import time
from collections.abc import Callable, Iterator
from os import utime
from pathlib import Path

import pytest
from support.command_line import broker_at, command
from support.tiered_topics import complete, objects

from trioka.cli.terminal.failure import Exit
from trioka.protocol.primitives import uuid_text

PATIENCE_S = 60.0
ORPHAN = f"{0:020d}-{uuid_text(bytes([7]) * 16)}.log"


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def at(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with three tiered segments of `orders`, and the topic `plain`."""
    settings = {
        "remote_log_storage_system_enable": "true",
        "trioka_tier_url": f"file://{store}",
        "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
        "rlmm_config_remote_log_metadata_topic_num_partitions": 2,
    }
    with broker_at(tmp_path_factory.mktemp("node"), **settings) as address:
        config = ("--config", "remote.storage.enable=true", "--config", "internal.segment.bytes=2000")
        assert command("topics", "create", "orders", "--partitions", "1", *config, at=address).code == Exit.OK
        assert command("topics", "create", "plain", at=address).code == Exit.OK
        for _ in range(10):
            assert command("produce", "orders", at=address, stdin=b"x" * 600 + b"\n").code == Exit.OK
        until(lambda: len(complete(store, "orders")) >= 3 and _copied(address) >= 3)
        yield address


def _copied(address: str) -> int:
    ended = command("tier", "status", "-o", "json", at=address)
    return 0 if ended.code != Exit.OK else sum(row["segments"] for row in ended.rows)


def test_the_status_says_which_offsets_are_in_the_store(at: str, store: Path) -> None:
    (row,) = command("tier", "status", "-o", "json", at=at).rows
    assert row["topic"] == "orders" and row["start_offset"] == 0
    assert row["segments"] == len(complete(store, "orders"))
    assert row["log_end_offset"] == 10
    assert row["not_tiered"] == 10 - 1 - row["end_offset"]
    assert row["copying"] == row["deleting"] == 0
    assert command("tier", "status", "nothing", at=at).code == Exit.NOT_FOUND


def test_ls_lists_segments_with_their_states(at: str) -> None:
    rows = command("tier", "ls", "orders", "-o", "json", at=at).rows
    assert [row["state"] for row in rows] == ["COPY_SEGMENT_FINISHED"] * len(rows)
    ends = [row["end_offset"] + 1 for row in rows]
    assert [row["start_offset"] for row in rows] == [0, *ends[:-1]]


def test_verify_finds_missing_objects_and_orphans_and_sweep_deletes_orphans(at: str, store: Path) -> None:
    assert command("tier", "verify", str(store), at=at).code == Exit.OK
    folder = (store / next(iter(objects(store, "orders")))).parent
    orphan = folder / ORPHAN
    orphan.write_bytes(b"left over")
    young = command("tier", "verify", str(store), "-o", "json", at=at)
    assert young.code == Exit.OK and young.rows == []  # it may belong to a copy in progress
    utime(orphan, (1, 1))
    found = command("tier", "verify", str(store), "-o", "json", at=at)
    assert found.code == Exit.UNHEALTHY
    assert [row["status"] for row in found.rows] == ["orphan"]
    shown = command("tier", "sweep", str(store), at=at)
    assert shown.out.strip().endswith(ORPHAN) and orphan.exists()  # without a terminal, nothing is deleted unasked
    assert command("tier", "sweep", str(store), "--execute", at=at).code == Exit.OK
    assert not orphan.exists()
    assert command("tier", "verify", str(store), at=at).code == Exit.OK
    hidden = next(folder.glob("*.indexes"))
    content = hidden.read_bytes()
    hidden.unlink()
    missing = command("tier", "verify", str(store), "-o", "json", at=at)
    assert [(row["status"], row["what"]) for row in missing.rows] == [("missing", "has no indexes")]
    hidden.write_bytes(content)


def test_a_sweep_is_refused_if_a_restored_cluster_owns_the_store(at: str, store: Path) -> None:
    (own,) = (store / "_trioka").glob("*/incarnation-*.json")
    newer = own.with_name("incarnation-0000000002.json")
    newer.write_text("{}")
    try:
        ended = command("tier", "sweep", str(store), "--execute", at=at)
        assert ended.code == Exit.UNHEALTHY and "incarnation 2" in ended.stderr
    finally:
        newer.unlink()


def test_lifecycle_rules_are_longer_than_the_retention_of_each_tiered_topic(at: str) -> None:
    rules = json.loads(command("tier", "lifecycle", "--print", "--prefix", "cluster", at=at).out)["Rules"]
    assert rules[0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert rules[0]["Filter"] == {"Prefix": "cluster/"}
    (orders,) = rules[1:]
    assert orders["Filter"]["Prefix"].startswith("cluster/orders-")
    assert orders["Expiration"]["Days"] == 7 + 7


def test_a_cluster_without_tiered_topics_is_reported(tmp_path: Path) -> None:
    with broker_at(tmp_path) as address:
        ended = command("tier", "status", at=address)
        assert ended.code == Exit.NOT_FOUND and "no topic of this cluster is tiered" in ended.stderr
