"""The broker's configuration declarations for the command line: properties files, and the meaning of config keys.

The second exception to the rule that the command line imports nothing of the broker (`node/server.py` is the first):
the format of server.properties is also the one of client.properties, and only the declarations define the values of a
key. It starts nothing and opens nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from trioka.broker.config import key as keys
from trioka.broker.config.exposed_files import exposed_files
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.properties import PropertiesError, parse_environment, parse_properties
from trioka.broker.config.providers import resolve_references
from trioka.broker.config.server import load
from trioka.broker.security.tls.listener_check import check_security

from .terminal.failure import Exit, Failure


def read_properties(path: str) -> dict[str, str]:
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", exit_code=Exit.NOT_FOUND) from None
    except PropertiesError as error:
        raise Failure(f"{path}: {error}", exit_code=Exit.USAGE) from None


def read_client_properties(path: str) -> dict[str, str]:
    """A client.properties with its references, such as `${env:NAME}`, replaced by their values."""
    try:
        return resolve_references(read_properties(path))
    except ConfigError as error:
        raise Failure(f"{path}: {str(error).removesuffix('.')}", exit_code=Exit.USAGE) from None


def lint(path: str, environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The remarks about a server.properties, and the errors for which a broker would refuse it."""
    file = read_properties(path)
    exposed = list(exposed_files(path, file))
    try:
        loaded = load(file, environment=parse_environment(environment), overrides={})
        tls_remarks = check_security(loaded.config, loaded.node)
    except ConfigError as error:
        return [*error.remarks, *exposed], [str(error), *error.others]
    return [*loaded.warnings, *loaded.notes, *tls_remarks, *exposed], []


def declared_keys() -> dict[str, list[tuple[str, "keys.Key[object]"]]]:
    """Every config key by name, with the kinds of resource that have it."""
    found: dict[str, list[tuple[str, keys.Key[object]]]] = {}
    brokers = {**keys.BROKER_KEYS, **keys.AUTHORIZER_KEYS}
    for kind, declared in (("topic", keys.TOPIC_KEYS), ("broker", brokers), ("group", keys.GROUP_KEYS)):
        for name, key in declared.items():
            found.setdefault(name, []).append((kind, key))
    return found
