"""The declared keys as the controller asks for them: what may stand in a configuration, what is a list, what counts
while nothing is set.

What is checked against is this broker's own configuration, as it is at that moment: a topic's min.compaction.lag.ms may
contradict what the broker says of the other end, and a broker's own keys are checked whole.
"""

from collections.abc import Callable, Mapping
from typing import Final

from trioka.cluster.configs import Resource, ResourceType
from trioka.protocol.errors import InvalidRequest

from . import key as keys
from .alteration import check
from .key import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, Key
from .layers import Config, ConfigError
from .listeners import node_of

# Kafka's controller knows no types of client metrics' keys, and so nobody can append to one of their lists.
DECLARED: Final[Mapping[int, Mapping[str, Key[object]]]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: BROKER_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
}


class DeclaredRules:
    """`ConfigRules` of the controller."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    def validate(self, resource: Resource, configs: Mapping[str, str], before: Mapping[str, str]) -> None:
        config = self._config()
        check(keys.Resource(resource.type), resource.name, config, configs, before=before)
        if resource.type == ResourceType.BROKER and resource.name:
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
    """Listeners come and go while a broker runs, but for those that nodes reach each other by (`node_of`)."""
    try:
        node_of(config.changed(broker=after))
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
