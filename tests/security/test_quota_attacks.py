"""Clients that try to get around their quotas, over real sockets and with the real clock."""

from pathlib import Path

import trio
from support.fast_paths import framed, produce, records
from support.quotas import ANONYMOUS, set_quota
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS, SaslClient
from support.serving import HOST, LISTENER, ClientConnection, on_trio, on_trio_patiently, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
QUOTA = 100_000.0
BURST = 10 * QUOTA  # ten windows of a second
CONNECTIONS = 50
LESS_THAN_A_WINDOW_S = 9.0  # eleven seconds after a burst it is forgotten, and as much may come again


async def _produce_for_ever(broker: Broker, number: int) -> None:
    """Without a look at throttle_time_ms, and with another client id each time."""
    async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as stream:
        count = 0
        while True:
            count += 1
            request = produce(broker, records(bytes(4000)), 9)
            await stream.send_all(framed(request, 9, count, client_id=f"{number}-{count}"))
            await stream.receive_some(65536)


@on_trio_patiently
async def test_many_connections_with_ever_new_client_ids_get_no_more_than_the_quota(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        await set_quota(broker, ANONYMOUS, producer_byte_rate=QUOTA)
        log = broker.partitions.get("t", 0).log
        async with trio.open_nursery() as nursery:
            for number in range(CONNECTIONS):
                nursery.start_soon(_produce_for_ever, broker, number)
            await trio.sleep(LESS_THAN_A_WINDOW_S)
            nursery.cancel_scope.cancel()
        # What is over the quota is appended, and makes its connection wait for longer: with fifty of them that is 60 %
        # more in the first window, by Kafka's arithmetic. Without a quota it is a hundred times as much.
        assert BURST * 0.9 <= log.appended_bytes <= BURST * 2
        assert len(broker.client_quotas.produce.counters) == 1


@on_trio
async def test_logins_are_not_charged_to_clients_without_a_name(tmp_path: Path) -> None:
    """Whoever tries to log in again and again would delay the logins of everybody: all of them have no name yet."""
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker:
        await set_quota(broker, {"user": None}, request_percentage=1e-6)
        while len(broker.network):  # the connection that has set the quota
            await trio.sleep(0.001)
        broker.client_quotas.request.counters.clear()
        for _ in range(2):
            async with SaslClient(broker) as client:
                assert (await client.ask(HELLO, 3)).throttle_time_ms == 0
                assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
                (connection,) = [each for each in broker.network.connections if each.listener == SASL]
                assert connection.muted is None
        assert ("ANONYMOUS", "") not in broker.client_quotas.request.counters


@on_trio
async def test_a_client_that_does_not_wait_is_not_read_from(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        await set_quota(broker, ANONYMOUS, producer_byte_rate=1000.0)
        async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as stream:
            frame = framed(produce(broker, records(bytes(60_000)), 9), 9, 1)
            await stream.send_all(frame)
            await stream.receive_some(65536)
            log = broker.partitions.get("t", 0).log
            appended = log.log_end_offset
            with trio.move_on_after(1):
                while True:
                    await stream.send_all(frame)
            assert log.log_end_offset == appended
            assert sum(each.held_bytes for each in broker.network.connections) <= 1 << 20


def create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1000, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)


@on_trio_patiently
async def test_a_second_topic_of_a_thousand_partitions_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, ANONYMOUS, controller_mutation_rate=1.0)
        async with ClientConnection(broker) as client:
            first = await client.ask(create("first"), 7)
            assert first.topics[0].error_code == 0
            second = await client.ask(create("second"), 7)
            assert second.topics[0].error_code == 89
            assert 900_000 < second.throttle_time_ms <= 989_000
            (connection,) = broker.network.connections
            assert not connection.may_read


@on_trio_patiently
async def test_a_client_of_an_old_version_is_only_made_to_wait(tmp_path: Path) -> None:
    """Before version 6 there is no THROTTLING_QUOTA_EXCEEDED."""
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, ANONYMOUS, controller_mutation_rate=1.0)
        async with ClientConnection(broker) as client:
            first = await client.ask(create("first"), 5)
            assert first.topics[0].error_code == 0
            (connection,) = broker.network.connections
            assert not connection.may_read
            assert 900_000 < first.throttle_time_ms <= 989_000
        async with ClientConnection(broker) as other:
            second = await other.ask(create("second"), 5)
            assert second.topics[0].error_code == 0 and second.throttle_time_ms > first.throttle_time_ms


@on_trio_patiently
async def test_a_flood_of_connections_is_let_in_at_the_rate_of_its_address(tmp_path: Path) -> None:
    rate = 20
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, {"ip": HOST}, connection_creation_rate=float(rate))
        before = broker.network.accepted[LISTENER]

        async def connect_for_ever() -> None:
            while True:
                async with await trio.open_tcp_stream(*broker.addresses[LISTENER]):
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(connect_for_ever)
            await trio.sleep(LESS_THAN_A_WINDOW_S)
            nursery.cancel_scope.cancel()
        assert 9 * rate <= broker.network.accepted[LISTENER] - before <= 11 * rate
        assert len(broker.admission._held) <= 1000
