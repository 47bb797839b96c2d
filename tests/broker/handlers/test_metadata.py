from pathlib import Path
from typing import Any

from support.serving import LISTENER, ClientConnection, ask, on_trio, running_broker
from support.topic_requests import create, told_of

from trioka.broker.broker import Broker
from trioka.broker.security.authorized_operations import TOPIC_OPERATIONS, bits
from trioka.protocol.errors import (
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    ReplicaNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest

NOBODYS_ID = b"x" * 16


async def metadata(broker: Broker, names: list[str] | None, version: int = 12, *, create: bool = False) -> Any:
    topics = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
    return await ask(broker, MetadataRequest(topics=topics, allow_auto_topic_creation=create or version < 4), version)


@on_trio
async def test_every_version_tells_of_topics_and_brokers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 2)
        await create(broker, "b")
        for version in range(14):
            response = await metadata(broker, ["b", "a", "b"], version)
            assert [topic.name for topic in response.topics] == ["b", "a"], "each once"
            assert [(node.node_id, node.port) for node in response.brokers] == [(1, broker.addresses[LISTENER][1])]
            everything = await metadata(broker, None if version else [], version)
            assert [topic.name for topic in everything.topics] == ["a", "b"]
            if version:
                assert (await metadata(broker, [], version)).topics == []
                assert response.controller_id == 1


@on_trio
async def test_a_cached_description_equals_the_first(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a", 200)
        for version in range(14):
            first, again = await metadata(broker, ["a"], version), await metadata(broker, ["a"], version)
            assert first == again
            assert [partition.partition_index for partition in again.topics[0].partitions] == list(range(200))
        more = CreatePartitionsRequest.Topic(name="a", count=201, assignments=None)
        await ask(broker, CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False), 3)
        for version in range(14):
            assert len((await metadata(broker, ["a"], version)).topics[0].partitions) == 201


@on_trio
async def test_a_requested_topic_is_there_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=3) as broker:
        (result,) = (await metadata(broker, ["new"], create=True)).topics
        assert (result.error_code, len(result.partitions)) == (0, 3)
        assert {partition.leader_id for partition in result.partitions} == {1}


@on_trio
async def test_nothing_is_created_that_is_not_wanted_or_cannot_be(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (result,) = (await metadata(broker, ["new"])).topics
        assert result.error_code == UnknownTopicOrPartition.code
        await create(broker, "a.b")
        codes = {
            each.name: each.error_code for each in (await metadata(broker, ["a b", "", "a_b"], create=True)).topics
        }
        assert codes == {"a b": InvalidTopic.code, "": InvalidTopic.code, "a_b": UnknownTopicOrPartition.code}
        assert [each.name for each in await told_of(broker)] == ["a.b"]
    async with running_broker(tmp_path, auto_create_topics_enable="false") as broker:
        (result,) = (await metadata(broker, ["new"], create=True)).topics
        assert result.error_code == UnknownTopicOrPartition.code


@on_trio
async def test_the_brokers_own_topics_are_created_as_their_keys_say(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": 5, "offsets.topic.replication.factor": 1}
    async with running_broker(tmp_path, None, **settings) as broker:
        (result,) = (await metadata(broker, ["__consumer_offsets"], create=True)).topics
        assert (result.error_code, result.is_internal, len(result.partitions)) == (0, True, 5)
        assert broker.topic_log_config("__consumer_offsets").cleanup_policy == {"compact"}


@on_trio
async def test_topics_are_described_by_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        created = await create(broker, "a")
        requested = [MetadataRequest.Topic(name=None, topic_id=id) for id in (created.topic_id, NOBODYS_ID)]
        result = (await client.ask(MetadataRequest(topics=requested), 12)).topics
        assert [(each.name, each.error_code) for each in result] == [("a", 0), (None, UnknownTopicId.code)]
        (result,) = (await client.ask(MetadataRequest(topics=requested[:1]), 10)).topics
        assert result.error_code == InvalidRequest.code, "v10 and v11 can say it, and do not mean it"
        nothing = await client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=None)]), 13)
        assert (nothing.error_code, nothing.topics[0].error_code) == (InvalidRequest.code, InvalidRequest.code)


@on_trio
async def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        for wanted in (False, True):
            request = MetadataRequest(topics=None, include_topic_authorized_operations=wanted)
            (result,) = (await ask(broker, request, 12)).topics
            assert (result.topic_authorized_operations == bits(TOPIC_OPERATIONS)) is wanted


@on_trio
async def test_a_partition_without_a_leader_is_reported(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await ask(broker, UnregisterBrokerRequest(broker_id=1), 0)
        response = await metadata(broker, ["a"])
        assert (response.brokers, response.controller_id) == ([], -1)
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (LeaderNotAvailable.code, -1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [], [1])
        (partition,) = (await metadata(broker, ["a"], 0)).topics[0].partitions
        assert (partition.error_code, partition.replica_nodes) == (LeaderNotAvailable.code, [])
        assert partition.error_code != ReplicaNotAvailable.code, "that a leader would report"
