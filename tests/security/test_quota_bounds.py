"""Quotas and clients at the bounds: quotas of almost nothing, throttle times of weeks, endless names."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import trio
from mutants.plant import assert_noticed
from support.fast_paths import framed, produce, records
from support.quotas import ANONYMOUS, set_quota
from support.serving import LISTENER, ClientConnection, on_trio, running_broker

from trioka.broker.config.layers import Config
from trioka.broker.network.limits.channel_mute import ChannelMute
from trioka.broker.security import client_quotas
from trioka.cluster import quota_rates
from trioka.cluster.image.quotas import Quotas, quota_entity, quota_record
from trioka.cluster.quota_rates import MAX_THROTTLE_MS
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SMALLEST = 5e-324
ENDLESS_NAME = 32_000


@pytest.fixture
def rates() -> ModuleType:
    return quota_rates


def test_a_quota_of_almost_nothing_has_the_longest_throttle_time(rates: ModuleType) -> None:
    rate, bucket = rates.Rate(11, 1000), rates.TokenBucket(11, 1000)
    rate.record(1, 0)
    assert rate.throttle_ms(SMALLEST, 0) == MAX_THROTTLE_MS
    bucket.take(1, SMALLEST, 0)
    assert bucket.throttle_ms(SMALLEST, 0) == MAX_THROTTLE_MS


def test_a_record_within_a_quota_is_throttled_as_by_two_calls(rates: ModuleType) -> None:
    for seed in range(40):
        random, quota, now_ms = Random(seed), 20.0 * (seed + 1), 0
        both, one = rates.Rate(11, 1000), rates.Rate(11, 1000)
        for _ in range(200):
            now_ms += random.choice((50, 500, 500, 3000, 9000, 12_000))
            value = random.randrange(-400, 500)  # what a throttled fetch records is taken back
            both.record(value, now_ms)
            assert one.record_within(value, quota, now_ms) == both.throttle_ms(quota, now_ms)


def test_names_of_clients_that_are_kept_are_short() -> None:
    quotas = Quotas()
    quotas.replay(quota_record(quota_entity({"client-id": None}), client_quotas.PRODUCE, 1.0))
    long = "x" * ENDLESS_NAME + "with a quota"
    quotas.replay(quota_record(quota_entity({"client-id": long}), client_quotas.PRODUCE, 2.0))
    table = client_quotas.QuotaTable(client_quotas.PRODUCE, 11, 1000)
    table.load(quotas)
    for number in range(20):
        assert table.counter("ann", "x" * ENDLESS_NAME + str(number), 0).limit == 1.0
    assert table.counter("ann", long, 0).limit == 2.0
    # Clients whose names begin alike have a counter each.
    assert sorted(len(client_id) for _, client_id in table.counters) == [255] * 20 + [len(long)]


def test_fast_paths_forget_counters_that_are_not_kept() -> None:
    quotas, clock = Quotas(), SteppedClock()
    quotas.replay(quota_record(quota_entity({"client-id": None}), client_quotas.PRODUCE, 1.0))
    clients = client_quotas.ClientQuotas(Config({"log.dirs": "x"}), clock)
    clients.load(quotas)
    before = clients.usage("User:ann", "one").produce
    assert clients.usage("User:ann", "one").produce is before
    clock.seconds += 7200
    clients.expire()
    after = clients.usage("User:ann", "one").produce
    assert after is not before
    assert after in clients.produce.counters.values()


class SteppedClock:
    seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return 0


@on_trio
async def test_requests_are_answered_whatever_the_quota_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        async with ClientConnection(broker) as client:
            await client.ask(produce(broker, records(), 9), 9)
        for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
            for quota in (1e-7, 0.0001) if key.endswith("byte_rate") else (SMALLEST, 0.0001, float("inf")):
                if quota == 0.0001 and key.endswith("byte_rate"):
                    continue  # no whole number, and refused
                await set_quota(broker, ANONYMOUS, **{key: quota})
                for request, version in (
                    (produce(broker, records(), 9), 9),
                    (FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=0, topics=[query()]), 11),
                    (create(f"{key}-{quota}".replace("+", "")), 7),
                    (HELLO, 3),
                ):
                    async with ClientConnection(broker) as client:
                        with trio.fail_after(10):
                            response = await client.ask(request, version)
                        assert 0 <= response.throttle_time_ms <= MAX_THROTTLE_MS
                await set_quota(broker, ANONYMOUS, **{key: None})


def query() -> FetchRequest.Topic:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest.Topic(topic="t", partitions=[partition])


def create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=20, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


@on_trio
async def test_connections_that_were_muted_for_weeks_leave_nothing_behind(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1e-7)
        frame = framed(produce(broker, records(), 9), 9, 1)
        for _ in range(400):
            async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as stream:
                await stream.send_all(frame)
                await stream.receive_some(4096)
        while len(broker.network):
            await trio.sleep(0.001)
        assert len(broker.purgatory) == 0
        kept = [entry[2] for entry in broker.purgatory._deadlines if isinstance(entry[2], ChannelMute)]
        assert len(kept) <= 200
        assert all(mute._connection.is_closed for mute in kept)


@on_trio
async def test_a_broker_with_muted_connections_stops(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with running_broker(tmp_path) as broker:
            await broker.create_missing_topics({"t": 1})
            await set_quota(broker, ANONYMOUS, producer_byte_rate=1e-7)
            async with ClientConnection(broker) as client:
                response = await client.ask(produce(broker, records(), 9), 9)
                assert response.throttle_time_ms == MAX_THROTTLE_MS
                broker.stop()
                assert await client._stream.receive_some(1) == b""


RATE_RULES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "floor(milliseconds + 0.5) if milliseconds < MAX_THROTTLE_MS else MAX_THROTTLE_MS",
        "min(floor(milliseconds + 0.5), MAX_THROTTLE_MS)",
        test_a_quota_of_almost_nothing_has_the_longest_throttle_time,
    ),
    ("and now_ms < self._expires_at", "", test_a_record_within_a_quota_is_throttled_as_by_two_calls),
    (
        "total <= quota * self._shortest_s",
        "total <= quota * self._shortest_s * 1.1",
        test_a_record_within_a_quota_is_throttled_as_by_two_calls,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), RATE_RULES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(quota_rates, right, wrong, rule)
