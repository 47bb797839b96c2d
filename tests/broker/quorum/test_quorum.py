"""The metadata's log: a quorum of one, its epochs, its snapshots, and its place."""

from pathlib import Path
from typing import Any

import trio
from support.serving import on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.cluster.partition import is_reserved_directory
from trioka.cluster.quorum_state import decode_quorum_state
from trioka.cluster.snapshot import parse_snapshot_name
from trioka.protocol import batch
from trioka.protocol.record import Record

METADATA = "__cluster_metadata-0"


async def create(broker: Broker, *names: str) -> None:
    await broker.create_missing_topics(dict.fromkeys(names, 1))


def epoch_of(directory: Path) -> int:
    return decode_quorum_state((directory / METADATA / "quorum-state").read_text())[0].leader_epoch


@on_trio
async def test_every_start_begins_a_new_epoch_which_the_disk_knows_first(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        async with running_broker(tmp_path) as broker:
            epochs.append(broker.quorum.epoch)
            assert epoch_of(tmp_path) == broker.quorum.epoch
    assert epochs == sorted(set(epochs))


@on_trio
async def test_what_was_changed_is_known_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", "b")
        ids = {topic.name: topic.topic_id for topic in broker.metadata.topics}
        cluster_id = broker.cluster_id
    async with running_broker(tmp_path) as broker:
        assert {topic.name: topic.topic_id for topic in broker.metadata.topics} == ids
        assert broker.cluster_id == cluster_id


@on_trio
async def test_many_bytes_of_records_call_for_a_snapshot_and_two_are_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metadata_log_max_record_bytes_between_snapshots=500) as broker:
        for number in range(30):
            await create(broker, f"t{number}")
        while broker.dispatch.running or broker.quorum.is_changing or not all_places_known(broker):
            await trio.sleep(0.01)  # the directories of partitions are a change too, which no request caused
        names = [path.name for path in (tmp_path / METADATA).glob("*.checkpoint")]
        kept = sorted(found for found in map(parse_snapshot_name, names) if found is not None and found.offset)
        assert len(kept) == 2
        assert broker.quorum.log.log_start_offset == kept[0].offset
    async with running_broker(tmp_path) as broker:
        assert len(broker.metadata.topics) == 30


@on_trio
async def test_the_metadata_may_have_a_directory_of_its_own_where_no_partition_goes(tmp_path: Path) -> None:
    places: dict[str, Any] = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata_log_dir": f"{tmp_path}/meta"}
    for _ in range(2):
        async with running_broker(tmp_path, **places) as broker:
            await create(broker, "t0", "t1")
            assert sorted(path.name for path in tmp_path.glob("*/t?-0")) == ["t0-0", "t1-0"]
        assert (tmp_path / "meta" / METADATA).is_dir()
        assert not list((tmp_path / "meta").glob("t*"))


@on_trio
async def test_a_damaged_partition_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "whole", "damaged")
        log = broker.partitions.get("damaged", 0).log
        from_producer = bytearray(one_batch())
        log.append_as_leader(from_producer, leader_epoch=0, now_ms=broker.clock.now_ms())
        log.sync()
    segment = tmp_path / "damaged-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    async with running_broker(tmp_path) as broker:
        assert broker.partitions.get("damaged", 0).log.quarantine
        assert not broker.partitions.get("whole", 0).log.quarantine


def one_batch() -> bytes:
    return bytes(batch.build([Record(0, 1_700_000_000_000, None, b"v")]))


@on_trio
async def test_a_partition_whose_directory_is_offline_is_not_recreated_in_another(tmp_path: Path) -> None:
    """With two disks of which one is not mounted, its partitions must not come back empty on the other."""
    places: dict[str, Any] = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"}
    async with running_broker(tmp_path, **places) as broker:
        await create(broker, "t0", "t1", "t2")
        while broker.dispatch.running or not all_places_known(broker):
            await trio.sleep(0.01)
        away = sorted(path.name for path in (tmp_path / "b").glob("t?-0"))
        assert away
    (tmp_path / "b").rename(tmp_path / "unplugged")
    async with running_broker(tmp_path, **places) as broker:
        assert not list((tmp_path / "a").glob(away[0]))
        assert not list((tmp_path / "b").glob(away[0]))
    (tmp_path / "b").rename(tmp_path / "empty")
    (tmp_path / "unplugged").rename(tmp_path / "b")
    async with running_broker(tmp_path, **places) as broker:
        assert broker.partitions.get(away[0].removesuffix("-0"), 0).log.directory == f"{tmp_path}/b/{away[0]}"


def all_places_known(broker: Broker) -> bool:
    return not any(is_reserved_directory(p.directory(1)) for _, p in broker.metadata.topics.partitions())
