"""Damage is found without a read, is healed, and is never served: not even what this broker wrote itself."""

import os
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.log_fixtures import verify
from support.replicated_topics import TOPIC, Producer, create, fetch, partition, replica, wait_leader
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.replication import scrubber
from trioka.broker.replication.partitions import NEVER_SCRUBBED, Replica
from trioka.broker.replication.scrubber import due
from trioka.protocol.batch import build, check_crc, headers
from trioka.protocol.errors import NONE, CorruptMessage
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.storage.log import Log
from trioka.storage.scrub import SegmentScrub
from trioka.storage.segment import BatchPosition, Segment

SCRUBBING: dict[str, Any] = {
    "log_initial_task_delay_ms": 0,
    "trioka_scrub_interval_ms": 50,
    "trioka_scrub_bytes_per_second": 1 << 30,
}
FEW, MANY = 50, 1000
NIGHTLY_S = 1800.0
VALUE_BYTES = 20_000
BATCHES = 120
NOT_CHECKED = range(12, 16)  # the leader epoch: no checksum covers it


# What is due ---------------------------------------------------------------------------------------------------------


def test_the_log_with_the_oldest_scrub_is_next() -> None:
    class OpenLog:
        closed = False

    def made(index: int, scrubbed_ms: int) -> Replica:
        made = Replica(topic="t", topic_id=bytes(16), index=index, log=OpenLog(), now=lambda: 0.0)  # type: ignore[arg-type]
        made.scrubbed_ms = scrubbed_ms
        return made

    replicas = [made(0, 3_000), made(1, 2_000), made(2, NEVER_SCRUBBED)]
    assert due(replicas, 3_100, 1_000) == [replicas[2], replicas[1]]
    assert due(replicas, 4_100, 1_000) == [replicas[2], replicas[1], replicas[0]]
    assert due(replicas[:2], 2_900, 1_000) == []
    replicas[1].log.closed = True
    assert due(replicas[:2], 9_000, 1_000) == [replicas[0]]


# One broker ----------------------------------------------------------------------------------------------------------


@on_trio
async def test_while_a_piece_is_scrubbed_nothing_of_it_is_believed(tmp_path: Path) -> None:
    """It comes from the disk, perhaps, and is in memory before it is compared with its checksum."""
    await nothing_is_believed_meanwhile(scrubber, tmp_path)


async def nothing_is_believed_meanwhile(module: ModuleType, directory: Path) -> None:
    async with running_broker(directory) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({TOPIC: 1})
        await client.ask(producing(0), 9)
        its_replica = broker.partitions.get(TOPIC, 0)
        segment = its_replica.log.segments.active
        assert segment.checked.covers(0, segment.size)
        believed: list[bool] = []

        def step(scrub: SegmentScrub) -> int:
            believed.append(segment.checked.covers(scrub.position, segment.size))
            size = usual(scrub)
            segment.checked.add(0, segment.size)  # as a reader does that has looked at it meanwhile
            return size

        usual = SegmentScrub.step
        with mock.patch.object(SegmentScrub, "step", step):
            await module.Scrubber(broker).scrub(its_replica)
        assert believed == [False]
        assert not segment.checked.covers(0, segment.size)


def test_a_scrubber_that_believes_what_it_reads_is_noticed(tmp_path: Path) -> None:
    mistaken = planted(scrubber, "with scrub.distrusted():", "if True:")
    with pytest.raises(AssertionError):
        trio.run(nothing_is_believed_meanwhile, mistaken, tmp_path)


def flip(segment: Segment, position: int, bit: int) -> None:
    """On the disk."""
    with open(segment.log_path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
        file.flush()
        os.fsync(file.fileno())


def forget(log: Log) -> bool:
    """Nothing of the log is in memory any more. False where the file system forgets nothing."""
    log.files.close()  # what is mapped stays in memory
    for segment in log.segments:
        if segment.size:
            file = segment.files.get(segment.log_path)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if file.is_resident(0, segment.size):
                return False
    return True


def big_batch(number: int) -> bytes:
    value = Random(number).randbytes(VALUE_BYTES)
    return bytes(build([Record(0, 1_700_000_000_000 + number, b"k", value)]))


def producing(number: int) -> ProduceRequest:
    data = ProduceRequest.Topic.Partition(index=0, records=big_batch(number))
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[ProduceRequest.Topic(name=TOPIC, partition_data=[data])]
    )


@on_trio
async def test_a_leader_does_not_serve_flipped_bits_of_what_it_wrote_itself(tmp_path: Path) -> None:
    async with running_broker(tmp_path, trioka_scrub_enable=False) as broker, ClientConnection(broker) as connection:
        await broker.create_missing_topics({TOPIC: 1})
        for number in range(60):
            await connection.ask(producing(number), 9)
        log = broker.partitions.get(TOPIC, 0).log
        place = log.segments[0].locate(40)
        assert place is not None

        def wanted(offset: int) -> FetchRequest:
            requested = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=150_000)
            return FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=TOPIC, partitions=[requested])]
            )

        async def read(offset: int) -> tuple[int, int]:
            """The error, and the offset behind what came, of which every batch is sound."""
            (result,) = (await connection.ask(wanted(offset), 11)).responses[0].partitions
            data = bytes(result.records or b"")
            for header in headers(data):
                assert check_crc(data, header), f"{header.base_offset} is served with a wrong bit"
                offset = header.last_offset + 1
            return result.error_code, offset

        offset = 0
        while offset < 60:
            error, offset = await read(offset)
            assert error == NONE
        flip(log.segments[0], place.position + 100, 3)
        if not forget(log):
            pytest.skip("this file system forgets nothing")
        error, offset = NONE, 0
        while error == NONE:
            error, offset = await read(offset)
        assert (error, offset) == (CorruptMessage.code, 40)
        assert (await read(41))[0] == NONE


# Three brokers -------------------------------------------------------------------------------------------------------


class Rot:
    """Flips bits on all replicas, of no batch on all of them at a time."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self.flips = 0

    def is_damaged(self, node: int, offset: int) -> bool:
        log = replica(self._cluster, node).log
        segment = log.segments.holding(offset)
        return self._bad_batch(segment, offset) or any(each.holds(offset) for each in log.quarantine.damages)

    def _bad_batch(self, segment: Segment, offset: int) -> bool:
        data = Path(segment.log_path).read_bytes()
        return not any(
            header.base_offset == offset and check_crc(data, header) for header in _headers_of(segment, data)
        )

    async def flip(self, end: int) -> None:
        """One bit of a batch before `end`. What this looked at is not left in memory: a broker does not know that
        others read its files, and would believe that what is there never was away. The kernel keeps a page that a
        thread reads or a socket sends at this moment; that one is tried again."""
        nodes = list(self._cluster.brokers)
        node, offset = self._random.choice(nodes), self._random.randrange(end)
        if not any(self.is_damaged(other, offset) for other in nodes):
            self._flip(node, offset)
        while not all(forget(replica(self._cluster, each).log) for each in nodes):
            await trio.sleep(0.001)

    def _flip(self, node: int, offset: int) -> None:
        log = replica(self._cluster, node).log
        segment = log.segments.holding(offset)
        place = segment.locate(offset)
        assert isinstance(place, BatchPosition)
        where = self._random.choice([at for at in range(place.size) if at not in NOT_CHECKED])
        flip(segment, place.position + where, self._random.randrange(8))
        self.flips += 1


def _headers_of(segment: Segment, data: bytes) -> list[Any]:
    try:
        return list(headers(data))
    except Exception:
        return [header for place in segment.places() for header in headers(data[place.position : place.end])]


async def rot_and_heal(tmp_path: Path, flips: int) -> None:
    async with running_cluster(tmp_path, **SCRUBBING, log_segment_bytes=1 << 20, log_roll_ms=3_600_000) as cluster:
        await create(cluster, min_insync_replicas=2)
        leader = await wait_leader(cluster)
        async with cluster.asking(leader) as connection:
            for number in range(BATCHES):
                (result,) = (await connection.ask(producing(number), 9)).responses[0].partition_responses
                assert (result.error_code, result.base_offset) == (NONE, number)
        await cluster.until(lambda: all(replica(cluster, n).log.high_watermark == BATCHES for n in (1, 2, 3)))
        if not forget(replica(cluster, leader).log):
            pytest.skip("this file system forgets nothing")
        rot, random = Rot(cluster, flips), Random(flips)
        unread = trio.Lock()  # a bit flips while no response is under way: what was checked is sent
        expected = {number: big_batch(number)[61:] for number in range(BATCHES)}

        async def consume() -> None:
            """From any replica, anywhere: what comes is right, or nothing comes."""
            while True:
                offset = random.randrange(BATCHES)
                async with unread:
                    result = await fetch(cluster, random.choice((1, 2, 3)), offset)
                data = bytes(result.records or b"")
                for header in headers(data):
                    if header.base_offset in expected:
                        assert data[header.position + 61 : header.end] == expected[header.base_offset], "wrong bytes"
                await trio.lowlevel.checkpoint()

        async def produce() -> None:
            producer = Producer(cluster)
            while True:
                await producer.send()
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            nursery.start_soon(produce)
            while rot.flips < flips:
                async with unread:
                    await rot.flip(BATCHES)
                await trio.sleep(0.02)
            logs = [replica(cluster, node).log for node in (1, 2, 3)]
            counts = [cluster[node].counts for node in (1, 2, 3)]
            await cluster.until(lambda: sum(each.damage_healed for each in counts) >= 1)
            for log in logs:
                forget(log)
            scrubbed = {node: replica(cluster, node).scrubbed_ms for node in (1, 2, 3)}
            await cluster.until(
                lambda: (
                    not any(log.quarantine for log in logs)
                    and not any(rot.is_damaged(node, at) for node in (1, 2, 3) for at in range(0, BATCHES, 7))
                    and all(replica(cluster, node).scrubbed_ms > at for node, at in scrubbed.items())
                )
            )
            nursery.cancel_scope.cancel()
        assert all(not list(verify(log)) for log in logs)
        for node in (1, 2, 3):
            for offset in range(BATCHES):
                assert not rot.is_damaged(node, offset), (node, offset)
        assert sorted(partition(cluster).isr) == [1, 2, 3]
        assert sum(each.scrubbed_bytes for each in counts) > BATCHES * VALUE_BYTES


@on_cluster
async def test_random_flips_under_load_are_found_and_healed_and_never_served(tmp_path: Path) -> None:
    await rot_and_heal(tmp_path, FEW)


@pytest.mark.nightly
def test_a_thousand_random_flips_under_load_are_found_and_healed_and_never_served(tmp_path: Path) -> None:
    async def run() -> None:
        with trio.fail_after(NIGHTLY_S):
            await rot_and_heal(tmp_path, MANY)

    trio.run(run)
