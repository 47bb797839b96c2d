"""Clients in groups: members join, leave and are killed, the broker is killed too, and no record is skipped.

Every kind of client lives through the same, in a group and with a topic of its own, all of them on one broker: up to
the crash, and after it. A member tells of each record before it commits its offset. So records may be seen twice, after
a crash; but what no member saw was skipped, and that must not be. Whoever comes after an orderly end must go on exactly
where the last one stopped.

`make test-groups-all` takes every client with every one of its assignors.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_under_test import BROKERS, HEARD, recorded
from clients.client import Record
from clients.confluent import Confluent
from clients.member import Member, Place
from clients.members import Kind, kinds, start_member
from oracle import ApacheKafka
from toolchains import unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable

KINDS = kinds(all_of_them=bool(os.environ.get("TRIOKA_ALL_GROUPS")))
PARTITIONS = 4
EACH_TIME = 5  # records for each partition
# How long a step may take: a session that ends, a rebalance, and a busy machine.
PATIENCE_SECONDS = 120
LOOK_SECONDS = 0.05
AT_ONCE = 4  # kinds that live at the same time; a member may be a Java machine
# Members are declared dead as soon as classic members may be by default, so that a test need not wait for longer.
SETTINGS = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 1000,
}


class Life:
    """What one kind of client lives through."""

    def __init__(self, kind: Kind, bootstrap: str) -> None:
        self._kind = kind
        self._bootstrap = bootstrap
        self._topic = self._group = str(kind)
        self._writer = Confluent(bootstrap)
        self._members: list[Member] = []
        self._gone: list[Member] = []
        self._written = 0  # records of each partition

    def up_to_the_crash(self) -> None:
        self._writer.create_topic(self._topic, partitions=PARTITIONS)
        self._write()
        a = self._join()
        self._wait_until_all_is_seen()
        b = self._join()
        self._write()
        self._wait_until_all_is_seen()
        c = self._join()
        self._write()
        self._wait_until_all_is_seen()
        self._members.remove(b)
        self._gone.append(b)
        b.kill()
        self._write()
        self._wait_until_all_is_seen()
        self._leave(a)
        self._wait("the last member has everything", lambda: c.has == set(range(PARTITIONS)))
        self._write()
        self._wait_until_all_is_seen()

    def after_the_crash(self) -> None:
        """The last member has lived on, and goes on; and who comes after it knows where it stopped."""
        (c,) = self._members
        self._write()
        self._wait_until_all_is_seen()
        self._leave(c)
        before = self._written
        self._write()
        d = self._join()
        self._wait_until_all_is_seen()
        assert sorted(d.saw) == [(p, offset) for p in range(PARTITIONS) for offset in range(before, self._written)]
        self._leave(d)

    def end(self) -> None:
        for member in self._members:
            member.kill()
        self._writer.close()

    def _write(self) -> None:
        records = [Record(value=b"v", partition=p) for p in range(PARTITIONS) for _ in range(EACH_TIME)]
        now_ms = int(time.time() * 1000)
        self._writer.produce(self._topic, [record._replace(timestamp=now_ms) for record in records])
        self._written += EACH_TIME

    def _join(self) -> Member:
        member = start_member(self._kind, self._bootstrap, self._group, self._topic)
        self._members.append(member)
        self._wait("the new member has a part", lambda: bool(member.has))
        self._wait("everything belongs to one member", self._is_divided)
        return member

    def _leave(self, member: Member) -> None:
        self._members.remove(member)
        self._gone.append(member)
        member.leave()

    def _is_divided(self) -> bool:
        parts = [member.has for member in self._members]
        return all(parts) and Counter(p for part in parts for p in part) == Counter(range(PARTITIONS))

    def _wait_until_all_is_seen(self) -> None:
        written = {(p, offset) for p in range(PARTITIONS) for offset in range(self._written)}
        self._wait("all is seen", lambda: written <= self._seen())
        assert self._seen() == written

    def _seen(self) -> set[Place]:
        return {place for member in (*self._members, *self._gone) for place in member.saw}

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            ended = [member.log_tail() for member in self._members if not member.is_alive]
            assert not ended, f"a member of {self._kind} ended by itself: {ended}"
            if time.monotonic() > deadline:
                state = [(member.has, len(member.saw), member.log_tail()) for member in self._members]
                raise AssertionError(f"{self._kind}: not so: {what}. {state}")
            time.sleep(LOOK_SECONDS)


Outcomes = dict[Kind, Future[None]]


def live(broker: TriokaProcess | ApacheKafka, bootstrap: str) -> Outcomes:
    """How it went, for every kind."""
    lives = {kind: Life(kind, bootstrap) for kind in KINDS}
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = {kind: pool.submit(life.up_to_the_crash) for kind, life in lives.items()}
            wait(outcomes.values())
            broker.kill()
            broker.start()
            for kind, life in lives.items():
                if outcomes[kind].exception() is None:
                    outcomes[kind] = pool.submit(life.after_the_crash)
            wait(outcomes.values())
            return outcomes
    finally:
        for life in lives.values():
            life.end()


@pytest.fixture(scope="module", params=BROKERS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    folder = tmp_path_factory.mktemp("groups")
    if request.param == "kafka":
        request.getfixturevalue("apache_kafka")
        with ApacheKafka(SETTINGS, parent=folder) as kafka:
            yield live(kafka, kafka.bootstrap)
    else:
        with trioka(folder) as (broker, bootstrap):
            yield live(broker, bootstrap)


@contextmanager
def trioka(folder: Path) -> Iterator[tuple[TriokaProcess, str]]:
    """A broker, and where its clients find it."""
    if HEARD is not None:
        with recorded(folder, Path(HEARD), SETTINGS) as (broker, bootstrap):
            yield broker, bootstrap
        return
    with TriokaProcess(folder, SETTINGS) as broker:
        yield broker, broker.bootstrap


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_record_is_skipped_while_members_and_brokers_come_and_go(kind: Kind, outcomes: Outcomes) -> None:
    try:
        outcomes[kind].result()
    except Unavailable as missing:
        unavailable(missing)
