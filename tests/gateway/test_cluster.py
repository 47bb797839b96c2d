"""In front of three brokers, whose leaders are killed: streams go on, and nothing is lost or written twice."""

import grpc
import pytest
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, failing, produce, values

from trioka.gateway.v1 import admin_pb2, log_pb2, types_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.cluster import Cluster

ROUNDS = 3
COUNT = 15  # requests in a round


def write(log: LogServiceStub, topic: str, sequence: int, *, name: str | None) -> None:
    """Until it is answered; without a name it may be there twice."""
    request = log_pb2.ProduceRequest(topic=topic, partition=sequence % 3, records=values(b"%d" % sequence))
    if name is not None:
        request.producer.name, request.producer.sequence = name, sequence
    for _ in range(20):
        try:
            log.Produce(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        else:
            return
    raise AssertionError(f"sequence {sequence} was never answered")


@pytest.mark.nightly
def test_streams_and_named_producers_go_on_when_leaders_are_killed() -> None:
    words = ["--override", "cluster.request.timeout.ms=3000"]  # a coordinator that dies may cost so much
    with Cluster() as kafka, GatewayUnderTest(kafka.bootstrap_servers, *words) as gateway:
        topic = kafka.create_topic("t", 3, min_insync_replicas=2)
        with grpc.insecure_channel(gateway.grpc) as channel:
            log = LogServiceStub(channel)
            follow = log_pb2.ConsumeRequest(
                topic=topic, consistency=types_pb2.CONSISTENCY_STABLE, follow=True, limit=ROUNDS * COUNT
            )
            stream = log.Consume(follow, timeout=10 * TIMEOUT_S)
            for number in range(ROUNDS):
                for sequence in range(number * COUNT, (number + 1) * COUNT):
                    if sequence % COUNT == COUNT // 2:
                        victim = kafka.leader(topic, number)
                        kafka.kill(victim)
                    write(log, topic, sequence, name="cluster")
                kafka.start(victim)
                kafka.wait_healthy()
            found = sorted(int(record.value) for each in stream for record in each.records)
            assert found == list(range(ROUNDS * COUNT))
            once = [int(each.value or b"") for each in kafka.records(topic, committed=True)]
            assert sorted(once) == found


@pytest.mark.slow
def test_a_topic_is_created_and_written_at_once_on_every_broker() -> None:
    with (
        Cluster() as kafka,
        GatewayUnderTest(kafka.bootstrap_servers) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log, admin = LogServiceStub(channel), AdminServiceStub(channel)
        created = admin_pb2.CreateTopicRequest(topic="three", partitions=6, replication_factor=3)
        admin.CreateTopic(created, timeout=TIMEOUT_S)
        described = admin.DescribeTopic(admin_pb2.DescribeTopicRequest(topic="three"), timeout=TIMEOUT_S)
        assert {each.leader for each in described.partitions} == {1, 2, 3}
        for partition in range(6):
            log.Produce(produce("three", b"%d" % partition, partition=partition), timeout=TIMEOUT_S)
        read = [
            r.value for m in log.Consume(log_pb2.ConsumeRequest(topic="three"), timeout=TIMEOUT_S) for r in m.records
        ]
        assert sorted(read) == [b"%d" % each for each in range(6)]
        limited = log_pb2.ConsumeRequest(topic="three", limit=4, follow=True)
        assert sum(len(each.records) for each in log.Consume(limited, timeout=TIMEOUT_S)) == 4
        with failing() as failed:
            admin.CreateTopic(admin_pb2.CreateTopicRequest(topic="x", replication_factor=4), timeout=TIMEOUT_S)
        assert failed.code is grpc.StatusCode.INVALID_ARGUMENT
