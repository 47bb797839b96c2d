"""A topic with trioka.read.consistency=linearizable: a leader that was replaced does not show the end of its log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.config_requests import SET, alter
from support.config_requests import TOPIC as TOPIC_RESOURCE
from support.multi_replica import with_others
from support.replicated_topics import TOPIC, Producer, create, fetch, leader, partition, produce, replica, wait_leader
from support.serving import ClientConnection, on_trio, running_broker
from support.topic_requests import create as create_alone
from support.topic_requests import producing

from trioka.broker.broker import Broker
from trioka.broker.fastpath import fetch as fast_fetch
from trioka.broker.fastpath import registry
from trioka.broker.replication import linearizable_reads, request_reads
from trioka.broker.replication.fetch_session_client import VERSION, FetchSessionClient, Limits, Position
from trioka.broker.replication.partitions import Replica
from trioka.cluster.healing import HEALER
from trioka.protocol.errors import NONE, InvalidConfig, NotLeaderOrFollower
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.list_offsets import ListOffsetsRequest

LATEST = -1
FOLLOWER = 2
LINEARIZABLE: dict[str, Any] = {"trioka.read.consistency": "linearizable"}
PATIENT: dict[str, Any] = {"trioka_linearizable_read_timeout_ms": 60_000}
HASTY: dict[str, Any] = {"trioka_linearizable_read_timeout_ms": 300}
NOT_LEADER = NotLeaderOrFollower.code


def asking_latest(timestamp: int = LATEST) -> ListOffsetsRequest:
    requested = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=[requested])])


async def latest(cluster: Cluster, node: int) -> tuple[int, int]:
    """The error and the offset that a consumer gets."""
    async with cluster.asking(node) as connection:
        (result,) = (await connection.ask(asking_latest(), 9)).topics[0].partitions
    return int(result.error_code), int(result.offset)


async def led(cluster: Cluster, **configs: Any) -> int:
    """A topic whose replicas are all in sync; the number of its leader."""
    await create(cluster, **configs)
    node = await wait_leader(cluster)
    await cluster.until(lambda: len(partition(cluster).isr) == len(cluster.brokers))
    await cluster.until(lambda: len(replica(cluster, node).leadership.isr) == len(cluster.brokers))  # type: ignore[union-attr]
    return node


@on_cluster
async def test_a_linearizable_read_shows_what_was_acknowledged(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **PATIENT) as cluster:
        node = await led(cluster, **LINEARIZABLE)
        producer = Producer(cluster)
        for count in range(1, 6):
            await producer.send()
            assert await latest(cluster, node) == (NONE, count)
            result = await fetch(cluster, node, count)
            assert (result.error_code, result.high_watermark) == (NONE, count)
        assert cluster[node].replication.reads.begun >= 10
        other = next(number for number in cluster.brokers if number != node)
        assert (await fetch(cluster, other, 5)).error_code == NOT_LEADER  # at the end, and it does not lead
        assert (await heal_from(cluster, other)).error_code == NONE  # replicas are healed with what a follower has


async def heal_from(cluster: Cluster, node: int) -> Any:
    requested = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.Topic(topic_id=replica(cluster, node).topic_id, partitions=[requested])
    state = FetchRequest.ReplicaState(replica_id=HEALER)
    async with cluster.asking(node) as connection:
        request = FetchRequest(replica_state=state, max_wait_ms=0, min_bytes=0, topics=[topic])
        (result,) = (await connection.ask(request, VERSION)).responses[0].partitions
        return result


async def _behind_a_partition(directory: Path, level: str) -> list[tuple[int, int]]:
    """What the former leader answers, while a new one acknowledges records that it does not have."""
    async with running_cluster(directory, **HASTY) as cluster:
        old = await led(cluster, **{"trioka.read.consistency": level})
        producer = Producer(cluster)
        await producer.send(3)
        assert await latest(cluster, old) == (NONE, 3)
        cluster.isolate(old)
        others = [node for node in cluster.brokers if node != old]
        await cluster.until(lambda: any(replica(cluster, node).leads for node in others))
        answers: list[tuple[int, int]] = []
        for _ in range(3):
            await producer.send(among=others)
            assert replica(cluster, old).leads  # it does not know
            answers.append(await latest(cluster, old))
            result = await fetch(cluster, old, 3)
            answers.append((result.error_code, result.high_watermark))
            result = await fetch(cluster, old, 4)  # beyond its end: it must not say that there is no such offset
            answers.append((result.error_code, result.high_watermark))
        cluster.heal()
        await cluster.until(lambda: leader(cluster) is not None and len(partition(cluster).isr) == 3)
        new = await wait_leader(cluster)
        with trio.fail_after(60):
            while await latest(cluster, new) != (NONE, 6):
                new = await wait_leader(cluster)
    return answers


@on_cluster
async def test_a_former_leader_never_answers_with_an_old_end(tmp_path: Path) -> None:
    answers = await _behind_a_partition(tmp_path, "linearizable")
    assert set(answers) == {(NOT_LEADER, -1)}


@on_cluster
async def test_a_former_leader_answers_with_an_old_end_at_the_level_of_kafka(tmp_path: Path) -> None:
    """Which shows that the test above would see it."""
    answers = await _behind_a_partition(tmp_path, "committed")
    assert (NONE, 3) in answers


@on_cluster
async def test_the_controller_confirms_a_leader_that_a_follower_does_not_reach(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, replica_lag_time_max_ms=60_000, **PATIENT) as cluster:
        node = await led(cluster, **LINEARIZABLE)
        await produce(cluster, node, 3)
        active = (await cluster.wait_active()).node_id
        silent = next(number for number in cluster.brokers if number not in (node, active))
        cluster.cut(node, silent)
        assert await latest(cluster, node) == (NONE, 3)
        assert silent in replica(cluster, node).leadership.isr  # type: ignore[union-attr]


# -- one broker, whose follower is the test ----------------------------------------------------------------------------


class Follower:
    def __init__(self, broker: Broker, line: ClientConnection) -> None:
        self._line, self._session = line, FetchSessionClient(FOLLOWER)
        topic = broker.metadata.topics.by_name(TOPIC)
        assert topic is not None
        self._replica = broker.partitions.get(TOPIC, 0)
        self._topic_id = topic.topic_id

    def request(self, offset: int | None, wait_ms: int = 0) -> FetchRequest:
        """`offset` is None if it does not follow the partition any more."""
        epoch = self._replica.leader_epoch
        followed = {(self._topic_id, 1): Position(0, -1, 0, epoch)}
        if offset is not None:
            followed[self._topic_id, 0] = Position(offset, -1, 0, epoch)
        return self._session.request(followed, -1, Limits(wait_ms, 1, 1 << 20, 1 << 20))

    async def say(self, offset: int | None, wait_ms: int = 0) -> FetchRequest:
        request = self.request(offset, wait_ms)
        await self._line.say(request, VERSION)
        return request

    async def hear(self, request: FetchRequest) -> FetchResponse:
        response: FetchResponse = await self._line.hear(request, VERSION)
        assert self._session.handle_response(response), response
        return response

    async def fetch(self, offset: int | None, wait_ms: int = 0) -> FetchResponse:
        return await self.hear(await self.say(offset, wait_ms))


@asynccontextmanager
async def followed(directory: Path, **settings: object) -> AsyncIterator[tuple[Broker, Replica, Follower]]:
    """A leader of a linearizable partition with three records, and a follower in sync that has all of them, and another
    partition in its session."""
    async with (
        running_broker(directory, None, replica_lag_time_max_ms=600_000, **{**PATIENT, **settings}) as broker,
        ClientConnection(broker) as line,
    ):
        await create_alone(broker, TOPIC, partitions=2, **LINEARIZABLE)
        with_others(broker, TOPIC, 1, others=(FOLLOWER,), in_sync=2)
        replica = with_others(broker, TOPIC, others=(FOLLOWER,), in_sync=2)
        while broker.replication._expected:  # no fetch is completed early for that any more
            await trio.sleep(0.001)
        follower = Follower(broker, line)
        await follower.fetch(0)
        async with ClientConnection(broker) as producer:
            await producer.ask(producing(TOPIC, 1, 2, 3, acks=1), 9)
        await follower.fetch(3)
        assert replica.log.high_watermark == 3
        yield broker, replica, follower


async def begun(broker: Broker, count: int) -> None:
    while broker.replication.reads.begun < count:
        await trio.sleep(0.001)


def offset_in(response: Any) -> tuple[int, int]:
    (result,) = response.topics[0].partitions
    return int(result.error_code), int(result.offset)


def consuming(offset: int, wait_ms: int = 0, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    requested = FetchRequest.Topic.Partition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.Topic(topic=TOPIC, partitions=[requested])],
    )


async def a_fetch_that_waited_does_not_count(directory: Path) -> None:
    """The follower's answer is what wakes it; only the fetch behind that was sent after the read began."""
    async with followed(directory) as (broker, _, follower), ClientConnection(broker) as client:
        waiting = await follower.say(3, wait_ms=60_000)
        while not broker.replication.waiting.get(FOLLOWER):
            await trio.sleep(0.001)
        await client.say(asking_latest(), 9)
        await follower.hear(waiting)  # at once
        assert broker.replication.reads._waiting
        await follower.fetch(3)
        assert offset_in(await client.hear(asking_latest(), 9)) == (NONE, 3)


async def a_fetch_on_its_way_is_answered_and_does_not_count(directory: Path) -> None:
    async with followed(directory) as (broker, _, follower), ClientConnection(broker) as client:
        await client.say(asking_latest(), 9)
        await begun(broker, 1)
        await follower.fetch(3, wait_ms=60_000)  # it waits for nothing
        assert broker.replication.reads._waiting
        await follower.fetch(3)
        assert offset_in(await client.hear(asking_latest(), 9)) == (NONE, 3)


async def a_follower_that_has_left_the_partition_does_not_count(directory: Path) -> None:
    async with (
        followed(directory, trioka_linearizable_read_timeout_ms=200) as (broker, _, follower),
        ClientConnection(broker) as client,
    ):
        await client.say(asking_latest(), 9)
        await begun(broker, 1)
        await follower.fetch(3)
        await follower.fetch(None)
        assert offset_in(await client.hear(asking_latest(), 9)) == (NOT_LEADER, -1)


async def all_that_wait_share_two_fetches(directory: Path) -> None:
    async with followed(directory) as (broker, _, follower), trio.open_nursery() as nursery:

        async def read() -> None:
            async with ClientConnection(broker) as client:
                assert offset_in(await client.ask(asking_latest(), 9)) == (NONE, 3)

        for _ in range(20):
            nursery.start_soon(read)
        await begun(broker, 20)
        await follower.fetch(3)
        await follower.fetch(3)


async def a_repeated_fetch_at_the_end_waits_too(directory: Path) -> None:
    """Not the fast path, which has answered the ones before the end."""
    async with followed(directory) as (broker, _, follower), ClientConnection(broker) as client:
        async with ClientConnection(broker) as producer:
            await producer.ask(producing(TOPIC, 4, acks=1), 9)
        await follower.fetch(4)
        before = broker.replication.reads.begun
        request = consuming(0)
        request.topics[0].partitions[0].partition_max_bytes = 80  # type: ignore[misc]  # the first batch only
        for _ in range(3):
            (result,) = (await client.ask(request, 12)).responses[0].partitions
            assert result.error_code == NONE and result.records
        assert broker.replication.reads.begun == before
        request = consuming(3)
        for count in range(1, 4):
            await client.say(request, 12)
            await begun(broker, before + count)
            await follower.fetch(4)
            await follower.fetch(4)
            (result,) = (await client.hear(request, 12)).responses[0].partitions
            assert result.error_code == NONE and result.records


async def a_fetch_waits_for_records_after_its_read_has_passed(directory: Path) -> None:
    async with followed(directory) as (broker, _, follower), ClientConnection(broker) as client:
        request = consuming(3, wait_ms=60_000)
        await client.say(request, 12)
        await begun(broker, 1)
        await follower.fetch(3)
        await follower.fetch(3)
        while broker.replication.reads._waiting:
            await trio.sleep(0.001)
        async with ClientConnection(broker) as producer:
            await producer.ask(producing(TOPIC, 4, acks=1), 9)
        await follower.fetch(4)
        (result,) = (await client.hear(request, 12)).responses[0].partitions
        assert result.high_watermark == 4 and result.records
        assert broker.replication.reads.begun == 1


async def a_read_without_its_follower_is_refused(directory: Path) -> None:
    async with (
        followed(directory, trioka_linearizable_read_timeout_ms=200) as (broker, _, _),
        ClientConnection(broker) as client,
    ):
        assert offset_in(await client.ask(asking_latest(), 9)) == (NOT_LEADER, -1)
        for offset in (3, 2, 9):  # at the end, before it, beyond it
            (result,) = (await client.ask(consuming(offset, 10), 12)).responses[0].partitions
            assert (result.error_code, result.high_watermark) == (NOT_LEADER, -1)


RULES = (
    a_fetch_that_waited_does_not_count,
    a_fetch_on_its_way_is_answered_and_does_not_count,
    a_follower_that_has_left_the_partition_does_not_count,
    all_that_wait_share_two_fetches,
    a_repeated_fetch_at_the_end_waits_too,
    a_fetch_waits_for_records_after_its_read_has_passed,
    a_read_without_its_follower_is_refused,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@on_trio
async def test_a_read_passes_when_all_possible_leaders_have_followed(rule: Any, tmp_path: Path) -> None:
    await rule(tmp_path)


@on_trio
async def test_a_partition_without_other_replicas_commits_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, **PATIENT) as broker, ClientConnection(broker) as client:
        await create_alone(broker, TOPIC, **LINEARIZABLE)
        assert offset_in(await client.ask(asking_latest(), 9)) == (NONE, 0)


@on_trio
async def test_a_linearizable_topic_has_no_unclean_elections(tmp_path: Path) -> None:
    key, unclean = "trioka.read.consistency", "unclean.leader.election.enable"
    async with running_broker(tmp_path, None) as broker:
        await create_alone(broker, TOPIC, **LINEARIZABLE)
        assert await alter(broker, TOPIC_RESOURCE, TOPIC, (unclean, SET, "true")) == InvalidConfig.code
        await create_alone(broker, "u", unclean_leader_election_enable="true")
        assert await alter(broker, TOPIC_RESOURCE, "u", (key, SET, "linearizable")) == InvalidConfig.code
        assert await alter(broker, TOPIC_RESOURCE, "u", (key, SET, "serializable")) == InvalidConfig.code
        assert await alter(broker, TOPIC_RESOURCE, "u", (key, SET, "linearizable"), (unclean, SET, "false")) == NONE
        assert broker.partitions.get("u", 0).is_linearizable
        assert await alter(broker, TOPIC_RESOURCE, "u", (key, SET, "committed")) == NONE
        assert not broker.partitions.get("u", 0).is_linearizable


MISTAKES = (
    (
        linearizable_reads,
        "answered=session.answered_read",
        "answered=self.begun",
        a_fetch_on_its_way_is_answered_and_does_not_count,
    ),
    (
        linearizable_reads,
        "is_awaited |= broker_id in missing",
        "is_awaited |= False",
        a_fetch_on_its_way_is_answered_and_does_not_count,
    ),
    (
        linearizable_reads,
        "epoch = NO_EPOCH if cached is None else cached.current_leader_epoch",
        "epoch = leadership.leader_epoch",
        a_follower_that_has_left_the_partition_does_not_count,
    ),
    (
        fast_fetch,
        "is_at_end = replica.is_linearizable and following >= upto",
        "is_at_end = False",
        a_repeated_fetch_at_the_end_waits_too,
    ),
    (
        request_reads,
        "return any(self._reads[replica] != NO_READ for replica in self._at_end)",
        "return False",
        a_read_without_its_follower_is_refused,
    ),
)


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_noticed(
    module: Any, right: str, wrong: str, rule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(module, right, wrong)
    match module.__name__.rpartition(".")[2]:
        case "linearizable_reads":
            monkeypatch.setattr(linearizable_reads, "LinearizableReads", mistaken.LinearizableReads)
        case "request_reads":
            for handler in ("fetch", "list_offsets"):
                monkeypatch.setattr(f"trioka.broker.handlers.{handler}.RequestReads", mistaken.RequestReads)
        case _:
            monkeypatch.setattr(registry, "fast_path_for", mistaken.fast_path_for)

    async def within_limits() -> None:
        with trio.fail_after(2):
            await rule(tmp_path)

    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(within_limits)
