"""What a leader makes of its followers' fetches, and of those who only say that they are followers."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.multi_replica import alone_again, filled, follow, leading, led_by_another, produced, with_others
from support.serving import ClientConnection, on_trio
from support.topic_requests import producing

from trioka.broker.broker import Broker
from trioka.broker.replication import applier as replicas_module
from trioka.broker.replication import partitions as partitions_module
from trioka.protocol.batch import build
from trioka.protocol.errors import (
    NONE,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownLeaderEpoch,
)
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

LATEST = -1


def acks_all(timeout_ms: int = 20_000) -> ProduceRequest:
    request = producing("t", 1, 2, acks=-1)
    request.timeout_ms = timeout_ms  # type: ignore[misc]
    return request


# --- acks=all


async def an_acknowledgement_waits_for_in_sync_replicas(directory: Path) -> None:
    async with leading(directory) as (broker, replica), ClientConnection(broker) as producer:
        await producer.say(acks_all(), 9)
        result = await follow(broker, 0, wait_ms=20_000)
        assert len(bytes(result.records)) > 0
        assert replica.log.high_watermark == 0
        assert len(broker.purgatory) >= 1
        await follow(broker, 2)
        assert replica.log.high_watermark == 2
        assert await produced(producer, acks_all()) == (NONE, 0)


@on_trio
async def test_an_acknowledgement_waits_for_in_sync_replicas(tmp_path: Path) -> None:
    await an_acknowledgement_waits_for_in_sync_replicas(tmp_path)


@on_trio
async def test_an_acknowledgement_without_replication_times_out(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica), ClientConnection(broker) as producer:
        await producer.say(acks_all(timeout_ms=10), 9)
        assert (await produced(producer, acks_all()))[0] == RequestTimedOut.code
        assert (replica.log.log_end_offset, replica.log.high_watermark) == (2, 0)


def idempotent(timeout_ms: int = 20_000) -> ProduceRequest:
    """The same batch of the same producer, whenever it is sent."""
    records = build([Record(0, 1, b"k", b"v")], producer_id=1000, producer_epoch=0, base_sequence=0)
    data = ProduceRequest.Topic.Partition(index=0, records=bytes(records))
    topic = ProduceRequest.Topic(name="t", partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])


@on_trio
async def test_a_duplicate_is_acknowledged_when_the_first_would_be(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica), ClientConnection(broker) as producer:
        await producer.say(idempotent(timeout_ms=10), 9)
        assert (await produced(producer, idempotent()))[0] == RequestTimedOut.code
        await producer.say(idempotent(timeout_ms=10), 9)
        assert (await produced(producer, idempotent()))[0] == RequestTimedOut.code
        assert replica.log.log_end_offset == 1
        await follow(broker, 1)
        await producer.say(idempotent(), 9)
        assert await produced(producer, idempotent()) == (NONE, 0)


async def too_few_in_sync_are_refused_before_anything_is_appended(directory: Path) -> None:
    async with leading(directory, in_sync=1) as (broker, replica), ClientConnection(broker) as producer:
        replica.min_in_sync = 2
        await producer.say(acks_all(), 9)
        assert (await produced(producer, acks_all()))[0] == NotEnoughReplicas.code
        assert replica.log.log_end_offset == 0


@on_trio
async def test_too_few_in_sync_are_refused_before_anything_is_appended(tmp_path: Path) -> None:
    await too_few_in_sync_are_refused_before_anything_is_appended(tmp_path)


async def too_few_in_sync_after_the_append_is_an_error(directory: Path) -> None:
    async with leading(directory, min_insync_replicas=2) as (broker, replica), ClientConnection(broker) as producer:
        await producer.say(acks_all(), 9)
        await follow(broker, 0, wait_ms=20_000)
        with_others(broker, "t", others=(2, 3), in_sync=1)
        assert replica.log.high_watermark == 0  # it stands still, whatever acks says
        replica.log.advance_high_watermark(2)  # as if it had moved just before
        broker.purgatory.notify(replica)
        assert (await produced(producer, acks_all()))[0] == NotEnoughReplicasAfterAppend.code


@on_trio
async def test_too_few_in_sync_after_the_append_is_an_error(tmp_path: Path) -> None:
    await too_few_in_sync_after_the_append_is_an_error(tmp_path)


async def a_request_parked_at_a_deposed_leader_fails(directory: Path) -> None:
    async with leading(directory) as (broker, _), ClientConnection(broker) as producer:
        await producer.say(acks_all(), 9)
        await follow(broker, 0, wait_ms=20_000)
        led_by_another(broker, "t")
        assert (await produced(producer, acks_all()))[0] == NotLeaderOrFollower.code


@on_trio
async def test_a_request_parked_at_a_deposed_leader_fails(tmp_path: Path) -> None:
    await a_request_parked_at_a_deposed_leader_fails(tmp_path)


async def what_an_earlier_reign_wrote_is_not_acknowledged_by_a_later_one(directory: Path) -> None:
    async with leading(directory) as (broker, replica):
        term, until = replica.term, 2
        replica.append(build([Record(n, 1, b"k", b"v") for n in range(2)]), -1, 1)
        assert replica.commit_status(until, term) is False
        led_by_another(broker, "t")
        alone_again(broker, "t")
        assert replica.log.high_watermark == 2
        assert isinstance(replica.commit_status(until, term), NotLeaderOrFollower)


@on_trio
async def test_what_an_earlier_reign_wrote_is_not_acknowledged_by_a_later_one(tmp_path: Path) -> None:
    await what_an_earlier_reign_wrote_is_not_acknowledged_by_a_later_one(tmp_path)


@on_trio
async def test_acks_1_waits_for_no_follower_and_consumers_see_it_later(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica), ClientConnection(broker) as producer:
        request = producing("t", 1, acks=1)
        await producer.say(request, 9)
        assert await produced(producer, request) == (NONE, 0)
        result = await follow(broker, 0, by=-1)
        assert (result.high_watermark, bytes(result.records)) == (0, b"")
        await follow(broker, 1)
        result = await follow(broker, 0, by=-1)
        assert result.high_watermark == 1
        assert bytes(result.records)
        assert replica.log.high_watermark == 1


# --- fetches


@on_trio
async def test_a_fetch_of_a_non_replica_is_refused_and_not_noted(tmp_path: Path) -> None:
    """CVE-2018-1288."""
    async with leading(tmp_path) as (broker, replica):
        await filled(broker)
        assert (await follow(broker, 10, by=7)).error_code == UnknownLeaderEpoch.code
        assert (await follow(broker, 10, by=7, epoch=-1)).error_code == NotLeaderOrFollower.code
        assert replica.log.high_watermark == 0


@on_trio
async def test_a_fetch_of_another_epoch_is_refused_and_nothing_is_noted(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica):
        await filled(broker)
        epoch = replica.leader_epoch
        assert (await follow(broker, 10, epoch=epoch - 1)).error_code == FencedLeaderEpoch.code
        assert (await follow(broker, 10, epoch=epoch + 1)).error_code == UnknownLeaderEpoch.code
        assert replica.log.high_watermark == 0
        assert (await follow(broker, 10)).error_code == NONE
        assert replica.log.high_watermark == 10


@on_trio
async def test_a_diverged_follower_gets_the_divergence_and_nothing_is_noted(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica):
        await filled(broker)
        first = replica.leader_epoch
        with_others(broker, "t", others=(2, 3), in_sync=2)
        with_others(broker, "t", others=(2, 3), in_sync=2)
        await filled(broker)
        result = await follow(broker, 15, last_epoch=first)
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (first, 10)
        result = await follow(broker, 15, last_epoch=first + 1)  # of which there are no records
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (first, 10)
        assert replica.log.high_watermark == 0
        assert (await follow(broker, 15, last_epoch=first + 2)).diverging_epoch.epoch == -1
        assert replica.log.high_watermark == 15


@on_trio
async def test_a_follower_outside_of_the_log_gets_an_error_and_nothing_is_noted(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, replica):
        await filled(broker)
        assert (await follow(broker, 11)).error_code == OffsetOutOfRange.code
        assert replica.log.high_watermark == 0


@on_trio
async def test_a_follower_that_waits_is_woken_by_what_comes(tmp_path: Path) -> None:
    async with leading(tmp_path) as (broker, _), trio.open_nursery() as nursery:
        answers = []

        async def wait() -> None:
            answers.append(await follow(broker, 0, wait_ms=25_000))

        nursery.start_soon(wait)
        while not len(broker.purgatory):
            await trio.sleep(0.001)
        await filled(broker)
        while not answers:
            await trio.sleep(0.001)
        assert bytes(answers[0].records)


@on_trio
async def test_a_follower_that_waits_has_not_caught_up_again(tmp_path: Path) -> None:
    """What it asked when it came is noted, once: a follower that died while it waited must not seem alive."""
    async with leading(tmp_path) as (broker, replica):
        assert replica.leadership is not None
        await follow(broker, 0, wait_ms=1)
        noted = replica.leadership.followers[2].fetched
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: follow(broker, 0, by=3, wait_ms=300))
            while len(broker.purgatory) == 0:
                await trio.sleep(0.001)
            broker.purgatory.notify(replica)
        assert replica.leadership.followers[2].fetched == noted
        assert replica.leadership.followers[3].log_end_offset == 0


async def a_consumer_that_waits_is_woken_by_what_is_committed(directory: Path) -> None:
    async with leading(directory) as (broker, _), trio.open_nursery() as nursery:
        answers = []

        async def wait() -> None:
            answers.append(await follow(broker, 0, by=-1, wait_ms=25_000))

        nursery.start_soon(wait)
        while not len(broker.purgatory):
            await trio.sleep(0.001)
        await filled(broker)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        await follow(broker, 10)
        while not answers:
            await trio.sleep(0.001)
        assert bytes(answers[0].records)


@on_trio
async def test_a_consumer_that_waits_is_woken_by_what_is_committed(tmp_path: Path) -> None:
    await a_consumer_that_waits_is_woken_by_what_is_committed(tmp_path)


# --- what a new leader knows


async def latest(broker: Broker, *, version: int = 11, replica_id: int = -1) -> tuple[int, int]:
    requested = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsRequest.Topic(name="t", partitions=[requested])]
    )
    async with ClientConnection(broker) as connection:
        (result,) = (await connection.ask(request, version)).topics[0].partitions
        return result.error_code, result.offset


async def a_new_leader_does_not_know_at_once_where_its_log_ends(directory: Path) -> None:
    async with leading(directory) as (broker, replica):
        await filled(broker)
        assert await latest(broker) == (NONE, 0)
        with_others(broker, "t", others=(2, 3), in_sync=2)
        assert (await latest(broker))[0] == OffsetNotAvailable.code
        assert (await latest(broker, version=4))[0] == LeaderNotAvailable.code
        assert await latest(broker, replica_id=2) == (NONE, 10)
        await follow(broker, 9)
        assert (await latest(broker))[0] == OffsetNotAvailable.code
        await follow(broker, 10)
        assert await latest(broker) == (NONE, 10)
        assert replica.log.epochs.start_offset_of(replica.leader_epoch) == 10


@on_trio
async def test_a_new_leader_does_not_know_at_once_where_its_log_ends(tmp_path: Path) -> None:
    await a_new_leader_does_not_know_at_once_where_its_log_ends(tmp_path)


# --- planted mistakes


PARTITION_MISTAKES = [
    ("if acks == ALL_REPLICAS and not self.has_min_in_sync:", "if False:"),
    ("if self.log.high_watermark < until:", "if self.log.log_end_offset < until:"),
    ("if not self.leads or self.term != term:", "if not self.leads:"),
    ("if not self.leads or self.term != term:", "if self.term != term:"),
    ("len(leadership.maximal_isr) < self.min_in_sync", "False"),
    ("self.log.high_watermark >= self.leadership.epoch_start", "True"),
]
PARTITION_RULES = [
    too_few_in_sync_are_refused_before_anything_is_appended,
    an_acknowledgement_waits_for_in_sync_replicas,
    what_an_earlier_reign_wrote_is_not_acknowledged_by_a_later_one,
    a_request_parked_at_a_deposed_leader_fails,
    too_few_in_sync_after_the_append_is_an_error,
    a_new_leader_does_not_know_at_once_where_its_log_ends,
]


@pytest.mark.parametrize(("mistake", "rule"), list(zip(PARTITION_MISTAKES, PARTITION_RULES, strict=True)))
def test_a_planted_mistake_is_noticed(
    mistake: tuple[str, str], rule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken: ModuleType = planted(partitions_module, *mistake)
    monkeypatch.setattr(replicas_module, "Replica", mistaken.Replica)

    async def within_limits() -> None:
        with trio.fail_after(1):
            await rule(tmp_path)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(within_limits)
