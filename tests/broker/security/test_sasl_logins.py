"""Logins by SASL: which mechanisms work, and what a connection may do before, during and after."""

from pathlib import Path

import pytest
import trio
from support.sasl import FAILED, PASSWORDS, SASL_SETTINGS, SaslClient, add_scram_user
from support.serving import on_trio, request_frame, running_broker

from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.metadata import MetadataRequest

ASKED = MetadataRequest(topics=[])
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@on_trio
async def test_a_user_logs_in_and_is_served(tmp_path: Path, mechanism: str) -> None:
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker:
        if mechanism != "PLAIN":
            await add_scram_user(broker, "alice", mechanism, PASSWORDS["alice"])
        async with SaslClient(broker) as client:
            result = await client.log_in(mechanism, "alice", PASSWORDS["alice"])
            assert (result.error_code, result.error_message, result.session_lifetime_ms) == (0, "", 0)
            assert (await client.ask(ASKED, 12)).cluster_id == broker.cluster_id
            (connection,) = (each for each in broker.network.connections if each.listener == "SASL")
            assert (connection.principal, connection.gate) == ("User:alice", None)
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0  # as Java clients do
            assert (await client.handshake("PLAIN")).error_code == 34


@pytest.mark.parametrize("mechanism", MECHANISMS)
@on_trio
async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(tmp_path: Path, mechanism: str) -> None:
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker:
        if mechanism != "PLAIN":
            await add_scram_user(broker, "alice", mechanism, PASSWORDS["alice"])
        answers = []
        for name in ("alice", "nobody"):
            async with SaslClient(broker) as client:
                answers.append(await client.log_in(mechanism, name, "wrong"))
                assert await client.is_closed()
        assert answers[0] == answers[1] and answers[0].error_code == FAILED
        assert broker.logins.counts_of("SASL").failed == 2


@on_trio
async def test_version_0_sends_messages_without_headers(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker:
        async with SaslClient(broker) as client:
            assert (await client.handshake("PLAIN", 0)).mechanisms == list(MECHANISMS)
            await client.send_frame(f"\0alice\0{PASSWORDS['alice']}".encode())
            assert await client.receive_frame() == b""
            assert (await client.ask(ASKED, 12)).cluster_id == broker.cluster_id
        async with SaslClient(broker) as client:
            await client.handshake("PLAIN", 0)
            await client.send_frame(b"\0alice\0wrong")
            assert await client.receive_frame() is None


@on_trio
async def test_a_request_in_the_same_segment_behind_the_login_is_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker, SaslClient(broker) as client:
        await client.handshake("PLAIN", 0)
        message = f"\0alice\0{PASSWORDS['alice']}".encode()
        await client.send(len(message).to_bytes(4) + message + request_frame(ASKED, 12))
        assert await client.receive_frame() == b""
        assert await client.receive_frame()


@on_trio
async def test_a_session_that_ends_is_renewed_or_closed(tmp_path: Path) -> None:
    settings = {**SASL_SETTINGS, "listener.name.sasl.plain.connections.max.reauth.ms": "1500"}
    async with running_broker(tmp_path, **settings) as broker, SaslClient(broker) as client:
        result = await client.log_in("PLAIN", "alice", PASSWORDS["alice"])
        assert result.session_lifetime_ms == 1500
        assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
        assert (await client.handshake("PLAIN")).error_code == 34  # not twice in a second
        assert (await client.ask(ASKED, 12)).cluster_id == broker.cluster_id
        await trio.sleep(1.6)
        assert await client.ask(ASKED, 12) is None
        counts = broker.logins.counts_of("SASL")
        assert (counts.successful, counts.reauthentications, counts.expired_killed) == (1, 1, 1)


@on_trio
async def test_a_login_that_does_not_come_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SASL_SETTINGS) as broker, SaslClient(broker) as client:
        with trio.fail_after(5):
            while not any(each.gate for each in broker.network.connections):
                await trio.sleep(0.01)
        (connection,) = (each for each in broker.network.connections if each.gate is not None)
        assert connection.gate is not None and connection.gate.deadline is not None
        broker.network.close_idle(600, 600)
        assert not connection.is_closed
        connection.gate.deadline = broker.clock.now() - 1
        broker.network.close_idle(600, 600)
        assert await client.is_closed()


@on_trio
async def test_failures_of_one_address_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**SASL_SETTINGS, "connection.failed.authentication.delay.ms": "0"}
    async with running_broker(tmp_path, **settings) as broker:
        now = broker.clock.now()
        broker.clock = type("Stopped", (), {"now": lambda self: now, "now_ms": lambda self: 0})()
        for later_s in (0, 0, 0, 2):
            now += later_s
            async with SaslClient(broker) as client:
                await client.log_in("PLAIN", "alice", "wrong")
        lines = [each.getMessage() for each in caplog.records if each.name == "trioka.audit"]
        assert len(lines) == 2 and "alice by PLAIN from 127.0.0.1" in lines[0]
        assert "2 more failures of this address were not logged" in lines[1]
