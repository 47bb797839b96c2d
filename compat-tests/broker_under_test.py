"""The broker under test and the clients: fixtures for every test file that names this module as a plugin.

    pytest_plugins = ["broker_under_test"]

    def test_something(client: Client, topic: str) -> None: ...      # once per client

The broker is trioka. With TRIOKA_ORACLE=kafka the tests also run against Apache Kafka, in a second round: that verifies
the tests themselves, since they require what Kafka does. There is one broker for each process of tests; a test
makes its own topics.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from clients.catalogue import STARTERS, Catalogue
from clients.client import Client
from eavesdropper import RecordingProxy
from oracle import ApacheKafka
from toolchains import unavailable
from trioka_process import TriokaProcess

from trioka.pipeline.installation.cache import Unavailable

HEARD = os.environ.get("TRIOKA_HEARD")  # a file for the requests of clients (`make compatibility`)
BROKERS = ("trioka", "kafka") if os.environ.get("TRIOKA_ORACLE") == "kafka" else ("trioka",)
TOPIC_NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`bootstrap` is its address, host:port."""

    name: str
    bootstrap: str


@contextmanager
def start_trioka(tmp_path: Path) -> Iterator[Node]:
    """A node of trioka, as a person starts it, with its data below `tmp_path`, until the `with` ends."""
    if HEARD is not None:
        with recorded(tmp_path, Path(HEARD), {}) as (_, bootstrap):
            yield Node(name="trioka", bootstrap=bootstrap)
        return
    with TriokaProcess(tmp_path) as process:
        yield Node(name="trioka", bootstrap=process.bootstrap)


@contextmanager
def recorded(tmp_path: Path, heard: Path, settings: Mapping[str, object]) -> Iterator[tuple[TriokaProcess, str]]:
    """A node behind a recording proxy, which writes the requests of each client to `heard`; and its address."""
    with RecordingProxy() as ear:
        advertised = {"advertised.listeners": f"PLAINTEXT://localhost:{ear.port}"}
        with TriokaProcess(tmp_path, {**settings, **advertised}) as process:
            ear.listen_to("127.0.0.1", process.port)
            yield process, f"localhost:{ear.port}"
    ear.save(heard)


@contextmanager
def start_kafka(tmp_path: Path) -> Iterator[Node]:
    with ApacheKafka(parent=tmp_path) as kafka:
        yield Node(name="kafka", bootstrap=kafka.bootstrap)


@pytest.fixture(scope="session", params=BROKERS)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The broker under test."""
    if request.param == "kafka":
        request.getfixturevalue("apache_kafka")
    start = {"trioka": start_trioka, "kafka": start_kafka}[request.param]
    with start(tmp_path_factory.mktemp("node")) as started:
        yield started


@pytest.fixture(scope="session")
def catalogue(node: Node) -> Iterator[Catalogue]:
    """Every client, connected to the broker under test on first use."""
    catalogue = Catalogue(node.bootstrap, is_late=node.name == "kafka")
    yield catalogue
    catalogue.close()


@pytest.fixture(params=STARTERS)
def client(request: pytest.FixtureRequest, catalogue: Catalogue) -> Client:
    """Each client in turn."""
    return client_named(request.param, catalogue)


def client_named(name: str, catalogue: Catalogue) -> Client:
    try:
        return catalogue[name]
    except Unavailable as missing:
        unavailable(missing)


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest, numbers: Iterator[int]) -> str:
    """The name of a new topic, which shows the test that it belongs to."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    return f"{name[:TOPIC_NAME_CHARS]}-{next(numbers)}"
