"""DescribeConfigs: every key, with where its value comes from."""

from pathlib import Path

import pytest
from support.config_requests import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, described, value
from support.serving import ask, on_trio, running_broker

from trioka.broker.config.group_keys import LOGGERS
from trioka.broker.config.key import BROKER_KEYS, TOPIC_KEYS, ConfigSource
from trioka.protocol.errors import InvalidRequest, InvalidTopic, UnknownTopicOrPartition
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest


@on_trio
async def test_a_topic_that_sets_nothing_has_every_key_with_its_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        configs = await described(broker, TOPIC, "orders")
    assert configs.keys() == {name for name, key in TOPIC_KEYS.items() if not key.hidden}
    assert configs["cleanup.policy"].value == "delete"
    assert all(config.documentation and config.config_type for config in configs.values())
    assert not any(config.config_source == ConfigSource.TOPIC for config in configs.values())


@on_trio
async def test_a_topic_inherits_what_the_brokers_file_says(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_retention_ms=77) as broker:
        await broker.create_missing_topics({"orders": 1})
        assert await value(broker, TOPIC, "orders", "retention.ms") == ("77", ConfigSource.STATIC_BROKER)


@on_trio
async def test_a_broker_tells_all_its_keys_and_no_secret(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ssl_keystore_password="sesame") as broker:
        configs = await described(broker, BROKER, "1")
    assert configs.keys() >= {name for name, key in BROKER_KEYS.items() if not key.hidden}
    assert {"num.partitions", "default.replication.factor"} <= configs.keys()
    secret = configs["ssl.keystore.password"]
    assert secret.is_sensitive and secret.value is None and "sesame" not in repr(configs)


@on_trio
async def test_groups_and_client_metrics_need_not_exist(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert (await described(broker, GROUP, "nobody"))["consumer.session.timeout.ms"].value == "45000"
        assert (await described(broker, CLIENT_METRICS, "nobody"))["interval.ms"].value == "300000"
        assert (await described(broker, BROKER_LOGGER, "1")).keys() == set(LOGGERS)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nobody", UnknownTopicOrPartition),
        (TOPIC, "a b", InvalidTopic),
        (BROKER, "2", InvalidRequest),
        (BROKER, " 1", InvalidRequest),
        (BROKER_LOGGER, "", InvalidRequest),
        (GROUP, "", InvalidRequest),
        (3, "x", InvalidRequest),
    ],
)
def test_what_has_no_configuration_is_refused(
    tmp_path: Path, kind: int, name: str, error: type[InvalidRequest]
) -> None:
    @on_trio
    async def test() -> None:
        resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
        async with running_broker(tmp_path) as broker:
            (result,) = (await ask(broker, DescribeConfigsRequest(resources=[resource]), 4)).results
        assert (result.error_code, result.configs) == (error.code, [])

    test()
