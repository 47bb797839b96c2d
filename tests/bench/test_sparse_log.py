"""A sparse log reads like any other log and takes a fraction of its size on the disk."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from support.log_fixtures import NOW_MS
from support.serving import LISTENER, broker_in_thread

from trioka.broker.broker import Broker
from trioka.protocol import batch
from trioka.storage.directory import LogDirectory
from trioka.storage.disk import OsDisk
from trioka.storage.layout import TopicPartition
from trioka.storage.log_config import LogConfig

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
sparse_log: Any = importlib.import_module("sparse_log")
load_generator: Any = importlib.import_module("load_generator")

NAME = TopicPartition("log", 0)
BATCHES = 40


def opened(folder: Path) -> LogDirectory:
    return LogDirectory.open(OsDisk(), str(folder), lambda _: LogConfig(), now_ms=NOW_MS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a broker that has made an empty topic, and was stopped."""
    directory = opened(tmp_path)
    directory.create(NAME, LogConfig(), now_ms=NOW_MS, topic_id=bytes(range(1, 17)))
    directory.close(broker_epoch=7)
    return tmp_path


def test_every_batch_of_it_is_whole(folder: Path) -> None:
    sparse_log.make_sparse_logs(folder, {"log": BATCHES * sparse_log.BATCH_BYTES + 1})
    log = opened(folder).logs[NAME]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, BATCHES, BATCHES)
    records = log.read(0, BATCHES * sparse_log.BATCH_BYTES).records
    assert records is not None
    data = records.read()
    found = list(batch.headers(data))
    assert [header.base_offset for header in found] == list(range(BATCHES))
    for header in found:
        assert header.size == sparse_log.BATCH_BYTES
        batch.check_crc(data, header)
        (record,) = batch.records(data, header)
        assert record.value == bytes(sparse_log.VALUE_BYTES)


def test_a_broker_finds_it_stopped_cleanly_and_has_nothing_to_look_through(folder: Path) -> None:
    sparse_log.make_sparse_logs(folder, {"log": BATCHES * sparse_log.BATCH_BYTES})
    directory = opened(folder)
    assert directory.report.clean
    assert directory.report.broker_epoch == 7
    log = directory.logs[NAME]
    assert (log.recovery_point, log.report) == (BATCHES, None)
    assert len(log.segments[0].index.entries) == BATCHES - 1  # all but the first, where a look-up begins anyway


def test_it_takes_a_sixteenth_of_its_size(folder: Path) -> None:
    sparse_log.make_sparse_logs(folder, {"log": BATCHES * sparse_log.BATCH_BYTES})
    (file,) = (folder / "log-0").glob("*.log")
    assert file.stat().st_size == BATCHES * sparse_log.BATCH_BYTES
    assert file.stat().st_blocks * 512 <= file.stat().st_size // 8  # and some room for file systems of other blocks


def test_a_broker_serves_it_at_every_place(tmp_path: Path) -> None:
    def request(broker: Broker, command: str, **options: object) -> Any:
        host, port = broker.addresses[LISTENER]
        return load_generator.run_load(command, {"address": f"{host}:{port}", "topic": "log", **options})

    try:
        load_generator.program()
    except load_generator.Unavailable as missing:
        pytest.skip(str(missing))
    with broker_in_thread(tmp_path) as broker:
        request(broker, "create")
    sparse_log.make_sparse_logs(tmp_path, {"log": BATCHES * sparse_log.BATCH_BYTES})
    size = {"record": sparse_log.VALUE_BYTES, "batch": sparse_log.BATCH_BYTES, "size": sparse_log.BATCH_BYTES}
    with broker_in_thread(tmp_path) as broker:
        result = request(
            broker, "fetch", places=30, seconds=60, warmup=0, **{"max-bytes": 31 * sparse_log.BATCH_BYTES}, **size
        )
        replica = broker.partitions.get("log", 0)
        assert (replica.log.log_end_offset, replica.log.high_watermark) == (BATCHES, BATCHES)
        assert replica.fetches >= 31
    assert result["bytes"] == result["requests"] * sparse_log.BATCH_BYTES


def test_file_content_is_overwritten_by_zeros_too(tmp_path: Path) -> None:
    file = sparse_log.SparseDisk().open(str(tmp_path / "file"), create=True)
    file.write(0, b"x" * 10_000)
    file.write(4096, bytes(4096))
    file.write(10_000, b"\0" * 100, b"y", bytes(20_000), b"z")
    assert file.read(0, 40_000) == b"x" * 4096 + bytes(4096) + b"x" * 1808 + bytes(100) + b"y" + bytes(20_000) + b"z"


def test_a_folder_that_was_not_stopped_cleanly_is_refused(folder: Path) -> None:
    opened(folder).close_handles()
    with pytest.raises(AssertionError, match="not stopped cleanly"):
        sparse_log.make_sparse_logs(folder, {"log": sparse_log.BATCH_BYTES})
