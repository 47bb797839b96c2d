"""Throttled clients: their throttle times, and that they are not read from."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time

import pytest
import trio
from support.fast_paths import connected, framed, produce, records, said
from support.quotas import ANONYMOUS, SteppedClock, set_quota
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.network.limits.charge import Charge, timed
from trioka.protocol.codec import decode
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceResponse

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@asynccontextmanager
async def broker_with_topic(directory: Path, **settings: str) -> AsyncIterator[tuple[Broker, SteppedClock]]:
    """The clock is that of the quotas only."""
    async with running_broker(directory, None, **settings) as broker:
        await broker.create_missing_topics({"t": 1})
        clock = SteppedClock()
        broker.client_quotas._clock = clock
        yield broker, clock


def throttle_times(answers: bytes, version: int) -> list[int]:
    found, at = [], 0
    while at < len(answers):
        size = int.from_bytes(answers[at : at + 4])
        body = answers[at + (9 if version >= 9 else 8) : at + 4 + size]
        found.append(decode(ProduceResponse, version, body).throttle_time_ms)
        at += 4 + size
    return found


def fetch(offset: int, max_bytes: int = 1 << 20, min_bytes: int = 1) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


@pytest.mark.parametrize("version", [7, 9, 12])
@pytest.mark.parametrize("fast", ["true", "false"])
@on_trio
async def test_a_produce_over_the_quota_is_appended_and_tells_how_long_to_wait(
    tmp_path: Path, version: int, fast: str
) -> None:
    async with broker_with_topic(tmp_path, trioka_fast_path_enable=fast) as (broker, _clock):
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1000.0)
        client = connected(broker)
        frame = framed(produce(broker, records(bytes(2000)), version), version, 1)
        size = len(frame) - 4
        answered = 0
        while True:
            (throttle_ms,) = throttle_times(said(client, frame), version)
            answered += 1
            if throttle_ms:
                break
        # Ten windows of a second in all: the sum may be ten times the quota, and what is over takes as long as it does.
        assert answered == 10_000 // size + 1
        assert throttle_ms == round((answered * size / 10 - 1000) / 1000 * 10_000)
        assert broker.partitions.get("t", 0).log.log_end_offset == answered
        assert not client.may_read
        assert client.muted is not None
        assert said(client, frame) == b""  # it is not served, either
        assert broker.partitions.get("t", 0).log.log_end_offset == answered
        client.unmute(0.0)
        assert broker.partitions.get("t", 0).log.log_end_offset == answered + 1


@on_trio
async def test_the_last_of_pipelined_produces_tells_how_long_to_wait(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (broker, _clock):
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1000.0)
        client = connected(broker)
        frame = framed(produce(broker, records(bytes(10)), 9), 9, 1)
        said(client, frame)
        said(client, frame)
        assert client._fast_path is not None
        result = throttle_times(said(client, frame * 200), 9)
        assert len(result) == 200
        assert result[:-1] == [0] * 199
        assert result[-1] == round((202 * (len(frame) - 4) / 10 - 1000) / 1000 * 10_000)


@on_trio
async def test_connections_of_a_user_share_a_quota_whatever_their_client_ids_are(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (broker, _clock):
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1000.0)
        result = []
        for number in range(20):
            frame = framed(produce(broker, records(bytes(1000)), 9), 9, 1, client_id=f"client {number}")
            result += throttle_times(said(connected(broker), frame), 9)
        assert result[:8] == [0] * 8
        assert all(result[9:])
        assert list(broker.client_quotas.produce.counters) == [("ANONYMOUS", "")]


@on_trio
async def test_a_produce_that_is_not_answered_mutes_its_client(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (broker, _clock):
        await set_quota(broker, ANONYMOUS, producer_byte_rate=100.0)
        client = connected(broker)
        assert said(client, framed(produce(broker, records(bytes(2000)), 9, acks=0), 9, 1)) == b""
        assert client.muted is not None
        assert not client.is_closing


@on_trio
async def test_a_throttled_fetch_is_answered_without_records_and_does_not_count(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (broker, clock), ClientConnection(broker) as client:
        for _ in range(30):
            await client.ask(produce(broker, records(bytes(1000)), 9), 9)
        await set_quota(broker, ANONYMOUS, consumer_byte_rate=1000.0)
        offset = taken = 0
        while True:
            response = await client.ask(fetch(offset, max_bytes=3000), 11)
            if response.throttle_time_ms:
                break
            (partition,) = response.responses[0].partitions
            taken += len(partition.records)
            offset += len(partition.records) // 1068
        assert response.responses == []
        assert 4000 < taken <= 10_000
        (counter,) = broker.client_quotas.fetch.counters.values()
        assert counter.rate.per_second(broker.client_quotas.now_ms()) <= 1000
        clock.seconds += 60
        async with ClientConnection(broker) as other:
            response = await other.ask(fetch(offset, max_bytes=3000), 11)
            assert response.throttle_time_ms == 0
            assert response.responses[0].partitions[0].records


@on_trio
async def test_a_fetch_is_cut_to_what_the_quota_lets_through_at_once(tmp_path: Path) -> None:
    """Or it would be throttled for ever."""
    async with broker_with_topic(tmp_path) as (broker, _clock), ClientConnection(broker) as client:
        for _ in range(30):
            await client.ask(produce(broker, records(bytes(1000)), 9), 9)
        await set_quota(broker, ANONYMOUS, consumer_byte_rate=500.0)
        response = await client.ask(fetch(0, min_bytes=20_000), 11)
        (partition,) = response.responses[0].partitions
        assert 3000 < len(partition.records) <= 5000


@on_trio
async def test_the_time_of_handlers_counts_and_is_never_throttled_for_longer_than_a_window(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (broker, _clock), ClientConnection(broker) as client:
        await set_quota(broker, ANONYMOUS, request_percentage=0.000001)
        response = await client.ask(HELLO, 3)
        assert response.throttle_time_ms == 1000
        assert [each.muted is not None for each in broker.network.connections] == [True]


def noting(record: Callable[..., object], recorded: list[float]) -> Callable[..., object]:
    def noted(who: str, client_id: str, seconds: float) -> object:
        recorded.append(seconds)
        return record(who, client_id, seconds)

    return noted


@on_trio
async def test_the_time_of_the_network_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from that of the handler, and without a check: the response has left."""
    async with broker_with_topic(tmp_path) as (broker, clock), ClientConnection(broker) as client:
        await set_quota(broker, ANONYMOUS, request_percentage=1e9)
        while len(broker.network) > 1:  # the connection that has set the quota
            await trio.sleep(0.001)
        clients, recorded = broker.client_quotas, list[float]()
        for name in ("record_time", "record_network_time"):
            monkeypatch.setattr(clients, name, noting(getattr(clients, name), recorded))
        await client.ask(produce(broker, records(), 9), 9)
        while len(recorded) < 2:  # the handler's, and after the response was sent the network's
            await trio.sleep(0.001)
        handler, network = recorded
        assert handler > 0 and network > 0
        assert clients.exempt.per_second(clients.now_ms()) == 0
        await client.say(produce(broker, records(), 9, acks=0), 9)
        while not clients.exempt.per_second(clients.now_ms()):
            await trio.sleep(0.001)
        assert len(recorded) == 2
        clock.seconds += 100
        await set_quota_off(broker)
        recorded.clear()
        await client.ask(produce(broker, records(), 9), 9)
        assert not recorded
        assert broker.network.serve_socket == broker.network.serve_ready


@on_trio
async def test_a_muted_connection_is_read_from_again_when_its_time_is_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await set_quota(broker, ANONYMOUS, request_percentage=0.000001)
        assert (await client.ask(HELLO, 3)).throttle_time_ms == 1000
        await client.say(HELLO, 3)
        await client.say(HELLO, 3)
        (connection,) = broker.network.connections
        muted = connection.muted
        assert muted is not None
        await set_quota_off(broker)
        assert (await client.hear(HELLO, 3)).throttle_time_ms == 0
        assert broker.clock.now() >= muted.until
        assert (await client.hear(HELLO, 3)).throttle_time_ms == 0
        assert connection.muted is None


async def set_quota_off(broker: Broker) -> None:
    await set_quota(broker, ANONYMOUS, request_percentage=None)
    assert broker.dispatch.quotas is None


@on_trio
async def test_a_muted_client_that_leaves_is_forgotten_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1.0)
        await broker.create_missing_topics({"t": 1})
        async with ClientConnection(broker) as client:
            await client.ask(produce(broker, records(bytes(2000)), 9), 9)
            assert len(broker.purgatory) == 1
        while len(broker.network):
            await trio.sleep(0.001)
        assert len(broker.purgatory) == 0


def create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


@pytest.mark.parametrize(("version", "code"), [(6, 89), (5, 0)])
@on_trio
async def test_changes_over_the_quota_are_refused_or_only_throttled(tmp_path: Path, version: int, code: int) -> None:
    async with running_broker(tmp_path) as broker:
        clock = broker.client_quotas._clock = SteppedClock()
        await set_quota(broker, ANONYMOUS, controller_mutation_rate=1.0)
        async with ClientConnection(broker) as client:
            response = await client.ask(create("first", 20), version)
            assert response.topics[0].error_code == 0
            # The bucket holds eleven permits, and is overdrawn by nine.
            assert response.throttle_time_ms == (0 if code else 9000)
        async with ClientConnection(broker) as client:
            response = await client.ask(create("second", 3), version)
            assert response.topics[0].error_code == code
            assert response.throttle_time_ms == (9000 if code else 12_000)
            if code:
                assert response.topics[0].error_message == "The throttling quota has been exceeded."
        clock.seconds += 15
        async with ClientConnection(broker) as client:
            response = await client.ask(create("third", 1), version)
            assert response.topics[0].error_code == 0
            assert response.throttle_time_ms == 0


@on_trio
async def test_a_handler_that_waits_is_charged_for_the_time_in_which_it_works(tmp_path: Path) -> None:
    steps: list[str] = []

    async def handler(charge: Charge) -> str:
        for _ in range(2):
            until = perf_counter() + 0.02
            while perf_counter() < until:
                pass
            steps.append("worked")
            await trio.sleep(0.2)
        assert charge.is_running
        with trio.move_on_after(0):
            await trio.sleep_forever()
        return "response"

    charge = Charge(1, is_exempt=False)
    before = process_time()
    assert await timed(handler(charge), charge) == "response"
    assert steps == ["worked", "worked"]
    assert charge.time_s >= 0.04  # and not the time in which it waited:
    assert charge.time_s < 0.4 or process_time() - before > 0.3


@on_trio
async def test_a_change_that_waits_for_the_metadata_is_charged_for_its_work(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await set_quota(broker, ANONYMOUS, request_percentage=1e9)
        await client.ask(create("topic", 1000), 7)
        (counter,) = broker.client_quotas.request.counters.values()
        assert counter.rate._total > 0.1  # a thousand partitions take more than a millisecond
