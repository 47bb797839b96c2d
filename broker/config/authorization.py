"""Creates the authorizer that server.properties configures."""

from typing import Final, TypeVar

from trioka.cluster.security.authorizer import Authorizer

from .key import Key
from .layers import Config, ConfigError
from .security_keys import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS

T = TypeVar("T")

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizer_of(config: Config) -> Authorizer | None:
    """Return None if no authorizer is configured; raise ConfigError if its keys are invalid."""
    name = config[AUTHORIZER_CLASS_NAME]
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(f"authorizer.class.name is '{name[:200]}', but must be empty or {STANDARD_AUTHORIZER}.")
    return Authorizer(
        super_users=frozenset(user.strip() for user in _value(config, SUPER_USERS).split(";") if user.strip()),
        allow_everyone_if_no_acl_found=_value(config, ALLOW_EVERYONE_IF_NO_ACL_FOUND),
    )


def _value(config: Config, key: Key[T]) -> T:
    text = config.static.get(key.name)
    try:
        return key.default if text is None else key.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
