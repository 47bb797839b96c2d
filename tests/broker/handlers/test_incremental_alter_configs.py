"""IncrementalAlterConfigs, and what a change does to a broker that runs."""

import logging
from pathlib import Path

from support.config_requests import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    described,
    value,
)
from support.serving import ask, on_trio, running_broker

from trioka.broker.config.key import ConfigSource
from trioka.broker.config.network_keys import MAX_CONNECTIONS
from trioka.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


@on_trio
async def test_keys_are_set_deleted_appended_to_and_subtracted_from(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})

        async def policy(operation: int, text: str | None) -> str | None:
            assert await alter(broker, TOPIC, "orders", ("cleanup.policy", operation, text)) == 0
            return (await value(broker, TOPIC, "orders", "cleanup.policy"))[0]

        assert await policy(APPEND, "compact") == "delete,compact"
        assert await policy(SUBTRACT, "delete") == "compact"
        assert await policy(SET, "compact,delete") == "compact,delete"
        assert await policy(DELETE, None) == "delete"
        assert (await value(broker, TOPIC, "orders", "cleanup.policy"))[1] == ConfigSource.DEFAULT


@on_trio
async def test_what_was_set_outlives_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        await alter(broker, TOPIC, "orders", ("retention.ms", SET, "5"))
        await alter(broker, BROKER, "1", ("max.connections", SET, "500"))
        await alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    async with running_broker(tmp_path) as broker:
        assert await value(broker, TOPIC, "orders", "retention.ms") == ("5", ConfigSource.TOPIC)
        assert await value(broker, BROKER, "1", "max.connections") == ("500", ConfigSource.DYNAMIC_BROKER)
        assert await value(broker, GROUP, "g", "consumer.session.timeout.ms") == ("50000", ConfigSource.GROUP)
        assert broker.config[MAX_CONNECTIONS] == 500
        assert broker.partitions.get("orders", 0).log.config.retention_ms == 5


@on_trio
async def test_a_change_reaches_the_logs_before_it_is_answered(tmp_path: Path) -> None:
    """The topic's own value wins; without one, that of this broker, of all brokers, of the file, the default."""
    async with running_broker(tmp_path, log_retention_ms=1) as broker:
        await broker.create_missing_topics({"orders": 1, "other": 1})
        orders, other = (broker.partitions.get(name, 0).log for name in ("orders", "other"))
        assert orders.config.retention_ms == other.config.retention_ms == 1
        for kind, name, key, found in (
            (BROKER, "", "log.retention.ms", (2, 2)),
            (BROKER, "1", "log.retention.ms", (3, 3)),
            (TOPIC, "orders", "retention.ms", (4, 3)),
        ):
            assert await alter(broker, kind, name, (key, SET, str(found[0]))) == 0
            assert (orders.config.retention_ms, other.config.retention_ms) == found
        for kind, name, key, found in (
            (BROKER, "1", "log.retention.ms", (4, 2)),
            (TOPIC, "orders", "retention.ms", (2, 2)),
            (BROKER, "", "log.retention.ms", (1, 1)),
        ):
            assert await alter(broker, kind, name, (key, DELETE, None)) == 0
            assert (orders.config.retention_ms, other.config.retention_ms) == found


@on_trio
async def test_a_new_topic_begins_with_what_was_set_for_all_brokers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await alter(broker, BROKER, "", ("message.max.bytes", SET, "1000"))
        await broker.create_missing_topics({"orders": 1})
        assert broker.partitions.get("orders", 0).log.config.max_message_bytes == 1000


@on_trio
async def test_a_partition_never_waits_for_more_replicas_than_it_has(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        assert await alter(broker, TOPIC, "orders", ("min.insync.replicas", SET, "2")) == 0
        assert broker.partitions.get("orders", 0).min_in_sync == 1


@on_trio
async def test_nonsense_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        before = await described(broker, TOPIC, "orders")
        for change in (
            ("nope", SET, "1"),
            ("retention.ms", SET, "-2"),
            ("retention.ms", APPEND, "1"),
            ("min.compaction.lag.ms", SET, "x"),
        ):
            assert await alter(broker, TOPIC, "orders", change) == InvalidConfig.code
        good = ("retention.ms", SET, "1")
        assert await alter(broker, TOPIC, "orders", good, good) == InvalidRequest.code
        assert await alter(broker, TOPIC, "orders", ("retention.ms", 7, "1")) == InvalidRequest.code
        assert await alter(broker, TOPIC, "nobody", good) == UnknownTopicOrPartition.code
        assert await alter(broker, TOPIC, "orders", good, validate_only=True) == 0
        assert repr(await described(broker, TOPIC, "orders")) == repr(before)


@on_trio
async def test_a_broker_refuses_what_only_a_new_start_changes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        for change in (
            ("num.partitions", SET, "3"),
            ("listeners", SET, "PLAINTEXT://127.0.0.1:1"),  # without the controller's
            ("log.retention.ms", SET, "0"),
        ):
            assert await alter(broker, BROKER, "1", change) == InvalidRequest.code
        assert await alter(broker, BROKER, "2", ("max.connections", SET, "9")) == InvalidRequest.code


@on_trio
async def test_one_resource_that_cannot_be_changed_does_not_hinder_another(tmp_path: Path) -> None:
    wanted = IncrementalAlterConfigsRequest.Resource
    config = wanted.Config(name="retention.ms", config_operation=SET, value="5")
    level = wanted.Config(name="trioka.storage", config_operation=SET, value="ERROR")
    resources = [
        wanted(resource_type=TOPIC, resource_name="nobody", configs=[config]),
        wanted(resource_type=BROKER_LOGGER, resource_name="1", configs=[level]),
        wanted(resource_type=TOPIC, resource_name="orders", configs=[config]),
    ]
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        try:
            responses = (await ask(broker, request, 1)).responses
        finally:
            logging.getLogger("trioka.storage").setLevel(logging.NOTSET)
        assert [response.error_code for response in responses] == [UnknownTopicOrPartition.code, 0, 0]
        assert [response.resource_name for response in responses] == ["nobody", "1", "orders"]
        assert await value(broker, TOPIC, "orders", "retention.ms") == ("5", ConfigSource.TOPIC)


@on_trio
async def test_a_loggers_level_is_set_and_given_back(tmp_path: Path) -> None:
    logger = logging.getLogger("trioka.cluster")
    async with running_broker(tmp_path) as broker:
        try:
            assert await alter(broker, BROKER_LOGGER, "1", ("trioka.cluster", SET, "DEBUG"), validate_only=True) == 0
            assert logger.level == logging.NOTSET
            assert await alter(broker, BROKER_LOGGER, "1", ("trioka.cluster", SET, "DEBUG")) == 0
            assert logger.level == logging.DEBUG
            assert (await value(broker, BROKER_LOGGER, "1", "trioka.cluster"))[0] == "DEBUG"
            assert await alter(broker, BROKER_LOGGER, "1", ("trioka.cluster", DELETE, None)) == 0
            assert logger.level == logging.NOTSET
        finally:
            logger.setLevel(logging.NOTSET)
        assert await alter(broker, BROKER_LOGGER, "1", ("nobody", SET, "DEBUG")) == InvalidConfig.code
        assert await alter(broker, BROKER_LOGGER, "2", ("root", SET, "DEBUG")) == InvalidRequest.code
