"""Consumer groups at scale, with trioka and with Apache Kafka in one run: a table of ratios.

    python bench/groups.py                    everything, three rounds (minutes; needs Java)
    python bench/groups.py --rounds 1         a look
    python bench/groups.py --only trioka      one broker, no ratios

Members are bare connections of this process (`group_members.py`), which act immediately, so that the broker is
measured. Both brokers have `group.initial.rebalance.delay.ms=0`, and no interval between assignments. The best round
counts, except for the load after a start, which happens only once.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from group_members import ClassicGroup, ConsumerGroup, MemberConnections
from nodes import KAFKA_JVM, allow_many_files, end_in_order
from oracle import ApacheKafka
from trioka_process import TriokaProcess

from trioka.cli.client.connection import Connection
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 50,
}
TOPIC, PARTITIONS = "wide", 1000
MEMBERS = 100
CROWD = 1000
GROUPS = 2000
COMMITTERS, OFFSETS = 100, 100_000
TIMEOUT_SECONDS = 120
RETRY_SECONDS = 0.005
RETRIABLE = (14, 15, 16)  # the coordinator is loading, or not available yet
GOALS = {
    "rebalance of 100 members over 1,000 partitions, classic": 3.0,
    "100,000 committed offsets are loaded after the start": 2.0,
}

Broker = TriokaProcess | ApacheKafka
Figures = dict[str, float]


class Bench:
    """All measures of one broker."""

    def __init__(self, broker: Broker, rounds: int) -> None:
        self._broker = broker
        self._rounds = rounds
        host, _, port = broker.bootstrap.rpartition(":")
        self._address = host, int(port)
        self._figures: Figures = {}

    def run(self) -> Figures:
        self._prepare()
        self._rebalance()
        self._newer()
        self._one_large_group()
        self._many_groups()
        self._load()
        return self._figures

    def _best(self, name: str, measure: Callable[[int], float]) -> None:
        """Run a warm-up round, and then the rounds that count."""
        self._figures[name] = min([measure(n) for n in range(self._rounds + 1)][1:])

    @contextmanager
    def _crowd(self, size: int) -> Iterator[MemberConnections]:
        crowd = MemberConnections(self._address, size)
        try:
            yield crowd
        finally:
            crowd.close()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        connection = Connection(*self._address, timeout_s=TIMEOUT_SECONDS)
        try:
            yield connection
        finally:
            connection.close()

    def _prepare(self) -> None:
        wanted = CreateTopicsRequest.Topic(
            name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        with self._connection() as connection:
            made = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_SECONDS * 1000))
            assert made.topics[0].error_code == 0, made
            requested = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)], allow_auto_topic_creation=False)
            until(lambda: len(connection.ask(requested, 12).topics[0].partitions) == PARTITIONS)
            find = FindCoordinatorRequest(coordinator_keys=["any"])
            until(lambda: connection.ask(find).coordinators[0].error_code == 0)
            until(lambda: self._committed(connection, "probe", 1))

    def _rebalance(self) -> None:
        with self._crowd(MEMBERS) as crowd:
            group = ClassicGroup(crowd, ["classic"] * MEMBERS, TOPIC, PARTITIONS)
            group.form()
            self._best("rebalance of 100 members over 1,000 partitions, classic", lambda n: group.rebalance(n + 1))

    def _newer(self) -> None:
        with self._crowd(MEMBERS) as crowd:
            group = ConsumerGroup(crowd, MEMBERS, "newer", TOPIC, PARTITIONS)
            everyone = range(MEMBERS)
            self._figures["100 members come to 1,000 partitions, newer protocol"] = group.settle(everyone)

            def one_goes_and_comes(_: int) -> float:
                group.leave(0)
                return group.settle(everyone[1:]) + group.settle(everyone)

            self._best("one of 100 members leaves and comes back, newer protocol", one_goes_and_comes)

    def _one_large_group(self) -> None:
        with self._crowd(CROWD) as crowd:
            group = ClassicGroup(crowd, ["large"] * CROWD, TOPIC, PARTITIONS)
            group.form()
            self._best("rebalance of 1,000 members over 1,000 partitions, classic", lambda n: group.rebalance(n + 1))
            self._best("1,000 members of one group send heartbeats", lambda _: group.heartbeat())

    def _many_groups(self) -> None:
        with self._crowd(GROUPS) as crowd:
            groups = ClassicGroup(crowd, [f"small-{n}" for n in range(GROUPS)], TOPIC, PARTITIONS)
            groups.form()
            self._best("2,000 groups rebalance at once", lambda n: groups.rebalance(n + 1))
            self._best("the members of 2,000 groups send heartbeats", lambda _: groups.heartbeat())

    def _load(self) -> None:
        each = OFFSETS // COMMITTERS
        started = time.perf_counter()
        with self._connection() as connection:
            for n in range(COMMITTERS):
                assert self._committed(connection, f"committer-{n}", each)
        self._figures["100,000 offsets are committed, 1,000 at once"] = time.perf_counter() - started
        self._broker.stop()
        self._broker.start()
        started = time.perf_counter()
        with self._connection() as connection:
            for n in range(COMMITTERS):
                until(lambda n=n: self._last_of(connection, f"committer-{n}") == each - 1)  # type: ignore[misc]
        self._figures["100,000 committed offsets are loaded after the start"] = time.perf_counter() - started

    def _committed(self, connection: Connection, group: str, count: int) -> bool:
        partitions = [
            OffsetCommitRequest.Topic.Partition(partition_index=n, committed_offset=n, committed_metadata="")
            for n in range(count)
        ]
        topics = [OffsetCommitRequest.Topic(name=TOPIC, partitions=partitions)]
        answer = connection.ask(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 8)
        return all(one.error_code == 0 for one in answer.topics[0].partitions)

    def _last_of(self, connection: Connection, group: str) -> int:
        """The last committed offset of a group; -1 while it is being loaded."""
        place = OffsetFetchRequest.Group.Topic(name=TOPIC, partition_indexes=[OFFSETS // COMMITTERS - 1])
        requested = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=[place])])
        (answer,) = connection.ask(requested, 8).groups
        assert answer.error_code in (0, *RETRIABLE), answer
        return -1 if answer.error_code else int(answer.topics[0].partitions[0].committed_offset)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "that takes too long"
        time.sleep(RETRY_SECONDS)


def brokers(only: str | None, folder: Path) -> Iterator[tuple[str, Broker]]:
    if only in (None, "trioka"):
        with TriokaProcess(folder, SETTINGS) as trioka:
            yield "trioka", trioka
    if only in (None, "kafka"):
        with ApacheKafka(SETTINGS, jvm_options=KAFKA_JVM, parent=folder) as kafka:
            yield "kafka", kafka


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each measure is taken; the best counts")
    parser.add_argument("--only", choices=("trioka", "kafka"))
    options = parser.parse_args()
    allow_many_files()
    end_in_order()
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="bench-groups-") as folder:
        for name, broker in brokers(options.only, Path(folder)):
            found[name] = Bench(broker, options.rounds).run()
    show(found)
    return 0


def show(found: Mapping[str, Figures]) -> None:
    names = list(found)
    both = len(names) > 1
    print(f"{'seconds':58}" + "".join(f"{name:>10}" for name in names) + ("   ratio" if both else "") + "    goal")
    for row in found[names[0]]:
        figures = [found[name][row] for name in names]
        ratio = f"{figures[0] / figures[1]:8.2f}" if both else ""
        goal = f"{GOALS[row]:8.1f}" if row in GOALS else ""
        print(f"{row:58}" + "".join(f"{figure:10.3f}" for figure in figures) + ratio + goal)


if __name__ == "__main__":
    sys.exit(main())
