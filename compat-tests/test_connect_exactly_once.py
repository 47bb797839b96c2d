"""Kafka Connect with exactly-once sources: each line of a file is in its topic once, whoever is killed.

The worker keeps what it agrees on, and where its sources are, in transactions; a task writes the lines of a poll, or of
a while, in one with its place in the file. A worker that takes over fences the tasks of the one before it, whose last
transaction is aborted. Lines are added to the files all the time while the worker is killed, and then the broker.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from broker_under_test import BROKERS
from clients.confluent import Confluent
from clients.patience import patient
from connect_worker import Worker
from copying import SETTINGS, messages_of, reader
from oracle import ApacheKafka
from support.serving import Client
from trioka_process import TriokaProcess

from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.list_transactions import ListTransactionsRequest

NAME = "once"
LATEST = -1
# A source and its topic are called after where its transactions end.
SOURCES: Mapping[str, Mapping[str, object]] = {
    "poll": {"transaction_boundary": "poll"},
    "interval": {"transaction_boundary": "interval", "transaction_boundary_interval_ms": 300},
}
# More than there will ever be: when a poll has as many, this source keeps those that it has read beyond them to itself
# until the file grows again, and the last lines would never come.
LINES_A_POLL = 1_000_000
LINES_AT_ONCE = 5
PAUSE_SECONDS = 0.05
MORE_LINES = 100  # are to come through between two kills
# Who was killed is missed soon. What it left open may keep its successor from reading for as long as a transaction may
# take; that is more than a broker's new start takes on a slow machine, else a task that lived on would lose its own.
WORKER = {
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": 4000,
    "heartbeat.interval.ms": 500,
    "producer.transaction.timeout.ms": 30_000,
}


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TriokaProcess | ApacheKafka]:
    request.getfixturevalue("apache_kafka")  # Connect needs its jars
    if request.param == "kafka":
        with ApacheKafka(SETTINGS, parent=tmp_path) as kafka:
            yield kafka
    else:
        with TriokaProcess(tmp_path, SETTINGS) as process:
            yield process


class Writer:
    """Adds numbered lines to files, a few at a time, until the `with` ends; then `count` is how many there are."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self.count = 0
        self._is_done = threading.Event()

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._is_done.set()
            thread.join()

    def _write(self) -> None:
        while not self._is_done.wait(PAUSE_SECONDS):
            lines = "".join(f"{number}\n" for number in range(self.count, self.count + LINES_AT_ONCE))
            for file in self._files:
                with file.open("a") as opened:
                    opened.write(lines)
            self.count += LINES_AT_ONCE


def test_each_line_comes_once(broker: TriokaProcess | ApacheKafka, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.txt" for name in SOURCES}
    writer = Writer(*files.values())
    with closing(Confluent(broker.bootstrap)) as client:
        for topic in SOURCES:
            patient(client, client).create_topic(topic)
    with Worker(tmp_path, broker.bootstrap, NAME, WORKER) as worker:
        with writer.writing():
            worker.wait_until(worker.is_up)
            for name, config in SOURCES.items():
                common = {"exactly_once_support": "required", "batch_size": LINES_A_POLL}
                worker.connect(name, "FileStreamSource", file=files[name], topic=name, **common, **config)
            wait_for_more(broker, worker)
            worker.kill()
            worker.start()
            wait_for_more(broker, worker)
            broker.kill()
            broker.start()
            wait_for_more(broker, worker)
        worker.wait_until(lambda: all(len(lines(broker, name)) >= writer.count for name in SOURCES))
    expected = [str(number) for number in range(writer.count)]
    for name in SOURCES:
        assert lines(broker, name) == expected
        assert list(dict.fromkeys(lines(broker, name, "read_uncommitted"))) == expected
    assert transactional_ids(broker) == {f"connect-cluster-{NAME}-workers", *(f"{NAME}-workers-{n}-0" for n in SOURCES)}


def wait_for_more(broker: TriokaProcess | ApacheKafka, worker: Worker) -> None:
    ends = {name: end_of(broker, name) + MORE_LINES for name in SOURCES}
    worker.wait_until(lambda: all(end_of(broker, name) > end for name, end in ends.items()))


def end_of(broker: TriokaProcess | ApacheKafka, topic: str) -> int:
    """Also of what is not committed. Asked anew each time: this may be a broker that has just been started again."""
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=LATEST)
    requested = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])])
    with closing(Client("127.0.0.1", broker.port)) as client:
        (found,) = client.ask(requested, 7).topics[0].partitions
        return 0 if found.error_code else int(found.offset)


def lines(broker: TriokaProcess | ApacheKafka, topic: str, isolation: str = "read_committed") -> list[str]:
    return [
        (message.value() or b"").decode()
        for message in messages_of(reader(broker.bootstrap, isolation, topic, 1), 1)
        if message.error() is None
    ]


def transactional_ids(broker: TriokaProcess | ApacheKafka) -> set[str]:
    with closing(Client("127.0.0.1", broker.port)) as client:
        answer = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
        return {found.transactional_id for found in answer.transaction_states}
