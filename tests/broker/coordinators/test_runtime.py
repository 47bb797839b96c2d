"""Coordinators: what they acknowledged is in the log, and they load exactly what is in the log."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing
from mutants.plant import Rule, assert_noticed
from support.config_requests import GROUP, SET, TOPIC, alter
from support.fast_paths import connected, said
from support.serving import LISTENER, Client, ClientConnection, ask, on_trio, read_answer, request_frame, running_broker

from trioka.broker.background import LogMaintenance
from trioka.broker.broker import Broker
from trioka.broker.coordinators import runtime as coordinators
from trioka.coordinator import groups
from trioka.coordinator.decision import Producer, StoredRecord
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownMemberId,
    UnknownServerError,
    UnstableOffsetCommit,
)
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.log import Log
from trioka.testing.disks.memory_disk import MemoryDisk

OFFSETS_TOPIC = "__consumer_offsets"
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 00000000 00000000")
COMMITS_BEFORE_THE_END = 200
TOPICS = CreateTopicsRequest(
    topics=[
        CreateTopicsRequest.Topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
        for name in ("t", "u")
    ]
)


def commit(
    offset: int, *, group: str = "g", topic: str = "t", partition: int = 0, text: str = ""
) -> OffsetCommitRequest:
    request = OffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata=text
    )
    return OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequest.Topic(name=topic, partitions=[request])]
    )


def fetch(group: str = "g", *, stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)], require_stable=stable)


def join(group: str = "c", *, member: str = "", session_ms: int = 30_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)],
    )


def offsets_of(answer: Any) -> dict[tuple[str, int], int]:
    (group,) = answer.groups
    assert not group.error_code, group
    return {(t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions}


def code_of(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def shell() -> ModuleType:
    return coordinators


@asynccontextmanager
async def coordinating(
    directory: Path | str, disk: MemoryDisk | None = None, shell: ModuleType = coordinators, **settings: object
) -> AsyncIterator[Broker]:
    """A broker whose coordinator is there."""
    async with running_broker(directory, disk, **settings) as broker:
        if shell is not coordinators:
            usual = broker.groups
            vars(broker)["groups"] = shell.CoordinatorRuntime(
                broker, OFFSETS_TOPIC, GROUPS, usual._new, usual._partitions
            )
        await ask(broker, TOPICS, 7)
        await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        await loaded(broker)
        yield broker


async def loaded(broker: Broker) -> None:
    while (await ask(broker, ListGroupsRequest(), 5)).error_code:
        await trio.sleep(0.005)


def log_of(broker: Broker) -> Log:
    return broker.partitions.get(OFFSETS_TOPIC, 0).log


# -- loading -----------------------------------------------------------------------------------------------------------


@on_trio
async def test_what_was_committed_is_there_after_a_new_start(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        for offset in range(20):
            assert code_of(await client.ask(commit(offset, partition=offset % 3, text=f"at {offset}"), 9)) == 0
        member = (await client.ask(join(), 0)).member_id
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 18, ("t", 1): 19, ("t", 2): 17}
        # Who had joined and had no assignment yet is not written anywhere.
        response = await client.ask(HeartbeatRequest(group_id="c", generation_id=1, member_id=member), 4)
        assert response.error_code == UnknownMemberId.code


def test_a_killed_broker_has_lost_no_acknowledged_commit(tmp_path: Path) -> None:
    result = 0
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "trioka", "dev", "--port", "0", "--data", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline() + process.stdout.readline()
                client = Client("127.0.0.1", int(said.partition("localhost:")[2].split()[0]))
                client.ask(TOPICS, 7)
                client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                if result:
                    while (answer := client.ask(fetch(), 9)).groups[0].error_code:
                        assert answer.groups[0].error_code == CoordinatorLoadInProgress.code
                    assert offsets_of(answer) == {("t", 0): result}
                for _ in range(COMMITS_BEFORE_THE_END):
                    while (code := code_of(client.ask(commit(result + 1), 9))) == CoordinatorLoadInProgress.code:
                        pass
                    assert code == 0
                    result += 1
                client.close()
            finally:
                process.send_signal(signal.SIGKILL)
    assert result == 2 * COMMITS_BEFORE_THE_END


@on_trio
async def test_while_it_is_loaded_every_request_gets_the_same_error(shell: ModuleType) -> None:
    async with (
        coordinating("/data", MemoryDisk(), shell) as broker,
        ClientConnection(broker) as client,
        ClientConnection(broker) as other,
    ):
        assert code_of(await client.ask(commit(5), 9)) == 0
        member = (await client.ask(join(), 0)).member_id
        await other.say(join(), 0)  # waits for the first to join again
        while len((await client.ask(DescribeGroupsRequest(groups=["c"]), 5)).groups[0].members) < 2:
            await trio.sleep(0.005)
        async with no_threads():
            restart_leading(broker)
            waited = await other.hear(join(), 0)
            assert waited.error_code == NotCoordinator.code
            loading = CoordinatorLoadInProgress.code
            assert code_of(await client.ask(commit(6), 9)) == loading
            assert (await client.ask(fetch(), 9)).groups[0].error_code == loading
            old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])])
            assert (await client.ask(old, 1)).topics[0].partitions[0].error_code == loading
            assert (await client.ask(old, 5)).error_code == loading
            assert (await client.ask(join(), 9)).error_code == loading
            assert (await client.ask(ListGroupsRequest(), 5)).error_code == loading
            assert (await client.ask(DescribeGroupsRequest(groups=["c"]), 5)).groups[0].error_code == loading
            assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == loading
            # Heartbeats succeed, since no session ends meanwhile.
            alive = HeartbeatRequest(group_id="c", generation_id=1, member_id=member)
            assert (await client.ask(alive, 4)).error_code == 0
        await loaded(broker)
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 5}


@asynccontextmanager
async def no_threads() -> AsyncIterator[None]:
    """Whatever needs a worker thread waits until the block ends."""
    limiter = trio.to_thread.current_default_thread_limiter()
    tokens = [object() for _ in range(int(limiter.total_tokens))]
    for token in tokens:
        await limiter.acquire_on_behalf_of(token)
    try:
        yield
    finally:
        for token in tokens:
            limiter.release_on_behalf_of(token)


def restart_leading(broker: Broker) -> None:
    """What a new leader epoch does."""
    broker.partitions.get(OFFSETS_TOPIC, 0).leader_epoch += 1
    broker.groups.on_leader_change(0)


@on_trio
async def test_a_marker_that_comes_while_it_is_loaded_counts(shell: ModuleType) -> None:
    async with coordinating("/data", MemoryDisk(), shell) as broker, ClientConnection(broker) as client:
        write_in_transaction(broker, 9)
        async with no_threads():
            restart_leading(broker)
            await trio.testing.wait_all_tasks_blocked()  # the log up to here is being read
            mark(broker, commits=True)
        await loaded(broker)
        assert offsets_of(await client.ask(fetch(stable=True), 9)) == {("t", 0): 9}


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_transaction_commits_is_hidden_until_its_marker(shell: ModuleType, commits: bool) -> None:
    @on_trio
    async def test() -> None:
        async with coordinating("/data", MemoryDisk(), shell) as broker, ClientConnection(broker) as client:
            assert code_of(await client.ask(commit(5), 9)) == 0
            write_in_transaction(broker, 9)
            restart_leading(broker)
            await loaded(broker)
            assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 5}
            (result,) = (await client.ask(fetch(stable=True), 9)).groups[0].topics[0].partitions
            assert result.error_code == UnstableOffsetCommit.code
            mark(broker, commits=commits)
            expected = {("t", 0): 9 if commits else 5}
            assert offsets_of(await client.ask(fetch(stable=True), 9)) == expected
            restart_leading(broker)
            await loaded(broker)
            assert offsets_of(await client.ask(fetch(stable=True), 9)) == expected

    test()


def write_in_transaction(broker: Broker, offset: int) -> None:
    """As a producer's TxnOffsetCommit does."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1000)
    kept = StoredRecord(OffsetCommitKey(group="g", topic="t", partition=0), value)
    built = batch.build(
        [Record(0, 1000, *GROUPS.encode(kept))],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    broker.partitions.get(OFFSETS_TOPIC, 0).append(built, -1, broker.clock.now_ms(), AppendOrigin.COORDINATOR)


def mark(broker: Broker, *, commits: bool) -> None:
    """As WriteTxnMarkers does."""
    marker = batch.build_marker(
        EndTxnMarker(commit=commits, coordinator_epoch=0),
        offset=0,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=0,
        timestamp=broker.clock.now_ms(),
    )
    broker.partitions.get(OFFSETS_TOPIC, 0).append(marker, -1, broker.clock.now_ms(), AppendOrigin.COORDINATOR)
    broker.groups.on_txn_end(0, Producer(7, 0), commits)


@on_trio
async def test_a_log_that_makes_no_sense_is_not_coordinated(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        nonsense = batch.build([Record(0, 1000, b"\x00", None)])
        broker.partitions.get(OFFSETS_TOPIC, 0).append(nonsense, -1, broker.clock.now_ms(), AppendOrigin.COORDINATOR)
        restart_leading(broker)
        while (code := code_of(await client.ask(commit(5), 9))) == CoordinatorLoadInProgress.code:
            await trio.sleep(0.005)
        assert code == CoordinatorNotAvailable.code


# -- writing -----------------------------------------------------------------------------------------------------------


@on_trio
async def test_a_commit_that_cannot_be_written_has_changed_nothing(shell: ModuleType) -> None:
    async with coordinating("/data", MemoryDisk(), shell) as broker, ClientConnection(broker) as client:
        assert code_of(await client.ask(commit(5), 9)) == 0
        assert await alter(broker, TOPIC, OFFSETS_TOPIC, ("internal.segment.bytes", SET, "200")) == 0
        assert code_of(await client.ask(commit(6, text="x" * 200), 9)) == UnknownServerError.code
        assert (await client.ask(join("new"), 0)).error_code == 0  # a small record goes
        assert code_of(await client.ask(commit(6, group="newer", text="x" * 200), 9)) == UnknownServerError.code
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 5}
        assert {group.group_id for group in (await client.ask(ListGroupsRequest(), 5)).groups} == {"g", "new"}
        assert await alter(broker, TOPIC, OFFSETS_TOPIC, ("internal.segment.bytes", SET, "1048576")) == 0
        assert code_of(await client.ask(commit(6), 9)) == 0
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 6}


@on_trio
async def test_with_flush_messages_1_a_commit_is_durable_when_acknowledged() -> None:
    disk = MemoryDisk()
    async with coordinating("/data", disk) as broker, ClientConnection(broker) as client:
        assert await alter(broker, TOPIC, OFFSETS_TOPIC, ("flush.messages", SET, "1")) == 0
        for offset in range(3):
            assert code_of(await client.ask(commit(offset), 9)) == 0
            assert log_of(broker).recovery_point == log_of(broker).log_end_offset
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 2}


@on_trio
async def test_the_topic_may_be_compressed(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_topic_compression_codec=1) as broker, ClientConnection(broker) as client:
        assert code_of(await client.ask(commit(5), 9)) == 0
        read = log_of(broker).read(0, 1000).records
        assert read is not None
        assert [header.codec.name for header in batch.headers(read.read())] == ["GZIP"]
        restart_leading(broker)
        await loaded(broker)
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 5}


# -- forgetting --------------------------------------------------------------------------------------------------------


@on_trio
async def test_compaction_keeps_what_counts(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        assert await alter(broker, TOPIC, OFFSETS_TOPIC, ("delete.retention.ms", SET, "0")) == 0
        for offset in range(50):
            assert code_of(await client.ask(commit(offset, partition=offset % 2), 9)) == 0
            assert code_of(await client.ask(commit(offset, group="gone"), 9)) == 0
        assert (await client.ask(DeleteGroupsRequest(groups_names=["gone"]), 2)).results[0].error_code == 0
        log = log_of(broker)
        size = sum(segment.size for segment in log.segments)
        for _ in range(3):  # tombstones go when they have been seen by one cleaning
            log.roll(now_ms=broker.clock.now_ms())
            await LogMaintenance(broker).compact()
        assert sum(segment.size for segment in log.segments) < size / 10
        restart_leading(broker)
        await loaded(broker)
        assert offsets_of(await client.ask(fetch(), 9)) == {("t", 0): 48, ("t", 1): 49}
        assert [group.group_id for group in (await client.ask(ListGroupsRequest(), 5)).groups] == ["g"]


@on_trio
async def test_a_deleted_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        await client.ask(commit(5), 9)
        await client.ask(commit(6, topic="u"), 9)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert offsets_of(await client.ask(fetch(), 9)) == {("u", 0): 6}
        restart_leading(broker)
        await loaded(broker)
        assert offsets_of(await client.ask(fetch(), 9)) == {("u", 0): 6}


@on_trio
async def test_when_the_topic_of_groups_is_deleted_groups_restart(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker, ClientConnection(broker) as client:
        await client.ask(commit(5), 9)
        await client.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC], timeout_ms=1000), 5)
        assert code_of(await client.ask(commit(6), 9)) == NotCoordinator.code
        await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert offsets_of(await client.ask(fetch(), 9)) == {}


@on_trio
async def test_old_offsets_and_empty_groups_are_cleaned_up(tmp_path: Path) -> None:
    async with (
        coordinating(tmp_path, offsets_retention_check_interval_ms=20) as broker,
        ClientConnection(broker) as client,
    ):
        assert code_of(await client.ask(expiring("g"), 2)) == 0
        while (await client.ask(ListGroupsRequest(), 5)).groups:
            await trio.sleep(0.005)
        assert offsets_of(await client.ask(fetch(), 9)) == {}


def expiring(group: str, topic: str = "t", partition: int = 0) -> OffsetCommitRequest:
    """A commit that expires at once."""
    topics = commit(5, topic=topic, partition=partition).topics
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics, retention_time_ms=0)


@on_trio
async def test_a_commit_that_comes_between_two_parts_of_a_clean_up_is_kept() -> None:
    """The parts wait for the disk, and the broker serves others meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "RECORDS_AT_ONCE", 2)
        async with coordinating("/data", MemoryDisk()) as broker, ClientConnection(broker) as client:
            for topic, partition in product("tu", range(3)):
                assert code_of(await client.ask(expiring("g", topic, partition), 2)) == 0
            assert await alter(broker, TOPIC, OFFSETS_TOPIC, ("flush.messages", SET, "1")) == 0
            end = log_of(broker).log_end_offset
            broker.groups.notify_all(lambda coordinator, now: coordinator.clean_up(now))
            assert log_of(broker).log_end_offset == end + 2, "one part is written, and not committed"
            connection = connected(broker)
            said(connection, request_frame(commit(77, topic="u", partition=2), 8))
            assert log_of(broker).log_end_offset == end + 3, "the commit stands behind it"
            while len(offsets_of(await client.ask(fetch(), 9))) > 1:
                await trio.sleep(0.005)
            assert offsets_of(await client.ask(fetch(), 9)) == {("u", 2): 77}
            answer = said(connection, b"")
            assert code_of(read_answer(commit(77), 8, answer[4:])) == 0
            connection.close()


@on_trio
async def test_a_clean_up_may_have_any_number_of_parts(shell: ModuleType) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "RECORDS_AT_ONCE", 1)
        async with coordinating("/data", MemoryDisk(), shell) as broker, ClientConnection(broker) as client:
            for number in range(400):
                assert code_of(await client.ask(expiring(f"g{number}"), 2)) == 0
            broker.groups.notify_all(lambda coordinator, now: coordinator.clean_up(now))
            assert (await client.ask(ListGroupsRequest(), 5)).groups == []


# -- time --------------------------------------------------------------------------------------------------------------


@on_trio
async def test_a_member_that_is_silent_is_removed(tmp_path: Path) -> None:
    async with coordinating(tmp_path, group_min_session_timeout_ms=1) as broker, ClientConnection(broker) as client:
        assert (await client.ask(join(session_ms=20), 0)).error_code == 0
        while (await client.ask(DescribeGroupsRequest(groups=["c"]), 5)).groups[0].group_state != "Empty":
            await trio.sleep(0.005)


@on_trio
async def test_a_group_may_have_settings_of_its_own(tmp_path: Path) -> None:
    async with coordinating(tmp_path, group_consumer_min_heartbeat_interval_ms=1) as broker:
        await alter(broker, GROUP, "special", ("consumer.heartbeat.interval.ms", SET, "1234"))
        coordinator = (await broker.groups.read_all(lambda found: found))[0]
        consumer = coordinator._context.consumer
        assert consumer("special").heartbeat_interval_ms == 1234
        assert consumer("ordinary").heartbeat_interval_ms == 5000


# -- where -------------------------------------------------------------------------------------------------------------


@on_trio
async def test_groups_are_spread_over_the_partitions(tmp_path: Path) -> None:
    async with coordinating(tmp_path, offsets_topic_num_partitions=8) as broker, ClientConnection(broker) as client:
        names = [f"group {number}" for number in range(40)]
        for name in names:
            assert code_of(await client.ask(commit(5, group=name), 9)) == 0
        assert {group.group_id for group in (await client.ask(ListGroupsRequest(), 5)).groups} == set(names)
        used = {broker.groups.partition_of(name) for name in names}
        for index in range(8):
            assert (broker.partitions.get(OFFSETS_TOPIC, index).log.log_end_offset > 0) == (index in used)


@on_trio
async def test_without_a_topic_of_groups_there_is_no_coordinator(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await client.ask(TOPICS, 7)
        assert code_of(await client.ask(commit(5), 9)) == NotCoordinator.code
        assert (await client.ask(ListGroupsRequest(), 5)).groups == []
        assert "groups" in vars(broker)


@on_trio
async def test_a_broker_without_groups_loads_nothing_of_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await ask(broker, TOPICS, 7)
        assert "groups" not in vars(broker)
        assert broker.addresses[LISTENER]


# -- planted mistakes --------------------------------------------------------------------------------------------------


def _a_transaction(shell: ModuleType) -> None:
    test_what_a_transaction_commits_is_hidden_until_its_marker(shell, True)


MISTAKES = [
    ("appended = shard.replica.append(built, ALL_REPLICAS, now_ms, AppendOrigin.COORDINATOR)",
     "[shard.coordinator.replay(kept, 0, producer) for kept in decision.records]\n"
      "appended = shard.replica.append(built, ALL_REPLICAS, now_ms, AppendOrigin.COORDINATOR)",
     test_a_commit_that_cannot_be_written_has_changed_nothing),
    ("        if not shard.is_loaded:\n            raise CoordinatorLoadInProgress()\n        return shard",
     "        return shard",
     test_while_it_is_loaded_every_request_gets_the_same_error),
    ("            shard.coordinator.replay_end(producer, is_committed)\n", "", _a_transaction),
    ("            while offset < loaded.log_end_offset:",
     "            end = loaded.log_end_offset\n            while offset < end:",
     test_a_marker_that_comes_while_it_is_loaded_counts),
    ("                    coordinator.replay_end(producer, marker.commit)", "                    pass", _a_transaction),
    ("        if shard.is_draining:\n            return\n", "", test_a_clean_up_may_have_any_number_of_parts),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(coordinators, right, wrong, rule)
