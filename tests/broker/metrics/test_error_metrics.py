"""Errors by code, and what happens between nodes, as a scrape tells of them."""

from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer
from mutants.plant import Rule, assert_noticed
from support.http_scrapes import scraped
from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, producing

from trioka.broker.counters import errors as error_counts
from trioka.broker.counters import traffic as counts
from trioka.cluster.image_delta import PartitionChanged
from trioka.cluster.partition import Partition
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.messages.list_offsets import ListOffsetsResponse
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.testing import Cluster

TOPICS = "kafka_server_brokertopicmetrics"
NOW_MS = 1_700_000_000_000


def fetching(name: str, offset: int) -> FetchRequest:
    wanted = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.Topic(topic=name, partitions=[wanted])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)


@on_trio
async def test_errors_are_counted_by_api_and_code_wherever_they_stand(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "orders")
        await ask(broker, producing("nowhere", NOW_MS), 9)
        await ask(broker, fetching("orders", 9), 12)
        await ask(broker, fetching("orders", 0), 12)
        for name in ("orders", "nowhere"):
            await ask(broker, metadata_of(name), 9)
        await ask(broker, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        scrape = scraped(broker)
        for request, error in {
            "Produce": "UNKNOWN_TOPIC_OR_PARTITION",
            "Fetch": "OFFSET_OUT_OF_RANGE",
            "Metadata": "UNKNOWN_TOPIC_OR_PARTITION",
            "Heartbeat": "NOT_COORDINATOR",
        }.items():
            assert scrape.value("kafka_network_requestmetrics_errors_total", request=request, error=error) == 1, request
        assert len(scrape.samples["kafka_network_requestmetrics_errors_total"]) == 4


def metadata_of(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)


def every_error_of_an_answer_counts_and_no_success(module: ModuleType) -> None:
    Topic = ListOffsetsResponse.Topic
    result = [Topic.Partition(partition_index=index, error_code=code) for index, code in enumerate((0, 6, 6, 3))]
    found = module.ErrorCounts()
    found.count(
        2, ListOffsetsResponse(topics=[Topic(name="a", partitions=result), Topic(name="b", partitions=result[:2])])
    )
    found.count(12, HeartbeatResponse(error_code=25))
    found.count(12, HeartbeatResponse(error_code=0))
    found.count(12, b"framed already")
    found.count(18, None)
    assert found.by_api == {(2, 6): 3, (2, 3): 1, (12, 25): 1}


def an_isr_that_grows_or_shrinks_counts_where_it_is_led(module: ModuleType) -> None:
    def led(leader: int, *isr: int) -> Partition:
        return Partition(
            index=0,
            replicas=(1, 2, 3),
            directories=(bytes(16),) * 3,
            isr=isr,
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
        )

    found = module.BrokerCounters()
    for before, after in (
        (led(1, 1, 2, 3), led(1, 1, 2)),
        (led(1, 1, 2), led(1, 1)),
        (led(1, 1), led(1, 1, 2, 3)),
        (led(1, 1, 2), led(1, 1, 3)),
        (led(2, 1, 2), led(2, 2)),  # another's
        (led(2, 1, 2), led(1, 1)),  # another's, so far
    ):
        found.note([PartitionChanged(topic_id=bytes(16), name="t", index=0, before=before, after=after)], 1)
    assert (found.isr_shrinks, found.isr_expansions) == (2, 1)


def test_what_goes_between_nodes_is_counted_on_both_sides() -> None:
    with Cluster(nodes=3) as cluster:
        topic = cluster.create_topic("orders")
        leader = cluster.leader(topic)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce(topic, bytes(1000))
        assert producer.flush(60) == 0
        other = next(number for number in cluster.numbers if number != leader)
        cluster.kill(other)
        cluster.wait_healthy()
        cluster.start(other)
        cluster.wait_healthy()
        inside = cluster._inside.running
        scrapes = cluster._home.call(lambda: {number: scraped(node.broker) for number, node in inside.items()})
    third = next(number for number in (1, 2, 3) if number not in (leader, other))
    assert scrapes[leader].value(f"{TOPICS}_replicationbytesout_total") >= 2000
    assert scrapes[third].value(f"{TOPICS}_replicationbytesin_total") >= 1000
    for name in ("isrshrinks", "isrexpands"):
        assert scrapes[leader].value(f"kafka_server_replicamanager_{name}_total") >= 1
    for name in ("request_total", "response_total", "incoming_byte_total", "outgoing_byte_total"):
        values = [each.value(f"kafka_server_raftchannelmetrics_{name}") for each in scrapes.values()]
        assert sum(value > 0 for value in values) >= 2, name  # those who do not lead ask


RULES: list[tuple[ModuleType, Rule]] = [
    (counts, an_isr_that_grows_or_shrinks_counts_where_it_is_led),
    (error_counts, every_error_of_an_answer_counts_and_no_success),
]
MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (
        counts,
        "len(change.after.isr) < len(before.isr)",
        "len(change.after.isr) <= len(before.isr)",
        an_isr_that_grows_or_shrinks_counts_where_it_is_led,
    ),
    (counts, "leader == node_id and not is_new", "not is_new", an_isr_that_grows_or_shrinks_counts_where_it_is_led),
    (error_counts, "answer.error_code != NONE", "True", every_error_of_an_answer_counts_and_no_success),
    (
        error_counts,
        "places.is_here or places.lists",
        "places.is_here and places.lists",
        every_error_of_an_answer_counts_and_no_success,
    ),
]


@pytest.mark.parametrize(("module", "rule"), RULES)
def test_the_rule_holds(module: ModuleType, rule: Rule) -> None:
    rule(module)


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
