"""What other implementations of Kafka got wrong, and their users tripped over. Each has a test here, named by what the
broker must do; those about groups and transactions come with them.
"""

from pathlib import Path
from typing import Any

import pytest
from support.config_requests import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, alter, described
from support.serving import LISTENER, ask, on_trio, running_broker

from trioka.broker import api
from trioka.broker.api import SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
)
from trioka.protocol.messages import request_type
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

NOW_MS = 1_700_000_000_000
HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
CONFIG_SOURCES = range(1, 9)


async def create(broker: Broker, name: str = "t", *, partitions: int = 1, factor: int = 1, **configs: str) -> Any:
    config = CreateTopicsRequest.Topic.Config
    topic = CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    return (await ask(broker, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)).topics[0]


async def produce(broker: Broker, data: bytes, *, topic: str = "t") -> Any:
    partition = ProduceRequest.Topic.Partition(index=0, records=data)
    topics = [ProduceRequest.Topic(name=topic, partition_data=[partition])]
    answer = await ask(broker, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    return answer.responses[0].partition_responses[0]


def records(*values: bytes, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytes:
    content = [Record(offset, NOW_MS + offset, key, value) for offset, value in enumerate(values)]
    return bytes(batch.build(content, codec=codec))


async def fetch(broker: Broker, offset: int, version: int = 11, **request: Any) -> Any:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    text: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics} | request
    return (await ask(broker, FetchRequest(**text), version)).responses[0].partitions[0]


async def offset_at(broker: Broker, timestamp: int, version: int = 7, isolation: int = 0) -> Any:
    partition = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsRequest.Topic(name="t", partitions=[partition])]
    text = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    return (await ask(broker, text, version)).topics[0].partitions[0]


# -- versions ----------------------------------------------------------------------------------------------------------


@on_trio
async def test_2_produce_is_advertised_from_version_0_on_for_old_librdkafka(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        result = {key.api_key: (key.min_version, key.max_version) for key in (await ask(broker, HELLO, 3)).api_keys}
        assert result[0] == (0, 13)


@on_trio
async def test_5_what_is_advertised_is_served(tmp_path: Path) -> None:
    """Every version of every API that is advertised is answered, and not with a closed connection."""
    async with running_broker(tmp_path) as broker:
        for key, served in SUPPORTED_APIS.items():
            listeners = {
                LISTENER: served.listeners & api.BROKER,
                "CONTROLLER": served.listeners & api.CONTROLLER,
            }
            declared = request_type(key).__versions__
            first = served.first if key else 3  # trap 2
            assert declared.first <= first
            assert served.last <= declared.last
            for version in range(first, served.last + 1):
                request = HELLO if key == 18 else request_type(key).with_defaults()
                if isinstance(request, ProduceRequest):
                    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])  # acks=0 would have no answer
                for listener, is_served in listeners.items():
                    answer = await ask(broker, request, version, listener)
                    assert (answer is not None) == bool(is_served), (key, version, listener)


@on_trio
async def test_4_message_sets_of_old_are_refused_and_not_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        old = bytearray(records(b"v"))
        old[16] = 1  # the magic of message sets
        assert (await produce(broker, bytes(old))).error_code == InvalidRecord.code
        assert (await offset_at(broker, -1)).offset == 0


# -- topics ------------------------------------------------------------------------------------------------------------


@on_trio
async def test_6_a_created_topic_is_reported_with_its_configuration_and_valid_sources(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = await create(broker, retention_ms="1000")
        assert created.configs
        assert all(config.config_source in CONFIG_SOURCES for config in created.configs)
        assert {c.name: c.value for c in created.configs}["retention.ms"] == "1000"


@on_trio
async def test_7_eligible_leaders_are_empty_and_not_null(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        requested = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="t")])
        partition = (await ask(broker, requested, 0)).topics[0].partitions[0]
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@on_trio
async def test_8_minus_1_asks_for_the_brokers_defaults(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=5) as broker:
        created = await create(broker, partitions=-1, factor=-1)
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 5, 1)


@on_trio
async def test_9_metadata_creates_a_topic_whose_leader_is_known_at_once_and_refuses_bad_names(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        requested = [MetadataRequest.Topic(name=name) for name in ("fresh", "no/slash", "..")]
        fresh, slash, dots = (await ask(broker, MetadataRequest(topics=requested), 9)).topics
        assert (fresh.error_code, fresh.partitions[0].leader_id) == (0, 1)
        assert slash.error_code == dots.error_code == InvalidTopic.code


@on_trio
async def test_38_create_partitions_answers_for_each_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await create(broker, "b")
        requested = [
            CreatePartitionsRequest.Topic(name=n, count=c, assignments=None) for n, c in (("a", 3), ("b", 0), ("c", 2))
        ]
        answer = await ask(broker, CreatePartitionsRequest(topics=requested, timeout_ms=1000, validate_only=False), 3)
        assert [(r.name, r.error_code == 0) for r in answer.results] == [("a", True), ("b", False), ("c", False)]


@on_trio
async def test_40_only_the_brokers_own_topics_are_internal(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for name in ("__consumer_offsets", "__transaction_state", "__mine", "t"):
            await create(broker, name)
        result = (await ask(broker, MetadataRequest(topics=None), 9)).topics
        assert {t.name for t in result if t.is_internal} == {"__consumer_offsets", "__transaction_state"}


@on_trio
async def test_41_what_was_created_is_there_for_everyone_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for number in range(20):
            await create(broker, f"t{number}")
            assert (await produce(broker, records(b"v"), topic=f"t{number}")).error_code == 0


# -- configuration -----------------------------------------------------------------------------------------------------


@on_trio
async def test_10_and_14_all_keys_of_a_topic_are_described_with_source_and_synonyms(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, cleanup_policy="compact")
        result = await described(broker, TOPIC, "t")
        assert len(result) > 25
        policy = result["cleanup.policy"]
        assert (policy.value, policy.config_source) == ("compact", 1)
        assert [s.source for s in policy.synonyms] == [1, 5]
        assert result["retention.ms"].value == "604800000"


@on_trio
async def test_11_defaults_are_not_written_as_settings_of_the_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, retention_ms="1")
        result = await described(broker, TOPIC, "t")
        assert [name for name, config in result.items() if config.config_source == 1] == ["retention.ms"]


@on_trio
async def test_12_brokers_tell_their_defaults_for_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        result = await described(broker, BROKER, "1")
        assert result["num.partitions"].value == "1"
        assert result["default.replication.factor"].value == "1"


@pytest.mark.parametrize(("key", "value"), [("no.such.key", "1"), ("retention.ms", "long"), ("cleanup.policy", "burn")])
def test_13_unknown_and_wrong_configurations_are_refused(tmp_path: Path, key: str, value: str) -> None:
    @on_trio
    async def check() -> None:
        async with running_broker(tmp_path) as broker:
            configs: dict[str, Any] = {key.replace(".", "_"): value}
            assert (await create(broker, **configs)).error_code == InvalidConfig.code

    check()


@on_trio
async def test_15_infinite_retention_is_taken_and_reported(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, retention_ms="-1", retention_bytes="-1")
        result = await described(broker, TOPIC, "t", "retention.ms", "retention.bytes")
        assert {config.value for config in result.values()} == {"-1"}


@on_trio
async def test_37_lists_are_appended_to_and_subtracted_from_and_alter_configs_replaces(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        assert await alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
        assert (await described(broker, TOPIC, "t"))["cleanup.policy"].value == "delete,compact"
        assert await alter(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", SET, "5")) == 0
        assert (await described(broker, TOPIC, "t"))["cleanup.policy"].value == "compact"
        assert await alter(broker, TOPIC, "t", ("cleanup.policy", DELETE, None)) == 0
        resource = AlterConfigsRequest.Resource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[AlterConfigsRequest.Resource.Config(name="segment.ms", value="7000")],
        )
        await ask(broker, AlterConfigsRequest(resources=[resource], validate_only=False), 2)
        result = await described(broker, TOPIC, "t")
        assert (result["retention.ms"].value, result["segment.ms"].value) == ("604800000", "7000")


@on_trio
async def test_44_changing_the_cleanup_policy_back_and_forth_keeps_old_data_readable(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        for policy in ("compact", "delete", "compact,delete", "delete"):
            assert (await produce(broker, records(policy.encode()))).error_code == 0
            assert await alter(broker, TOPIC, "t", ("cleanup.policy", SET, policy)) == 0
        data = (await fetch(broker, 0)).records
        values = [r.value for header in batch.headers(data) for r in batch.records(data, header)]
        assert values == [b"compact", b"delete", b"compact,delete", b"delete"]


# -- records -----------------------------------------------------------------------------------------------------------


@on_trio
async def test_16_a_producer_id_is_had_without_a_transaction(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        requested = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answers = [await ask(broker, requested, version) for version in range(6)]
        assert [answer.error_code for answer in answers] == [0] * 6
        assert len({answer.producer_id for answer in answers}) == 6


@on_trio
async def test_25_offsets_count_records_of_clients_and_nothing_else(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
    async with running_broker(tmp_path) as broker:  # a new leader epoch leaves no record behind
        assert (await produce(broker, records(b"a", b"b"))).base_offset == 0
        assert (await offset_at(broker, -1)).offset == 2


@on_trio
async def test_26_a_fetch_inside_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, records(*(b"%d" % n for n in range(10)), codec=Codec.GZIP))
        data = (await fetch(broker, 7)).records
        assert [r.offset for r in batch.records(data, batch.read_header(data))] == list(range(10))


@pytest.mark.parametrize("version", [4, 11, 12])
def test_27_an_empty_fetch_is_empty_and_not_null(tmp_path: Path, version: int) -> None:
    @on_trio
    async def check() -> None:
        async with running_broker(tmp_path) as broker:
            await create(broker)
            assert (await fetch(broker, 0, version)).records == b""

    check()


@on_trio
async def test_28_the_end_of_a_log_can_be_fetched_and_beyond_it_is_out_of_range(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        await produce(broker, records(b"a", b"b", b"c"))
        partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=1)
        topics = [DeleteRecordsRequest.Topic(name="t", partitions=[partition])]
        await ask(broker, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
        at_end = await fetch(broker, 3)
        assert (at_end.error_code, at_end.log_start_offset, at_end.high_watermark) == (0, 1, 3)
        assert (await fetch(broker, 4)).error_code == OffsetOutOfRange.code
        assert (await fetch(broker, 0)).error_code == OffsetOutOfRange.code


@on_trio
async def test_29_offsets_by_time_at_the_ends_and_of_the_largest_timestamp(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        for number in range(5):
            await produce(broker, bytes(batch.build([Record(0, NOW_MS + 10 * number, None, b"v")])))
        found = {t: (await offset_at(broker, t)).offset for t in (-1, -2, -3, NOW_MS + 11, NOW_MS + 20, NOW_MS + 99)}
        assert list(found.values()) == [5, 0, 4, 2, 2, -1]
        assert (await offset_at(broker, -1, isolation=1)).offset == 5


@on_trio
async def test_36_a_batch_too_large_and_a_record_without_key_on_a_compacted_topic_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, max_message_bytes="1000", cleanup_policy="compact")
        assert (await produce(broker, records(b"x" * 2000))).error_code == MessageTooLarge.code
        refused = await produce(broker, records(b"v", key=None))
        assert refused.error_code == InvalidRecord.code
        assert [wrong.batch_index for wrong in refused.record_errors] == [0]


# -- what consoles ask first -------------------------------------------------------------------------------------------


@on_trio
async def test_39_the_cluster_and_its_directories_are_described_with_what_one_may_do(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker)
        cluster = await ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        assert cluster.error_code == 0
        assert cluster.cluster_authorized_operations > 0
        directories = (await ask(broker, DescribeLogDirsRequest(topics=None), 4)).results
        assert directories[0].log_dir == str(tmp_path)
        assert directories[0].usable_bytes > 0
        assert [topic.name for topic in directories[0].topics] == ["t"]
