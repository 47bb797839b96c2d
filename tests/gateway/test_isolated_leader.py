"""Linearizable reads through the gateway, and brokers that answer with old metadata or not at all."""

import http.client
import json
import socket
from typing import Any

import grpc
import pytest
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, produce

from trioka.gateway.v1 import admin_pb2, log_pb2, types_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker
from trioka.testing.cluster import Cluster

LINEARIZABLE = types_pb2.CONSISTENCY_LINEARIZABLE
HASTY: dict[str, Any] = {"trioka.linearizable.read.timeout.ms": 500}


def rest_records(gateway: GatewayUnderTest, path: str) -> Any:
    connection = http.client.HTTPConnection(gateway.addresses["HTTP"], timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def values(log: LogServiceStub, **fields: Any) -> list[bytes]:
    request = log_pb2.ConsumeRequest(topic="t", consistency=LINEARIZABLE, **fields)
    return [record.value for each in log.Consume(request, timeout=TIMEOUT_S) for record in each.records]


def read(log: LogServiceStub, **fields: Any) -> bytes:
    request = log_pb2.ReadRequest(topic="t", consistency=LINEARIZABLE, **fields)
    response: log_pb2.ReadResponse = log.Read(request, timeout=TIMEOUT_S)
    return response.record.value


def test_linearizable_reads_are_served_where_the_topic_has_them(broker: Broker) -> None:
    broker.create_topic("t", 1, trioka_read_consistency="linearizable")
    with GatewayUnderTest(broker.bootstrap_servers) as gateway, grpc.insecure_channel(gateway.grpc) as channel:
        log, admin = LogServiceStub(channel), AdminServiceStub(channel)
        for number in range(3):
            log.Produce(produce("t", b"%d" % number), timeout=TIMEOUT_S)
            assert values(log, start=log_pb2.Start(last=1)) == [b"%d" % number]
        assert values(log, start=log_pb2.Start(last=2)) == [b"1", b"2"]
        assert read(log, offset=2) == b"2"
        listed = admin_pb2.ListOffsetsRequest(topic="t", consistency=LINEARIZABLE)
        assert admin.ListOffsets(listed, timeout=TIMEOUT_S).partitions[0].end == 3
        path = "/topics/t/partitions/0/records?isolation=linearizable&offset=2&format=binary"
        assert [each["value"] for each in rest_records(gateway, path)] == ["Mg=="]


@pytest.mark.slow
def test_a_linearizable_read_finds_what_the_leader_after_an_isolated_one_has_acknowledged() -> None:
    """The isolated broker is the one that the gateway takes its metadata from: it says that it leads."""
    with Cluster(**HASTY) as kafka:
        kafka.create_topic("t", 1, min_insync_replicas=2, trioka_read_consistency="linearizable")
        kafka.wait_healthy()
        isolated = kafka.leader("t")
        others = [kafka.address(each) for each in kafka.running if each != isolated]
        addresses = ",".join([kafka.address(isolated), *others])
        with GatewayUnderTest(addresses) as gateway, grpc.insecure_channel(gateway.grpc) as channel:
            log = LogServiceStub(channel)
            log.Produce(produce("t", b"before"), timeout=TIMEOUT_S)
            assert values(log) == [b"before"]
            kafka.isolate(isolated)
            assert kafka.leader("t") != isolated
            kafka.produce("t", b"after")
            assert read(log, offset=1) == b"after"
            assert values(log) == [b"before", b"after"]
            path = "/topics/t/partitions/0/records?isolation=linearizable&offset=1&format=binary"
            assert [each["value"] for each in rest_records(gateway, path)] == ["YWZ0ZXI="]


def test_a_bootstrap_server_that_never_answers_does_not_stop_the_gateway(broker: Broker, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        words = ["--override", "cluster.request.timeout.ms=1000"]
        with (
            GatewayUnderTest(f"{host}:{port},{broker.bootstrap_servers}", *words) as gateway,
            grpc.insecure_channel(gateway.grpc) as channel,
        ):
            offsets = admin_pb2.ListOffsetsRequest(topic=topic)
            assert len(AdminServiceStub(channel).ListOffsets(offsets, timeout=TIMEOUT_S).partitions) == 2
