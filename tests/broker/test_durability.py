"""What is acknowledged is kept: flush.messages, flush.ms, and the chores that make old data durable and small."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing
from mutants.plant import planted, within
from support.serving import ClientConnection, ask, on_trio, running_broker

from trioka.broker import background as housekeeping
from trioka.broker.background import LogMaintenance
from trioka.broker.broker import Broker
from trioka.broker.replication.partitions import Replica
from trioka.cluster.configs import topic_resource
from trioka.protocol import batch
from trioka.protocol.errors import TransactionalIdAuthorizationFailed
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.testing.disks.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000


async def with_topic(broker: Broker, **configs: str) -> Log:
    config = CreateTopicsRequest.Topic.Config
    topic = CreateTopicsRequest.Topic(
        name="t",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[config(name=name.replace("_", "."), value=value) for name, value in configs.items()],
    )
    decision = await broker.quorum.change(lambda controller: controller.create_topics([topic]))
    assert decision.replies[0].outcome.code == 0, decision.replies[0].outcome
    return broker.partitions.get("t", 0).log


def produce(*records: tuple[bytes | None, bytes | None], transactional: bool = False, acks: int = -1) -> ProduceRequest:
    content = [Record(offset, NOW_MS, key, value) for offset, (key, value) in enumerate(records)]
    producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    data = bytes(batch.build(content, transactional=transactional, **producer))
    partition = ProduceRequest.Topic.Partition(index=0, records=data)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def code(answer: object) -> int:
    return answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined, no-any-return]


@on_trio
async def test_with_flush_messages_1_an_answer_means_that_it_is_durable() -> None:
    disk = MemoryDisk()
    async with running_broker("/data", disk) as broker, ClientConnection(broker) as client:
        log = await with_topic(broker, flush_messages="1")
        for number in range(5):
            assert code(await client.ask(produce((None, b"%d" % number)), 9)) == 0
            assert log.recovery_point == log.log_end_offset == number + 1


class SlowDisk:
    """Its syncs wait."""

    def __init__(self, broker: Broker) -> None:
        self._should_spin = trio.Event()
        for commit in broker.commit.by_disk.values():
            commit._offload = self._offload

    async def _offload(self, work: Callable[[], None]) -> None:
        await self._should_spin.wait()
        work()

    def complete_now(self) -> None:
        self._should_spin.set()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_with_flush_messages_1_only_durable_records_are_read(acks: int) -> None:
    async def rule() -> None:
        async with running_broker("/data", MemoryDisk()) as broker, ClientConnection(broker) as client:
            log = await with_topic(broker, flush_messages="1")
            disk = SlowDisk(broker)
            await client.say(produce((None, b"v"), acks=acks), 9)
            await until(lambda: log.log_end_offset == 1)
            await trio.testing.wait_all_tasks_blocked()
            assert (log.high_watermark, log.recovery_point) == (0, 0)
            disk.complete_now()
            await until(lambda: log.high_watermark == 1)
            assert log.recovery_point == 1

    on_trio(rule)()


@on_trio
async def test_a_leader_makes_durable_what_it_finds_in_its_log_before_anybody_reads_it() -> None:
    async with running_broker("/data", MemoryDisk()) as broker, ClientConnection(broker) as client:
        log = await with_topic(broker)
        await client.ask(produce((None, b"v")), 9)
        replica = broker.partitions.get("t", 0)
        log.config = replace(log.config, flush_messages=1)
        disk = SlowDisk(broker)
        log.high_watermark = 0  # as after a restart
        replica.advance()
        broker.replication.on_leader(replica)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.high_watermark, log.recovery_point) == (0, 0)
        disk.complete_now()
        await until(lambda: log.high_watermark == 1)
        assert log.recovery_point == 1


@on_trio
async def test_with_flush_messages_3_two_may_be_read_that_are_not_durable() -> None:
    async with running_broker("/data", MemoryDisk()) as broker, ClientConnection(broker) as client:
        log = await with_topic(broker, flush_messages="3")
        disk = SlowDisk(broker)
        for number in (1, 2):
            await client.ask(produce((None, b"v")), 9)
            assert (log.high_watermark, log.recovery_point) == (number, 0)
        await client.say(produce((None, b"v")), 9)
        await until(lambda: log.log_end_offset == 3)
        assert log.high_watermark == 2
        disk.complete_now()
        await until(lambda: log.high_watermark == 3)


def test_a_high_watermark_that_does_not_wait_for_the_disk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "_own_end", property(lambda replica: replica.log.log_end_offset))
    rules: list[Callable[[], None]] = [
        partial(test_with_flush_messages_1_only_durable_records_are_read, -1),
        test_a_leader_makes_durable_what_it_finds_in_its_log_before_anybody_reads_it,
        test_with_flush_messages_3_two_may_be_read_that_are_not_durable,
    ]
    for rule in rules:
        with pytest.raises((AssertionError, BaseExceptionGroup)):
            rule()


@on_trio
async def test_without_it_an_answer_does_not_wait_for_the_disk() -> None:
    async with running_broker("/data", MemoryDisk()) as broker:
        log = await with_topic(broker)
        assert code(await ask(broker, produce((None, b"v")), 9)) == 0
        assert (log.recovery_point, log.log_end_offset) == (0, 1)


@on_trio
async def test_flush_ms_makes_it_durable_a_while_later(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        log = await with_topic(broker, flush_ms="0")
        await ask(broker, produce((None, b"v")), 9)
        chores = LogMaintenance(broker)
        await chores.flush()
        assert log.recovery_point == 1


@on_trio
async def test_old_segments_become_durable_and_are_noted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        log = await with_topic(broker)
        await ask(broker, produce((None, b"v")), 9)
        log.roll(now_ms=NOW_MS)
        await LogMaintenance(broker).checkpoint()
        assert log.recovery_point == 1
    assert "t 0 1\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


@on_trio
async def test_what_is_older_than_retention_ms_goes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        log = await with_topic(broker, retention_ms="1000")
        await ask(broker, produce((None, b"old")), 9)  # its timestamp is years ago
        await LogMaintenance(broker).apply_retention()
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)


@on_trio
async def test_a_compacted_topic_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        log = await with_topic(broker, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        for number in range(10):
            await ask(broker, produce((b"k%d" % (number % 2), b"%d" % number)), 9)
        log.roll(now_ms=NOW_MS)
        await LogMaintenance(broker).compact()
        read = log.read(0, 1 << 20).records
        assert read is not None
        data = read.read()
        kept = [(r.offset, r.key, r.value) for header in batch.headers(data) for r in batch.records(data, header)]
        assert kept == [(8, b"k0", b"8"), (9, b"k1", b"9")]
    assert "t 0 10\n" in (tmp_path / "cleaner-offset-checkpoint").read_text()


@on_trio
async def test_a_batch_of_a_transaction_without_an_id_is_refused(tmp_path: Path) -> None:
    """It would hold up every reader of committed records for ever."""
    async with running_broker(tmp_path) as broker:
        log = await with_topic(broker)
        assert (
            code(await ask(broker, produce((None, b"v"), transactional=True), 9))
            == TransactionalIdAuthorizationFailed.code
        )
        assert log.log_end_offset == 0


@on_trio
async def test_metadata_survives_in_a_snapshot(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await with_topic(broker, retention_ms="1234")
        snapshot = await broker.quorum.take_snapshot()
        assert snapshot is not None
        topic = broker.metadata.topics.by_name("t")
        assert topic is not None
    assert list((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    async with running_broker(tmp_path) as broker:
        found = broker.metadata.topics.by_name("t")
        assert found is not None
        assert found.topic_id == topic.topic_id
        assert broker.metadata.configs.get(topic_resource("t")) == {"retention.ms": "1234"}
        assert broker.partitions.get("t", 0).log.config.retention_ms == 1234


@on_trio
async def test_a_disk_that_fails_takes_its_directory_offline_and_not_the_broker(tmp_path: Path) -> None:
    async with running_broker(f"{tmp_path}/a,{tmp_path}/b") as broker:
        log = await with_topic(broker)  # where the fewest partitions are: the metadata's is in the other one
        assert log.directory.startswith(f"{tmp_path}/b")
        log.files.disk.fail(OSError(5, "the disk is broken"))  # type: ignore[attr-defined]
        answer = await ask(broker, produce((None, b"v")), 9)
        assert code(answer) == 56  # KAFKA_STORAGE_ERROR
        assert broker.directories[1].failure is not None
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()


class Interrupted:
    """A log; a reader finds at the same time that a worker thread has made another one."""

    def __init__(self, log: Log, logs: dict[TopicPartition, Log]) -> None:
        self._log = log
        self._logs = logs

    def __getattr__(self, name: str) -> Any:
        self._logs[TopicPartition("made-meanwhile", 0)] = self._log
        return getattr(self._log, name)


async def keeps_house_while_logs_are_made(module: ModuleType, chore: str) -> None:
    async with running_broker("/data", MemoryDisk()) as broker:
        log = await with_topic(broker, cleanup_policy="compact")
        logs = broker.directories[0].logs
        logs[TopicPartition("t", 0)] = Interrupted(log, logs)  # type: ignore[assignment]
        try:
            await getattr(module.LogMaintenance(broker), chore)()
        finally:
            logs[TopicPartition("t", 0)] = log
            logs.pop(TopicPartition("made-meanwhile", 0), None)


CHORES = [
    ("write_checkpoints", within("LogMaintenance.write_checkpoints", "list(directory.logs.items())")),
    ("compact", within("LogMaintenance._dirtiest", "list(directory.logs.items())")),
]


@pytest.mark.parametrize(("chore", "line"), CHORES)
@on_trio
async def test_logs_may_be_made_while_house_is_kept(chore: str, line: str) -> None:
    await keeps_house_while_logs_are_made(housekeeping, chore)
    with pytest.raises(RuntimeError, match="changed size"):
        await keeps_house_while_logs_are_made(planted(housekeeping, line, "directory.logs.items()"), chore)
