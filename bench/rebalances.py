"""Measures the duration of rebalances with default settings, with trioka and with Apache Kafka in one run: a table of
seconds.

    python bench/rebalances.py                    everything (some minutes; needs Java)
    python bench/rebalances.py --only trioka      one broker

Members are real clients in separate processes, with default settings of the brokers (including the initial delay of
three seconds) and of the clients (sessions and heartbeats). Each figure is the time from an event until every member
has its assignment, and all partitions have an owner:

    comes      a second member joins (from its first poll on, without the start of its process)
    leaves     a member leaves the group (from the time of the command on)
    killed     a member is killed with kill -9

The coordinator cannot detect a kill before the session times out. The client sets that timeout in the classic protocol,
the broker in the consumer protocol. So only the time after the timeout is a rebalance, in a separate row. It may be
negative: a session begins with the last heartbeat or poll, up to three seconds before the kill (five in the consumer
protocol). Clients poll five times a second, which limits the precision.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat-tests"))

from clients.client import Record
from clients.confluent import Confluent
from clients.member import Member
from clients.members import Kind, start_member
from clients.patience import patient
from nodes import KAFKA_JVM, end_in_order
from oracle import ApacheKafka
from trioka_process import TriokaProcess

# Only the settings that a single node requires, without the compat tests' settings for speed.
SETTINGS: Mapping[str, object] = {"group.initial.rebalance.delay.ms": 3000}
PARTITIONS = 4
LOOK_SECONDS = 0.01
TIMEOUT_SECONDS = 180
GOAL_SECONDS = 30
# The session timeout in seconds: set by the client in the classic protocol, by the broker in the consumer protocol.
SESSIONS = {
    Kind("java", "classic", "range"): 45,
    Kind("java", "consumer", ""): 45,
    Kind("confluent-kafka", "classic", "range"): 45,
    Kind("confluent-kafka", "consumer", ""): 45,
    Kind("kafka-python", "classic", "range"): 45,
}

Broker = TriokaProcess | ApacheKafka
Figures = dict[tuple[Kind, str], float]


class Group:
    """The members of one kind, in their own group and topic."""

    def __init__(self, kind: Kind, bootstrap: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._name = "-".join(kind[:2])
        self._members: list[Member] = []
        with closing(Confluent(bootstrap)) as client:
            patient(client, client).create_topic(self._name, partitions=PARTITIONS)
            client.produce(self._name, [Record(value=b"v", partition=n) for n in range(PARTITIONS)])

    def come(self) -> float:
        """Start another member; returns the time from its first poll on."""
        member = start_member(self._kind, self._bootstrap, self._name, self._name, None)
        self._members.append(member)
        self._until(lambda: member.polls)
        started = time.perf_counter()
        self._until(self.is_divided)
        return time.perf_counter() - started

    def leave(self) -> float:
        started = time.perf_counter()
        self._members.pop().leave()
        self._until(self.is_divided)
        return time.perf_counter() - started

    def kill(self) -> None:
        self._members.pop().kill()

    def is_divided(self) -> bool:
        parts = [member.has for member in self._members]
        return all(parts) and Counter(p for part in parts for p in part) == Counter(range(PARTITIONS))

    def close(self) -> None:
        for member in self._members:
            member.kill()

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_so():
            dead = [member.log_tail() for member in self._members if not member.is_alive]
            assert not dead, f"a member of {self._kind} ended by itself: {dead}"
            assert time.monotonic() < deadline, f"{self._kind}: that takes too long"
            time.sleep(LOOK_SECONDS)


def measure(bootstrap: str) -> Figures:
    """Measure one event after the other; only the sessions of killed members time out at the same time."""
    groups: dict[Kind, Group] = {}
    found: Figures = {}
    try:
        for kind in SESSIONS:
            groups[kind] = Group(kind, bootstrap)
            groups[kind].come()
        for kind, group in groups.items():
            found[kind, "comes"] = group.come()
            found[kind, "leaves"] = group.leave()
            group.come()
        killed: dict[Kind, float] = {}
        for kind, group in groups.items():
            killed[kind] = time.perf_counter()
            group.kill()
        while killed:
            for kind in [kind for kind in killed if groups[kind].is_divided()]:
                found[kind, "killed"] = time.perf_counter() - killed.pop(kind)
            late = [kind for kind, since in killed.items() if time.perf_counter() - since > TIMEOUT_SECONDS]
            assert not late, f"no other member noticed the killed members of {late}"
            time.sleep(LOOK_SECONDS)
    finally:
        for group in groups.values():
            group.close()
    return found


def brokers(only: str | None, folder: Path) -> Iterator[tuple[str, Broker]]:
    if only in (None, "trioka"):
        with TriokaProcess(folder, SETTINGS) as trioka:
            yield "trioka", trioka
    if only in (None, "kafka"):
        with ApacheKafka(SETTINGS, jvm_options=KAFKA_JVM, parent=folder) as kafka:
            yield "kafka", kafka


def rows(found: Mapping[str, Figures]) -> Iterator[tuple[str, list[float]]]:
    for kind, session in SESSIONS.items():
        name = f"{kind.client}, {kind.protocol}"
        for event in ("comes", "leaves", "killed"):
            yield f"{name}: a member {event}", [figures[kind, event] for figures in found.values()]
        after = [figures[kind, "killed"] - session for figures in found.values()]
        yield f"{name}: after the session of {session} s", after


def table(found: Mapping[str, Figures]) -> str:
    lines = [f"{'seconds':55}" + "".join(f"{name:>10}" for name in found) + "      goal"]
    for name, figures in rows(found):
        goal = "" if name.endswith("killed") else f"  < {GOAL_SECONDS:4d}"
        lines.append(f"{name:55}" + "".join(f"{figure:10.1f}" for figure in figures) + goal)
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("trioka", "kafka"))
    options: Any = parser.parse_args(arguments)
    end_in_order()
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="bench-rebalances-") as folder:
        for name, broker in brokers(options.only, Path(folder)):
            found[name] = measure(broker.bootstrap)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
