"""A restore of a log that two leaders have uploaded, after an unclean election, and of one with damaged indexes."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from support.archive_objects import CLUSTER_ID, TOPIC, TOPIC_ID, Objects, digest, digest_of_log, objects_of, sample_log
from support.archive_stores import BUCKET, put_objects, s3_server
from support.command_line import Ended, command
from support.serving import on_trio, running_broker
from support.tiered_topics import fetched, tiered
from support.two_leaders import LATER_EPOCH, both

from trioka.broker.broker import Broker
from trioka.broker.tier.cluster_copies import metadata_prefix
from trioka.cli.terminal.failure import Exit
from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.quorum.snapshot import SnapshotId, build_snapshot, snapshot_name
from trioka.protocol.batch import headers, records
from trioka.protocol.internal_records.metadata import ConfigRecord, PartitionRecord, TopicRecord

METADATA_VERSION = 30


def metadata_copy() -> Objects:
    """The copy of a cluster's metadata with the topic that `archive_objects` makes."""
    made: list[Any] = list(fresh_records())
    for name, topic_id in ((TOPIC, TOPIC_ID), (REMOTE_LOG_METADATA_TOPIC, b"m" * 16)):
        made.append(TopicRecord(name=name, topic_id=topic_id))
        made.append(
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
                leader_epoch=LATER_EPOCH,
                partition_epoch=1,
                directories=[b"1" * 16, b"2" * 16],
            )
        )
    configs = {"remote.storage.enable": "true", "index.interval.bytes": "300", "retention.ms": "-1"}
    for key, value in configs.items():
        made.append(ConfigRecord(resource_type=2, resource_name=TOPIC, name=key, value=value))
    data = build_snapshot(made, epoch=1, now_ms=0, last_contained_log_timestamp_ms=0, metadata_version=METADATA_VERSION)
    return {metadata_prefix(CLUSTER_ID) + snapshot_name(SnapshotId(100, 1)): b"".join(data)}


async def restored(url: str, data: Path, *more: str) -> Ended:
    words = ("tier", "restore", "--from", url, "--data", str(data), "--yes", "-o", "json", *more)
    return await trio.to_thread.run_sync(lambda: command(*words))


async def digest_of_broker(broker: Broker, end: int) -> str:
    """Of all records, read as a consumer with read_uncommitted reads them."""
    found: list[object] = []
    offset = 0
    while offset < end:
        data = await fetched(broker, TOPIC, offset)
        for header in headers(data):
            for record in records(data, header):
                if record.offset >= offset and not header.is_control:
                    found.append(
                        (record.offset, record.timestamp, record.key, record.value, record.headers, header.leader_epoch)
                    )
            offset = header.next_offset
    return digest(found)


async def leads(broker: Broker) -> None:
    with trio.fail_after(60):
        while (replica := broker.partitions.find(TOPIC, 0)) is None or not replica.leads:
            await trio.sleep(0.01)


ALONE: dict[str, object] = {"remote_fetch_max_wait_ms": 30_000, "trioka_tier_incarnation": 1}


@on_trio
async def test_the_log_of_the_leader_that_led_last_is_restored_from_an_s3_server(tmp_path: Path) -> None:
    objects, expected, end = both(3)
    with s3_server() as options:
        url = f"s3://{BUCKET}/cluster"
        put_objects(url, {**objects, **metadata_copy()}, options)
        words = [word for key, value in options.items() for word in ("--store-option", f"{key}={value}")]
        ended = await restored(url, tmp_path / "new", *words)
        assert ended.code == Exit.OK, ended.stderr
        (row,) = (row for row in ended.rows if row["topic"] == TOPIC)
        assert (row["start_offset"], row["end_offset"], row["holes"]) == (0, end, [])
        keys = {
            "trioka_tier_endpoint": options["endpoint"],
            "trioka_tier_region": options["region"],
            "trioka_tier_access_key": options["access_key_id"],
            "trioka_tier_secret_key": options["secret_access_key"],
        }
        async with running_broker(tmp_path / "new", **tiered(url, **ALONE, **keys)) as broker:
            await leads(broker)
            assert await digest_of_broker(broker, end) == expected["read_uncommitted"]


def damage(path: Path, position: int) -> bytes:
    before = path.read_bytes()
    data = bytearray(before)
    data[position] ^= 0x40
    path.write_bytes(data)
    return before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
@on_trio
async def test_damaged_indexes_are_computed_again_and_stop_nothing(share: float, tmp_path: Path) -> None:
    """Those of the last segment, which say how the log continues: the damage is in each of the indexes once."""
    log = sample_log(2, rounds=12)
    expected, end = digest_of_log(log, "read_uncommitted"), log.log_end_offset
    store = tmp_path / "store"
    store.mkdir()
    put_objects(store.as_uri(), {**objects_of(log, ids=Random(1)), **metadata_copy()})
    last = max(store.rglob("*.indexes"))
    whole = damage(last, int(last.stat().st_size * share))
    ended = await restored(store.as_uri(), tmp_path / "new")
    assert ended.code == Exit.OK and "is damaged, and is written again" in ended.stderr, ended.stderr
    (row,) = (row for row in ended.rows if row["topic"] == TOPIC)
    assert (row["end_offset"], row["holes"]) == (end, [])
    assert last.read_bytes() == whole
    async with running_broker(tmp_path / "new", **tiered(store, **ALONE)) as broker:
        await leads(broker)
        assert await digest_of_broker(broker, end) == expected


@on_trio
async def test_a_segment_whose_indexes_cannot_be_computed_is_lost_and_listed(tmp_path: Path) -> None:
    log = sample_log(2, rounds=12)
    end = log.log_end_offset
    store = tmp_path / "store"
    store.mkdir()
    put_objects(store.as_uri(), {**objects_of(log, ids=Random(1)), **metadata_copy()})
    damage(max(store.rglob("*.indexes")), 0)
    damage(max(store.rglob("*.log")), 100)
    ended = await restored(store.as_uri(), tmp_path / "new", "--plan")
    assert ended.code == Exit.OK, ended.stderr
    (row,) = (row for row in ended.rows if row["topic"] == TOPIC)
    assert 0 < row["end_offset"] < end
