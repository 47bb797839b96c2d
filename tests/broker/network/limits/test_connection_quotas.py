"""Who may connect."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from support.quotas import set_quota
from support.serving import HOST, LISTENER, ClientConnection, ask, on_trio, running_broker

from trioka.broker.network.limits.connection_quotas import UNLIMITED, ConnectionLimits, ConnectionQuotas
from trioka.cluster.image.quotas import Quotas, quota_record
from trioka.protocol.messages.api_versions import ApiVersionsRequest

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def limits(
    *,
    total: int = UNLIMITED,
    of_listener: int = UNLIMITED,
    per_address: int = UNLIMITED,
    per_second: int = UNLIMITED,
    listener_per_second: int = UNLIMITED,
    overrides: dict[str, int] | None = None,
    is_protected: bool = False,
) -> ConnectionLimits:
    return ConnectionLimits(
        total=total,
        per_second=per_second,
        of_listener=of_listener,
        listener_per_second=listener_per_second,
        per_address=per_address,
        overrides=overrides or {},
        is_protected=is_protected,
    )


def new_quotas() -> ConnectionQuotas:
    return ConnectionQuotas(11, 1000)


def test_without_limits_everybody_may_connect() -> None:
    quotas = new_quotas()
    for _ in range(10_000):
        assert quotas.has_place("A", limits())
        assert quotas.note_arrival("A", "10.0.0.1", limits(), 0) == 0
        assert quotas.acquire("A", "10.0.0.1", limits())
    assert len(quotas) == 10_000
    assert quotas.pause_ms("A", 0) == 0


def test_a_listener_waits_for_a_place_of_the_broker_or_its_own() -> None:
    quotas = new_quotas()
    for listener in ("A", "A", "B"):
        assert quotas.acquire(listener, "10.0.0.1", limits())
    assert not quotas.has_place("B", limits(total=3))
    assert quotas.has_place("B", limits(of_listener=2))
    assert not quotas.has_place("A", limits(of_listener=2))
    quotas.release("A", "10.0.0.1")
    assert quotas.has_place("A", limits(of_listener=2))
    assert quotas.has_place("B", limits(total=3))


def test_the_listener_between_brokers_does_not_wait_for_a_place_of_the_broker() -> None:
    quotas = new_quotas()
    assert quotas.acquire("A", "10.0.0.1", limits())
    assert quotas.has_place("INTERNAL", limits(total=1, is_protected=True))
    assert quotas.acquire("INTERNAL", "10.0.0.2", limits())
    assert quotas.is_overfull(limits(total=1, is_protected=True))
    assert not quotas.is_overfull(limits(total=2, is_protected=True))
    assert not quotas.has_place("INTERNAL", limits(of_listener=1, is_protected=True))


def test_no_more_than_so_many_from_one_address() -> None:
    quotas, strict = new_quotas(), limits(per_address=1)
    assert quotas.acquire("A", "10.0.0.1", strict)
    assert not quotas.acquire("A", "10.0.0.1", strict)
    assert len(quotas) == 1
    assert quotas.acquire("A", "10.0.0.2", strict)
    quotas.release("A", "10.0.0.1")
    assert quotas.acquire("A", "10.0.0.1", strict)


def test_single_addresses_have_limits_of_their_own() -> None:
    parsed = ConnectionLimits.parse_overrides("10.0.0.1:2, [::1]:5 ,::ffff:10.0.0.3:7,nonsense")
    assert parsed == {"10.0.0.1": 2, "0:0:0:0:0:0:0:1": 5, "10.0.0.3": 7}
    quotas, strict = new_quotas(), limits(per_address=0, overrides=parsed)
    assert [quotas.acquire("A", "10.0.0.1", strict) for _ in range(3)] == [True, True, False]
    assert not quotas.acquire("A", "10.0.0.2", strict)


@pytest.mark.parametrize("strict", [limits(per_second=2), limits(listener_per_second=2)])
def test_a_listener_pauses_after_too_many_in_a_second(strict: ConnectionLimits) -> None:
    quotas = new_quotas()
    for _ in range(20):  # ten seconds' worth at once
        assert quotas.note_arrival("A", "a", strict, 0) == 0
    assert quotas.pause_ms("A", 0) == 0
    assert quotas.note_arrival("A", "a", strict, 0) == 0
    assert quotas.pause_ms("A", 0) == 500  # one too many, at two in a second
    assert quotas.pause_ms("A", 500) == 0
    for _ in range(20):
        quotas.note_arrival("A", "a", strict, 500)
    assert quotas.pause_ms("A", 500) == 1000  # one window at most


def test_an_address_that_comes_too_often_is_refused_and_does_not_count() -> None:
    quotas, image = new_quotas(), Quotas()
    image.replay(quota_record((("ip", "10.0.0.1"),), "connection_creation_rate", 1.0))
    quotas.load(image)
    assert [quotas.note_arrival("A", "10.0.0.1", limits(), 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert quotas.note_arrival("A", "10.0.0.2", limits(), 0) == 0
    image.replay(quota_record((("ip", None),), "connection_creation_rate", 2.0))
    quotas.load(image)
    assert [quotas.note_arrival("A", "10.0.0.2", limits(), 0) for _ in range(21)] == [0] * 20 + [500]
    assert quotas.note_arrival("A", "10.0.0.1", limits(), 11_000) == 0


def test_a_quota_of_a_host_counts_for_its_addresses() -> None:
    quotas, image = new_quotas(), Quotas()
    image.replay(quota_record((("ip", "here.test"),), "connection_creation_rate", 1.0))
    image.replay(quota_record((("ip", "10.0.0.2"),), "connection_creation_rate", 2.0))
    assert quotas.load(image) == ["here.test"]
    assert [quotas.note_arrival("A", "10.0.0.1", limits(), 0) for _ in range(12)] == [0] * 12
    quotas.resolved("here.test", {"10.0.0.1", "10.0.0.2"})
    assert [quotas.note_arrival("A", "10.0.0.1", limits(), 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert [quotas.note_arrival("A", "10.0.0.2", limits(), 0) for _ in range(21)] == [0] * 20 + [500]
    image.replay(quota_record((("ip", "here.test"),), "connection_creation_rate", None))
    assert quotas.load(image) == []
    quotas.resolved("here.test", {"10.0.0.3"})  # too late
    assert [quotas.note_arrival("A", "10.0.0.3", limits(), 0) for _ in range(12)] == [0] * 12


@on_trio
async def test_the_name_of_a_host_is_looked_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, {"ip": "localhost"}, connection_creation_rate=1_000.0)
        limited = broker.admission.quotas
        while HOST not in limited._address_quotas:
            await trio.sleep(0.001)
        assert (await ask(broker, HELLO, 3)).error_code == 0
        assert HOST in limited._address_rates


@on_trio
async def test_a_client_waits_until_another_one_has_gone(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_connections=1) as broker:
        async with ClientConnection(broker) as first:
            assert (await first.ask(HELLO, 3)).error_code == 0
            second = await trio.open_tcp_stream(*broker.addresses[LISTENER])
            while not broker.network._waiting_listeners:
                await trio.sleep(0.001)
            assert len(broker.network) == 1
        async with second:
            while not broker.network.connections:
                await trio.sleep(0.001)
        while broker.network.connections:
            await trio.sleep(0.001)
        async with ClientConnection(broker) as third:
            assert (await third.ask(HELLO, 3)).error_code == 0


@on_trio
async def test_connections_that_come_too_fast_are_closed_later(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, {"ip": HOST}, connection_creation_rate=2.0)
        result = []
        for _ in range(22):
            async with ClientConnection(broker) as client:
                try:
                    result.append(await client.ask(HELLO, 3) is not None)
                except trio.BrokenResourceError:  # closed before the request was read
                    result.append(False)
        assert result[:20] == [True] * 20
        assert not all(result)
        assert not broker.admission._held


@on_trio
async def test_sockets_that_are_held_are_closed_when_the_broker_stops(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quota(broker, {"ip": HOST}, connection_creation_rate=1.0)
        streams = [await trio.open_tcp_stream(*broker.addresses["PLAINTEXT"]) for _ in range(15)]
        while not broker.admission._held:
            await trio.sleep(0.001)
    assert not broker.admission._held
    for stream in streams:
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""
        await stream.aclose()
