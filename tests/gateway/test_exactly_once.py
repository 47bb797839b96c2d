"""Exactly once: named requests are written once each, whoever dies and repeats; judged by a read_committed reader."""

import os
import random
import threading

import grpc
import pytest
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, Stream, failing
from support.named_client import ATTEMPTS, NamedClient, named

from trioka.gateway.v1 import admin_pb2, log_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker


def committed(broker: Broker, topic: str) -> list[int]:
    """What a read_committed consumer sees, in the order of the log."""
    return [int(record.value or b"") for record in broker.records(topic, 0, committed=True)]


def test_a_repeated_request_is_a_duplicate_also_after_a_restart(
    broker: Broker, topic: str, admin: AdminServiceStub
) -> None:
    with GatewayUnderTest(broker.bootstrap_servers) as gateway:
        for attempt in range(2):
            with grpc.insecure_channel(gateway.grpc) as channel:
                log = LogServiceStub(channel)
                answers = [log.Produce(named(topic, "restart", each), timeout=TIMEOUT_S) for each in (3, 3, 4, 3)]
                duplicates = [False, True, False, True] if attempt == 0 else [True, True, True, True]
                assert [each.duplicate for each in answers] == duplicates
                assert [len(each.positions) for each in answers] == [int(not each) for each in duplicates]
            gateway.kill()
            gateway.start()
    assert committed(broker, topic) == [3, 4]
    offsets = admin.ListGroupOffsets(
        admin_pb2.ListGroupOffsetsRequest(group="trioka.producer.restart"), timeout=TIMEOUT_S
    ).offsets
    assert [(each.topic, each.partition, each.offset) for each in offsets] == [(topic, 0, 5)]


def test_a_sequence_covers_all_topics_of_a_name(broker: Broker, log: LogServiceStub, topic: str) -> None:
    other = broker.create_topic(f"{topic}-other", 1)
    assert not log.Produce(named(topic, f"{topic}-both", 1), timeout=TIMEOUT_S).duplicate
    assert not log.Produce(named(other, f"{topic}-both", 2), timeout=TIMEOUT_S).duplicate
    with GatewayUnderTest(broker.bootstrap_servers) as second, grpc.insecure_channel(second.grpc) as channel:
        assert LogServiceStub(channel).Produce(named(topic, f"{topic}-both", 2), timeout=TIMEOUT_S).duplicate
    assert committed(broker, topic) == [1]


def test_a_late_sequence_is_refused_and_never_taken_for_a_duplicate(log: LogServiceStub, topic: str) -> None:
    log.Produce(named(topic, f"{topic}-late", 9), timeout=TIMEOUT_S)
    with failing() as failed:
        log.Produce(named(topic, f"{topic}-late", 8), timeout=TIMEOUT_S)
    assert (failed.code, failed.failure.name) == (grpc.StatusCode.OUT_OF_RANGE, "OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_a_bad_request_is_refused_and_the_others_are_written(broker: Broker, log: LogServiceStub) -> None:
    name = broker.create_topic("named-small", 1, max_message_bytes=1000)
    requests = [named(name, "fault", each) for each in range(5)]
    requests[2].records[0].value = b"x" * 5000
    messages = [log_pb2.ProduceStreamRequest(id=at, request=each) for at, each in enumerate(requests)]
    answers = list(log.ProduceStream(iter(messages), timeout=TIMEOUT_S))
    assert [each.WhichOneof("result") for each in answers] == ["written", "written", "failure", "written", "written"]
    assert answers[2].failure.name == "MESSAGE_TOO_LARGE"
    assert committed(broker, name) == [0, 1, 3, 4]


def test_a_second_gateway_fences_the_first_which_writes_nothing_more_of_its_stream(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    name = f"{topic}-fenced"
    stream = Stream(log.ProduceStream, log_pb2.ProduceStreamRequest(id=0, request=named(topic, name, 0)))
    assert stream.next().written.positions
    with GatewayUnderTest(broker.bootstrap_servers) as second, grpc.insecure_channel(second.grpc) as channel:
        taken = LogServiceStub(channel).Produce(named(topic, name, 1), timeout=TIMEOUT_S)
        assert not taken.duplicate
        for sequence in (2, 3, 4):
            stream.send(log_pb2.ProduceStreamRequest(id=sequence, request=named(topic, name, sequence)))
        answers = [stream.next() for _ in range(3)]
        assert {each.failure.name for each in answers} <= {
            "INVALID_PRODUCER_EPOCH",
            "PRODUCER_FENCED",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
        }
        assert not LogServiceStub(channel).Produce(named(topic, name, 2), timeout=TIMEOUT_S).duplicate
    stream.end()
    assert stream.rest() == []
    assert committed(broker, topic) == [0, 1, 2]


def write_while_the_gateway_is_killed(broker: Broker, topic: str, *, count: int, kills: int, seed: int) -> None:
    """Kills come after answers that the seed chooses, while others are in flight."""
    chosen = set(random.Random(seed).sample(range(1, count - 1), kills))
    with GatewayUnderTest(broker.bootstrap_servers) as gateway:

        def answered(sequence: int) -> None:
            if sequence in chosen:
                chosen.discard(sequence)
                gateway.kill()
                gateway.start()

        client = NamedClient(topic, f"{topic}-killed", count, answered)
        for _ in range(ATTEMPTS):
            if client.next == count:
                break
            client.by_stream(gateway.grpc)
    assert client.next == count
    assert not chosen
    assert committed(broker, topic) == list(range(count))


def test_each_named_request_is_written_once_while_the_gateway_is_killed(broker: Broker, topic: str) -> None:
    write_while_the_gateway_is_killed(broker, topic, count=100, kills=2, seed=1)


@pytest.mark.nightly
def test_a_thousand_named_requests_are_written_once_each_over_thirty_kills(broker: Broker, topic: str) -> None:
    seed = int(os.environ.get("TRIOKA_SEED", "7"))
    write_while_the_gateway_is_killed(broker, topic, count=1000, kills=30, seed=seed)


def write_by_two_gateways(broker: Broker, topic: str, count: int) -> None:
    """Both clients send every sequence, so that the name moves between the gateways again and again."""
    patience = threading.Event()
    failures: list[BaseException] = []
    with GatewayUnderTest(broker.bootstrap_servers) as one, GatewayUnderTest(broker.bootstrap_servers) as other:

        def run(address: str) -> None:
            try:
                client = NamedClient(topic, f"{topic}-two", count, lambda _sequence: None)
                client.one_by_one(address, patience)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(each.grpc,)) for each in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert committed(broker, topic) == list(range(count))


def test_two_gateways_at_once_write_each_sequence_once(broker: Broker, topic: str) -> None:
    write_by_two_gateways(broker, topic, 30)


@pytest.mark.nightly
def test_two_gateways_at_once_write_each_of_many_sequences_once(broker: Broker, topic: str) -> None:
    write_by_two_gateways(broker, topic, 500)


def test_names_beyond_the_limit_take_the_place_of_idle_ones(broker: Broker, topic: str) -> None:
    words = ["--override", "producer.max.names=2"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log = LogServiceStub(channel)
        for round_of_names in range(2):
            for number in range(4):
                response = log.Produce(named(topic, f"{topic}-{number}", 10 + round_of_names), timeout=TIMEOUT_S)
                assert not response.duplicate
        assert "trioka_gateway_named_producers 2.0" in gateway.get("/metrics")[1]
