"""Consume and Read: where they begin and end, what they show, and what a reader that stops holds."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Producer
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, failing, produce

from trioka.gateway.v1 import admin_pb2, log_pb2, types_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.protocol import batch
from trioka.testing.broker import Broker

STABLE = types_pb2.CONSISTENCY_STABLE
LINEARIZABLE = types_pb2.CONSISTENCY_LINEARIZABLE
BATCHES = types_pb2.ENCODING_BATCHES


@pytest.fixture
def ten(broker: Broker, topic: str) -> str:
    """A topic with ten records in partition 0, each a second younger than the one before."""
    for number in range(10):
        broker.produce(topic, b"%d" % number, key=b"even" if number % 2 == 0 else b"odd", timestamp_ms=1000 * number)
    return topic


def consumed(log: LogServiceStub, topic: str, **fields: object) -> list[bytes]:
    request = log_pb2.ConsumeRequest(topic=topic, **fields)  # type: ignore[arg-type]
    return [record.value for each in log.Consume(request, timeout=TIMEOUT_S) for record in each.records]


def test_what_a_kafka_client_wrote_is_consumed_byte_for_byte(broker: Broker, log: LogServiceStub, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"v\0\xff", b"k\0\xff", 0, timestamp=77, headers=[("h", b"\0"), ("h", None), ("", b"")])
    producer.produce(topic, None, b"tombstone", 0, timestamp=78)
    producer.produce(topic, b"", b"", 0, timestamp=79)
    producer.produce(topic, b"no key", None, 0, timestamp=80)
    producer.flush(TIMEOUT_S)
    (response,) = log.Consume(log_pb2.ConsumeRequest(topic=topic, partitions=[0]), timeout=TIMEOUT_S)
    header = types_pb2.Header
    assert list(response.records) == [
        types_pb2.Record(
            key=b"k\0\xff",
            value=b"v\0\xff",
            headers=[header(key="h", value=b"\0"), header(key="h"), header(key="", value=b"")],
            timestamp_ms=77,
            offset=0,
        ),
        types_pb2.Record(key=b"tombstone", timestamp_ms=78, offset=1),
        types_pb2.Record(key=b"", value=b"", timestamp_ms=79, offset=2),
        types_pb2.Record(value=b"no key", timestamp_ms=80, offset=3),
    ]
    assert [each.HasField("value") for each in response.records] == [True, False, True, True]
    assert [each.HasField("key") for each in response.records] == [True, True, True, False]
    assert (response.next_offset, response.high_watermark) == (4, 4)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (log_pb2.Start(), 0),
        (log_pb2.Start(earliest=True), 0),
        (log_pb2.Start(offset=3), 3),
        (log_pb2.Start(timestamp_ms=3000), 3),
        (log_pb2.Start(timestamp_ms=3001), 4),
        (log_pb2.Start(timestamp_ms=99_000), 10),
        (log_pb2.Start(last=2), 8),
        (log_pb2.Start(last=99), 0),
        (log_pb2.Start(last=0), 10),
        (log_pb2.Start(latest=True), 10),
        (log_pb2.Start(offset=10), 10),
    ],
)
def test_a_consume_begins_where_it_says_and_ends_at_the_end(
    log: LogServiceStub, ten: str, start: log_pb2.Start, first: int
) -> None:
    assert consumed(log, ten, partitions=[0], start=start) == [b"%d" % each for each in range(first, 10)]


def test_all_partitions_are_read_when_none_is_named(broker: Broker, log: LogServiceStub, ten: str) -> None:
    broker.produce(ten, b"other", partition=1)
    assert sorted(consumed(log, ten)) == sorted([*(b"%d" % each for each in range(10)), b"other"])


def test_no_record_is_left_out_where_partitions_do_not_fit_into_one_fetch(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    """A broker fills a response in the order of the request, and the last partitions get nothing at first."""
    written = []
    for number in range(40):
        written.append(b"%d-%s" % (number, b"x" * 2000))
        broker.produce(topic, written[-1], partition=number % 2)
    assert sorted(consumed(log, topic, max_bytes=5000)) == sorted(written)


def test_a_partition_that_never_ends_does_not_keep_others_waiting(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    for number in range(40):
        broker.produce(topic, b"x" * 2000, partition=0 if number % 4 else 1)
    stream = log.Consume(log_pb2.ConsumeRequest(topic=topic, max_bytes=3000, follow=True), timeout=TIMEOUT_S)
    assert {next(stream).partition for _ in range(6)} == {0, 1}
    stream.cancel()


def test_an_empty_topic_ends_at_once(log: LogServiceStub, topic: str) -> None:
    assert consumed(log, topic) == []


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
def test_a_limit_ends_the_stream_also_when_it_follows(log: LogServiceStub, ten: str, limit: int) -> None:
    expected = [b"%d" % each for each in range(min(limit, 10))]
    assert consumed(log, ten, partitions=[0], limit=limit) == expected
    if limit <= 10:
        assert consumed(log, ten, limit=limit, follow=True) == expected


def test_a_stream_that_follows_gets_what_is_written_later(broker: Broker, log: LogServiceStub, ten: str) -> None:
    stream = log.Consume(
        log_pb2.ConsumeRequest(topic=ten, start=log_pb2.Start(latest=True), follow=True, limit=2), timeout=TIMEOUT_S
    )
    deadline = time.monotonic() + TIMEOUT_S
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(r.value for each in stream for r in each.records))
    reader.start()
    while reader.is_alive() and time.monotonic() < deadline:
        broker.produce(ten, b"later", partition=1)  # until it is there: the stream may not have begun
        reader.join(0.05)
    assert found == [b"later", b"later"]


def test_messages_are_cut_to_the_requested_size(log: LogServiceStub, broker: Broker, topic: str) -> None:
    broker.produce(topic, *[b"x" * 500] * 100)
    responses = list(log.Consume(log_pb2.ConsumeRequest(topic=topic, max_bytes=2000), timeout=TIMEOUT_S))
    assert len(responses) >= 20
    assert all(each.ByteSize() <= 2100 for each in responses)
    assert [record.offset for each in responses for record in each.records] == list(range(100))
    at = 0
    for each in responses:
        assert each.records[0].offset == at
        at = each.next_offset
    assert at == 100


def test_batches_come_untouched_and_next_offset_leads_on(broker: Broker, log: LogServiceStub, ten: str) -> None:
    whole = list(log.Consume(log_pb2.ConsumeRequest(topic=ten, partitions=[0], encoding=BATCHES), timeout=TIMEOUT_S))
    stored = b"".join(each.batches for each in whole)
    assert [r.value for header in batch.headers(stored) for r in batch.records(stored, header)] == [
        b"%d" % each for each in range(10)
    ]
    assert whole[-1].next_offset == 10
    assert not whole[0].records


def test_a_record_above_the_message_limit_is_an_error_behind_those_before_it(broker: Broker) -> None:
    name = broker.create_topic("large", 1, max_message_bytes=20_000_000)
    broker.produce(name, b"small")
    broker.produce(name, b"x" * 100_000)
    words = ["--override", "grpc.max.message.bytes=65536"]
    for encoding in (types_pb2.ENCODING_RECORDS, BATCHES):
        with (
            GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
            grpc.insecure_channel(gateway.grpc) as channel,
        ):
            stream = LogServiceStub(channel).Consume(
                log_pb2.ConsumeRequest(topic=name, encoding=encoding), timeout=TIMEOUT_S
            )
            assert next(stream).next_offset == 1
            with failing() as failed:
                next(stream)
            assert failed.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "at offset 1 has" in failed.failure.message


# -- transactions


@pytest.fixture
def transactions(broker: Broker, topic: str) -> Iterator[str]:
    """Partition 0 has: plain, aborted, marker, committed, marker, open."""
    broker.produce(topic, b"plain")
    ids = iter("ab")
    for content, commit in ((b"aborted", False), (b"committed", True)):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{next(ids)}"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, content, partition=0)
        producer.flush(TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S) if commit else producer.abort_transaction(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-open"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIMEOUT_S)
    yield topic
    producer.abort_transaction(TIMEOUT_S)


def test_stable_reads_show_only_committed_transactions(log: LogServiceStub, transactions: str) -> None:
    assert consumed(log, transactions, partitions=[0]) == [b"plain", b"aborted", b"committed", b"open"]
    assert consumed(log, transactions, partitions=[0], consistency=STABLE) == [b"plain", b"committed"]
    (whole,) = log.Consume(
        log_pb2.ConsumeRequest(topic=transactions, partitions=[0], consistency=STABLE, encoding=BATCHES),
        timeout=TIMEOUT_S,
    )
    stored = whole.batches
    assert [r.value for header in batch.headers(stored) for r in batch.records(stored, header)] == [
        b"plain",
        b"committed",
    ]
    assert whole.next_offset == 5  # behind the last marker


def test_a_stable_read_finds_no_aborted_and_no_open_record(log: LogServiceStub, transactions: str) -> None:
    def read(offset: int, consistency: types_pb2.Consistency) -> log_pb2.ReadResponse:
        request = log_pb2.ReadRequest(topic=transactions, partition=0, offset=offset, consistency=consistency)
        response: log_pb2.ReadResponse = log.Read(request, timeout=TIMEOUT_S)
        return response

    assert read(1, types_pb2.CONSISTENCY_COMMITTED).record.value == b"aborted"
    assert read(3, STABLE).record.value == b"committed"
    for offset, code in (
        (1, grpc.StatusCode.NOT_FOUND),  # aborted
        (2, grpc.StatusCode.NOT_FOUND),  # a marker
        (5, grpc.StatusCode.OUT_OF_RANGE),  # open
    ):
        with failing() as failed:
            read(offset, STABLE)
        assert failed.code is code


# -- consistency


def test_linearizable_reads_are_refused_where_the_topic_has_none(log: LogServiceStub, ten: str) -> None:
    with failing() as failed:
        log.Read(log_pb2.ReadRequest(topic=ten, partition=0, offset=0, consistency=LINEARIZABLE), timeout=TIMEOUT_S)
    assert failed.code is grpc.StatusCode.UNIMPLEMENTED
    with failing() as failed:
        list(log.Consume(log_pb2.ConsumeRequest(topic=ten, consistency=LINEARIZABLE), timeout=TIMEOUT_S))
    assert failed.code is grpc.StatusCode.UNIMPLEMENTED


def test_every_other_level_reads(log: LogServiceStub, ten: str) -> None:
    for level in set(types_pb2.Consistency.values()) - {LINEARIZABLE}:
        assert len(consumed(log, ten, partitions=[0], consistency=level)) == 10


# -- one record


def test_one_record_is_read_by_offset_time_and_key(log: LogServiceStub, ten: str) -> None:
    def read(**fields: object) -> bytes:
        request = log_pb2.ReadRequest(topic=ten, partition=0, **fields)  # type: ignore[arg-type]
        response: log_pb2.ReadResponse = log.Read(request, timeout=TIMEOUT_S)
        return response.record.value

    assert read(offset=4) == b"4"
    assert read(timestamp_ms=4500) == b"5"
    assert read(latest_of_key=b"odd") == b"9"
    assert read(latest_of_key=b"even") == b"8"


def test_the_latest_of_a_key_may_be_a_tombstone_and_far_from_the_end(
    broker: Broker, log: LogServiceStub, topic: str
) -> None:
    log.Produce(
        log_pb2.ProduceRequest(
            topic=topic, records=[types_pb2.Record(key=b"rare", value=b"x"), types_pb2.Record(key=b"rare")]
        ),
        timeout=TIMEOUT_S,
    )
    for partition in (0, 1):
        for _ in range(20):
            broker.produce(topic, *[b"noise"] * 100, key=b"often", partition=partition)
    response = log.Read(log_pb2.ReadRequest(topic=topic, latest_of_key=b"rare"), timeout=TIMEOUT_S)
    assert response.record.offset == 1
    assert not response.record.HasField("value")
    with failing() as failed:
        log.Read(log_pb2.ReadRequest(topic=topic, latest_of_key=b"never"), timeout=TIMEOUT_S)
    assert failed.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"topic": "nowhere", "offset": 0}, grpc.StatusCode.NOT_FOUND, "no such topic"),
        ({"partition": 5, "offset": 0}, grpc.StatusCode.NOT_FOUND, "has no partition 5"),
        ({"offset": 0}, grpc.StatusCode.INVALID_ARGUMENT, "has 2 partitions; name one"),
        ({"partition": 0, "offset": -1}, grpc.StatusCode.INVALID_ARGUMENT, "offset is below 0"),
        ({"partition": 0, "offset": 11}, grpc.StatusCode.OUT_OF_RANGE, "has no offset 11"),
        ({"partition": 0, "offset": 10}, grpc.StatusCode.OUT_OF_RANGE, "ends before offset 10"),
        ({"partition": 0, "timestamp_ms": -1}, grpc.StatusCode.INVALID_ARGUMENT, "timestamp_ms is below 0"),
        ({"partition": 0, "timestamp_ms": 99_000}, grpc.StatusCode.NOT_FOUND, "at or after timestamp 99000"),
        ({"partition": 0}, grpc.StatusCode.INVALID_ARGUMENT, "offset, timestamp_ms or latest_of_key"),
        ({"partition": 0, "offset": 0, "consistency": 77}, grpc.StatusCode.INVALID_ARGUMENT, "no consistency 77"),
    ],
)
def test_a_wrong_read_gets_its_code_and_a_sentence(
    log: LogServiceStub, ten: str, fields: dict[str, object], code: grpc.StatusCode, sentence: str
) -> None:
    with failing() as failed:
        log.Read(log_pb2.ReadRequest(**{"topic": ten, **fields}), timeout=TIMEOUT_S)  # type: ignore[arg-type]
    assert failed.code is code
    assert sentence in failed.failure.message


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"topic": ""}, grpc.StatusCode.INVALID_ARGUMENT, "topic is empty"),
        ({"topic": "nowhere"}, grpc.StatusCode.NOT_FOUND, "no such topic"),
        ({"topic": "a b"}, grpc.StatusCode.INVALID_ARGUMENT, ""),
        ({"partitions": [7]}, grpc.StatusCode.NOT_FOUND, "has no partition 7"),
        ({"encoding": 9}, grpc.StatusCode.INVALID_ARGUMENT, "no encoding 9"),
        ({"limit": -1}, grpc.StatusCode.INVALID_ARGUMENT, "limit -1 is below 0"),
        ({"max_bytes": -1}, grpc.StatusCode.INVALID_ARGUMENT, "max_bytes -1 is below 0"),
        ({"consistency": 9}, grpc.StatusCode.INVALID_ARGUMENT, "no consistency 9"),
        ({"start": log_pb2.Start(offset=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "offset -1 is below 0"),
        ({"start": log_pb2.Start(last=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "last -1 is below 0"),
        ({"start": log_pb2.Start(timestamp_ms=-1)}, grpc.StatusCode.INVALID_ARGUMENT, "timestamp_ms -1 is below 0"),
        (
            {"start": log_pb2.Start(offset=99), "partitions": [0], "follow": True},
            grpc.StatusCode.OUT_OF_RANGE,
            "has no offset 99",
        ),
    ],
)
def test_a_wrong_consume_gets_its_code_and_a_sentence(
    log: LogServiceStub, ten: str, fields: dict[str, object], code: grpc.StatusCode, sentence: str
) -> None:
    with failing() as failed:
        list(log.Consume(log_pb2.ConsumeRequest(**{"topic": ten, **fields}), timeout=TIMEOUT_S))  # type: ignore[arg-type]
    assert failed.code is code
    assert sentence in failed.failure.message


def test_a_stream_ends_when_its_topic_is_created_again(
    broker: Broker, log: LogServiceStub, admin: AdminServiceStub
) -> None:
    name = broker.create_topic("again", 1)
    broker.produce(name, b"old")
    stream = log.Consume(log_pb2.ConsumeRequest(topic=name, follow=True), timeout=TIMEOUT_S)
    assert next(stream).next_offset == 1
    admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=name), timeout=TIMEOUT_S)
    broker.create_topic(name, 1)
    broker.produce(name, b"new", b"new")
    with failing() as failed:
        next(stream)
    assert failed.code is grpc.StatusCode.NOT_FOUND


def test_a_deadline_ends_a_stream_that_waits(log: LogServiceStub, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        list(log.Consume(log_pb2.ConsumeRequest(topic=topic, follow=True), timeout=0.3))
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_reader_that_stops_holds_a_bounded_amount(broker: Broker, gateway: GatewayUnderTest) -> None:
    name = broker.create_topic("much", 1)
    for _ in range(100):
        broker.produce(name, *[b"x" * 10_000] * 80)  # 80 MB
    log = LogServiceStub(grpc.insecure_channel(gateway.grpc))
    before = resident_bytes(gateway.pid)
    streams = [
        log.Consume(log_pb2.ConsumeRequest(topic=name, encoding=encoding))
        for encoding in (types_pb2.ENCODING_RECORDS, BATCHES)
    ]
    first = [next(stream) for stream in streams]
    assert all(each.next_offset > 0 for each in first)
    deadline = time.monotonic() + 10
    last, steady = 0, 0
    while steady < 5 and time.monotonic() < deadline:  # until the gateway has no more room to read ahead
        time.sleep(0.1)
        now = resident_bytes(gateway.pid)
        steady = steady + 1 if now == last else 0
        last = now
    assert last - before < 32 << 20
    for stream in streams:
        stream.cancel()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_stream_goes_on_after_the_broker_restarts(log: LogServiceStub, ten: str, broker: Broker) -> None:
    stream = log.Consume(
        log_pb2.ConsumeRequest(topic=ten, partitions=[0], follow=True, limit=11), timeout=2 * TIMEOUT_S
    )
    found = [record.value for record in next(stream).records]
    broker.restart()
    broker.produce(ten, b"after")
    found += [record.value for each in stream for record in each.records]
    assert found == [*(b"%d" % each for each in range(10)), b"after"]
    log.Produce(produce(ten, b"again"), timeout=TIMEOUT_S)
    assert consumed(log, ten, partitions=[0])[-2:] == [b"after", b"again"]
