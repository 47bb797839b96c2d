"""ListConfigResources: what has a configuration, or can have one."""

from pathlib import Path

from support.config_requests import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, SET, TOPIC, alter
from support.serving import ask, on_trio, running_broker

from trioka.protocol.errors import UnsupportedVersion
from trioka.protocol.messages.list_config_resources import ListConfigResourcesRequest


@on_trio
async def test_topics_and_brokers_are_always_there_and_others_when_something_is_set(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        await alter(broker, CLIENT_METRICS, "m", ("interval.ms", SET, "1000"))

        async def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
            response = await ask(broker, ListConfigResourcesRequest(resource_types=list(kinds)), version)
            assert response.error_code == 0
            return sorted((each.resource_type, each.resource_name) for each in response.config_resources)

        everything = [(TOPIC, "orders"), (BROKER, "1"), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m")]
        assert await listed() == everything
        assert await listed(GROUP) == []
        assert await listed(BROKER, TOPIC, TOPIC) == everything[:2]
        assert await listed(version=0) == everything[3:]
        await alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
        assert await listed(GROUP) == [(GROUP, "g")]
        response = await ask(broker, ListConfigResourcesRequest(resource_types=[TOPIC, 1]), 1)
        assert (response.error_code, response.config_resources) == (UnsupportedVersion.code, [])
