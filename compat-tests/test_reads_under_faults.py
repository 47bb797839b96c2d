"""Linearizable reads of three real nodes under load, while leaders are killed and paused: none is stale.

Readers ask every node, whether it leads or not, and keep their requests at a paused one: when it goes on, it answers
them as the leader that it takes itself for.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from history.fresh_reads import EndRead, Write, stale_reads
from three_nodes import IDS, SETTINGS, ThreeNodes

from trioka.cli.client.connection import Connection, ConnectionClosed
from trioka.cli.cluster.local_cluster import STOPPED
from trioka.cli.terminal.failure import Failure
from trioka.protocol import batch
from trioka.protocol.errors import NONE
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

TOPIC: Final = "fresh"
LATEST: Final = -1
BY_NAME: Final = 12  # the last version of Fetch that names topics by name
HOST: Final = "127.0.0.1"
ANSWER_S: Final = 5.0
PATIENCE_S: Final = 20.0  # longer than a pause
PAUSE_S: Final = 0.02  # after a request that failed
FAILURES: Final = (Failure, ConnectionClosed, OSError)


def produce(payload: bytes) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 0, None, payload)]))
    data = ProduceRequest.Topic(name=TOPIC, partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=3000, topic_data=[data])


def list_offsets() -> ListOffsetsRequest:
    kind = ListOffsetsRequest.Topic
    place = kind.Partition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[kind(name=TOPIC, partitions=[place])])


def fetch(offset: int) -> FetchRequest:
    kind = FetchRequest.Topic
    place = kind.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[kind(topic=TOPIC, partitions=[place])]
    )


class HastyNodes(ThreeNodes):
    """A leader that is silent for four seconds is replaced."""

    settings: ClassVar[Mapping[str, object]] = {
        **SETTINGS,
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
    }

    def ask_any(self, request: Request) -> Any:
        for node in IDS:
            connection = Connection(HOST, self.node(node).port, timeout_s=ANSWER_S)
            try:
                return connection.ask(request)
            except FAILURES:
                continue
            finally:
                connection.close()
        raise AssertionError("no node answers")

    def partition(self) -> Any:
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)], allow_auto_topic_creation=False)
        return self.ask_any(request).topics[0].partitions[0]

    def leader(self) -> int:
        self.until(lambda: self.partition().leader_id > 0, "there is a leader")
        return int(self.partition().leader_id)

    def wait_in_sync(self) -> None:
        def is_so() -> bool:
            found = self.partition()
            return found.error_code == NONE and len(found.isr_nodes) == len(IDS)

        self.until(is_so, "all replicas are in sync")


class Load:
    """Writers and readers, each a thread with connections of its own."""

    def __init__(self, nodes: HastyNodes) -> None:
        self.writes: list[Write] = []
        self.reads: list[EndRead] = []
        self._nodes = nodes
        self._is_over = threading.Event()
        jobs: list[Callable[[], None]] = [self._write, self._write]
        for node in IDS:
            jobs += [partial(self._read_ends, node), partial(self._read_records, node)]
        self._threads = [threading.Thread(target=each, daemon=True) for each in jobs]

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join(2 * PATIENCE_S)

    def wait_for(self, count: int) -> None:
        """Until so many more writes are acknowledged."""
        goal, deadline = len(self.writes) + count, time.monotonic() + 120
        while len(self.writes) < goal:
            assert time.monotonic() < deadline, "writes do not go on"
            time.sleep(0.02)

    def _answers(self, node: int, ask: Callable[[Connection], Any]) -> Iterator[tuple[float, float, Any]]:
        connection = Connection(HOST, self._nodes.node(node).port, timeout_s=PATIENCE_S)
        while not self._is_over.is_set():
            began = time.monotonic()
            try:
                answer = ask(connection)
            except FAILURES:
                connection.close()
                self._is_over.wait(PAUSE_S)
                continue
            yield began, time.monotonic(), answer
        connection.close()

    def read_once(self, node: int) -> threading.Thread:
        """By a connection of its own: a request that waits at a paused node."""

        def read() -> None:
            connection = Connection(HOST, self._nodes.node(node).port, timeout_s=PATIENCE_S)
            began = time.monotonic()
            try:
                (found,) = connection.ask(list_offsets(), 7).topics[0].partitions
            except FAILURES:
                return
            finally:
                connection.close()
            if found.error_code == NONE:
                self.reads.append(EndRead(began, time.monotonic(), found.offset, node))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def _write(self) -> None:
        """To each node in turn until one takes it."""
        turn = 0
        connections = {node: Connection(HOST, self._nodes.node(node).port, timeout_s=ANSWER_S) for node in IDS}
        while not self._is_over.is_set():
            connection = connections[IDS[turn % len(IDS)]]
            began = time.monotonic()
            try:
                (answer,) = connection.ask(produce(b"x"), 9).responses[0].partition_responses
            except FAILURES:
                connection.close()
                turn += 1
                continue
            if answer.error_code == NONE:
                self.writes.append(Write(began, time.monotonic(), answer.base_offset))
            else:
                turn += 1
                self._is_over.wait(PAUSE_S)
        for connection in connections.values():
            connection.close()

    def _read_ends(self, node: int) -> None:
        for began, ended, answer in self._answers(node, lambda connection: connection.ask(list_offsets(), at_most=7)):
            (found,) = answer.topics[0].partitions
            if found.error_code == NONE:
                self.reads.append(EndRead(began, ended, found.offset, node))

    def _read_records(self, node: int) -> None:
        """Fetches from where the reader is: one that returns nothing has shown the end."""
        positions = {node: 0}
        for began, ended, answer in self._answers(
            node, lambda connection: connection.ask(fetch(positions[node]), at_most=BY_NAME)
        ):
            (found,) = answer.responses[0].partitions
            if found.error_code != NONE:
                self._is_over.wait(PAUSE_S)
                continue
            end = positions[node]
            for header in batch.headers(memoryview(found.records or b""), partial_tail=True):
                end = header.next_offset
            if end >= found.high_watermark:
                self.reads.append(EndRead(began, ended, end, node))
            positions[node] = end


def create(nodes: HastyNodes, level: str) -> None:
    kind = CreateTopicsRequest.Topic
    topic = kind(
        name=TOPIC,
        num_partitions=1,
        replication_factor=3,
        assignments=[],
        configs=[kind.Config(name="trioka.read.consistency", value=level)],
    )
    (result,) = nodes.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=int(ANSWER_S * 1000))).topics
    assert result.error_code == NONE, result
    nodes.wait_in_sync()


def run(folder: Path, level: str, faults: list[str], seed: int) -> Load:
    """Returns the history."""
    chance = random.Random(seed)
    with HastyNodes.running(folder) as nodes:
        assert isinstance(nodes, HastyNodes)
        create(nodes, level)
        with Load(nodes) as load:
            for fault in faults:
                load.wait_for(50)
                leader = nodes.leader()
                if fault == "kill":
                    nodes.send(leader, signal.SIGKILL)
                    nodes.wait_state(leader, STOPPED)
                    load.wait_for(20)
                    nodes.start(leader)
                else:
                    nodes.send(leader, signal.SIGSTOP)
                    try:
                        load.wait_for(20)  # by the leader after it
                        waiting = [load.read_once(leader) for _ in range(5)]
                        time.sleep(chance.uniform(0.1, 1))
                    finally:
                        nodes.send(leader, signal.SIGCONT)
                    for each in waiting:
                        each.join(2 * PATIENCE_S)
                nodes.wait_in_sync()
            load.wait_for(50)
    return load


@pytest.mark.nightly
def test_no_read_is_stale_while_leaders_are_killed_and_paused(tmp_path: Path) -> None:
    seed = int(os.environ.get("TRIOKA_SEED", "3"))
    faults = ["pause", "kill"] * 5
    random.Random(seed).shuffle(faults)
    load = run(tmp_path, "linearizable", faults, seed)
    assert len(load.reads) > 1000
    assert len(load.writes) > 500
    assert stale_reads(load.writes, load.reads) == []


@pytest.mark.nightly
def test_the_level_committed_is_seen_to_be_stale_under_pauses(tmp_path: Path) -> None:
    """So the run above would notice a read that does not wait."""
    for seed in range(3):
        load = run(tmp_path, "committed", ["pause"] * 3, seed)
        if stale_reads(load.writes, load.reads):
            return
    raise AssertionError("no leader that was paused has answered with what it knew before")


def test_a_read_that_shows_too_little_is_found_and_others_are_not() -> None:
    writes = [Write(0, 1, 6), Write(2, 4, 7)]
    fresh = [
        EndRead(1.5, 3, 7, 1),
        EndRead(3, 5, 7, 1),
        EndRead(3, 5, 8, 2),
        EndRead(6, 7, 8, 1),
        EndRead(0.5, 9, 0, 3),
    ]
    assert stale_reads(writes, fresh) == []
    assert len(stale_reads(writes, [*fresh, EndRead(5, 6, 7, 3)])) == 1  # below what was acknowledged
    assert len(stale_reads([], [EndRead(0, 1, 5, 1), EndRead(2, 3, 4, 2)])) == 1  # below an earlier read
