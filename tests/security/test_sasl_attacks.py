"""Attacks on a SASL listener by a client that writes its own bytes. Afterwards the broker still serves others."""

import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from support.sasl import FAILED, PASSWORDS, SASL, SASL_SETTINGS, SaslClient, add_scram_user, upsertion
from support.serving import ask, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

ASKED = MetadataRequest(topics=[])
SCRAM = "SCRAM-SHA-256"
GENERAL = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM}"
TRIES = 3000


@asynccontextmanager
async def attacked_broker(directory: Path, **settings: str) -> AsyncIterator[Broker]:
    """At the end it still lets the right ones in."""
    async with running_broker(directory, **{**SASL_SETTINGS, **settings}) as broker:
        await add_scram_user(broker, "alice", SCRAM, PASSWORDS["alice"])
        yield broker
        async with SaslClient(broker) as client:
            assert (await client.log_in(SCRAM, "alice", PASSWORDS["alice"])).error_code == 0
            assert (await client.ask(ASKED, 12)).cluster_id == broker.cluster_id


@on_trio
async def test_attack_3_an_unknown_mechanism_is_told_the_list(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        for mechanism in ("FOO", "", "x" * 32_000, "plain", "GSSAPI"):
            async with SaslClient(broker) as client:
                reply = await client.handshake(mechanism)
                assert (reply.error_code, reply.mechanisms) == (33, ["PLAIN", SCRAM, "SCRAM-SHA-512"])
                assert await client.is_closed()


@on_trio
async def test_attack_5_api_versions_is_asked_once(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        async with SaslClient(broker) as client:
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            assert await client.ask(ApiVersionsRequest(), 0) is None
        async with SaslClient(broker) as client:
            # A version of the future: the body is not looked at, and the answer is of version 0.
            await client.send_frame(b"\0\x12\0\x63\0\0\0\x07\xff\xff")
            answer = await client.receive_frame()
            assert answer is not None and answer[4:6] == b"\0\x23"
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            assert (await client.handshake("PLAIN")).error_code == 0


@on_trio
async def test_attack_6_a_second_handshake_ends_the_login(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        async with SaslClient(broker) as client:
            await client.handshake("PLAIN")
            reply = await client.handshake("PLAIN")
            assert (reply.error_code, reply.mechanisms) == (34, [])
            assert await client.is_closed()
        async with SaslClient(broker) as client:
            await client.log_in("PLAIN", "alice", PASSWORDS["alice"])
            assert (await client.handshake("PLAIN")).error_code == 34
            assert (await client.authenticate(b"")).error_code == 34


@on_trio
async def test_attack_8_and_9_a_frame_before_the_login_is_small(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        for size in (512 * 1024 + 1, 40_000_000, 2**31 - 1):
            async with SaslClient(broker) as client:
                await client.send(size.to_bytes(4) + b"\0\x11\0\x01")
                assert await client.is_closed()


@on_trio
async def test_attack_8_requests_before_the_login_take_little_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioka.broker.security.sasl.pre_auth.MAX_PRE_AUTH_BYTES", 1 << 20)
    async with attacked_broker(tmp_path) as broker:
        clients = [SaslClient(broker) for _ in range(8)]
        for client in clients:
            await client.__aenter__()
            with suppress(trio.BrokenResourceError):  # it is among those that are closed
                await client.send((512 * 1024).to_bytes(4) + bytes(400_000))
        closed = 0
        with trio.move_on_after(10):
            while closed < 4:
                await trio.sleep(0.02)
                closed = len(clients) - sum(each.listener == SASL for each in broker.network.connections)
        assert closed >= 4
        for client in clients:
            await client.__aexit__(None, None, None)


@on_trio
async def test_attack_13_another_protocol_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with attacked_broker(tmp_path) as broker:
        for first in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            broker.dispatch._warned_at.clear()
            caplog.clear()
            async with SaslClient(broker) as client:
                await client.send(first)
                with trio.fail_after(10):
                    while any(each.listener == SASL for each in broker.network.connections):
                        await trio.sleep(0.01)
            (record,) = (each for each in caplog.records if each.name == "trioka.dispatch")
            assert "sent HTTP" in record.getMessage() or "sent TLS" in record.getMessage()


@on_trio
async def test_attack_15_raw_messages_of_strange_sizes_close(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        for size, data in ((0, b""), (1, b"\0"), (7, b"\0alice\0"), (-1, b""), (2**31 - 1, b"x")):
            async with SaslClient(broker) as client:
                await client.handshake("PLAIN", 0)
                await client.send(size.to_bytes(4, signed=True) + data)
                assert await client.is_closed(), size


@on_trio
async def test_attack_15_short_messages_behind_a_refused_login_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the connection is closed, and while a worker thread has the message before them."""
    token = f"\0alice\0{PASSWORDS['alice']}!".encode()
    async with attacked_broker(tmp_path) as broker:
        for mechanism, message in (("PLAIN", token), ("SCRAM-SHA-256", b"n,,n=alice,r=abc"), ("SCRAM-SHA-256", b"x")):
            for size in range(8):
                async with SaslClient(broker) as client:
                    await client.handshake(mechanism, 0)
                    short = size.to_bytes(4) + bytes(size)
                    await client.send(len(message).to_bytes(4) + message + 3 * short)
                    with suppress(trio.BrokenResourceError):
                        while await client.receive_frame() is not None:
                            pass
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@on_trio
async def test_attack_16_plain_messages_that_are_none_are_refused(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        for message in (
            b"",
            b"alice",
            b"\0alice",
            b"\0\0x",
            b"\0alice\0",
            b"\0alice\0x\0",
            b"\0\xff\0\xff",
            b"x" * 9000,
        ):
            async with SaslClient(broker) as client:
                await client.handshake("PLAIN")
                reply = await client.authenticate(message)
                assert reply.error_code == FAILED and reply.error_message, message
                assert await client.is_closed()
        message = f"bob\0alice\0{PASSWORDS['alice']}".encode()
        async with SaslClient(broker) as client:
            await client.handshake("PLAIN")
            assert "different from username" in (await client.authenticate(message)).error_message


@on_trio
async def test_attack_19_a_replayed_login_fails(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        line: list[bytes] = []
        async with SaslClient(broker) as client:
            authenticate = client.authenticate

            async def record(message: bytes, version: int = 2) -> Any:
                line.append(message)
                return await authenticate(message, version)

            client.authenticate = record  # type: ignore[method-assign]
            assert (await client.log_in(SCRAM, "alice", PASSWORDS["alice"])).error_code == 0
        async with SaslClient(broker) as client:
            await client.handshake(SCRAM)
            assert (await client.authenticate(line[0])).error_code == 0
            assert (await client.authenticate(line[1])).error_code == FAILED


@on_trio
async def test_attack_20_an_unknown_user_has_the_same_salt_after_a_restart(tmp_path: Path) -> None:
    async def challenge(broker: Broker, name: str) -> tuple[str, str]:
        async with SaslClient(broker) as client:
            await client.handshake(SCRAM)
            reply = await client.authenticate(f"n,,n={name},r=abc".encode())
            assert reply.error_code == 0
            _, salt, iterations = bytes(reply.auth_bytes).decode().split(",")
            return salt, iterations

    async with attacked_broker(tmp_path) as broker:
        first = await challenge(broker, "nobody")
        assert await challenge(broker, "nobody") == first != await challenge(broker, "nobody2")
    async with attacked_broker(tmp_path) as broker:
        assert await challenge(broker, "nobody") == first


@on_trio
async def test_attack_21_23_25_scram_messages_that_are_none_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trioka.audit")
    async with attacked_broker(tmp_path) as broker:
        firsts = (
            "p=tls-unique,,n=a,r=x",
            "y,,n=a,r=x",
            "n,,n==2D,r=x",
            "n,,n=a\nb,r=x",
            "",
            "n,,n=" + "a" * 1025 + ",r=x",
        )
        for first in firsts:
            broker.logins._failures.clear()
            caplog.clear()
            async with SaslClient(broker) as client:
                await client.handshake(SCRAM)
                reply = await client.authenticate(first.encode())
                assert (reply.error_code, reply.error_message) == (FAILED, GENERAL), first
                assert await client.is_closed()
            (record,) = (each for each in caplog.records if each.name == "trioka.audit")
            assert "\n" not in record.getMessage() and len(record.getMessage()) < 1200
        for proof in (b"abc", bytes(64), bytes(32), None):
            async with SaslClient(broker) as client:
                await client.handshake(SCRAM)
                reply = await client.authenticate(b"n,,n=alice,r=abc")
                nonce = bytes(reply.auth_bytes).decode().split(",")[0]
                text = "!" if proof is None else b64encode(proof).decode()
                reply = await client.authenticate(f"c=biws,{nonce},p={text}".encode())
                assert (reply.error_code, reply.error_message) == (FAILED, GENERAL)


@on_trio
async def test_attack_26_credentials_that_are_too_weak_are_refused(tmp_path: Path) -> None:
    async with attacked_broker(tmp_path) as broker:
        async with SaslClient(broker) as client:
            reply = await client.log_in("SCRAM-SHA-512", "alice", PASSWORDS["alice"])
            assert reply.error_code == FAILED
        for changes in (
            {"iterations": 4095},
            {"iterations": 16385},
            {"iterations": 2**31 - 1},
            {"iterations": -1},
            {"salt": b""},
            {"salted_password": b""},
            {"name": ""},
            {"name": "x" * 1025},
        ):
            wanted = upsertion("eve", SCRAM, "x", **changes)
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
            (result,) = (await ask(broker, request, 0)).results
            assert result.error_code == 93, changes
        assert [name for name, _, _ in broker.metadata.access.scram_users()] == ["alice"]


@on_trio
async def test_attack_26_without_the_right_no_credential_is_set(tmp_path: Path) -> None:
    settings = {
        **SASL_SETTINGS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
    }
    async with running_broker(tmp_path, **settings) as broker, SaslClient(broker) as client:
        await client.log_in("PLAIN", "bob", PASSWORDS["bob"])
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("eve", SCRAM, "x")])
        (result,) = (await client.ask(request, 0)).results
        assert result.error_code == 31
        assert not list(broker.metadata.access.scram_users())


@on_trio
async def test_attack_49_a_re_authentication_changes_neither_name_nor_mechanism(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"connections.max.reauth.ms": "60000"}
    async with attacked_broker(tmp_path, **settings) as broker:
        async with SaslClient(broker) as client:
            await client.log_in("PLAIN", "alice", PASSWORDS["alice"])
            reply = await client.log_in("PLAIN", "bob", PASSWORDS["bob"])
            text = "Cannot change principals during re-authentication from User.alice: User.bob"
            assert (reply.error_code, reply.error_message) == (FAILED, text)
            assert await client.is_closed()
        async with SaslClient(broker) as client:
            await client.log_in("PLAIN", "alice", PASSWORDS["alice"])
            assert (await client.handshake(SCRAM)).error_code == 0
            assert await client.is_closed()
        async with SaslClient(broker) as client:
            await client.log_in("PLAIN", "alice", PASSWORDS["alice"])
            await client.handshake("PLAIN")
            assert await client.ask(ASKED, 12) is None  # nothing else in the middle of it


@on_trio
async def test_attack_59_no_password_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with attacked_broker(tmp_path) as broker:
        for name, password in PASSWORDS.items():
            async with SaslClient(broker) as client:
                await client.log_in("PLAIN", name, password)
            async with SaslClient(broker) as client:
                await client.log_in("PLAIN", name, password + "!")
        wanted = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=None)
        response = await ask(broker, DescribeConfigsRequest(resources=[wanted], include_synonyms=True), 4)
        texts = [repr(response), caplog.text, repr(broker.logins.of_listener(SASL)), repr(SaslAuthenticateRequest)]
        for name, _, credential in broker.metadata.access.scram_users():
            texts.append(repr((name, credential)))
        for text in texts:
            assert not any(password in text for password in PASSWORDS.values())
