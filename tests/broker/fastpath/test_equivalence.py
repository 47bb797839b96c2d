"""A broker with fast paths and one without get the same bytes: responses, log files and metrics are the same.

Requests are generated, some are damaged by a bit, and they arrive in random pieces. That is done without an authorizer
and with one, with quotas that are never or often exceeded, for topics of one replica and for topics with followers,
whose progress is part of the schedule; and over TLS, with real sockets (`test_equivalence_over_tls.py`).
"""

from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.fast_path_pair import CONFIGURATIONS, TOPICS, advance, allow_everything, damaged, fetch, pair
from support.fast_paths import framed, produce, records, said
from support.multi_replica import led_by_another
from support.serving import on_trio

from trioka.broker.fastpath import produce as produce_fast_path
from trioka.broker.fastpath import registry
from trioka.broker.network import connection as connection_module
from trioka.broker.network import connection_factory
from trioka.cluster.acls import AclFilter


async def the_output_is_the_same(path: Path, configuration: str, api: str, seed: int, length: int = 120) -> None:
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
        assert bool(both.throttled) == ("throttled" in configuration)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
@pytest.mark.parametrize("api", ["produce", "fetch"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@on_trio
async def test_fast_paths_say_store_and_count_what_the_general_path_does(
    tmp_path: Path, configuration: str, api: str, seed: int
) -> None:
    await the_output_is_the_same(tmp_path, configuration, api, seed)


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


async def a_client_that_leaves_does_not_affect_others(path: Path) -> None:
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
    await a_client_that_leaves_does_not_affect_others(tmp_path)


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
        await the_output_is_the_same(path / str(seed), "replicated", "produce", seed, 60)


async def _throttled(path: Path) -> None:
    await the_output_is_the_same(path, "throttled", "produce", 0, 60)


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
        produce_fast_path,
        "with_throttle_time(response, self.route.version, throttle_ms) if throttle_ms else response",
        "response",
        _throttled,
    ),
    (produce_fast_path, "requests * self._size", "requests * (self._size + 4)", _throttled),
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
