"""The reason of a failed handshake with another node."""

import ssl
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed
from support.serving import on_trio

from trioka.broker.peers import tls_socket
from trioka.broker.peers.peer_socket import NotSecured
from trioka.broker.security.tls.context import ClientTls


class LeavingPeer:
    """A socket to a peer that answers the first bytes by a handshake message that does not exist, and is gone then."""

    def __init__(self) -> None:
        self._has_sent = False

    async def send(self, data: memoryview) -> int:
        if self._has_sent:
            raise BrokenPipeError
        self._has_sent = True
        return len(data)

    async def recv_into(self, buffer: memoryview) -> int:
        answer = b"\x16\x03\x03\x00\x04\xff\x00\x00\x00"
        buffer[: len(answer)] = answer
        return len(answer)


async def failed_handshake(module: ModuleType) -> Exception:
    settings = ClientTls(ssl.create_default_context(), True, frozenset())
    peer: Any = LeavingPeer()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller judges it
        await module.TlsSocket(peer, settings, "localhost").handshake(settings)
    return caught.value


@on_trio
async def test_the_reason_is_that_of_the_handshake_though_the_peer_does_not_take_the_alert() -> None:
    await the_reason_is_kept(tls_socket)


async def the_reason_is_kept(module: ModuleType) -> None:
    error = await failed_handshake(module)
    assert isinstance(error, NotSecured)
    assert "TLS failed: unexpected message" in str(error)


def test_a_planted_mistake_is_noticed() -> None:
    assert_noticed(tls_socket, "with suppress(OSError):", "if True:", on_trio(the_reason_is_kept))
