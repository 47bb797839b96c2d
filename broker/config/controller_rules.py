"""The declared keys as the controller needs them: validation, which keys are lists, and defaults.

Validation uses the current configuration of this broker: a topic's min.compaction.lag.ms, for example, must not exceed
the max.compaction.lag.ms that the topic inherits from the broker.
"""

from collections.abc import Callable, Mapping
from typing import Final

from trioka.cluster.image.configs import ConfigResource, ConfigResourceType
from trioka.protocol.errors import InvalidRequest

from . import key as keys
from .alteration import check
from .key import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, Key
from .layers import Config, ConfigError
from .listeners import node_of

# Client metrics are missing on purpose: Kafka's controller does not know the types of their keys, so that clients
# cannot append to their lists.
DECLARED: Final[Mapping[int, Mapping[str, Key[object]]]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: BROKER_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
}


class DeclaredRules:
    """Implements the controller's `ConfigRules` with the declared keys."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    def validate(self, resource: ConfigResource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        config = self._config()
        check(keys.Resource(resource.type), resource.name, config, configs, before=before)
        if resource.type == ConfigResourceType.BROKER and resource.name:
            _check_listeners(config, configs)

    def is_list(self, resource_type: int, key: str) -> bool:
        declared = self._declared(resource_type, key)
        return declared is not None and declared.is_list

    def default(self, resource_type: int, key: str) -> str | None:
        declared = self._declared(resource_type, key)
        return None if declared is None else declared.default_text

    def _declared(self, resource_type: int, key: str) -> Key[object] | None:
        keys_of_type = DECLARED.get(resource_type)
        return None if keys_of_type is None else keys_of_type.get(key)


def _check_listeners(config: Config, after: Mapping[str, str]) -> None:
    """Reject a change that `node_of` would reject: listeners may change, except those used between nodes."""
    try:
        changed = node_of(config.changed(broker=after))
        protocols = {endpoint.name: endpoint.protocol for endpoint in node_of(config).listeners}
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    for endpoint in changed.listeners:
        if protocols.get(endpoint.name, endpoint.protocol) is not endpoint.protocol:
            raise InvalidRequest(
                f"The protocol of the listener {endpoint.name} is {protocols[endpoint.name].name}; "
                f"it becomes {endpoint.protocol.name} by a restart only."
            )
