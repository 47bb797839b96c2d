"""What the broker's declarations know and a client may ask: properties files, and what a config key means.

The second exception to the rule that the command line imports nothing of the broker (`node/server.py` is the first):
the format of server.properties is also the one of client.properties, and nobody but the declarations can say what a key
may be. It starts nothing and opens nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from trioka.broker.config import key as keys
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.properties import PropertiesError, parse_environment, parse_properties
from trioka.broker.config.server import load

from .terminal.failure import Exit, Failure


def read_properties(path: str) -> dict[str, str]:
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", exit_code=Exit.NOT_FOUND) from None
    except PropertiesError as error:
        raise Failure(f"{path}: {error}", exit_code=Exit.USAGE) from None


def lint(path: str, environment: Mapping[str, str]) -> tuple[list[str], str | None]:
    """The remarks about a server.properties, and why a broker would not start with it, if it would not."""
    try:
        loaded = load(read_properties(path), environment=parse_environment(environment), overrides={})
    except ConfigError as error:
        return [], str(error)
    return [*loaded.warnings, *loaded.notes], None


def declared_keys() -> dict[str, list[tuple[str, "keys.Key[object]"]]]:
    """Every config key by name, with the kinds of resource that have it."""
    found: dict[str, list[tuple[str, keys.Key[object]]]] = {}
    brokers = {**keys.BROKER_KEYS, **keys.AUTHORIZER_KEYS}
    for kind, declared in (("topic", keys.TOPIC_KEYS), ("broker", brokers), ("group", keys.GROUP_KEYS)):
        for name, key in declared.items():
            found.setdefault(name, []).append((kind, key))
    return found
