"""A proxy between the clients and the broker that forwards every byte, and records the requests of each client.

    with RecordingProxy() as ear:
        ear.listen_to("127.0.0.1", port_of_the_broker)
        ...                                   # clients come to ear.port, which the broker advertises
    ear.heard                                 # {("franz-go", 1, 17), …}: client, API key, version

A client is known by the name that it gives in ApiVersions, or by its client id. The page docs/COMPATIBILITY.md is made
from this (`make compatibility`).
"""

import json
import selectors
import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from trioka.protocol.codec import decoder
from trioka.protocol.errors import ProtocolError
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.messages.api_versions import ApiVersionsRequest

CHUNK_BYTES = 1 << 16
TRIES, PAUSE_S = 300, 0.1
FIRST_VERSION_WITH_NAMES = 3
HEADER = struct.Struct(">ihhih")  # size, API key, version, correlation id, length of the client id

# The names of clients in ApiVersions, by prefix, and their names on the page.
NAMES = {
    "apache-kafka-java": "java",
    "confluent-kafka-python": "confluent-kafka",
    "librdkafka": "confluent-kafka",
    "rdkafka": "confluent-kafka",
    "kgo": "franz-go",
    "sarama": "sarama",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "kafkajs": "kafkajs",
}

Heard = tuple[str, int, int]


class _Ear:
    """One client's connection: its bytes, cut into requests. Only the beginning of each request is parsed."""

    def __init__(self, heard: set[Heard]) -> None:
        self._heard = heard
        self._buffer = bytearray()
        self._name: str | None = None
        self._nameless: list[tuple[int, int]] = []

    def hear(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            size, key, version, _, length = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < 4 + size:
                return
            body = HEADER.size + max(length, 0)
            self._note(
                key, version, bytes(self._buffer[HEADER.size : body]).decode(), bytes(self._buffer[body : 4 + size])
            )
            del self._buffer[: 4 + size]

    def _note(self, key: int, version: int, client_id: str, rest: bytes) -> None:
        if self._name is None and key == API_VERSIONS_KEY and version >= FIRST_VERSION_WITH_NAMES:
            self._name = _software(rest, version)
        if self._name is None:
            self._name = _known(client_id)
        self._nameless.append((key, version))
        if self._name is not None:
            self._heard.update((self._name, *request) for request in self._nameless)
            self._nameless.clear()


def _software(rest: bytes, version: int) -> str | None:
    tagged = 1  # the header's tagged fields, of which there are none
    try:
        requested, _ = decoder(ApiVersionsRequest, min(version, ApiVersionsRequest.__versions__.last))(
            memoryview(rest), tagged, 100
        )
    except ProtocolError:
        return None
    name = _known(requested.client_software_name)
    return "java-2.8" if name == "java" and requested.client_software_version.startswith("2.") else name


def _known(said: str) -> str | None:
    return next((name for begin, name in NAMES.items() if said.lower().startswith(begin)), None)


class RecordingProxy:
    def __init__(self) -> None:
        self.heard: set[Heard] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._broker = ("127.0.0.1", 0)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def listen_to(self, host: str, port: int) -> None:
        self._broker = (host, port)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            each.close()

    def save(self, path: Path) -> None:
        """Adds to what the file holds already."""
        known = (
            {(name, key, version) for name, key, version in json.loads(path.read_text())} if path.exists() else set()
        )
        path.write_text(json.dumps(sorted(known | self.heard)))

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """A broker that is being started again is waited for: to hang up in the middle is what no broker does then."""
        for _ in range(TRIES):
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                time.sleep(PAUSE_S)
                continue
            self._sockets.append(broker)
            self._pass_on(client, broker)
            return
        client.close()

    def _pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        ear = _Ear(self.heard)
        with selectors.DefaultSelector() as ready, client, broker:
            ready.register(client, selectors.EVENT_READ, broker)
            ready.register(broker, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    try:
                        data = key.fileobj.recv(CHUNK_BYTES)  # type: ignore[union-attr]
                        if not data:
                            return
                        if key.fileobj is client:
                            ear.hear(data)
                        key.data.sendall(data)
                    except OSError:
                        return
