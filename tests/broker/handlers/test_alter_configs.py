"""AlterConfigs: replaces all of a resource's configuration."""

from pathlib import Path

from support.config_requests import SET, TOPIC, alter, described
from support.serving import ask, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.config.key import ConfigSource
from trioka.protocol.errors import InvalidConfig, InvalidRequest
from trioka.protocol.messages.alter_configs import AlterConfigsRequest


async def replace(broker: Broker, name: str, *pairs: tuple[str, str | None], validate_only: bool = False) -> int:
    configs = [AlterConfigsRequest.Resource.Config(name=key, value=value) for key, value in pairs]
    resource = AlterConfigsRequest.Resource(resource_type=TOPIC, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = (await ask(broker, request, 2)).responses
    code: int = response.error_code
    return code


async def own(broker: Broker, name: str) -> dict[str, str]:
    configs = await described(broker, TOPIC, name)
    return {key: config.value for key, config in configs.items() if config.config_source == ConfigSource.TOPIC}


@on_trio
async def test_what_is_not_named_returns_to_its_default(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        await alter(broker, TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
        assert await replace(broker, "orders", ("retention.ms", "7"), validate_only=True) == 0
        assert await own(broker, "orders") == {"retention.ms": "5", "segment.ms": "6"}
        assert await replace(broker, "orders", ("retention.ms", "7")) == 0
        assert await own(broker, "orders") == {"retention.ms": "7"}
        assert await replace(broker, "orders", ("nope", "7")) == InvalidConfig.code
        assert await replace(broker, "orders", ("retention.ms", None)) == InvalidRequest.code
        assert await own(broker, "orders") == {"retention.ms": "7"}
        assert await replace(broker, "orders") == 0
        assert await own(broker, "orders") == {}
