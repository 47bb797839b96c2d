"""What a client may hold of a gateway's memory and connections, also one that goes away or does not read."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import grpc
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, Stream, failing, produce

from trioka.gateway.kafka.connection import Connection
from trioka.gateway.process import http_limits
from trioka.gateway.process.http import HttpServer, bind, parts_app
from trioka.gateway.process.http_limits import BodyLimit
from trioka.gateway.settings import Address
from trioka.gateway.v1 import log_pb2
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.protocol.errors import NetworkException
from trioka.protocol.messages.produce import ProduceRequest
from trioka.testing.broker import Broker

MIB = 1024 * 1024
LARGE = 1_000_000  # below max.message.bytes
UNWRITTEN = "trioka_gateway_unwritten_bytes "


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def unwritten_bytes(gateway: GatewayUnderTest) -> float:
    lines = gateway.get("/metrics")[1].splitlines()
    return next(float(line.removeprefix(UNWRITTEN)) for line in lines if line.startswith(UNWRITTEN))


def test_requests_of_callers_that_have_gone_count_until_they_are_written(
    broker: Broker, gateway: GatewayUnderTest, log: LogServiceStub, topic: str
) -> None:
    name = f"{topic}-gone"
    log.Produce(produce(topic, b"x", producer=(name, 0)), timeout=TIMEOUT_S)
    with broker.delay("AddPartitionsToTxn", by=2, count=1):
        for sequence in range(1, 4):
            with pytest.raises(grpc.RpcError) as raised:
                log.Produce(produce(topic, b"x" * LARGE, producer=(name, sequence)), timeout=0.3)
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert unwritten_bytes(gateway) > 3 * LARGE
    until(lambda: unwritten_bytes(gateway) == 0)
    assert len(broker.records(topic, 0, committed=True)) == 4


def test_a_request_without_response_waits_for_a_broker_that_does_not_read() -> None:
    """What is not read would pile up in this process."""

    async def run() -> int:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            _, connection = await loop.create_connection(lambda: Connection("silent"), sock=ours)
            request = ProduceRequest(
                acks=0,
                timeout_ms=1000,
                topic_data=[
                    ProduceRequest.Topic(
                        name="t",
                        partition_data=[ProduceRequest.Topic.Partition(index=0, records=memoryview(bytes(MIB)))],
                    )
                ],
            )
            sent = 0
            with suppress(NetworkException):
                while sent < 20:
                    await connection.send(request, 9, timeout_s=0.1)
                    sent += 1
            connection.abort()
            return sent

    assert asyncio.run(run()) < 5


def http_connection(gateway: GatewayUnderTest) -> socket.socket:
    host, _, port = gateway.addresses["HTTP"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def http_status(gateway: GatewayUnderTest, *data: bytes) -> bytes:
    """Of the first response, which may come before all is sent; empty if the connection was closed."""
    with http_connection(gateway) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            for each in data:
                client.sendall(each)
        try:
            line = client.recv(1 << 16).split(b"\r\n")[0]
        except ConnectionResetError:
            return b""
    return line.split()[1] if line else b""


@pytest.mark.parametrize("piece", [b"X-A: b\r\n" * 8192, b"x" * 65536])
def test_a_head_without_end_closes_its_connection(gateway: GatewayUnderTest, piece: bytes) -> None:
    sent = 0
    with http_connection(gateway) as client:
        client.sendall(b"GET /topics HTTP/1.1\r\nX: ")
        try:
            while sent < 64 * MIB:
                sent += client.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert sent < 32 * MIB  # what the sockets' buffers take is not the gateway's
    assert http_status(gateway, b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n") == b"200"


def test_the_bodies_of_all_requests_have_a_limit_together(broker: Broker, topic: str) -> None:
    words = ["--override", "http.max.bodies.bytes=3000000"]
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.kafka.json.v2+json\r\n".encode()
    body = json.dumps({"records": [{"value": "x" * 2_000_000}]}).encode()
    small = json.dumps({"records": [{"value": "x" * 1_500_000}]}).encode()
    with GatewayUnderTest(broker.bootstrap_servers, *words) as gateway, ExitStack() as stack:
        slow = stack.enter_context(http_connection(gateway))
        length = b"Content-Length: %d\r\n\r\n"
        slow.sendall(head + length % (len(body) + 1) + body)  # and waits for the last byte
        whole = head + length % len(small) + small
        until(lambda: http_status(gateway, whole) == b"503")
        slow.sendall(b" ")
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 200")
        until(lambda: http_status(gateway, whole) == b"200")


def test_a_head_and_a_body_that_come_too_slowly_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "RECEIVE_S", 0.2)

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    async def run() -> list[bytes]:
        limit = Middleware(BodyLimit, max_bytes=100, max_bytes_of_all=100)
        app = parts_app([Route("/", echo, methods=["POST"])], [limit])
        server = HttpServer(app, bind(Address("127.0.0.1", 0)))
        serving = asyncio.create_task(server.run_until_stopped())
        found = []
        for sent in (b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
            writer.write(sent)
            found.append((await reader.readline()).strip())
            writer.close()
        server.stop()
        await serving
        return found

    assert asyncio.run(run()) == [b"", b"", b"HTTP/1.1 408 Request Timeout"]


def test_two_thousand_connections_leave_the_gateway_serving(
    broker: Broker, gateway: GatewayUnderTest, log: LogServiceStub, topic: str
) -> None:
    """Twice as many as each listener takes; the further ones are closed or refused, and all places come back."""
    assert log.Produce(produce(topic, b"x"), timeout=TIMEOUT_S).positions  # its connection is there before the others
    for name in ("gRPC", "HTTP"):
        host, _, port = gateway.addresses[name].rpartition(":")
        with ExitStack() as stack:
            for _ in range(2000):
                with suppress(OSError):
                    stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
            assert log.Produce(produce(topic, b"x"), timeout=TIMEOUT_S).positions
            assert gateway.get("/readyz")[0] == 200
        with grpc.insecure_channel(gateway.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            again = LogServiceStub(channel).Produce(produce(topic, b"x"), timeout=TIMEOUT_S, wait_for_ready=True)
            assert again.positions
    until(lambda: http_status(gateway, b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n") == b"200")


# -- a stop


def test_a_stop_ends_a_stream_in_the_middle_of_what_is_there(broker: Broker, topic: str) -> None:
    for _ in range(30):
        broker.produce(topic, *[b"x" * 1500] * 100)
    with GatewayUnderTest(broker.bootstrap_servers) as gateway, grpc.insecure_channel(gateway.grpc) as channel:
        stream = LogServiceStub(channel).Consume(log_pb2.ConsumeRequest(topic=topic, max_bytes=1600), timeout=TIMEOUT_S)
        next(stream)
        gateway.signal()
        read, at = 1, 0
        with failing() as failed:
            for each in stream:
                read, at = read + 1, each.next_offset
        assert failed.code is grpc.StatusCode.UNAVAILABLE
        assert "next_offset" in failed.failure.message
        assert read == at < 3000
        assert gateway.wait() == 0


def test_a_request_of_http_ends_before_the_gateway_does(broker: Broker, topic: str) -> None:
    with GatewayUnderTest(broker.bootstrap_servers) as gateway:
        client = http.client.HTTPConnection(gateway.addresses["HTTP"], timeout=TIMEOUT_S)

        def ask(method: str, path: str, body: str) -> int:
            client.request(method, path, body)
            with client.getresponse() as response:
                response.read()
                return response.status

        assert ask("POST", "/consumers/stopped", '{"name": "one"}') == 200
        path = "/consumers/stopped/instances/one"
        place = f'{{"partitions": [{{"topic": "{topic}", "partition": 0}}]}}'
        assert ask("POST", f"{path}/assignments", place) == 204
        client.request("GET", f"{path}/records?timeout=2000")
        gateway.signal()
        until(lambda: gateway.get("/readyz")[0] == 503)
        broker.produce(topic, b"x")
        assert client.getresponse().status == 200
        client.close()
        assert gateway.wait() == 0


def test_a_second_signal_does_not_wait_for_calls(broker: Broker, topic: str) -> None:
    """Of gRPC and of HTTP: both wait for records that do not come."""
    words = ["--override", "shutdown.grace.ms=600000"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
        http_connection(gateway) as client,
    ):
        path = f"/topics/{topic}/partitions/0/records?timeout=60000"
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        join = log_pb2.SubscribeRequest(join=log_pb2.Join(group="g", topics=[topic]))
        stream = Stream(LogServiceStub(channel).Subscribe, join)
        until(lambda: 'open_calls{method="Subscribe"} 1.0' in gateway.get("/metrics")[1])
        gateway.signal()
        until(lambda: gateway.get("/readyz")[0] == 503)
        gateway.signal()
        assert gateway.wait() == 0
        stream.end()


def test_a_stop_does_not_wait_for_a_subscriber_that_has_not_joined(broker: Broker) -> None:
    words = ["--override", "shutdown.grace.ms=600000"]
    with (
        GatewayUnderTest(broker.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        stream = Stream(LogServiceStub(channel).Subscribe)
        until(lambda: 'open_calls{method="Subscribe"} 1.0' in gateway.get("/metrics")[1])
        gateway.signal()
        assert gateway.wait() == 0
        stream.end()
        assert stream.call.code() is grpc.StatusCode.UNAVAILABLE
