"""Subscribe: credit, acknowledgement, release, rebalances, and what a group has committed in the end."""

import threading
import time

import grpc
import pytest
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, Stream, failing, produce

from trioka.gateway.v1 import admin_pb2, log_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker

RELEASE, REJECT = log_pb2.VERDICT_RELEASE, log_pb2.VERDICT_REJECT


def join(group: str, *topics: str, **fields: object) -> log_pb2.SubscribeRequest:
    return log_pb2.SubscribeRequest(join=log_pb2.Join(group=group, topics=topics, **fields))  # type: ignore[arg-type]


def credit(count: int) -> log_pb2.SubscribeRequest:
    return log_pb2.SubscribeRequest(credit=count)


def acknowledge(topic: str, offset: int, verdict: "log_pb2.Verdict | None" = None) -> log_pb2.SubscribeRequest:
    return log_pb2.SubscribeRequest(acknowledge=log_pb2.Acknowledge(topic=topic, offset=offset, verdict=verdict))


def received(stream: Stream, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        response = stream.next()
        found += [record.value for record in response.delivery.records]
    assert len(found) == count, "no more than there is credit for"
    return found


def committed(admin: AdminServiceStub, group: str) -> dict[int, int]:
    response = admin.ListGroupOffsets(admin_pb2.ListGroupOffsetsRequest(group=group), timeout=TIMEOUT_S)
    return {each.partition: each.offset for each in response.offsets}


def ended(stream: Stream) -> None:
    """The client has sent all that it will; the member has left its group when the stream ends."""
    stream.end()
    stream.rest()


@pytest.fixture
def six(broker: Broker, topic: str) -> str:
    broker.produce(topic, *(b"%d" % each for each in range(6)))
    return topic


def test_a_subscriber_gets_as_many_records_as_it_has_credit_for_and_goes_on_behind_what_it_accepted(
    log: LogServiceStub, admin: AdminServiceStub, six: str
) -> None:
    first = Stream(log.Subscribe, join(six, six), credit(4))
    assert [each.partition for each in first.next().assignment.partitions] == [0, 1]
    assert received(first, 4) == [b"0", b"1", b"2", b"3"]
    first.send(acknowledge(six, 1), acknowledge(six, 0), acknowledge("other", 0), acknowledge(six, 77, RELEASE))
    ended(first)
    wait_for_commit(admin, six, 2)
    second = Stream(log.Subscribe, join(six, six), credit(10))
    assert received(second, 4) == [b"2", b"3", b"4", b"5"]
    second.send(acknowledge(six, 5, REJECT))
    ended(second)
    wait_for_commit(admin, six, 6)


def wait_for_commit(admin: AdminServiceStub, group: str, offset: int) -> None:
    """The member commits and leaves in its thread, shortly after the stream has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while committed(admin, group).get(0) != offset and time.monotonic() < deadline:
        time.sleep(0.05)
    assert committed(admin, group).get(0) == offset


def test_a_released_record_is_sent_again_with_those_behind_it(log: LogServiceStub, six: str) -> None:
    stream = Stream(log.Subscribe, join(six, six), credit(4))
    assert received(stream, 4) == [b"0", b"1", b"2", b"3"]
    stream.send(acknowledge(six, 1), acknowledge(six, 2, RELEASE), credit(4))
    assert received(stream, 4) == [b"2", b"3", b"4", b"5"]
    ended(stream)


def test_records_are_accepted_when_they_are_sent_if_the_join_says_so(
    log: LogServiceStub, admin: AdminServiceStub, six: str
) -> None:
    stream = Stream(log.Subscribe, join(six, six, auto_commit=True), credit(6))
    assert len(received(stream, 6)) == 6
    ended(stream)
    wait_for_commit(admin, six, 6)


def test_a_group_without_an_offset_may_begin_at_the_end(broker: Broker, log: LogServiceStub, six: str) -> None:
    stream = Stream(log.Subscribe, join(six, six, reset=log_pb2.RESET_LATEST), credit(100))
    assert stream.next().HasField("assignment")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(r.value for r in stream.next().delivery.records))
    reader.start()
    while reader.is_alive():  # the member may not have looked up the end when the first one is written
        broker.produce(six, b"new")
        reader.join(0.2)
    assert set(found) == {b"new"}
    ended(stream)


def test_a_second_member_takes_a_partition_and_both_are_told(log: LogServiceStub, topic: str) -> None:
    first = Stream(log.Subscribe, join(topic, topic), credit(1))
    assert len(first.next().assignment.partitions) == 2
    second = Stream(log.Subscribe, join(topic, topic), credit(1))
    (mine,) = second.next().assignment.partitions
    while len(found := first.next().assignment.partitions) != 1:
        assert not found  # revoked, before the new assignment
    assert {mine.partition, found[0].partition} == {0, 1}
    ended(second)
    ended(first)


def test_what_is_not_acknowledged_is_limited_whatever_the_credit(broker: Broker, six: str) -> None:
    words = ["--override", "stream.max.unacknowledged.records=2"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        stream = Stream(LogServiceStub(channel).Subscribe, join(six, six), credit(100))
        assert received(stream, 2) == [b"0", b"1"]
        stream.send(acknowledge(six, 0))
        assert received(stream, 1) == [b"2"]
        stream.send(acknowledge(six, 2))
        assert received(stream, 2) == [b"3", b"4"]
        ended(stream)


@pytest.mark.parametrize(
    ("messages", "code", "sentence"),
    [
        ([credit(1)], grpc.StatusCode.INVALID_ARGUMENT, "the first message of a Subscribe is join"),
        ([log_pb2.SubscribeRequest()], grpc.StatusCode.INVALID_ARGUMENT, "the first message of a Subscribe is join"),
        ([join("", "t")], grpc.StatusCode.INVALID_ARGUMENT, "group is empty"),
        ([join("g")], grpc.StatusCode.INVALID_ARGUMENT, "1 to 100 topics, this one 0"),
        ([join("g", "nowhere")], grpc.StatusCode.NOT_FOUND, "no such topic"),
        ([join("g", "t", reset=9)], grpc.StatusCode.INVALID_ARGUMENT, "there is no reset 9"),
        ([join("g", "t", share=True)], grpc.StatusCode.UNIMPLEMENTED, "share groups are not implemented"),
        ([join("g", "TOPIC"), credit(0)], grpc.StatusCode.INVALID_ARGUMENT, "credit is from 1 to"),
        ([join("g", "TOPIC"), credit(-4)], grpc.StatusCode.INVALID_ARGUMENT, "credit is from 1 to"),
        ([join("g", "TOPIC"), join("g", "TOPIC")], grpc.StatusCode.INVALID_ARGUMENT, "a Subscribe is joined once"),
        (
            [join("g", "TOPIC"), log_pb2.SubscribeRequest(acknowledge=log_pb2.Acknowledge(verdict=9))],  # type: ignore[arg-type]
            grpc.StatusCode.INVALID_ARGUMENT,
            "there is no verdict 9",
        ),
    ],
)
def test_a_wrong_order_ends_the_stream_with_its_code_and_a_sentence(
    log: LogServiceStub,
    topic: str,
    messages: list[log_pb2.SubscribeRequest],
    code: grpc.StatusCode,
    sentence: str,
) -> None:
    for message in messages:
        if message.join.topics == ["TOPIC"]:
            message.join.topics[0] = topic
    stream = Stream(log.Subscribe, *messages)
    with failing() as failed:
        stream.rest()
    stream.end()
    assert failed.code is code
    assert sentence in failed.failure.message


def test_a_client_that_goes_away_leaves_its_group(log: LogServiceStub, admin: AdminServiceStub, topic: str) -> None:
    stream = Stream(log.Subscribe, join(topic, topic), credit(1))
    assert stream.next().HasField("assignment")
    stream.cancel()
    deadline = time.monotonic() + TIMEOUT_S
    described = admin_pb2.DescribeGroupRequest(group=topic)
    while admin.DescribeGroup(described, timeout=TIMEOUT_S).members and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not admin.DescribeGroup(described, timeout=TIMEOUT_S).members


def test_a_stop_drains_streams_and_tells_them_where_they_are(broker: Broker, topic: str) -> None:
    with GatewayUnderTest(broker.bootstrap_servers) as gateway, grpc.insecure_channel(gateway.grpc) as channel:
        log = LogServiceStub(channel)
        member = Stream(log.Subscribe, join(topic, topic), credit(1))
        assert member.next().HasField("assignment")
        writer = Stream(log.ProduceStream, log_pb2.ProduceStreamRequest(id=1, request=produce(topic, b"x")))
        assert writer.next().written.positions
        reader = log.Consume(log_pb2.ConsumeRequest(topic=topic, follow=True), timeout=TIMEOUT_S)
        assert next(reader).next_offset == 1
        gateway.signal()
        for rest in (member.rest, writer.rest, lambda: list(reader)):
            with failing() as failed:
                rest()
            assert failed.code is grpc.StatusCode.UNAVAILABLE
            assert "the gateway stops" in failed.failure.message
            assert failed.failure.retriable
        assert gateway.wait() == 0
        member.end()
        writer.end()
