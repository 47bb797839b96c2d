"""What a reader will ask for next is looked for before it does; nobody can tell, but for the time that it takes."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import BothWays, both_ways, framed, produce, records
from support.multi_replica import led_by_another
from support.serving import Asking, on_trio, running_broker

from trioka.broker import broker as broker_file
from trioka.broker.broker import Broker
from trioka.broker.fastpath import fetch as fetch_lane
from trioka.broker.network import server as network
from trioka.protocol.codec import decode
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.storage.disk import OsDisk
from trioka.storage.log import Log
from trioka.storage.page_cache_probe import ColdPart
from trioka.storage.quarantine import Damage
from trioka.storage.warm_parts import BELIEVED_S

TOPICS = {"t": 2}
BATCHES = 30
VALUE = 20_000
LIMIT = 4 * VALUE + 2000  # more than is read at once, of four batches
VERSION = 13


def fetch(broker: Broker, offset: int, *, partition: int = 0, limit: int = LIMIT) -> FetchRequest:
    known = broker.metadata.topics.by_name("t")
    assert known is not None
    asked = FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
    topics = [FetchRequest.Topic(topic_id=known.topic_id, partitions=[asked])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)


def fill(both: BothWays) -> None:
    for number in range(BATCHES):
        for partition in (0, 1):
            value = bytes([number + 100 * partition]) * VALUE
            both.say(framed(produce(both.brokers[0], records(value), 9, partition=partition), 9, number))
    both.connect()


def ask(both: BothWays, request: FetchRequest) -> FetchResponse:
    answer = decode(FetchResponse, VERSION, both.say(framed(request, VERSION, 1))[9:])
    assert isinstance(answer, FetchResponse)
    return answer


@contextmanager
def counted_reads(broker: Broker) -> Iterator[list[int]]:
    """The offsets at which logs of this broker are looked into, for their ranges."""
    offsets: list[int] = []
    logs = [broker.partitions.get("t", index).log for index in (0, 1)]
    read = Log.read

    def counting(log: Log, offset: int, *arguments: object, **named: object) -> object:
        if log in logs:
            offsets.append(offset)
        return read(log, offset, *arguments, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "read", counting)
        yield offsets


def looked_ahead(both: BothWays) -> int:
    """A lane, and the next range found already. The offset of it."""
    both.connect()
    for offset in (0, 4, 8):
        ask(both, fetch(both.brokers[0], offset))
    both.connections[0].look_ahead(0.0)
    return 12


async def who_reads_on_gets_what_was_found(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        offset = looked_ahead(both)
        while offset < BATCHES:
            with counted_reads(both.brokers[0]) as reads:
                got = ask(both, fetch(both.brokers[0], offset)).responses[0].partitions[0].records
            assert got
            assert not reads
            offset += 4
            both.connections[0].look_ahead(0.0)
        with counted_reads(both.brokers[0]) as reads:
            both.connections[0].look_ahead(0.0)
        assert not reads  # there is nothing behind the end


async def who_asks_for_something_else_gets_that(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        broker = both.brokers[0]
        for odd in (
            fetch(broker, 4),
            fetch(broker, 13),
            fetch(broker, 12, partition=1),
            fetch(broker, 12, limit=2 * VALUE + 2000),
            fetch(broker, 12, limit=8 * VALUE),
        ):
            looked_ahead(both)
            ask(both, odd)
            ask(both, fetch(broker, 12))


async def what_was_found_is_found_again_when_it_may_have_changed(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        broker = both.brokers[0]
        replica = broker.partitions.get("t", 0)

        def time_has_passed() -> None:
            for connection in both.connections:
                connection.last_active = BELIEVED_S

        def it_led_again() -> None:
            replica.reign += 1

        for change in (time_has_passed, it_led_again):
            offset = looked_ahead(both)
            change()
            with counted_reads(broker) as reads:
                ask(both, fetch(broker, offset))
            assert reads == [offset], change


async def damage_that_was_found_meanwhile_is_not_sent(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        offset = looked_ahead(both)
        for broker in both.brokers:
            log = broker.partitions.get("t", 0).log
            place = log.segments.active.locate(offset + 1)
            assert place is not None
            damage = Damage(
                first_offset=offset + 1,
                end_offset=offset + 2,
                base_offset=0,
                position=place.position,
                end_position=place.end,
                reason="a bit has changed",
            )
            log.quarantine.add([damage])
        assert ask(both, fetch(both.brokers[0], offset)).responses[0].partitions[0].records


def shortened(broker: Broker) -> None:
    broker.partitions.get("t", 0).log.delete_records_before(20)


def led_elsewhere(broker: Broker) -> None:
    led_by_another(broker, "t")


async def what_is_gone_is_refused(path: Path) -> None:
    for change, code in ((shortened, 1), (led_elsewhere, 74)):
        async with both_ways(path / change.__name__, TOPICS) as both:
            fill(both)
            offset = looked_ahead(both)
            request = fetch(both.brokers[0], offset)
            epoch = both.brokers[0].partitions.get("t", 0).leader_epoch
            request.topics[0].partitions[0].current_leader_epoch = epoch  # type: ignore[misc]
            for broker in both.brokers:
                change(broker)
            assert ask(both, request).responses[0].partitions[0].error_code == code


async def what_is_gone_is_not_looked_for(path: Path) -> None:
    for change in (shortened, led_elsewhere):
        async with both_ways(path / change.__name__, TOPICS) as both:
            fill(both)
            ask(both, fetch(both.brokers[0], looked_ahead(both)))
            change(both.brokers[0])
            with counted_reads(both.brokers[0]) as reads:
                both.connections[0].look_ahead(0.0)
            assert not reads


async def what_is_not_in_memory_is_not_looked_for(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        looked_ahead(both)
        ask(both, fetch(both.brokers[0], 12))
        lane = both.connections[0]._lane
        assert lane is not None
        with pytest.MonkeyPatch.context() as patch, counted_reads(both.brokers[0]) as reads:
            its_module = lane.look_ahead.__globals__
            patch.setitem(its_module, "cold_part", lambda *_: ColdPart(OsDisk(), "cold", 0, 1))
            both.connections[0].look_ahead(0.0)
        assert not reads


async def who_has_become_quiet_holds_no_file(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        fill(both)
        looked_ahead(both)
        connection = both.connections[0]
        assert connection._lane._ahead is not None  # type: ignore[union-attr]
        connection.quiet()
        assert connection._lane._ahead is connection._lane._following is None  # type: ignore[union-attr]


Rule = Callable[[Path], Awaitable[None]]

RULES: list[Rule] = [
    who_reads_on_gets_what_was_found,
    who_asks_for_something_else_gets_that,
    what_was_found_is_found_again_when_it_may_have_changed,
    damage_that_was_found_meanwhile_is_not_sent,
    what_is_gone_is_refused,
    what_is_gone_is_not_looked_for,
    what_is_not_in_memory_is_not_looked_for,
    who_has_become_quiet_holds_no_file,
]


@pytest.mark.parametrize("rule", RULES)
def test_looking_ahead(tmp_path: Path, rule: Rule) -> None:
    on_trio(rule)(tmp_path)


MISTAKES = [
    ("                    self._following = replica, following, limit\n", "", RULES[0]),
    ("self._ahead = _Ahead(log,", "_Ahead(log,", RULES[0]),
    (
        "(ahead.log, ahead.reign, ahead.offset, ahead.limit) != (replica.log,",
        "(ahead.reign, ahead.offset, ahead.limit) != (",
        RULES[1],
    ),
    (
        "ahead.offset, ahead.limit) != (replica.log, replica.reign, offset, limit)",
        "ahead.limit) != (replica.log, replica.reign, limit)",
        RULES[1],
    ),
    (
        "ahead.offset, ahead.limit) != (replica.log, replica.reign, offset, limit)",
        "ahead.offset) != (replica.log, replica.reign, offset)",
        RULES[1],
    ),
    (
        "(ahead.log, ahead.reign, ahead.offset, ahead.limit) != (replica.log, replica.reign,",
        "(ahead.log, ahead.offset, ahead.limit) != (replica.log,",
        RULES[2],
    ),
    ("            or now >= ahead.until\n", "", RULES[2]),
    ("            or replica.log.quarantine.damages\n", "", RULES[3]),
    ("if not replica.leads or not log.log_start_offset <= offset < upto:", "if not offset < upto:", RULES[5]),
    ("            if cold_part(log, offset, limit, now) is not None:\n                return\n", "", RULES[6]),
    ("self._ahead = self._following = None", "pass", RULES[7]),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken: ModuleType = planted(fetch_lane, right, wrong)
    monkeypatch.setattr(fetch_lane, "lane_for", mistaken.lane_for)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(rule, tmp_path)


async def the_network_looks_ahead_when_it_is_idle(path: Path) -> None:
    async with running_broker(path) as broker, Asking(broker) as client:
        await broker.create_missing_topics(TOPICS)
        for number in range(BATCHES):
            await client.ask(produce(broker, records(bytes([number]) * VALUE), 9), 9)
        async with Asking(broker) as reader:
            for offset in (0, 4, 8):
                await reader.ask(fetch(broker, offset), VERSION)
            with trio.fail_after(5):
                while not any(
                    isinstance(each._lane, fetch_lane.FetchLane) and each._lane._ahead is not None
                    for each in broker.network.connections
                ):
                    await trio.sleep(0.01)
            got = (await reader.ask(fetch(broker, 12), VERSION)).responses[0].partitions[0].records
            assert bytes([12]) * VALUE in bytes(got)


async def a_mistake_there_ends_nobody(path: Path) -> None:
    def mistaken(lane: fetch_lane.FetchLane, now: float) -> None:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_lane.FetchLane, "look_ahead", mistaken)
        async with running_broker(path) as broker, Asking(broker) as client, Asking(broker) as reader:
            await broker.create_missing_topics(TOPICS)
            for number in range(BATCHES):
                await client.ask(produce(broker, records(bytes([number]) * VALUE), 9), 9)
            for offset in (0, 4, 8, 12):
                got = (await reader.ask(fetch(broker, offset), VERSION)).responses[0].partitions[0].records
                assert bytes([offset]) * VALUE in bytes(got)


@on_trio
async def test_the_network_looks_ahead_when_it_is_idle(tmp_path: Path) -> None:
    await the_network_looks_ahead_when_it_is_idle(tmp_path)


@on_trio
async def test_a_mistake_there_ends_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "trioka.network"):
        await a_mistake_there_ends_nobody(tmp_path)
    assert any(record.exc_info for record in caplog.records)


NETWORK_MISTAKES = [
    ("                self._readers.append(connection)\n", "", the_network_looks_ahead_when_it_is_idle),
    (
        "        except Exception as error:\n            log.error",
        "        except OSError as error:\n            log.error",
        a_mistake_there_ends_nobody,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), NETWORK_MISTAKES)
def test_a_mistake_of_the_network_is_noticed(
    tmp_path: Path, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_file, "Network", planted(network, right, wrong).Network)

    async def in_time() -> None:
        with trio.fail_after(10):
            await rule(tmp_path)

    with pytest.raises((Exception, BaseExceptionGroup)):
        trio.run(in_time)
