"""Apache Kafka and trioka, with the same requests in the same order.

    @pytest.fixture(scope="module")
    def sides(apache_kafka: None) -> Iterator[SideBySide]:
        with side_by_side() as sides:
            yield sides

    def test_an_unknown_topic(sides: SideBySide) -> None:
        sides.same(DescribeTopicPartitionsRequest(topics=[...]), 0)

`same` sends a request to both, and reports the field in which the answers differ. Values that always differ are made
equal first: ids of topics, of members and of the cluster, hosts and ports are replaced by words, error messages by
whether there is one, and records by the start, the count and the size of their batches. Other differences with a reason
are named by the test: `ignoring={"topics.configs"}` or `order={"topics": "name"}`.

A request that names a topic's id differs from side to side; it is given as a function of the side: `sides.same(lambda
side: DeleteTopicsRequest(topics=[… side.topic_id("a") …]), 6)`.
"""

import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oracle import ApacheKafka
from support.serving import HOST, LISTENER, Client, broker_in_thread

from trioka.protocol.batch import headers
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.schema import Request, Struct

PATIENCE_S = 60
POLL_S = 0.02
# What a coordinator calls a member that came without an id: the client's id and a UUID, or a UUID in 22 letters.
GENERATED_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$")

RequestFor = Request | Callable[["Side"], Request]
Plain = dict[str, Any]  # a message as data: structs are dictionaries
Order = Mapping[str, str | Callable[[Any], Any]]


class Side:
    """One of the two."""

    def __init__(self, name: str, port: int, cluster_id: str) -> None:
        self.name = name
        self.port = port
        self.cluster_id = cluster_id
        self.client = Client(HOST, port)
        self.ids: dict[str, bytes] = {}

    def ask(self, requested: RequestFor, version: int) -> Any:
        return self.client.ask(requested if isinstance(requested, Request) else requested(self), version)

    def topic_id(self, name: str) -> bytes:
        if name not in self.ids:
            response = self.ask(
                MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False), 12
            )
            self.ids[name] = response.topics[0].topic_id
        return self.ids[name]

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Returns when all partitions can be read: Apache Kafka answers before its broker has created them."""
        configuration = [
            CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        wanted = CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configuration
        )
        (created,) = self.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert created.error_code == 0, f"{self.name}: {created}"
        self.ids[name] = created.topic_id
        self.wait_for_topic(name, partitions)

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        reading = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchRequest.Topic(
                    topic=name,
                    partitions=[
                        FetchRequest.Topic.Partition(partition=index, fetch_offset=0, partition_max_bytes=1)
                        for index in range(partitions)
                    ],
                )
            ],
        )
        deadline = time.monotonic() + PATIENCE_S
        while any(p.error_code for t in self.ask(reading, 4).responses for p in t.partitions):
            assert time.monotonic() < deadline, f"{self.name}: topic {name} is not there"
            time.sleep(POLL_S)


class SideBySide:
    def __init__(self, kafka: Side, trioka: Side) -> None:
        self.kafka = kafka
        self.trioka = trioka

    def both(self, requested: RequestFor, version: int) -> tuple[Any, Any]:
        """The answers as they came, Apache Kafka's first; None where one hung up."""
        return self.kafka.ask(requested, version), self.trioka.ask(requested, version)

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        self.kafka.create_topic(name, partitions, **configs)
        self.trioka.create_topic(name, partitions, **configs)

    def same(
        self, requested: RequestFor, version: int, *, ignoring: Collection[str] = (), order: Order | None = None
    ) -> tuple[Any, Any]:
        """Sends a request to both, and fails unless the answers are equal. Returns the original answers.

        `ignoring`: fields by their path, without the places in lists. `order`: lists, by path, whose order means
        nothing, with the field (or a function of the element) by which to sort them.
        """
        kafka, trioka = self.both(requested, version)
        expected = self._normal(self.kafka, kafka, ignoring, order or {})
        found = self._normal(self.trioka, trioka, ignoring, order or {})
        differences = list(_differences("", expected, found))
        shown = type(requested if isinstance(requested, Request) else requested(self.trioka)).__name__
        assert not differences, f"{shown} v{version}:\n" + "\n".join(differences)
        return kafka, trioka

    def _normal(self, side: Side, response: Any, ignoring: Collection[str], order: Order) -> Any:
        return None if response is None else _plain(side, response, "", ignoring, order)


def _plain(side: Side, value: Any, path: str, ignoring: Collection[str], order: Order) -> Any:
    if isinstance(value, Struct):
        return {
            field.name: _named(side, field.name, getattr(value, field.name), f"{path}{field.name}", ignoring, order)
            for field in value.__fields__
            if f"{path}{field.name}" not in ignoring
        }
    if isinstance(value, list):
        found = [_plain(side, each, path, ignoring, order) for each in value]
        how = order.get(path.rstrip("."))
        if how is not None:
            found.sort(key=(lambda each: (each[how] is not None, each[how])) if isinstance(how, str) else how)
        return found
    return value


def _named(side: Side, name: str, value: Any, path: str, ignoring: Collection[str], order: Order) -> Any:
    """What differs from cluster to cluster becomes a word, and stays different from its absence."""
    if name == "topic_id" and value != NULL_UUID:
        known = [topic for topic, topic_id in side.ids.items() if topic_id == value]
        return f"<id of {known[0]}>" if known else "<an id>"
    if name in ("member_id", "leader") and isinstance(value, str) and GENERATED_ID.search(value):
        return "<a member's id>"
    if name == "cluster_id" and value == side.cluster_id:
        return "<the cluster>"
    if name == "port" and value == side.port:
        return "<the port>"
    if name.endswith("error_message") or name == "batch_index_error_message":
        return value if not value else "<words>"
    if name == "records" and value is not None:
        # Apache Kafka cuts at the byte that the client named, through a batch if need be; trioka sends whole batches.
        return [(header.base_offset, header.record_count, header.size) for header in headers(value, partial_tail=True)]
    return _plain(side, value, f"{path}.", ignoring, order)


def _differences(path: str, expected: Any, found: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected:
            yield from _differences(f"{path}.{name}", expected[name], found[name])
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif expected != found:
        yield f"{path or 'the answer'}: Apache Kafka says {expected!r}, trioka {found!r}"


@contextmanager
def side_by_side(**settings: object) -> Iterator[SideBySide]:
    """Both, started with the same settings: `num_partitions=3` is `num.partitions=3`."""
    common = {key.replace("_", "."): value for key, value in settings.items()}
    with (
        tempfile.TemporaryDirectory(prefix="trioka-") as directory,
        ApacheKafka(common) as kafka,
        broker_in_thread(directory, None, **settings) as broker,
    ):
        sides = SideBySide(
            Side("Apache Kafka", kafka.port, kafka.cluster_id),
            Side("trioka", broker.addresses[LISTENER][1], broker.cluster_id),
        )
        try:
            yield sides
        finally:
            sides.kafka.client.close()
            sides.trioka.client.close()
