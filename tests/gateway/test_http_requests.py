"""Requests of HTTP that two servers might read differently, and bodies without a known length."""

import socket

import pytest
from support.gateway import GatewayUnderTest

PATH = b"POST /consumers/g HTTP/1.1\r\nHost: x\r\n"
INNER = b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n"


def exchange(gateway: GatewayUnderTest, *data: bytes) -> list[bytes]:
    """The status lines of the responses, until the server closes the connection or answers no more."""
    host, _, port = gateway.addresses["HTTP"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        for each in data:
            client.sendall(each)
        client.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while chunk := client.recv(1 << 16):
                found += chunk
        except ConnectionResetError:
            pass
    return [line for line in found.split(b"\r\n") if line.startswith(b"HTTP/1.")]


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 0\r\nContent-Length: 50\r\n",
        b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Transfer-Encoding: identity, chunked\r\nContent-Length: 0\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length: 0x10\r\n",
        b" folded: 1\r\nContent-Length: 0\r\n",
        b"Content-Length: 0\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_a_request_whose_length_is_doubtful_hides_no_second_request(gateway: GatewayUnderTest, headers: bytes) -> None:
    statuses = exchange(gateway, PATH + headers + b"\r\n" + b"0\r\n\r\n" + INNER)
    assert not any(b" 200 " in each for each in statuses), statuses  # the second would be answered so


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFFFF\r\nx", b"5;" + b"x" * 200_000, b"5\r\nabcdeXX"]
)
def test_chunks_that_are_none_end_the_connection(gateway: GatewayUnderTest, chunk: bytes) -> None:
    statuses = exchange(gateway, PATH + b"Transfer-Encoding: chunked\r\n\r\n", chunk)
    assert all(each.split()[1] in (b"400", b"413", b"422", b"500") for each in statuses), statuses


def test_a_body_in_many_chunks_has_the_same_limit(gateway: GatewayUnderTest) -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    try:
        statuses = exchange(gateway, PATH + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 17, b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError):
        return  # refused while it was sent
    assert [each.split()[1] for each in statuses] == [b"413"]


def test_a_header_without_end_is_refused(gateway: GatewayUnderTest) -> None:
    try:
        statuses = exchange(gateway, b"GET /topics HTTP/1.1\r\nX: ", *[b"x" * 65536] * 64)
    except (BrokenPipeError, ConnectionResetError):
        return
    assert [each.split()[1] for each in statuses] in ([b"400"], [b"431"], [])
