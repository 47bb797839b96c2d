"""What Apache Kafka does in a fetch session, step by step over a plain socket: the facts of
`broker/replication/fetch_session_cache.py`.

The steps need nothing but an address: any broker that answers on one can take the place of Apache Kafka here.
"""

import time
from collections.abc import Iterator
from itertools import count

import pytest
from oracle import ApacheKafka
from support import serving
from support.fetch_requests import Place, answered, request

from trioka.protocol.batch import build
from trioka.protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

BY_NAME, BY_ID = 12, 13  # versions
TIMEOUT_SECONDS = 30


class Client(serving.Client):
    """What this file asks a broker."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._topics = count()

    def topic(self, partitions: int = 1) -> tuple[str, bytes]:
        """Name and id of a new topic that can be fetched from."""
        name = f"t{next(self._topics)}-{time.time_ns()}"
        new = CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        (created,) = self.ask(CreateTopicsRequest(topics=[new]), 7).topics
        assert created.error_code == 0, created
        all_of_it = request(0, -1, *((name, partition) for partition in range(partitions)))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while any(p.error_code for t in self.fetch(all_of_it).responses for p in t.partitions):
            assert time.monotonic() < deadline, "the topic was created and cannot be read"
            time.sleep(0.02)
        return name, created.topic_id

    def produce(self, topic: str, partition: int = 0) -> None:
        records = build([Record(0, 1000, None, b"value")])
        data = ProduceRequest.Topic(
            name=topic, partition_data=[ProduceRequest.Topic.Partition(index=partition, records=records)]
        )
        response = self.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    def fetch(self, asking: FetchRequest, version: int = BY_NAME) -> FetchResponse:
        response = self.ask(asking, version)
        assert isinstance(response, FetchResponse)
        return response

    def outcome(self, asking: FetchRequest, version: int = BY_NAME) -> tuple[int, int, list[Place]]:
        """Error, session, partitions told of."""
        response = self.fetch(asking, version)
        return response.error_code, response.session_id, answered(response)

    def session(self, *places: Place, version: int = BY_NAME) -> int:
        error, id, partitions = self.outcome(request(0, 0, *places), version)
        assert error == 0 and id > 0 and partitions == list(places)
        return id


@pytest.fixture(scope="module")
def address(apache_kafka: None) -> Iterator[tuple[str, int]]:
    with ApacheKafka() as kafka:
        yield "127.0.0.1", kafka.port


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[Client]:
    client = Client(*address)
    yield client
    client.close()


def test_a_session_tells_only_news(client: Client) -> None:
    topic, _ = client.topic(partitions=2)
    zero, one = (topic, 0), (topic, 1)
    id = client.session(zero, one)
    assert client.outcome(request(id, 1)) == (0, id, [])
    client.produce(topic, 1)
    assert client.outcome(request(id, 2)) == (0, id, [one])
    assert client.outcome(request(id, 3)) == (0, id, [one])  # the offset was not moved: the records come again
    assert client.outcome(request(id, 4, one, offset=0, forget=[zero])) == (0, id, [one])
    assert client.outcome(request(id, 5, zero, forget=[one, ("nobody", 3)])) == (0, id, [zero])
    assert client.outcome(request(id, 6, zero)) == (0, id, [])


def test_errors_are_told_each_time_and_so_is_their_end(client: Client) -> None:
    topic, _ = client.topic()
    place, missing = (topic, 0), (topic, 9)
    id = client.session(place, missing)
    assert client.outcome(request(id, 1)) == (0, id, [missing])
    asking = request(id, 2, place, forget=[missing])
    asking.topics[0].partitions[0] = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=77, partition_max_bytes=1000
    )
    (told_of,) = client.fetch(asking).responses
    assert told_of.partitions[0].error_code == OffsetOutOfRange.code
    assert client.outcome(request(id, 3)) == (0, id, [place])
    (told_of,) = client.fetch(request(id, 4, place)).responses
    assert told_of.partitions[0].error_code == 0
    assert client.outcome(request(id, 5)) == (0, id, [])


def test_epochs_and_ids_are_checked(client: Client) -> None:
    topic, _ = client.topic()
    id = client.session((topic, 0))
    for epoch in (2, -2, 2**31 - 1):
        assert client.outcome(request(id, epoch)) == (InvalidFetchSessionEpoch.code, 0, [])
    assert client.outcome(request(id, 1)) == (0, id, [])
    assert client.outcome(request(id, 1)) == (InvalidFetchSessionEpoch.code, 0, [])
    assert client.outcome(request(id, 2)) == (0, id, [])
    unknown = 5 if id != 5 else 6
    assert client.outcome(request(unknown, 1)) == (FetchSessionIdNotFound.code, 0, [])
    assert client.outcome(request(0, 1, (topic, 0))) == (FetchSessionIdNotFound.code, 0, [])
    assert client.outcome(request(0, -2, (topic, 0))) == (FetchSessionIdNotFound.code, 0, [])


def test_a_full_fetch_closes_a_session(client: Client) -> None:
    topic, _ = client.topic()
    place = (topic, 0)
    id = client.session(place)
    error, other, partitions = client.outcome(request(id, 0, place))
    assert (error, partitions) == (0, [place]) and other not in (0, id)
    assert client.outcome(request(id, 1)) == (FetchSessionIdNotFound.code, 0, [])
    assert client.outcome(request(other, -1, place)) == (0, 0, [place])
    assert client.outcome(request(other, 1)) == (FetchSessionIdNotFound.code, 0, [])
    assert client.outcome(request(other, -1, place)) == (0, 0, [place])  # nothing to close is no error
    assert client.outcome(request(0, 0, place), 6) == (0, 0, [place])  # before v7 nobody has heard of sessions


def test_an_empty_session_ends(client: Client) -> None:
    topic, _ = client.topic()
    place = (topic, 0)
    id = client.session(place)
    assert client.outcome(request(id, 1, (topic, 1), forget=[place, (topic, 1)])) == (0, 0, [(topic, 1)])
    assert client.outcome(request(id, 2)) == (FetchSessionIdNotFound.code, 0, [])
    id = client.session()  # without partitions, one begins all the same
    assert client.outcome(request(id, 1)) == (0, 0, [])
    id = client.session()
    assert client.outcome(request(id, 1, place)) == (0, id, [place])


def test_a_session_names_topics_or_uses_ids(client: Client) -> None:
    topic, topic_id = client.topic()
    by_name, by_id = client.session((topic, 0)), client.session((topic_id, 0), version=BY_ID)
    assert client.outcome(request(by_name, 1), BY_ID) == (FetchSessionTopicIdError.code, 0, [])
    assert client.outcome(request(by_id, 1), BY_NAME) == (FetchSessionTopicIdError.code, 0, [])
    assert client.outcome(request(by_id, 2), BY_NAME) == (InvalidFetchSessionEpoch.code, 0, [])
    assert client.outcome(request(by_name, 1), 7) == (0, by_name, [])
    assert client.outcome(request(by_id, 1), 18) == (0, by_id, [])


def test_an_unknown_topic_stays_in_the_session(client: Client) -> None:
    unknown = bytes(range(16))
    id = client.session((unknown, 0), version=BY_ID)
    for epoch in (1, 2):
        (topic,) = client.fetch(request(id, epoch), BY_ID).responses
        assert (topic.topic_id, topic.partitions[0].error_code) == (unknown, UnknownTopicId.code)
    name = f"unknown-{time.time_ns()}"
    id = client.session((name, 0))
    (topic,) = client.fetch(request(id, 1)).responses
    assert (topic.topic, topic.partitions[0].error_code) == (name, UnknownTopicOrPartition.code)


def test_partitions_with_records_go_to_the_end_and_neighbours_are_joined(client: Client) -> None:
    (a, _), (b, _) = client.topic(partitions=3), client.topic()
    id = client.session((a, 0), (a, 1), (b, 0), (a, 2))
    client.produce(a, 0)
    assert client.outcome(request(id, 1)) == (0, id, [(a, 0)])
    for topic, partition in ((a, 1), (b, 0), (a, 2)):
        client.produce(topic, partition)
    response = client.fetch(request(id, 2))
    assert answered(response) == [(a, 1), (b, 0), (a, 2), (a, 0)]
    assert [len(topic.partitions) for topic in response.responses] == [1, 1, 2]


def test_a_repeated_partition_keeps_its_place_and_takes_the_last_value(client: Client) -> None:
    (a, _), (b, _) = client.topic(), client.topic()
    asking = request(0, -1, (a, 0), (b, 0), (a, 0))
    last = FetchRequest.Topic.Partition(partition=0, fetch_offset=77, partition_max_bytes=1000)
    asking.topics[2].partitions[0] = last
    response = client.fetch(asking)
    assert answered(response) == [(a, 0), (b, 0)]
    assert [t.partitions[0].error_code for t in response.responses] == [OffsetOutOfRange.code, 0]
