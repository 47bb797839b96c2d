"""Changed bytes of whole logins, on a listener with SASL: the broker answers or closes, logs no internal error, and
lets the right ones in afterwards.

    TRIOKA_FUZZ_LOGINS=20000 python -m pytest tests/security/test_frame_fuzz.py      # by default a few hundred
"""

import logging
import os
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import trio
from security.test_parser_fuzz import mutated
from security.test_sasl_attacks import attacked_broker
from support.sasl import PASSWORDS, SASL, SaslClient
from support.serving import on_trio_patiently, request_frame

from trioka.broker.broker import Broker
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest

LOGINS = int(os.environ.get("TRIOKA_FUZZ_LOGINS", "300"))
AT_ONCE = 10
PAUSE_S = 0.02  # how long a client waits for more before it goes
PLAIN = f"\0alice\0{PASSWORDS['alice']}".encode()
SCRAM = b"n,,n=alice,r=abc"


def raw(token: bytes) -> bytes:
    return len(token).to_bytes(4) + token


def logins() -> list[bytes]:
    """What clients send until they are logged in, and one request behind it."""
    hello = request_frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    asked = request_frame(MetadataRequest(topics=[]), 12)
    found = []
    for mechanism, token in (("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)):
        handshake = request_frame(SaslHandshakeRequest(mechanism=mechanism), 1)
        for version in range(3):
            authenticate = request_frame(SaslAuthenticateRequest(auth_bytes=token), version)
            found.append(hello + handshake + authenticate + asked)
        found.append(request_frame(SaslHandshakeRequest(mechanism=mechanism), 0) + raw(token) + asked)
    again = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    found += [found[0] + again + request_frame(SaslAuthenticateRequest(auth_bytes=PLAIN), 2) + asked]
    found += [found[0] + request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 0) + raw(PLAIN) + asked]
    return found


async def attack(broker: Broker, data: bytes) -> None:
    async with SaslClient(broker) as client:
        with suppress(trio.BrokenResourceError), trio.move_on_after(PAUSE_S):
            await client.send(data)
            while await client.receive_frame() is not None:
                pass


@pytest.mark.parametrize("longest_session_ms", ["0", "60000"])
@on_trio_patiently
async def test_changed_logins_are_answered_or_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, longest_session_ms: str
) -> None:
    corpus, random = logins(), Random(36)
    caplog.set_level(logging.WARNING)
    settings = {
        "connection.failed.authentication.delay.ms": "0",
        "connections.max.reauth.ms": longest_session_ms,  # not 0: the client may log in again
    }
    async with attacked_broker(tmp_path, **settings) as broker:
        before = broker.metadata.offset
        for _ in range(LOGINS // AT_ONCE):
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(attack, broker, mutated(random, corpus))
        while any(each.listener == SASL for each in broker.network.connections):
            await trio.sleep(0.01)
        assert broker.metadata.offset == before and not broker.metadata.topics
    mistakes = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not mistakes, mistakes[:3]
    assert not any("Traceback" in record.getMessage() or record.exc_info for record in caplog.records)
