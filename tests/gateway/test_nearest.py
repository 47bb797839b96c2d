"""Reads from a replica in the gateway's rack."""

import http.client
import json
import os
from collections import Counter
from pathlib import Path

import grpc
import pytest
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, produce

from trioka.gateway.v1 import log_pb2, types_pb2
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.cluster import Cluster

NEAREST = types_pb2.CONSISTENCY_NEAREST
RACKS = ("a", "b", "c")
STREAMS = 8  # each has a connection of its own
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def port_of(kafka: Cluster, node: int) -> int:
    return int(kafka.address(node).rpartition(":")[2])


def peers(pid: int) -> Counter[int]:
    """The ports to which a process is connected, and how often."""
    links = (Path(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd"))
    sockets = {os.readlink(each).removeprefix("socket:[").removesuffix("]") for each in links if each.is_symlink()}
    found: Counter[int] = Counter()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in sockets:
            found[int(fields[2].rpartition(":")[2], 16)] += 1
    return found


@pytest.mark.slow
def test_the_level_nearest_reads_a_follower_in_the_gateways_rack_and_goes_back_to_the_leader() -> None:
    with Cluster(broker_rack=RACKS, replica_selector_class=SELECTOR) as kafka:
        kafka.create_topic("t", 1)
        leader = kafka.leader("t")
        near = min({1, 2, 3} - {leader})
        words = [f"client.rack={RACKS[near - 1]}", "cluster.request.timeout.ms=5000"]
        overrides = [part for word in words for part in ("--override", word)]
        with GatewayUnderTest(kafka.address(leader), *overrides) as gateway:
            with grpc.insecure_channel(gateway.grpc) as channel:
                log = LogServiceStub(channel)
                for number in range(3):
                    log.Produce(produce("t", b"%d" % number), timeout=TIMEOUT_S)
                by_offset = log_pb2.ReadRequest(topic="t", offset=1, consistency=NEAREST)
                to_the_end = log_pb2.ConsumeRequest(topic="t", consistency=NEAREST)
                for _ in range(2):  # where the leader names the replica, and where it is known
                    read = [r.value for each in log.Consume(to_the_end, timeout=TIMEOUT_S) for r in each.records]
                    assert read == [b"0", b"1", b"2"]
                    assert log.Read(by_offset, timeout=TIMEOUT_S).record.value == b"1"
                follow = log_pb2.ConsumeRequest(topic="t", consistency=NEAREST, follow=True)
                streams = [log.Consume(follow, timeout=2 * TIMEOUT_S) for _ in range(STREAMS)]
                for stream in streams:
                    found: list[bytes] = []
                    while len(found) < 3:
                        found += [record.value for record in next(stream).records]
                connections = peers(gateway.pid)
                assert connections[port_of(kafka, near)] >= STREAMS > connections[port_of(kafka, leader)]
                kafka.kill(near)  # what was read there goes on at the leader
                log.Produce(produce("t", b"3"), timeout=TIMEOUT_S)
                while len(found) < 4:
                    found += [record.value for record in next(stream).records]
                assert found == [b"0", b"1", b"2", b"3"]
                assert log.Read(by_offset, timeout=TIMEOUT_S).record.value == b"1"
            connection = http.client.HTTPConnection(gateway.addresses["HTTP"], timeout=TIMEOUT_S)
            connection.request("GET", "/topics/t/partitions/0/records?isolation=nearest&format=binary")
            assert len(json.loads(connection.getresponse().read())) == 4
            connection.close()
