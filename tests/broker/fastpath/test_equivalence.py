"""A broker with fast paths and one without get the same bytes: responses, log files and metrics are the same.

Requests are generated, some are damaged by a bit, and they arrive in random pieces. That is done without an authorizer
and with one, for topics of one replica and for topics with followers, whose progress is part of the schedule.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import FastAndGeneralPath, both_ways, framed, produce, records, said
from support.http_scrapes import Labels, scraped
from support.multi_replica import led_by_another, with_others
from support.serving import LISTENER, on_trio

from trioka.broker.broker import Broker
from trioka.broker.fastpath import produce as produce_fast_path
from trioka.broker.fastpath import registry
from trioka.broker.network import connection as connection_module
from trioka.broker.network import connection_factory
from trioka.broker.replication.partitions import Replica
from trioka.cluster.acls import AclFilter, AclOperation, AclResourceType
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.primitives import NULL_UUID

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPICS = {"t": 2}
FOLLOWER = 2
CONFIGURATIONS = ("plain", "authorizer", "replicated", "replicated, authorizer")
COUNTED = ("brokertopicmetrics_", "requestmetrics_requests_total", "requestmetrics_errors", "duration_seconds_count")


class Pair(FastAndGeneralPath):
    """The two brokers, and what is different in a configuration."""

    is_replicated = False

    def replicas(self, index: int) -> tuple[Replica, Replica]:
        one, other = (broker.partitions.get("t", index) for broker in self.brokers)
        return one, other

    def exchange(self, data: bytes) -> bytes:
        """What both say to the same bytes, as far as they say it at once; their ports (of leader hints) aside."""
        one, other = (
            said(connection, data).replace(broker.addresses[LISTENER][1].to_bytes(4), b"port")
            for broker, connection in zip(self.brokers, self.connections, strict=True)
        )
        assert one == other
        closing = [connection.is_closing for connection in self.connections]
        assert closing[0] == closing[1]
        if closing[0]:
            self.connect()
        return one

    def follow(self, index: int) -> bytes:
        """The follower has all of a partition. What is said then, to requests that waited for it."""
        for broker, replica in zip(self.brokers, self.replicas(index), strict=True):
            advance(broker, replica)
        return self.exchange(b"")

    def compare(self) -> None:
        for index in range(TOPICS["t"]):
            logs = [replica.log for replica in self.replicas(index)]
            assert logs[0].log_end_offset == logs[1].log_end_offset
            assert logs[0].high_watermark == logs[1].high_watermark
            files = [log.segments.active.range(0, log.segments.active.size).read() for log in logs]
            assert files[0] == files[1]
        one, other = (counted(broker) for broker in self.brokers)
        assert one == other
        assert one["kafka_network_requestmetrics_requests_total"]


def counted(broker: Broker) -> dict[str, list[tuple[Labels, float]]]:
    """The metrics that count what was served."""
    samples = scraped(broker).samples
    return {
        name: [
            (labels, value) for labels, value in found if {"Produce", "Fetch"} & set(labels.values()) or "topic" in name
        ]
        for name, found in samples.items()
        if any(word in name for word in COUNTED)
    }


def advance(broker: Broker, replica: Replica) -> None:
    if replica.leadership is not None:
        end = replica.log.log_end_offset
        if broker.replication.note(replica, FOLLOWER, -1, fetch_offset=end, log_start_offset=0):
            broker.purgatory.notify(replica)


@asynccontextmanager
async def pair(path: Path, configuration: str) -> AsyncIterator[Pair]:
    settings = {"authorizer_class_name": STANDARD} if "authorizer" in configuration else {}
    async with both_ways(path, TOPICS, **settings) as both:
        made = Pair(*both.brokers)
        if settings:
            for broker in made.brokers:
                await allow_everything(broker)
        if "replicated" in configuration:
            made.is_replicated = True
            for broker in made.brokers:
                for index in range(TOPICS["t"]):
                    advance(broker, with_others(broker, "t", index, others=(FOLLOWER,), in_sync=2))
        yield made


async def allow_everything(broker: Broker) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=AclResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=AclOperation.ALL,
        permission_type=3,
    )
    await broker.quorum.change(lambda controller: controller.create_acls([creation]))


def fetch(broker: Broker, version: int, index: int, offset: int) -> FetchRequest:
    topic = broker.metadata.topics.by_name("t")
    assert topic is not None
    by_id = version >= 13
    wanted = FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=20_000)
    name, topic_id = ("", topic.topic_id) if by_id else ("t", NULL_UUID)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=[wanted])],
    )


def damaged(random: Random, frame: bytes) -> bytes:
    """With one bit flipped, but not in its size: that would be another stream."""
    position = random.randrange(4, len(frame))
    return frame[:position] + bytes([frame[position] ^ 1 << random.randrange(8)]) + frame[position + 1 :]


async def the_same_is_said(path: Path, configuration: str, api: str, seed: int, length: int = 120) -> None:
    random = Random(seed)
    async with pair(path, configuration) as both:
        sequence = 0
        broker = both.brokers[0]
        version = random.choice((7, 9, 12, 13))
        acks = random.choice((1, -1))
        for number in range(length):
            index = random.choice((0, 0, 0, 1))
            if api == "produce" or number < 10:
                data = records(random.randbytes(random.choice((10, 10, 100, 5000))))
                if index == 0 and random.random() < 0.4:
                    data, sequence = records(b"numbered", producer=(7, 0, sequence), count=2), sequence + 2
                frame = framed(produce(broker, data, version, partition=index, acks=acks), version, number)
            else:
                end = broker.partitions.get("t", index).log.log_end_offset
                offset = random.choice((0, 0, random.randrange(end + 2)))
                frame = framed(fetch(broker, version, index, offset), version, number)
            if number % 3 == 2 and random.random() < 0.3:
                frame = damaged(random, frame)
            cut = random.choice((0, 0, 0, random.randrange(len(frame))))
            for piece in (frame[:cut], frame[cut:]) if cut else (frame,):
                both.exchange(piece)
            if both.is_replicated and random.random() < 0.7:
                for each in range(TOPICS["t"]):
                    both.follow(each)
        for each in range(TOPICS["t"]):
            both.follow(each)
        both.compare()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("api", ["produce", "fetch"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@on_trio
async def test_fast_paths_say_store_and_count_what_the_general_path_does(
    tmp_path: Path, configuration: str, api: str, seed: int
) -> None:
    await the_same_is_said(tmp_path, configuration, api, seed)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("acks", [1, -1])
@on_trio
async def test_the_fast_path_is_open(tmp_path: Path, configuration: str, acks: int) -> None:
    await it_is_open(tmp_path, configuration, acks)


async def it_is_open(path: Path, configuration: str, acks: int = -1) -> None:
    """The general path is taken away after the second request. The third is appended all the same."""
    async with pair(path, configuration) as both:
        broker, connection = both.brokers[0], both.connections[0]
        frame = framed(produce(broker, records(), 9, acks=acks), 9, 1)
        for _ in range(2):
            both.exchange(frame)
            both.follow(0)
        broker.dispatch._routes.clear()
        connection._route_key = (-1, -1)
        broker.dispatch._new = None  # type: ignore[assignment]
        heard = said(connection, frame)
        advance(broker, broker.partitions.get("t", 0))
        heard += said(connection, b"")
        assert broker.partitions.get("t", 0).log.log_end_offset == 3
        assert int.from_bytes(heard[17:19]) == 0


async def nothing_is_acknowledged_before_it_is_committed(path: Path) -> None:
    """acks=all: the follower decides when the producer is answered, in whatever way its requests are served."""
    async with pair(path, "replicated") as both:
        frame = framed(produce(both.brokers[0], records(), 9, acks=-1), 9, 1)
        for at_once in (1, 1, 1, 3, 1):
            assert both.exchange(frame * at_once) == b""
            assert both.connections[0].waits
            assert both.follow(0).count(frame[8:12]) >= at_once


@on_trio
async def test_acks_all_waits_for_the_follower_on_the_fast_path(tmp_path: Path) -> None:
    await nothing_is_acknowledged_before_it_is_committed(tmp_path)


async def what_cannot_be_committed_is_refused(path: Path) -> None:
    """The broker loses the partition while requests wait, or their time is up."""
    async with pair(path, "replicated") as both:
        frame = framed(produce(both.brokers[0], records(), 13, acks=-1), 13, 1)
        for _ in range(3):
            both.exchange(frame)
            both.follow(0)
        both.exchange(frame + frame)
        for broker in both.brokers:
            broker.purgatory.expire(broker.clock.now() + 5)  # its timeout is one second
        assert (heard := both.exchange(b""))
        assert heard.count((7).to_bytes(2)) >= 2
        both.exchange(frame + frame)
        for broker in both.brokers:
            led_by_another(broker, "t", 0)
        assert (heard := both.exchange(b""))
        assert heard.count((6).to_bytes(2)) >= 2


@on_trio
async def test_requests_that_cannot_be_committed_get_the_general_paths_error(tmp_path: Path) -> None:
    await what_cannot_be_committed_is_refused(tmp_path)


async def too_few_are_in_sync(path: Path) -> None:
    async with pair(path, "replicated") as both:
        frame = framed(produce(both.brokers[0], records(), 9, acks=-1), 9, 1)
        for _ in range(3):
            both.exchange(frame)
            both.follow(0)
        for replica in both.replicas(0):
            replica.min_in_sync = 3
        heard = both.exchange(frame)
        assert int.from_bytes(heard[17:19]) == 19  # NOT_ENOUGH_REPLICAS
        assert both.replicas(0)[0].log.log_end_offset == 3


@on_trio
async def test_too_few_in_sync_replicas_are_refused_by_the_general_path(tmp_path: Path) -> None:
    await too_few_are_in_sync(tmp_path)


async def a_client_that_leaves_harms_nobody(path: Path) -> None:
    async with pair(path, "replicated") as both:
        frame = framed(produce(both.brokers[0], records(), 9, acks=-1), 9, 1)
        for _ in range(3):
            both.exchange(frame)
            both.follow(0)
        both.exchange(frame + frame)
        both.connect()  # the first connections are closed
        assert both.exchange(frame) == b""
        assert len(both.follow(0)) > 0


@on_trio
async def test_a_client_may_leave_while_its_requests_wait(tmp_path: Path) -> None:
    await a_client_that_leaves_harms_nobody(tmp_path)


async def an_acl_is_taken_away(path: Path) -> None:
    async with pair(path, "authorizer") as both:
        plain = framed(produce(both.brokers[0], records(), 9), 9, 1)
        for _ in range(4):
            both.exchange(plain)
        for broker in both.brokers:
            await broker.quorum.change(lambda controller: controller.delete_acls([AclFilter()]))
        heard = both.exchange(plain)
        assert int.from_bytes(heard[17:19]) == 29  # TOPIC_AUTHORIZATION_FAILED
        for broker in both.brokers:
            await allow_everything(broker)
        for _ in range(4):
            assert int.from_bytes(both.exchange(plain)[17:19]) == 0
        both.compare()


@on_trio
async def test_an_acl_that_is_taken_away_counts_from_the_next_request_on(tmp_path: Path) -> None:
    await an_acl_is_taken_away(tmp_path)


async def _open_with_an_authorizer(path: Path) -> None:
    await it_is_open(path, "authorizer")


async def _generated(path: Path) -> None:
    for seed in range(3):
        await the_same_is_said(path / str(seed), "replicated", "produce", seed, 60)


MISTAKES = [
    (produce_fast_path, "self.commit_timeout_s is None or replica.is_unreplicated", "True", _generated),
    (
        produce_fast_path,
        "replica if self.commit_timeout_s is None or replica.has_min_in_sync else None",
        "replica",
        too_few_are_in_sync,
    ),
    (produce_fast_path, "if error is None:", "if True:", what_cannot_be_committed_is_refused),
    (
        connection_module,
        "permit is None or permit.stamp is not self._dispatch.guard.stamp",
        "permit is None",
        an_acl_is_taken_away,
    ),
    (connection_module, "call.allows_pipelining = True", "", _generated),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path, module: ModuleType, right: str, wrong: str, rule: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(module, right, wrong)
    if module is produce_fast_path:
        monkeypatch.setattr(registry, "ProduceFastPaths", mistaken.ProduceFastPaths)
    else:
        vars(mistaken)["PENDING"] = connection_module.PENDING  # which handlers return
        monkeypatch.setattr(connection_factory, "Connection", mistaken.Connection)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(rule, tmp_path)  # type: ignore[arg-type]
