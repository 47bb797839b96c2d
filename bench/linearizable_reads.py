"""Measures what a linearizable read costs: the time of ListOffsets(latest), beside a Produce with acks=all.

    python bench/linearizable_reads.py [--rounds 5] [--requests 300] [--clients 1]

Three nodes, three replicas, one partition of each level that one node leads. Each client sends one request at a time;
the kinds are interleaved in rounds, and the medians of the rounds are printed, with the ratio to the Produce. A read
waits for a response and a fetch of both followers, a Produce for its record in both.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cluster_nodes import ANSWER_S, HOST, NUMBERS, ThreeNodes, TriokaNodes

from trioka.cli.client.connection import Connection
from trioka.protocol import batch
from trioka.protocol.errors import NONE
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

LATEST = -1
LEVELS = ("committed", "linearizable")
WARM_UP = 50  # requests of each client
GOAL = 2.0  # p50 of a linearizable read, in that of a Produce

Send = Callable[[Connection], None]


def create(nodes: ThreeNodes, topic: str, level: str) -> None:
    wanted = CreateTopicsRequest.Topic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreateTopicsRequest.Topic.Assignment(partition_index=0, broker_ids=list(NUMBERS))],
        configs=[CreateTopicsRequest.Topic.Config(name="trioka.read.consistency", value=level)],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(ANSWER_S * 1000))
    connection = Connection(HOST, nodes.ports[NUMBERS[0]], timeout_s=ANSWER_S)
    (result,) = connection.ask(request).topics
    assert result.error_code == NONE, result
    connection.close()


def produce(topic: str) -> Send:
    records = bytes(batch.build([Record(0, 0, b"k", b"v" * 100)]))
    data = ProduceRequest.Topic(name=topic, partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=int(ANSWER_S * 1000), topic_data=[data])

    def send(connection: Connection) -> None:
        (result,) = connection.ask(request, 9).responses[0].partition_responses
        assert result.error_code == NONE, result

    return send


def read(topic: str) -> Send:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])])

    def send(connection: Connection) -> None:
        (result,) = connection.ask(request, 9).topics[0].partitions
        assert result.error_code == NONE and result.offset > 0, result

    return send


def median_of_round(nodes: ThreeNodes, send: Send, requests: int, clients: int) -> float:
    """The median time of a request, in microseconds."""
    times: list[float] = []

    def client() -> None:
        connection = Connection(HOST, nodes.ports[NUMBERS[0]], timeout_s=ANSWER_S)
        for number in range(WARM_UP + requests):
            began = time.perf_counter()
            send(connection)
            if number >= WARM_UP:
                times.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(times) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, TriokaNodes(Path(folder), [sys.executable, "-m", "trioka"]) as nodes:
        for level in LEVELS:
            create(nodes, level, level)
            nodes.leader(level, 0)
        nodes.wait_healthy()
        rows = {"acks=all produce": produce("linearizable"), **{f"{level} read": read(level) for level in LEVELS}}
        filled = Connection(HOST, nodes.ports[NUMBERS[0]], timeout_s=ANSWER_S)
        for level in LEVELS:
            produce(level)(filled)
        filled.close()
        found: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(options.rounds):
            for name, send in rows.items():
                found[name].append(median_of_round(nodes, send, options.requests, options.clients))
    medians = {name: statistics.median(each) for name, each in found.items()}
    base = medians["acks=all produce"]
    for name, median in medians.items():
        print(f"{name:20} p50 {median:7.0f} us   {median / base:5.2f}x")
    return 0 if medians["linearizable read"] <= GOAL * base else 1


if __name__ == "__main__":
    sys.exit(main())
