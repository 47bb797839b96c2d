"""A client that connects to a port of another protocol gets an error that names it; a right port answers."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.command_line import at, broker_at, command, home

from trioka.cli.client.connection import Connection, ConnectionClosed
from trioka.cli.terminal.failure import Exit, Failure
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

__all__ = ["at", "home"]

Answer = Callable[[socket.socket], None]


@contextmanager
def http_server(answer: Answer) -> Iterator[str]:
    """The address of a server that does this to each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as client, suppress(OSError):
                        client.settimeout(5)
                        answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def says(data: bytes) -> Answer:
    def answer(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(data)

    return answer


def waits(client: socket.socket) -> None:
    client.recv(4096)
    client.recv(4096)


@pytest.mark.parametrize(
    ("answer", "code", "sentence"),
    [
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "TRK-2004", "answered in HTTP"),
        (says(bytes.fromhex("15030300020250")), "TRK-2003", "expects TLS"),
        (says(b""), "TRK-2007", "closed the connection without an answer"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "TRK-2009", "did not answer in Kafka's protocol"),
        (says(b"\0\0\0\x08somebody"), "TRK-2009", "did not answer in Kafka's protocol"),
        (says(b"\x7f\xff\xff\xff"), "TRK-2009", "did not answer in Kafka's protocol"),
        (waits, "TRK-2005", "did not answer within 0.3 s"),
    ],
    ids=["http", "tls", "hang-up", "ssh", "garbage", "huge", "silence"],
)
def test_a_wrong_http_server_is_named(answer: Answer, code: str, sentence: str) -> None:
    with http_server(answer) as address:
        ended = command("topics", "list", "-b", address, "--timeout", "300ms")
    assert ended.code == Exit.UNREACHABLE
    assert sentence in ended.stderr and address in ended.stderr and f"[{code} " in ended.stderr, ended.stderr
    assert f"more: trioka explain {code}" in ended.stderr
    assert command("explain", code).code == Exit.OK


def test_a_closed_port_and_a_host_that_does_not_exist_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = command("topics", "list", "-b", f"127.0.0.1:{port}")
    assert refused.code == Exit.UNREACHABLE and f"nothing listens on 127.0.0.1:{port}" in refused.stderr
    unknown = command("topics", "list", "-b", "no-such-host.invalid:9092")
    assert unknown.code == Exit.UNREACHABLE and "there is no host 'no-such-host.invalid'" in unknown.stderr


def test_the_second_bootstrap_server_is_asked_when_the_first_is_away(at: str) -> None:
    assert command("topics", "list", "-b", f"127.0.0.1:1,{at}").code == Exit.OK


def test_an_advertised_listener_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as free,
        broker_at(tmp_path, advertised_listeners=f"PLAINTEXT://127.0.0.1:{free.getsockname()[1]}") as address,
    ):
        port = free.getsockname()[1]
        free.close()
        ended = command("topics", "create", "orders", "-b", address)
        assert ended.code == Exit.UNREACHABLE
        assert f"broker 1 advertises 127.0.0.1:{port}" in ended.stderr and "TRK-2006" in ended.stderr
        sick = command("doctor", "-b", address, "-o", "json")
        assert sick.code == Exit.UNHEALTHY
        assert [row["status"] for row in sick.rows if row["check"] == "advertised listener"] == ["failed"]


def test_tls_to_a_plain_listener_is_named(at: str, home: Path) -> None:
    (home / "client.properties").write_text("security.protocol=SSL\n")
    ended = command("topics", "list", "-b", at, "--command-config", str(home / "client.properties"))
    assert ended.code == Exit.UNREACHABLE
    assert "did not answer in TLS" in ended.stderr and "TRK-2008" in ended.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost, in one file, which only a test trusts."""
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        ["openssl", *options, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return folder / "both.pem"


@contextmanager
def behind_tls(address: str, certificate: Path) -> Iterator[str]:
    """A TLS listener before a broker: it forwards in plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    host, port = address.split(":")

    def pass_on(client: socket.socket) -> None:
        with (
            context.wrap_socket(client, server_side=True) as inside,
            socket.create_connection((host, int(port))) as out,
        ):
            while True:
                size = inside.recv(4)
                if not size:
                    return
                left = int.from_bytes(size)
                out.sendall(size)
                while left:
                    more = inside.recv(left)
                    out.sendall(more)
                    left -= len(more)
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4]):
                    answer += out.recv(1 << 16)
                inside.sendall(answer)

    with http_server(pass_on) as tls:
        yield tls.replace("127.0.0.1", "localhost")


def test_a_broker_behind_tls_is_asked_if_its_certificate_is_trusted(at: str, certificate: Path, home: Path) -> None:
    config = home / "client.properties"
    with behind_tls(at, certificate) as address:
        plain = command("topics", "list", "-b", address, "--timeout", "5s")
        config.write_text("security.protocol=SSL\n")
        distrusted = command("topics", "list", "-b", address, "--command-config", str(config))
        config.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificate}\n")
        connection = command("doctor", "-b", address, "--command-config", str(config), "-o", "json")
    assert plain.code == Exit.UNREACHABLE and ("TRK-2003" in plain.stderr or "TRK-2007" in plain.stderr)
    assert distrusted.code == Exit.UNREACHABLE and "TRK-2011" in distrusted.stderr
    assert connection.rows[0]["status"] == "ok", connection


# -- a right port ------------------------------------------------------------------------------------------------------


def connection_to(address: str) -> Connection:
    host, port = address.split(":")
    return Connection(host, int(port), timeout_s=10)


def test_each_request_goes_out_in_the_newest_version_that_both_know(at: str) -> None:
    connection = connection_to(at)
    assert connection.version_of(MetadataRequest) == MetadataRequest.__versions__.last
    assert connection.version_of(MetadataRequest, at_most=9) == 9
    assert connection.ask(MetadataRequest(topics=[])).brokers[0].node_id == 1
    connection.close()


def test_a_version_that_the_broker_does_not_offer_is_a_failure_that_says_so(at: str) -> None:
    connection = connection_to(at)
    versions = connection.versions()
    key = OffsetFetchRequest.__key__
    assert key is not None
    versions.pop(key, None)
    with pytest.raises(Failure, match="does not offer OffsetFetch at all"):
        connection.version_of(OffsetFetchRequest)
    versions[key] = OffsetFetchRequest.__versions__._replace(first=90, last=99)
    with pytest.raises(Failure, match="it has 90-99"):
        connection.version_of(OffsetFetchRequest)
    connection.close()


def test_a_broker_that_does_not_know_the_newest_api_versions_is_asked_again_in_the_oldest() -> None:
    requested: list[int] = []

    def answer(client: socket.socket) -> None:
        while request := client.recv(4096):
            requested.append(int.from_bytes(request[6:8]))
            correlation_id = request[8:12]
            body = b"\0\x23" if requested[-1] else b"\0\0"  # error 35 in version 0, then none
            body += b"\0\0\0\x01" + b"\0\x03\0\0\0\x05"  # Metadata: 0 to 5
            client.sendall((len(body) + 4).to_bytes(4) + correlation_id + body)

    with http_server(answer) as address:
        connection = connection_to(address)
        assert connection.version_of(MetadataRequest) == 5
        connection.close()
    assert requested == [ApiVersionsRequest.__versions__.last, 0]


def test_a_closed_connection_is_reopened_for_the_next_request(at: str) -> None:
    connection = connection_to(at)
    assert connection.ask(ApiVersionsRequest(), 0).error_code == 0
    connection.close()
    assert connection.ask(ApiVersionsRequest(), 0).error_code == 0
    connection.close()


def test_an_answer_that_is_cut_off_is_a_hang_up() -> None:
    with http_server(says(b"\0\0\x01\0half")) as address, pytest.raises(ConnectionClosed):
        connection_to(address).ask(ApiVersionsRequest(), 0)
