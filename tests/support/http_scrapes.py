"""The HTTP listener of a broker inside a test: its responses, and a scrape as numbers.

async with watched(broker) as http_server:
    status, _, body = await get(http_server, "/readyz")
assert scraped(broker).value("kafka_brokers") == 1
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio
from prometheus_client.parser import text_string_to_metric_families

from trioka.broker.broker import Broker
from trioka.broker.http.server import HttpServer, open_http_server
from trioka.broker.metrics.exposition import scrape
from trioka.broker.metrics.loop_watch import LoopWatch
from trioka.broker.metrics.readings import DiskSpace

Labels = Mapping[str, str]


class Scrape:
    """The samples of a scrape, by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def value(self, name: str, **labels: str) -> float:
        """The sample with exactly these labels."""
        (found,) = [value for its, value in self.samples[name] if its == labels]
        return found

    def matching(self, selector: "Selector") -> list[tuple[Labels, float]]:
        return [(labels, value) for labels, value in self.samples.get(selector.name, ()) if selector.takes(labels)]


def pieces(broker: Broker, rooms: Mapping[str, DiskSpace] | None = None) -> list[bytes]:
    return list(scrape(broker, LoopWatch(broker), rooms or {}))


def scraped(broker: Broker) -> Scrape:
    broker.dispatch.times.settle(0.001)  # as at the end of a round: not all of these tests have a network
    rooms = {directory.path: DiskSpace(10, 100) for directory in broker.directories}
    return Scrape(b"".join(pieces(broker, rooms)).decode())


# -- PromQL, as far as dashboards use it -------------------------------------------------------------------------------


class Selector(NamedTuple):
    """`name{label="value"}` of an expression."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def takes(self, labels: Labels) -> bool:
        """A missing label counts as empty, as in Prometheus."""
        return all(_MATCH[how](labels.get(label, ""), value) for label, how, value in self.matchers)


_MATCH: Mapping[str, Callable[[str, str], bool]] = {
    "=": lambda given, wanted: given == wanted,
    "!=": lambda given, wanted: given != wanted,
    "=~": lambda given, wanted: re.fullmatch(wanted, given) is not None,
    "!~": lambda given, wanted: re.fullmatch(wanted, given) is None,
}
_WORDS = frozenset({"and", "or", "unless", "by", "without", "bool", "on", "ignoring"})
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(?!\s*[\w(])")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


def selectors(expression: str, left_out: Iterable[str] = ()) -> Iterator[Selector]:
    """The series of an expression, without matchers of labels that the scraper adds."""
    text = re.sub(r"\[[^]]*\]", "", _GROUPING.sub("", expression))
    for name, matchers in _SELECTOR.findall(text):
        if name not in _WORDS and not name.isdigit():
            found = tuple(each for each in _MATCHER.findall(matchers) if each[0] not in left_out)
            yield Selector(name, found)


def groupings(expression: str) -> set[str]:
    """The labels by which an expression groups."""
    return {label.strip() for found in _GROUPING.findall(expression) for label in found.split(",")}


# -- HTTP -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watched(broker: Broker) -> AsyncIterator[HttpServer]:
    """The listener that `trioka.http.listeners` of this broker configures."""
    http_server = open_http_server(broker.config)
    assert http_server is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(http_server.serve, broker)
        yield http_server
        nursery.cancel_scope.cancel()


async def exchanged(http_server: HttpServer, said: bytes) -> bytes:
    """Everything that is answered to these bytes, until the port closes."""
    async with await trio.open_tcp_stream(*http_server.address) as stream:
        await stream.send_all(said)
        heard = b""
        while more := await stream.receive_some():
            heard += more
        return heard


async def get(http_server: HttpServer, path: str, method: str = "GET", host: str = "localhost") -> tuple[int, str, str]:
    """Status, head and body."""
    message = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    start, _, body = (await exchanged(http_server, message.encode())).partition(b"\r\n\r\n")
    head = start.decode()
    if "chunked" in head.lower():
        body = unchunked(body)
    return int(head.split()[1]), head, body.decode()


def unchunked(data: bytes) -> bytes:
    found = []
    while data:
        size, _, data = data.partition(b"\r\n")
        found.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return b"".join(found)
