"""Produce and ProduceStream: what was written, where, and what a refusal does to the rest of a stream."""

import time

import grpc
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner.default import murmur2
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, Stream, failing, produce, values

from trioka.gateway.failures import Refused
from trioka.gateway.process.metrics import Metrics
from trioka.gateway.producing.requests import UnwrittenBytes
from trioka.gateway.v1 import log_pb2, types_pb2
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.record import Record
from trioka.testing.broker import Broker

RECORDS = [
    types_pb2.Record(key=b"k", value=b"v", headers=[types_pb2.Header(key="h", value=b"\0\xff")], timestamp_ms=1234567),
    types_pb2.Record(key=b"", value=b"", headers=[types_pb2.Header(key="null"), types_pb2.Header(key="", value=b"")]),
    types_pb2.Record(key=None, value=b"no key"),
    types_pb2.Record(key=b"tombstone", value=None),
    types_pb2.Record(),
]


def test_what_is_written_is_read_by_a_kafka_client_byte_for_byte(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    response = log.Produce(log_pb2.ProduceRequest(topic=topic, partition=1, records=RECORDS), timeout=TIMEOUT_S)
    assert [(each.partition, each.offset) for each in response.positions] == [(1, offset) for offset in range(5)]
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 1)])
    found: list[object] = []
    while len(found) < len(RECORDS):
        for records in consumer.poll(1000).values():
            found += [(each.key, each.value, [tuple(header) for header in each.headers]) for each in records]
    consumer.close()
    assert found == [
        (b"k", b"v", [("h", b"\0\xff")]),
        (b"", b"", [("null", None), ("", b"")]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (None, None, []),
    ]
    assert broker.records(topic, 1)[0].timestamp_ms == 1234567


def test_records_with_a_key_go_where_kafkas_clients_put_them(broker: Broker, log: LogServiceStub) -> None:
    name = broker.create_topic("by-key", 7)
    keys = [f"key-{number}".encode() for number in range(50)]
    records = [types_pb2.Record(key=each, value=b"") for each in keys]
    response = log.Produce(log_pb2.ProduceRequest(topic=name, records=records), timeout=TIMEOUT_S)
    assert [each.partition for each in response.positions] == [(murmur2(each) & 0x7FFFFFFF) % 7 for each in keys]


@pytest.mark.parametrize("acks", [log_pb2.ACKS_LEADER, log_pb2.ACKS_ALL])
def test_acknowledged_records_have_offsets(log: LogServiceStub, topic: str, acks: int) -> None:
    response = log.Produce(produce(topic, b"a", b"b", acks=acks), timeout=TIMEOUT_S)
    assert [each.offset for each in response.positions] == [0, 1]


def test_without_acknowledgement_there_are_no_offsets(broker: Broker, log: LogServiceStub, topic: str) -> None:
    response = log.Produce(produce(topic, b"a", acks=log_pb2.ACKS_NONE), timeout=TIMEOUT_S)
    assert not response.positions
    assert [each.value for each in broker.consume(topic, 1)] == [b"a"]


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_written_as_they_are(broker: Broker, log: LogServiceStub, topic: str, codec: Codec) -> None:
    first = batch.build([Record(0, 5, b"k", b"v" * 100, ()), Record(1, 6, None, None, (("h", None),))], codec=codec)
    second = batch.build([Record(0, 7, b"", b"", ())], codec=codec)
    request = log_pb2.ProduceRequest(topic=topic, partition=0, batches=bytes(first + second))
    response = log.Produce(request, timeout=TIMEOUT_S)
    assert [each.offset for each in response.positions] == [0, 2]
    read = list(
        log.Consume(
            log_pb2.ConsumeRequest(topic=topic, partitions=[0], encoding=types_pb2.ENCODING_BATCHES), timeout=TIMEOUT_S
        )
    )
    stored = b"".join(each.batches for each in read)
    header = batch.read_header(stored)
    assert stored[21 : header.size] == bytes(first)[21:]  # all that the CRC covers
    assert [each.value for each in broker.records(topic, 0)] == [b"v" * 100, None, b""]


def test_a_refused_request_does_not_end_the_stream_and_answers_keep_their_order(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    requests = [
        produce(topic, b"first"),
        produce("no-such-topic", b"x"),
        produce(topic, b"x", partition=9),
        produce(topic),
        log_pb2.ProduceRequest(topic=topic, partition=0, batches=b"not a batch"),
        produce(topic, b"last"),
    ]
    messages = [log_pb2.ProduceStreamRequest(id=10 + at, request=each) for at, each in enumerate(requests)]
    responses = list(log.ProduceStream(iter(messages), timeout=TIMEOUT_S))
    assert [each.id for each in responses] == [10, 11, 12, 13, 14, 15]
    assert [each.WhichOneof("result") for each in responses] == ["written", *["failure"] * 4, "written"]
    assert [each.failure.name for each in responses[1:5]] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
    ]
    assert [each.value for each in broker.records(topic, 0)] == [b"first", b"last"]


def test_a_stream_answers_each_request_before_the_next_is_sent(log: LogServiceStub, topic: str) -> None:
    stream = Stream(log.ProduceStream)
    for number in range(5):
        stream.send(log_pb2.ProduceStreamRequest(id=number, request=produce(topic, b"x")))
        assert stream.next().written.positions[0].offset == number
    stream.end()
    assert stream.rest() == []


def test_a_stream_that_sends_more_than_may_be_unanswered_loses_nothing(broker: Broker, topic: str) -> None:
    limits = ["--override", "stream.max.unacknowledged.records=3", "--override", "stream.max.unacknowledged.bytes=2048"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *limits) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log = LogServiceStub(channel)
        messages = [
            log_pb2.ProduceStreamRequest(id=number, request=produce(topic, b"%d" % number, b"x" * 1000))
            for number in range(200)
        ]
        responses = list(log.ProduceStream(iter(messages), timeout=TIMEOUT_S))
        assert [each.id for each in responses] == list(range(200))
        assert [each.value for each in broker.records(topic, 0)][::2] == [b"%d" % each for each in range(200)]
        with failing() as failed:
            log.Produce(produce(topic, b"1", b"2", b"3", b"4"), timeout=TIMEOUT_S)
        assert failed.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_record_above_the_topics_limit_is_refused_and_the_next_one_written(
    broker: Broker, log: LogServiceStub
) -> None:
    name = broker.create_topic("small-records", 1, max_message_bytes=1000)
    with failing() as failed:
        log.Produce(produce(name, b"x" * 2000), timeout=TIMEOUT_S)
    assert (failed.code, failed.failure.name) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert not failed.failure.retriable
    log.Produce(produce(name, b"small"), timeout=TIMEOUT_S)
    assert [each.value for each in broker.records(name)] == [b"small"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"topic": ""}, "topic is empty"),
        ({}, "records or batches, and not both"),
        ({"records": values(b"x"), "batches": b"x", "partition": 0}, "records or batches, and not both"),
        ({"records": values(b"x"), "acks": 99}, "there is no acks 99"),
        ({"records": values(b"x"), "partition": -1}, "partition -1 is below 0"),
        ({"batches": b"x"}, "batches need a partition"),
        ({"batches": b"x" * 100, "partition": 0}, "batch magic"),
        ({"records": values(b"x"), "producer": log_pb2.Producer(), "acks": 3}, "has acks ACKS_ALL"),
        ({"records": values(b"x"), "producer": log_pb2.Producer()}, "a producer name has 1 to 200"),
        ({"records": values(b"x"), "producer": log_pb2.Producer(name="a\n")}, "a producer name has 1 to 200"),
        (
            {"records": values(b"x"), "producer": log_pb2.Producer(name="a", sequence=(1 << 64) - 1)},
            "sequence 18446744073709551615 is above",
        ),
        ({"records": [types_pb2.Record(timestamp_ms=-5)]}, "timestamp_ms of a record is below 0"),
    ],
)
def test_a_wrong_request_gets_one_sentence(
    log: LogServiceStub, topic: str, fields: dict[str, object], sentence: str
) -> None:
    request = log_pb2.ProduceRequest(**{"topic": topic, **fields})  # type: ignore[arg-type]
    with failing() as failed:
        log.Produce(request, timeout=TIMEOUT_S)
    assert failed.code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in failed.failure.message
    assert not failed.failure.retriable


def test_a_batch_with_a_wrong_checksum_is_refused_before_it_is_sent(log: LogServiceStub, topic: str) -> None:
    damaged = bytearray(batch.build([Record(0, 5, b"k", b"v", ())]))
    damaged[-1] ^= 1
    with failing() as failed:
        log.Produce(log_pb2.ProduceRequest(topic=topic, partition=0, batches=bytes(damaged)), timeout=TIMEOUT_S)
    assert (failed.code, failed.failure.name) == (grpc.StatusCode.INVALID_ARGUMENT, "CORRUPT_MESSAGE")


def test_a_message_above_the_limit_is_refused(log: LogServiceStub, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        log.Produce(produce(topic, b"x" * (5 << 20)), timeout=TIMEOUT_S)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_unwritten_bytes_of_all_callers_are_limited() -> None:
    metrics = Metrics()
    unwritten = UnwrittenBytes(100, metrics)
    unwritten.take(60)
    with pytest.raises(Refused, match="60 bytes wait to be written") as refused:
        unwritten.take(41)
    assert (refused.value.code, refused.value.retriable) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    unwritten.take(40)
    unwritten.give_back(100)
    assert b"trioka_gateway_unwritten_bytes 0.0" in metrics.exposition()


def test_nothing_counts_as_unwritten_when_all_is_answered_refused_or_abandoned(
    broker: Broker, gateway: GatewayUnderTest, log: LogServiceStub, topic: str
) -> None:
    small = broker.create_topic(f"{topic}-small", 1, max_message_bytes=500)
    requests = [
        produce(topic, b"x"),
        produce(small, b"x" * 1000),
        produce(topic, b"x", partition=9),
        produce(topic, b"x", producer=(topic, 1)),
        produce(topic, b"x", producer=("bad\n", 1)),
        log_pb2.ProduceRequest(topic=topic, partition=0, batches=b"not a batch"),
        log_pb2.ProduceRequest(topic=topic, partition=0, batches=bytes(batch.build([Record(0, 5, None, b"v", ())]))),
    ]
    messages = [log_pb2.ProduceStreamRequest(id=at, request=each) for at, each in enumerate(requests)]
    assert len(list(log.ProduceStream(iter(messages), timeout=TIMEOUT_S))) == len(requests)
    abandoned = Stream(log.ProduceStream, *messages)
    abandoned.next()
    abandoned.cancel()
    deadline = time.monotonic() + TIMEOUT_S
    while "trioka_gateway_unwritten_bytes 0.0" not in gateway.get("/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
