"""Replicas follow the metadata, change by change, in their order."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.multi_replica import led_by_another, partition_of
from support.serving import on_trio, running_broker
from support.topic_requests import create, produce

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.replication import applier as replicas_module
from trioka.broker.replication.applier import APPLY_BATCH, MetadataApplier
from trioka.cluster.image.image_delta import PartitionChanged, TopicDeleted
from trioka.cluster.image.partition import Partition
from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.storage.directory import LogDirectory
from trioka.storage.files.disk import OsDisk
from trioka.storage.leader_epochs import LeaderEpochCache

AGAIN = b"the same name..."


def changed(
    broker: Broker, before: Partition | None, after: Partition, topic_id: bytes | None = None
) -> PartitionChanged:
    topic = broker.metadata.topics.by_name("t")
    assert topic is not None
    return PartitionChanged(
        topic_id=topic_id or topic.topic_id, name="t", index=after.index, before=before, after=after
    )


async def a_topic_that_is_deleted_and_made_again_begins_empty(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        await produce(broker, "t", 1, 2)
        partition = partition_of(broker, "t")
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
        deleted = TopicDeleted(topic_id=topic.topic_id, name="t", partitions=(partition,))
        await broker.applier.apply([deleted, changed(broker, None, partition, AGAIN)])
        replica = broker.partitions.get("t", 0)
        assert (replica.topic_id, replica.log.log_end_offset, replica.leads) == (AGAIN, 0, True)
        assert broker.partitions.find_by_id(topic.topic_id, 0) is None


async def a_replica_that_is_taken_away_is_gone(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        await produce(broker, "t", 1, 2)
        here = partition_of(broker, "t")
        away = replace(here, replicas=(2,), isr=(2,), leader=2, leader_epoch=here.leader_epoch + 1)
        await broker.applier.apply([changed(broker, here, away)])
        assert broker.partitions.find("t", 0) is None
        assert not any(name.topic == "t" for each in broker.directories for name in each.logs)


async def a_replica_that_is_taken_away_and_given_back_begins_empty(directory: Path) -> None:
    """I16: what it had before proves nothing."""
    async with running_broker(directory) as broker:
        await create(broker, "t")
        await produce(broker, "t", 1, 2)
        here = partition_of(broker, "t")
        away = replace(here, replicas=(2,), isr=(2,), leader=2, leader_epoch=here.leader_epoch + 1)
        back = replace(away, replicas=(2, 1), directories=here.directories * 2, adding_replicas=(1,))
        await broker.applier.apply([changed(broker, here, away), changed(broker, away, back)])
        replica = broker.partitions.get("t", 0)
        assert (replica.leads, replica.leader_id, replica.log.log_end_offset) == (False, 2, 0)


async def a_replica_that_is_given_taken_away_and_given_back_begins_empty(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        await produce(broker, "t", 1, 2)
        here = partition_of(broker, "t")
        away = replace(here, replicas=(2,), isr=(2,), leader=2, leader_epoch=here.leader_epoch + 1)
        back = replace(away, replicas=(2, 1), directories=here.directories * 2, leader_epoch=here.leader_epoch + 2)
        gone = replace(away, leader_epoch=here.leader_epoch + 3)
        await broker.applier.apply(
            [changed(broker, here, away), changed(broker, away, back), changed(broker, back, gone)]
        )
        assert broker.partitions.find("t", 0) is None
        assert not any(name.topic == "t" for each in broker.directories for name in each.logs)


async def topics_that_are_deleted_together_leave_together(directory: Path) -> None:
    """Each time the checkpoints are written, and they are about all logs."""
    async with running_broker(directory) as broker:
        changes = []
        for name in ("t", "u", "v"):
            await create(broker, name, partitions=3)
            topic = broker.metadata.topics.by_name(name)
            assert topic is not None
            changes.append(TopicDeleted(topic_id=topic.topic_id, name=name, partitions=()))
        (here,) = broker.directories
        with counted(here, "checkpoint") as checkpoints:
            await broker.applier.apply(changes)
        assert checkpoints == [1]
        assert not [each for name in ("t", "u", "v") for each in broker.partitions.of_topic(name)]
        assert {name.topic for name in here.logs} == {CLUSTER_METADATA_TOPIC}


async def many_partitions_are_made_together_and_evenly(directory: Path) -> None:
    """More of them than are made at once, and only those are durable of which the directory's names are."""
    async with running_broker(f"{directory}/one,{directory}/two") as broker:
        with counted(broker.directories[0], "admit") as admitted:
            await create(broker, "t", partitions=2 * APPLY_BATCH + 10)
        assert admitted == [3]
        assert all(broker.partitions.get("t", index).leads for index in range(2 * APPLY_BATCH + 10))
        loads = [len([name for name in each.logs if name.topic == "t"]) for each in broker.directories]
        assert max(loads) - min(loads) <= 1
        for replica in broker.partitions.of_topic("t"):
            assert LeaderEpochCache.load(OsDisk(), replica.log.epochs.path).latest_epoch == 0


async def what_others_have_does_not_part_what_is_made_together(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        here = partition_of(broker, "t")
        changes = []
        for index in range(1, 40):
            mine = replace(here, index=index)
            changes.append(changed(broker, None, mine if index % 2 else replace(mine, replicas=(2,), leader=2)))
        with counted(broker.directories[0], "admit") as admitted:
            await broker.applier.apply(changes)
        assert admitted == [1]
        assert len(broker.partitions.of_topic("t")) == 21


@contextmanager
def counted(directory: LogDirectory, method: str) -> Iterator[list[int]]:
    """How often it is called."""
    count = [0]
    original = getattr(directory, method)

    def counting(*arguments: object) -> object:
        count[0] += 1
        return original(*arguments)

    setattr(directory, method, counting)
    yield count
    delattr(directory, method)


async def a_new_epoch_is_noted_before_anything_is_written_in_it(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        await produce(broker, "t", 1, 2)
        before = partition_of(broker, "t")
        after = replace(before, leader_epoch=before.leader_epoch + 3)
        await broker.applier.apply([changed(broker, before, after)])
        assert broker.partitions.get("t", 0).log.epochs.start_offset_of(after.leader_epoch) == 2


async def who_begins_to_lead_has_noted_it_on_disk(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t", partitions=20)
        changes = []
        for index in range(20):
            led_by_another(broker, "t", index)
            before = partition_of(broker, "t", index)
            changes.append(changed(broker, before, replace(before, leader_epoch=before.leader_epoch + 4)))
        await broker.applier.apply(changes)
        for change in changes:
            replica, epoch = broker.partitions.get("t", change.index), change.after.leader_epoch
            assert replica.leads and replica.leader_epoch == replica.log.epochs.latest_epoch == epoch
            assert LeaderEpochCache.load(OsDisk(), replica.log.epochs.path).latest_epoch == epoch


async def older_metadata_changes_nothing(directory: Path) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t")
        before = partition_of(broker, "t")
        newer = replace(before, leader_epoch=before.leader_epoch + 1)
        older = replace(before, leader=2, isr=(2,))
        await broker.applier.apply([changed(broker, before, newer), changed(broker, newer, older)])
        replica = broker.partitions.get("t", 0)
        assert (replica.leads, replica.leader_epoch) == (True, newer.leader_epoch)


RULES: list[tuple[Callable[[Path], Awaitable[None]], str, str]] = [
    (a_topic_that_is_deleted_and_made_again_begins_empty, "gone |= self._removed_replicas(change)", "pass"),
    (a_replica_that_is_taken_away_is_gone, "gone |= self._removed_replicas(change)", "pass"),
    (a_replica_that_is_taken_away_and_given_back_begins_empty, "gone |= self._removed_replicas(change)", "pass"),
    (
        a_replica_that_is_given_taken_away_and_given_back_begins_empty,
        "                if together:\n",
        "                if False:\n",
    ),
    (
        topics_that_are_deleted_together_leave_together,
        "gone |= self._removed_replicas(change)",
        "await self._remove(self._removed_replicas(change))",
    ),
    (many_partitions_are_made_together_and_evenly, "directory.admit, [its_log for _, its_log in logs]", "list"),
    (
        many_partitions_are_made_together_and_evenly,
        "len(directory.logs) + coming.count(directory)",
        "len(directory.logs)",
    ),
    (
        what_others_have_does_not_part_what_is_made_together,
        "before is not None and self._node_id in before.replicas and self._node_id not in after.replicas",
        "True",
    ),
    (a_new_epoch_is_noted_before_anything_is_written_in_it, "self._begin_epoch(replica, epoch, ahead)", "pass"),
    (who_begins_to_lead_has_noted_it_on_disk, "prepared.cache.write_ahead(prepared)", "pass"),
    (who_begins_to_lead_has_noted_it_on_disk, "self._begin_epoch(replica, epoch, ahead)", "pass"),
    (older_metadata_changes_nothing, "or partition.leader_epoch < replica.leader_epoch", ""),
]
NAMES = [rule.__name__ for rule, _, _ in RULES]


@pytest.mark.parametrize(("rule", "right", "wrong"), RULES, ids=NAMES)
def test_replicas_follow_the_metadata(
    tmp_path: Path, rule: Callable[[Path], Awaitable[None]], right: str, wrong: str
) -> None:
    @on_trio
    async def test() -> None:
        await rule(tmp_path)

    test()


@pytest.mark.parametrize(("rule", "right", "wrong"), RULES, ids=NAMES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path,
    rule: Callable[[Path], Awaitable[None]],
    right: str,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistaken: ModuleType = planted(replicas_module, right, wrong)
    monkeypatch.setattr(broker_module, "MetadataApplier", mistaken.MetadataApplier)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(rule, tmp_path)


@on_trio
async def test_a_start_configures_each_topic_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once for each of its partitions: a topic may have thousands."""
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"a": 20, "b": 20})
    configured: list[str] = []
    configure = MetadataApplier.configure

    def counted(replicas: MetadataApplier, topic: str) -> None:
        configured.append(topic)
        configure(replicas, topic)

    monkeypatch.setattr(MetadataApplier, "configure", counted)
    async with running_broker(tmp_path):
        assert sorted(configured) == ["a", "b"]


async def elections_are_logged_together(directory: Path, written: pytest.LogCaptureFixture) -> None:
    async with running_broker(directory) as broker:
        await create(broker, "t", partitions=8)
        here = partition_of(broker, "t")
        away = replace(here, replicas=(1, 2), directories=here.directories * 2, leader=2, leader_epoch=1)
        back = replace(away, leader=1, leader_epoch=2)
        written.clear()
        await broker.applier.apply([changed(broker, None, here), changed(broker, here, away)])
        await broker.applier.apply([changed(broker, away, replace(back, index=index)) for index in range(8)])
    written_messages = [each.getMessage() for each in written.records if "new leaders" in each.getMessage()]
    assert written_messages[:2] == [
        "new leaders: node 1 leads 0 more partitions and 1 fewer: t-0",
        "new leaders: node 1 leads 8 more partitions and 0 fewer: t-0, t-1, t-2, t-3, t-4, …",
    ]


def test_an_election_is_logged_and_a_new_partition_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trioka.lifecycle")
    on_trio(elections_are_logged_together)(tmp_path, caplog)
