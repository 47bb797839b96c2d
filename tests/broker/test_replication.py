"""Replication, in a cluster of real brokers: what was acknowledged with acks=all is there, whoever goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from clustering import Cluster, running_cluster
from serving import Asking, on_trio_patiently
from topics import producing

from trioka.broker.partitions import Replica
from trioka.cluster.partition import LOST_DIRECTORY, Partition
from trioka.protocol.batch import build, headers, records
from trioka.protocol.errors import (
    NONE,
    CorruptMessage,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
    error_class,
)
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.storage import retention
from trioka.storage.quarantine import Damage

TOPIC = "t"


async def create(cluster: Cluster, name: str = TOPIC, *, on: tuple[int, ...] = (1, 2, 3), **configs: object) -> None:
    """A topic of one partition with its replicas on these, which all of them know."""
    topic = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreateTopicsRequest.Topic.Assignment(partition_index=0, broker_ids=list(on))],
        configs=[
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    await cluster.until(lambda: all(len(broker.alive) == len(cluster.brokers) for broker in cluster.brokers.values()))
    async with Asking(next(iter(cluster.brokers.values()))) as connection:
        (told,) = (await connection.ask(request, 7)).topics
        assert told.error_code == NONE, told
    await cluster.until(lambda: all(cluster[node].partitions.find(name, 0) for node in on))


def partition(cluster: Cluster, name: str = TOPIC) -> Partition:
    """As the active controller has it; as anybody has it, while there is none."""
    broker = cluster.active or next(iter(cluster.brokers.values()))
    topic = broker.metadata.topics.by_name(name)
    assert topic is not None
    return topic.partitions[0]


def replica(cluster: Cluster, node: int, name: str = TOPIC) -> Replica:
    return cluster[node].partitions.get(name, 0)


def leader(cluster: Cluster, name: str = TOPIC) -> int | None:
    """Who leads, and knows it."""
    found = [
        node
        for node, broker in cluster.brokers.items()
        if (its := broker.partitions.find(name, 0)) is not None and its.leads
    ]
    return found[0] if len(found) == 1 and partition(cluster, name).leader == found[0] else None


async def wait_leader(cluster: Cluster, name: str = TOPIC) -> int:
    await cluster.until(lambda: leader(cluster, name) is not None)
    found = leader(cluster, name)
    assert found is not None
    return found


async def produce(
    cluster: Cluster, node: int, count: int = 1, *, acks: int = -1, name: str = TOPIC, timeout_ms: int = 60_000
) -> Any:
    """What the partition is told."""
    async with cluster.asking(node) as connection:
        request = producing(name, *range(count), acks=acks)
        request.timeout_ms = timeout_ms  # type: ignore[misc]
        response = await connection.ask(request, 9)
        return response.responses[0].partition_responses[0]


class Producer:
    """As a client does it: to whoever leads, again and again, until it is acknowledged; and nothing comes twice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sequence = 0

    async def send(self, count: int = 1, *, among: Sequence[int] = (1, 2, 3)) -> int:
        """Records with the timestamps 0, 1, …; their first offset."""
        batch = build(
            [Record(number, number, b"k", b"v") for number in range(count)],
            producer_id=4000,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += count
        with trio.fail_after(60):
            while True:
                told = await self._try(bytes(batch), among)
                if told is not None and told.error_code == NONE:
                    return int(told.base_offset)
                assert told is None or error_class(told.error_code).retriable, told
                await trio.sleep(0.02)

    async def _try(self, batch: bytes, among: Sequence[int]) -> Any:
        brokers = self._cluster.brokers
        leaders = [n for n in among if n in brokers and (r := brokers[n].partitions.find(TOPIC, 0)) and r.leads]
        if not leaders:
            return None
        data = ProduceRequest.Topic.Partition(index=0, records=batch)
        topic = ProduceRequest.Topic(name=TOPIC, partition_data=[data])
        async with self._cluster.asking(leaders[0]) as connection:
            response = await connection.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
        return None if response is None else response.responses[0].partition_responses[0]


async def fetch(cluster: Cluster, node: int, offset: int, *, rack: str = "", name: str = TOPIC) -> Any:
    topic = cluster[node].metadata.topics.by_name(name)
    assert topic is not None
    asked = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchRequest.Topic(topic_id=topic.topic_id, partitions=[asked])],
        rack_id=rack,
    )
    async with cluster.asking(node) as connection:
        (told,) = (await connection.ask(request, 13)).responses[0].partitions
        return told


async def read(cluster: Cluster, node: int, offset: int = 0, name: str = TOPIC) -> tuple[int, list[int]]:
    """The error, and the timestamps of the records from an offset on, as a consumer sees them."""
    told = await fetch(cluster, node, offset, name=name)
    data = bytes(told.records or b"")
    return told.error_code, [record.timestamp for header in headers(data) for record in records(data, header)]


async def delete_records(cluster: Cluster, node: int, offset: int, timeout_ms: int) -> tuple[int, int]:
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.Topic(name=TOPIC, partitions=[asked])
    async with cluster.asking(node) as connection:
        response = await connection.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)
        (told,) = response.topics[0].partitions
        return told.error_code, told.low_watermark


async def reassign(cluster: Cluster, *nodes: int) -> None:
    asked = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=list(nodes))
    topic = AlterPartitionReassignmentsRequest.Topic(name=TOPIC, partitions=[asked])
    async with Asking(next(iter(cluster.brokers.values()))) as connection:
        response = await connection.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 1)
        assert response.error_code == NONE, response
        assert response.responses[0].partitions[0].error_code == NONE, response


def contents(cluster: Cluster, node: int) -> bytes:
    """All bytes of a replica's log, from the same offset on everywhere."""
    log = replica(cluster, node).log
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20)
        assert piece.records is not None
        found, offset = found + bytes(piece.records.read()), piece.next_offset
    return found


def are_the_same(cluster: Cluster, *nodes: int) -> bool:
    """Everybody is in sync, and has the same."""
    return len(partition(cluster).isr) == len(nodes) and len({contents(cluster, node) for node in nodes}) == 1


@on_trio_patiently
async def test_what_is_acknowledged_survives_its_leader(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with running_cluster(tmp_path, replica_selector_class=selector) as cluster:
        await create(cluster, min_insync_replicas=2)
        producer = Producer(cluster)
        for number in range(5):
            assert await producer.send(2) == 2 * number
            assert all(replica(cluster, node).log.log_end_offset == 2 * number + 2 for node in partition(cluster).isr)
        first = await wait_leader(cluster)
        await cluster.kill(first)
        assert await producer.send(2) == 10
        second = await wait_leader(cluster)
        assert await read(cluster, second) == (NONE, [0, 1] * 6)
        await cluster.start(first, broker_rack="far")
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        await consumers_read_from_a_replica_in_their_rack(cluster, first)


async def consumers_read_from_a_replica_in_their_rack(cluster: Cluster, near: int) -> None:
    def knows() -> bool:
        """Somebody else leads, and knows that the near one has everything."""
        led_by = leader(cluster)
        leadership = None if led_by in (None, near) else replica(cluster, led_by).leadership
        return leadership is not None and leadership.followers[near].log_end_offset == 12

    await cluster.until(lambda: knows() and replica(cluster, near).log.high_watermark == 12)
    led_by = await wait_leader(cluster)
    told = await fetch(cluster, led_by, 0, rack="far")
    assert (told.preferred_read_replica, bytes(told.records)) == (near, b"")
    assert (await fetch(cluster, led_by, 0)).preferred_read_replica == -1
    assert await read(cluster, near) == (NONE, [0, 1] * 6)


@on_trio_patiently
async def test_what_only_a_leader_that_was_cut_off_has_is_cut_off(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, min_insync_replicas=2)
        producer = Producer(cluster)
        await producer.send(2)
        old = await wait_leader(cluster)
        cluster.isolate(old)
        others = [node for node in cluster.brokers if node != old]
        told = await produce(cluster, old, 3, acks=1)  # it does not know yet
        assert (told.error_code, told.base_offset) == (NONE, 2)
        assert await producer.send(1, among=others) == 2
        assert replica(cluster, old).leads
        waits = await produce(cluster, old, 3, timeout_ms=100)
        assert waits.error_code in (RequestTimedOut.code, NotEnoughReplicas.code)
        cluster.heal()
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert replica(cluster, old).log.log_end_offset == 3
        assert await producer.send(1) == 3


# Nothing fails in this one but what the test lets fail: whoever is slow is not taken for dead.
PATIENT: dict[str, Any] = {
    "broker_session_timeout_ms": 30_000,
    "controller_quorum_fetch_timeout_ms": 30_000,
    "controller_quorum_election_timeout_ms": 1000,
}


@on_trio_patiently
async def test_a_follower_that_cannot_fetch_falls_out_and_comes_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **PATIENT) as cluster:
        active = (await cluster.wait_active()).node_id
        a, b = (node for node in cluster.brokers if node != active)
        await create(cluster, on=(a, b, active), min_insync_replicas=2)
        await cluster.until(lambda: leader(cluster) == a)
        producer = Producer(cluster)
        await producer.send(2)
        cluster.cut(a, b)
        assert await producer.send(8) == 2
        await cluster.until(lambda: b not in partition(cluster).isr)
        # Its records may not be gone as long as somebody who is alive has them.
        assert await delete_records(cluster, a, 6, 50) == (RequestTimedOut.code, -1)
        replica(cluster, a).log.roll(now_ms=0)
        retention.enforce(replica(cluster, a).log, now_ms=0)
        cluster.heal()
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert replica(cluster, b).log.log_start_offset >= 2
        assert await delete_records(cluster, a, 7, 60_000) == (NONE, 7)
        await a_damaged_replica_is_mended(cluster, b)
        await a_damaged_replica_is_mended(cluster, a)
        assert partition(cluster).leader != a  # it has resigned
        await a_replica_moves(cluster, a, b, active)


def damage(cluster: Cluster, node: int, offset: int, name: str = TOPIC) -> None:
    """The batch with this offset fails its CRC from now on."""
    log = replica(cluster, node, name).log
    found = log.read(offset, 1)
    assert found.records is not None
    position = found.records.position
    damaged = Damage(
        first_offset=found.start_offset,
        end_offset=found.next_offset,
        base_offset=log.segments.active.base_offset,
        position=position,
        end_position=position + found.records.size,
        reason="fails its CRC",
    )
    log.quarantine.add([damaged])


async def a_damaged_replica_is_mended(cluster: Cluster, damaged: int) -> None:
    """It falls out of the ISR first, and is in it again when it is whole (S6)."""
    damage(cluster, damaged, 8)
    log = replica(cluster, damaged).log
    await cluster.until(lambda: damaged not in partition(cluster).isr)
    await cluster.until(lambda: not log.quarantine)
    await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))


async def a_replica_moves(cluster: Cluster, a: int, b: int, active: int) -> None:
    """From three replicas to one, the leader not among them, and back to two."""
    await reassign(cluster, b)
    await cluster.until(lambda: partition(cluster).replicas == (b,) and leader(cluster) == b)
    await cluster.until(lambda: all(cluster[node].partitions.find(TOPIC, 0) is None for node in (a, active)))
    assert replica(cluster, b).stands_alone
    told = await produce(cluster, b)
    assert (told.error_code, told.base_offset) == (NONE, 10)
    assert (await produce(cluster, a)).error_code == NotLeaderOrFollower.code
    await reassign(cluster, b, a)
    await cluster.until(lambda: partition(cluster).isr == (b, a))
    await cluster.until(lambda: are_the_same(cluster, a, b))
    assert (await produce(cluster, b)).error_code == NONE


@on_trio_patiently
async def test_a_damaged_leader_that_is_alone_in_the_isr_gives_way_to_who_is_eligible_and_else_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path, **PATIENT, replica_socket_receive_buffer_bytes=50_000) as cluster:
        active = (await cluster.wait_active()).node_id
        a, b = (node for node in cluster.brokers if node != active)
        await create(cluster, on=(a, b), min_insync_replicas=2)
        await create(cluster, "alone", on=(a,))
        await cluster.until(lambda: leader(cluster) == a)
        producer = Producer(cluster)
        for count in (2, 3, 4):
            await producer.send(count)
            assert (await produce(cluster, a, count, name="alone")).error_code == NONE
        sizes = {peer.receive_buffer_bytes for peer in cluster[b].peers._peers.values() if "fetcher" in peer.purpose}
        assert sizes == {50_000}
        # The follower falls behind, as far as the leader knows: it has all that was acknowledged, and is eligible.
        cluster.cut(a, b)
        assert (await produce(cluster, a, acks=1)).error_code == NONE
        await cluster.until(lambda: partition(cluster).eligible_leader_replicas == (b,))
        assert partition(cluster).isr == (a,)
        damage(cluster, a, 2)
        await cluster.until(lambda: leader(cluster) == b)
        assert a not in (*partition(cluster).isr, *partition(cluster).eligible_leader_replicas)
        cluster.heal()
        await cluster.until(lambda: are_the_same(cluster, a, b) and not replica(cluster, a).log.quarantine)
        assert await read(cluster, b) == (NONE, [0, 1, 0, 1, 2, 0, 1, 2, 3])
        await cluster.until(lambda: partition(cluster).directory(a) != LOST_DIRECTORY)
        # Nobody else has this one: it serves what is whole, and says what is not.
        damage(cluster, a, 2, "alone")
        await cluster.until(lambda: "nobody else has it all" in caplog.text)
        assert leader(cluster, "alone") == a and partition(cluster, "alone").isr == (a,)
        assert await read(cluster, a, 0, "alone") == (NONE, [0, 1])
        assert (await read(cluster, a, 2, "alone"))[0] == CorruptMessage.code
        assert await read(cluster, a, 5, "alone") == (NONE, [0, 1, 2, 3])
        assert (await produce(cluster, a, name="alone")).error_code == KafkaStorageError.code
