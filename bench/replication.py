"""Measures the cost of a replicated record: CPU of all three brokers, without a network between machines and without
other processes.

    python bench/replication.py                    one record at a time, eight at a time, and one of each of 32
                                                   connections to 16 partitions; acks=1 and acks=all
    python bench/replication.py --profile          the same work under a profiler, one record at a time

Three brokers run in one loop, in a separate thread, and communicate over loopback; their data is in memory. A client in
another thread writes one record per request. The measure is the CPU time of the loop's thread, which other load only
increases, so the best round counts.
"""

import argparse
import cProfile
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from trioka.cli.client.connection import Connection
from trioka.protocol.batch import build
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.record import Record
from trioka.testing import Cluster

VERSION: Final = 11
TIMEOUT_S: Final = 60.0
CONNECTIONS: Final = 32
PARTITIONS: Final = 16
# No broker may be fenced on a busy machine, and no background work may run during the measurement.
PATIENT: Final = {
    "broker_session_timeout_ms": 60_000,
    "broker_heartbeat_interval_ms": 2_000,
    "controller_quorum_fetch_timeout_ms": 60_000,
    "replica_lag_time_max_ms": 60_000,
    "replica_fetch_wait_max_ms": 500,
}


class Bench:
    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        cluster.create_topic("bench", partitions=1, replication_factor=3)
        if options.silent:
            cluster.create_topic("silent", partitions=options.silent, replication_factor=3)
        host, _, port = cluster.address(cluster.leader("bench")).rpartition(":")
        self._connection = Connection(host, int(port), timeout_s=TIMEOUT_S)
        cluster.create_topic("many", partitions=3 * PARTITIONS, replication_factor=3)
        leader = cluster.leader("bench")
        led = [index for index in range(3 * PARTITIONS) if cluster.leader("many", index) == leader][:PARTITIONS]
        self._lines = [
            (Connection(host, int(port), timeout_s=TIMEOUT_S), led[number % len(led)]) for number in range(CONNECTIONS)
        ]
        self._batch = bytes(build([Record(0, 0, None, b"v" * 100)]))
        thread = cluster._home._thread
        assert thread.ident is not None
        self._clock = time.pthread_getcpuclockid(thread.ident)

    def write(self, count: int, acks: int, at_once: int) -> None:
        request = self._request("bench", 0, acks)
        for _ in range(count // at_once):
            for _ in range(at_once):
                self._connection.say(request, VERSION)
            last = self._connection._correlation_id
            for number in range(last - at_once + 1, last + 1):
                response: ProduceResponse = self._connection.hear(request, VERSION, correlation_id=number)
                assert response.responses[0].partition_responses[0].error_code == 0, response

    def write_round(self, count: int, acks: int) -> None:
        """Write one record on each connection, and repeat when all are acknowledged."""
        requests = [(connection, self._request("many", index, acks)) for connection, index in self._lines]
        for _ in range(count // len(requests)):
            for connection, request in requests:
                connection.say(request, VERSION)
            for connection, request in requests:
                response: ProduceResponse = connection.hear(request, VERSION)
                assert response.responses[0].partition_responses[0].error_code == 0, response

    def _request(self, topic: str, index: int, acks: int) -> ProduceRequest:
        partition = ProduceRequest.Topic.Partition(index=index, records=self._batch)
        data = ProduceRequest.Topic(name=topic, partition_data=[partition])
        return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])

    def micros(self, work: Callable[[int], None]) -> float:
        """CPU time of the loop per record, in the best round."""
        count, found = self._options.records, []
        work(count)
        for _ in range(self._options.rounds):
            before = time.clock_gettime(self._clock)
            work(count)
            found.append((time.clock_gettime(self._clock) - before) / count * 1e6)
        return min(found)

    def measure(self) -> None:
        print(f"{'CPU µs of three brokers for each record':<56}{'acks=1':>10}{'acks=all':>10}")
        for at_once in (1, 8):
            figures = [self.micros(lambda count, a=acks, n=at_once: self.write(count, a, n)) for acks in (1, -1)]
            print(f"{f'{at_once} at a time':<56}" + "".join(f"{figure:10.1f}" for figure in figures))
        figures = [self.micros(lambda count, a=acks: self.write_round(count, a)) for acks in (1, -1)]  # type: ignore[misc]
        name = f"{CONNECTIONS} connections, {PARTITIONS} partitions"
        print(f"{name:<56}" + "".join(f"{figure:10.1f}" for figure in figures))

    def profile(self) -> None:
        profiler = cProfile.Profile(time.thread_time)
        self.write(self._options.records, -1, 1)
        self._cluster._home.call(profiler.enable)
        self.write(self._options.records, -1, 1)
        self._cluster._home.call(profiler.disable)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(self._options.lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1000, help="in a round (1000)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the best counts (5)")
    parser.add_argument("--silent", type=int, default=0, help="further partitions without writes (0)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--lines", type=int, default=40, help="of the profile (40)")
    options = parser.parse_args(arguments)
    with Cluster(nodes=3, **PATIENT) as cluster:
        bench = Bench(cluster, options)
        if options.profile:
            bench.profile()
        else:
            bench.measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
