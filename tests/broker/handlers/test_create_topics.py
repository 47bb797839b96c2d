from pathlib import Path

from support.serving import ClientConnection, ask, on_trio, running_broker
from support.topic_requests import create, produce, producing, told_of, topic

from trioka.protocol.errors import InvalidConfig, InvalidTopic, RequestTimedOut, TopicAlreadyExists
from trioka.protocol.messages.create_topics import CreateTopicsRequest

FROM_TOPIC, DEFAULT = 1, 5  # sources of configuration


@on_trio
async def test_a_topic_can_be_written_to_when_its_creation_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        # Both are on their way before the first is answered.
        creating, writing = CreateTopicsRequest(topics=[topic("a", 3)]), producing("a", 1, 2, partition=2)
        await client.say(creating, 7)
        await client.say(writing, 9)
        (created,) = (await client.hear(creating, 7)).topics
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 3, 1)
        (written,) = (await client.hear(writing, 9)).responses[0].partition_responses
        assert (written.error_code, written.base_offset) == (0, 0)
        (result,) = await told_of(broker, "a")
        assert result.topic_id == created.topic_id and len(result.partitions) == 3


@on_trio
async def test_the_answer_tells_the_whole_configuration(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = await create(broker, "a", retention_ms=5)
        result = {config.name: (config.value, config.config_source) for config in created.configs}
        assert result["retention.ms"] == ("5", FROM_TOPIC)
        assert result["cleanup.policy"] == ("delete", DEFAULT)
        refused = await ask(broker, CreateTopicsRequest(topics=[topic("a")]), 7)
        assert refused.topics[0].configs == [], "empty, and not null"


@on_trio
async def test_a_request_without_values_gets_the_brokers_defaults(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions=4) as broker:
        wanted = CreateTopicsRequest.Topic(
            name="a", num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )
        (created,) = (await ask(broker, CreateTopicsRequest(topics=[wanted]), 4)).topics
        assert created.error_code == 0
        assert len((await told_of(broker, "a"))[0].partitions) == 4


@on_trio
async def test_a_describe_request_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        request = CreateTopicsRequest(topics=[topic("a", retention_ms=5)], validate_only=True)
        (created,) = (await ask(broker, request, 7)).topics
        assert created.error_code == 0 and created.configs
        assert await told_of(broker) == []


@on_trio
async def test_one_refusal_does_not_hinder_the_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "old")
        requested = [topic("old"), topic("a b"), topic("c", nonsense=1), topic("new")]
        result = (await ask(broker, CreateTopicsRequest(topics=requested), 7)).topics
        assert [(each.name, each.error_code) for each in result] == [
            ("old", TopicAlreadyExists.code),
            ("a b", InvalidTopic.code),
            ("c", InvalidConfig.code),
            ("new", 0),
        ]
        assert [each.name for each in await told_of(broker)] == ["new", "old"]


@on_trio
async def test_a_job_without_a_waiter_is_not_begun(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (result,) = (await ask(broker, CreateTopicsRequest(topics=[topic("a")], timeout_ms=0), 7)).topics
        assert (result.error_code, result.error_message) == (RequestTimedOut.code, None)
        assert await told_of(broker) == []


@on_trio
async def test_a_topic_and_its_records_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        created = await create(broker, "a", 2)
        assert await produce(broker, "a", 1, 2, 3) == 0
    async with running_broker(tmp_path) as broker:
        (result,) = await told_of(broker, "a")
        assert (result.topic_id, len(result.partitions)) == (created.topic_id, 2)
        assert await produce(broker, "a", 4) == 3


@on_trio
async def test_every_version_is_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for version in range(2, 8):
            result = (await ask(broker, CreateTopicsRequest(topics=[topic(f"a{version}"), topic("")]), version)).topics
            assert [each.error_code for each in result] == [0, InvalidTopic.code]
