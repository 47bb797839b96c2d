"""The brokers are asked before Spark is started: whoever does not answer is named, with the reason."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.serving import LISTENER, broker_in_thread

from trioka.pipeline.installation.cache import Unreachable
from trioka.pipeline.sources import bootstrap
from trioka.pipeline.sources.bootstrap import InvalidAddress, addresses, reach


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("kafka.example", [("kafka.example", 9092)]),
        ("[::1]:9093,[::1]", [("::1", 9093), ("::1", 9092)]),
    ],
)
def test_a_list_of_brokers_is_read(text: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "a:b", "a:0", "a:65536", "a:9092,", "a:²"])
def test_what_is_no_list_of_brokers_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress, match="is not a list of brokers such as host:9092"):
        addresses(text)


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Somebody who says this to whoever connects, or nothing and never hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            if answer is not None:
                connection.recv(1 << 10)
                connection.sendall(answer)
                with suppress(OSError):  # who asked may have hung up upon the first words
                    connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def unused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_answers_even_if_another_one_of_the_list_does_not(tmp_path: Path) -> None:
    with broker_in_thread(tmp_path) as broker:
        host, port = broker.addresses[LISTENER]
        reach(f"{unused()},{host}:{port}")


def test_a_closed_port_is_one_sentence() -> None:
    with pytest.raises(Unreachable, match=r"^No broker answers: 127\.0\.0\.1:\d+ refuses connections\. Is it"):
        reach(unused())


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0\0\4abcd", b"\0\0\0\5\0\0\0\1\0"])
def test_another_protocol_is_one_sentence(answer: bytes) -> None:
    with listening(answer) as address, pytest.raises(Unreachable, match="does not speak Kafka in plain text"):
        reach(address)


def test_a_silent_server_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "REACH_TIMEOUT_SECONDS", 0.1)
    with listening(None) as address, pytest.raises(Unreachable, match=r"is silent for 0\.1 s"):
        reach(address)


def test_behind_tls_an_open_port_is_enough() -> None:
    with listening(None) as address:
        reach(address, is_plain=False)
