"""What clients send before they have logged in, on listeners of each kind. Afterwards the broker serves others."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from support.certificates import authority, signed
from support.requests_by_api import REQUESTS
from support.sasl import CLOSED_S, PASSWORDS, PLAIN_JAAS, SASL, SASL_SETTINGS, SaslClient
from support.serving import HOST, on_trio_patiently, running_broker
from support.tls_broker import tls_settings

from trioka.broker import broker as broker_module
from trioka.broker.api import BROKER, SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.security import pre_auth
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.sasl.jaas import SCRAM_MODULE

OPEN, SECURE, MTLS = "PLAINTEXT", "SECURE", "MTLS"
BEFORE_LOGIN = (17, 18, 36)
ASKED = MetadataRequest(topics=[])
AUTHORITY = authority()
SERVER, ANN = signed(AUTHORITY), signed(AUTHORITY, "CN=ann")
TAGGED_FIELDS: Final = 20_000_000
MAX_SENT_BYTES: Final = 24 << 20  # what the kernel may take of a client that does not notice yet that it is closed
# ApiVersions v3, correlation id, no client id, and the number of tagged fields as a varint.
HEADER = b"\0\x12\0\x03\0\0\0\x07\xff\xff" + bytes((0x80, 0xDA, 0xC4, 0x09))


class AttackedBroker:
    """A broker with four listeners."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        trusted = ssl.create_default_context(cafile=str(directory / "authority.pem"))
        with_own = ssl.create_default_context(cafile=str(directory / "authority.pem"))
        own = ANN.write(directory / "ann.pem")
        with_own.load_cert_chain(own)
        self._contexts = {SECURE: trusted, MTLS: with_own}

    def client(self, listener: str) -> SaslClient:
        return SaslClient(self.broker, listener, self._contexts.get(listener))

    async def is_alive(self) -> bool:
        for listener in (SASL, SECURE):
            async with self.client(listener) as client:
                assert (await client.log_in("PLAIN", "alice", PASSWORDS["alice"])).error_code == 0
                assert (await client.ask(ASKED, 12)).cluster_id == self.broker.cluster_id
        return True


@asynccontextmanager
async def attacked(directory: Path) -> AsyncIterator[AttackedBroker]:
    settings: dict[str, Any] = {
        **tls_settings(SERVER, AUTHORITY, directory),
        **SASL_SETTINGS,
        "listeners": f"{OPEN}://{HOST}:0,{SASL}://{HOST}:0,{SECURE}://{HOST}:0,{MTLS}://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        f"{SASL}:SASL_PLAINTEXT,{SECURE}:SASL_SSL,{MTLS}:SSL",
        "listener.name.mtls.ssl.client.auth": "required",
        "plain.sasl.jaas.config": f"{PLAIN_JAAS};",
        "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    settings.pop("listener.security.protocol.map")
    async with running_broker(directory / "data", **settings) as broker:
        found = AttackedBroker(broker, directory)
        yield found
        assert await found.is_alive()


@pytest.mark.parametrize("listener", [SASL, SECURE])
@on_trio_patiently
async def test_attack_1_no_api_is_served_before_the_login(tmp_path: Path, listener: str) -> None:
    async with attacked(tmp_path) as found:
        before, tried = found.broker.metadata.offset, 0
        for key, spec in SUPPORTED_APIS.items():
            if not spec.listeners & BROKER or key in BEFORE_LOGIN:
                continue
            for version in range(spec.first, spec.last + 1):
                request = REQUESTS[key](version, lambda _: bytes(16))
                if version not in type(request).__versions__:
                    continue
                async with found.client(listener) as client:
                    if version == spec.last:
                        await client.handshake("PLAIN")
                    assert await client.ask(request, version) is None, (key, version)
                tried += 1
        assert tried > 200
        assert found.broker.metadata.offset == before and not found.broker.metadata.topics
        assert not any(each.listener == listener for each in found.broker.network.connections)


@pytest.mark.parametrize("listener", [SASL, SECURE])
@on_trio_patiently
async def test_attack_2_sasl_authenticate_before_the_handshake_closes(tmp_path: Path, listener: str) -> None:
    async with attacked(tmp_path) as found:
        for version in range(3):
            async with found.client(listener) as client:
                message = f"\0alice\0{PASSWORDS['alice']}".encode()
                assert await client.authenticate(message, version) is None


@pytest.mark.parametrize("listener", [OPEN, SASL, SECURE, MTLS])
@on_trio_patiently
async def test_attack_9_a_header_with_many_tagged_fields_closes(tmp_path: Path, listener: str) -> None:
    """CVE-2026-111115."""
    async with attacked(tmp_path) as found:
        served = 0
        async with found.client(SASL) as other, trio.open_nursery() as nursery:
            await other.log_in("PLAIN", "alice", PASSWORDS["alice"])

            async def go_on() -> None:
                nonlocal served
                while True:
                    assert (await other.ask(ASKED, 12)).cluster_id == found.broker.cluster_id
                    served += 1

            nursery.start_soon(go_on)
            sent = await send_tagged_fields(found.client(listener), 2 * TAGGED_FIELDS)
            if listener in (SASL, SECURE):
                assert sent < MAX_SENT_BYTES, "the announced size should have closed it"
                # As large as a frame before the login may be.
                assert await send_tagged_fields(found.client(listener), 512 * 1024 - len(HEADER)) <= 512 * 1024 + 4
            at = served
            while served < at + 10:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def send_tagged_fields(client: SaslClient, size: int) -> int:
    """Sends a request whose header has so many bytes of empty tagged fields, and waits until it is closed. Returns how
    many bytes were sent until then."""
    fields = b"".join(bytes((number % 127 + 1, 0)) for number in range(1 << 15))
    sent = 0
    async with client:
        with suppress(trio.BrokenResourceError):
            await client.send((len(HEADER) + size).to_bytes(4) + HEADER)
            sent = 4 + len(HEADER)
            while (left := size - (sent - 4 - len(HEADER))) > 0:
                part = fields[:left]
                await client.send(part)
                sent += len(part)
        assert await client.is_closed()
    return sent


@pytest.mark.parametrize("listener", [SASL, SECURE])
@on_trio_patiently
async def test_attack_8_a_client_that_does_not_go_on_is_closed(
    tmp_path: Path, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the time for a login, whatever it has sent: a frame in part, a handshake, a byte now and then."""
    monkeypatch.setattr(broker_module, "IDLE_CHECK_S", 0.02)
    async with attacked(tmp_path) as found:
        monkeypatch.setattr(pre_auth, "MAX_LOGIN_S", 0.5)
        async with found.client(listener) as client:
            await client.send((512 * 1024).to_bytes(4) + HEADER)
            assert await client.is_closed()
        async with found.client(listener) as client:
            await client.handshake("PLAIN")
            assert await client.is_closed()
        async with found.client(listener) as client:
            await client.send((512 * 1024).to_bytes(4) + HEADER)
            with suppress(trio.BrokenResourceError), trio.fail_after(CLOSED_S):
                while True:
                    await client.send(b"\x01\x00")
                    await trio.sleep(0.01)
        monkeypatch.undo()
