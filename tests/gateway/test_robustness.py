"""Bytes that no client sends, limits on connections and calls, health, reflection, and the gateway of `trioka dev`."""

import random
import re
import socket
import subprocess
import sys
import time
from concurrent import futures
from contextlib import suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, produce

from trioka.gateway.v1 import admin_pb2, log_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker

METHODS = [
    f"/{service.full_name}/{method.name}"
    for file in (log_pb2.DESCRIPTOR, admin_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
]
FUZZED_BY_DEFAULT = (
    "ProduceStream",
    "Consume",
    "Subscribe",
    "Produce",
    "CreateTopic",
)  # the other methods are served alike
FUZZED = [
    each if each.rpartition("/")[2] in FUZZED_BY_DEFAULT else pytest.param(each, marks=pytest.mark.nightly)
    for each in METHODS
]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def still_serves(log: LogServiceStub, topic: str) -> bool:
    return bool(log.Produce(produce(topic, b"still here"), timeout=TIMEOUT_S).positions)


@pytest.mark.parametrize("method", FUZZED)
def test_random_messages_to_every_method_end_nothing(
    channel: grpc.Channel, log: LogServiceStub, topic: str, method: str
) -> None:
    chance = random.Random(method)
    call = channel.stream_stream(method)
    for size in (0, 1, 7, 100, 5000):
        with suppress(grpc.RpcError):
            list(call(iter([chance.randbytes(size), chance.randbytes(size)]), timeout=2))
    assert still_serves(log, topic)


def test_damaged_requests_end_nothing(channel: grpc.Channel, log: LogServiceStub, topic: str) -> None:
    """Bits of good requests are flipped: most still parse, with other fields and lengths."""
    chance = random.Random(5)
    good = log_pb2.ProduceStreamRequest(id=1, request=produce(topic, b"value", producer=("fuzz", 1)))
    call = channel.stream_stream("/trioka.v1.LogService/ProduceStream")
    messages = []
    for _ in range(200):
        data = bytearray(good.SerializeToString())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        messages.append(bytes(data))
    for start in range(0, len(messages), 20):
        with suppress(grpc.RpcError):
            list(call(iter(messages[start : start + 20]), timeout=10))
    assert still_serves(log, topic)


def test_random_frames_and_other_protocols_end_nothing(
    gateway: GatewayUnderTest, log: LogServiceStub, topic: str
) -> None:
    chance = random.Random(11)
    host, _, port = gateway.grpc.rpartition(":")
    sent = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05", PREFACE, PREFACE + bytes(9), b"\0" * 100]
    sent += [PREFACE + chance.randbytes(chance.randrange(500)) for _ in range(30)]
    sent += [chance.randbytes(200) for _ in range(10)]
    for data in sent:
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(data)
            raw.settimeout(0.05)
            with suppress(OSError):
                raw.recv(4096)
    assert still_serves(log, topic)


def test_a_hundred_idle_streams_leave_room_for_a_call(broker: Broker, topic: str) -> None:
    """On several connections; each stream waits for records at the end of a partition."""
    words = ["--override", "grpc.max.streams.per.connection=30"]
    with GatewayUnderTest(broker.bootstrap_servers, *words) as gateway:
        option = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(gateway.grpc, options=option) for _ in range(5)]
        request = log_pb2.ConsumeRequest(topic=topic, start=log_pb2.Start(latest=True), follow=True)
        streams = [LogServiceStub(each).Consume(request) for each in channels for _ in range(20)]
        deadline = time.monotonic() + TIMEOUT_S
        while 'open_calls{method="Consume"} 100.0' not in gateway.get("/metrics")[1]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert LogServiceStub(channels[0]).Produce(produce(topic, b"x"), timeout=TIMEOUT_S).positions
        for stream in streams:
            stream.cancel()
        for each in channels:
            each.close()


def test_calls_beyond_the_limit_are_refused(broker: Broker, topic: str) -> None:
    words = ["--override", "grpc.max.concurrent.calls=2"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log = LogServiceStub(channel)
        log.Produce(produce(topic, b"x"), timeout=TIMEOUT_S)
        request = log_pb2.ConsumeRequest(topic=topic, partitions=[0], follow=True)
        streams = [log.Consume(request) for _ in range(2)]
        assert [next(each).next_offset for each in streams] == [1, 1]
        with pytest.raises(grpc.RpcError) as raised:
            log.Produce(produce(topic, b"x"), timeout=TIMEOUT_S)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in streams:
            each.cancel()


def test_connections_beyond_the_limit_are_closed(broker: Broker, topic: str) -> None:
    words = ["--override", "grpc.max.connections=2"]
    with GatewayUnderTest(broker.bootstrap_servers, *words) as gateway:
        option = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(gateway.grpc, options=option) for _ in range(3)]
        outcomes = []
        for each in channels:
            try:
                LogServiceStub(each).Produce(produce(topic, b"x"), timeout=3)
                outcomes.append("written")
            except grpc.RpcError as error:
                outcomes.append(error.code().name)
        assert outcomes[:2] == ["written", "written"]
        assert outcomes[2] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        for each in channels:
            each.close()


def test_health_and_reflection_name_the_services(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "trioka.v1.LogService", "trioka.v1.AdminService"):
        watched = health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        assert any(each.status == health_pb2.HealthCheckResponse.SERVING for each in watched)  # or the time limit
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (response,) = stub.ServerReflectionInfo(iter([asked]), timeout=TIMEOUT_S)
    names = {each.name for each in response.list_services_response.service}
    assert {"trioka.v1.LogService", "trioka.v1.AdminService", "grpc.health.v1.Health"} <= names


def test_a_cluster_that_goes_away_makes_calls_unavailable_and_comes_back() -> None:
    with Broker() as kafka:
        topic = kafka.create_topic("t")
        words = ["--override", "cluster.request.timeout.ms=5000"]
        with (
            GatewayUnderTest(kafka.bootstrap_servers, *words) as gateway,
            grpc.insecure_channel(gateway.grpc) as channel,
        ):
            log = LogServiceStub(channel)
            assert still_serves(log, topic)
            kafka.stop()
            with pytest.raises(grpc.RpcError) as raised:
                log.Read(log_pb2.ReadRequest(topic=topic, offset=0), timeout=TIMEOUT_S)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            kafka.start()
            assert log.Read(log_pb2.ReadRequest(topic=topic, offset=0), timeout=TIMEOUT_S).record.value == b"still here"
            assert still_serves(log, topic)


def test_dev_starts_a_broker_and_a_gateway_and_stops_both() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "trioka", "dev", "--port", "0", "--gateway"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if "gRPC" in line:
            break
    (address,) = re.findall(r"gRPC +(\S+:\d+)", text)
    with grpc.insecure_channel(address) as channel:
        AdminServiceStub(channel).CreateTopic(admin_pb2.CreateTopicRequest(topic="t"), timeout=TIMEOUT_S)
        assert still_serves(LogServiceStub(channel), "t")
    process.terminate()
    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(process.stdout.read)
        assert process.wait(60) == 0
    process.stdout.close()
    host, _, port = address.rpartition(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=5)
