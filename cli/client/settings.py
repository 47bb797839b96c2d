"""The cluster that a command connects to and how: from a flag, the environment, a context, or the default port.

--bootstrap-server HOST:PORT,…   then KAFKA_BOOTSTRAP_SERVERS   then the current context   then localhost:9092
--command-config client.properties   Kafka's own keys: security.protocol, sasl.*, ssl.* (tls.py) …
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..node.flags import DEFAULT_PORT
from ..terminal.failure import Exit, Failure, did_you_mean
from .cluster_client import Kafka
from .connection import Connection
from .contexts import Context, load_contexts
from .time_budget import TimeoutBudget

if TYPE_CHECKING:
    from .connection import SSLContext
    from .login import Login

DEFAULT_TIMEOUT_S: Final = 30.0
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Settings(NamedTuple):
    bootstrap: tuple[tuple[str, int], ...]
    properties: Mapping[str, str]
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __repr__(self) -> str:
        """Leaves out the properties, which may hold a password."""
        return f"Settings({', '.join(self.servers)})"

    @property
    def servers(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.bootstrap]

    def kafka(self) -> Kafka:
        """The cluster; no connection is opened yet."""
        tls, login, patience = self.tls(), self.login(), TimeoutBudget(self.timeout_s)

        def connect(host: str, port: int) -> Connection:
            return Connection(host, port, timeout_s=patience, tls=tls, log_in=login)

        return Kafka(self.bootstrap, connect=connect, budget=patience)

    @property
    def protocol(self) -> str:
        protocol = self.properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            what = f"security.protocol is '{protocol}', and must be one of {', '.join(PROTOCOLS)}"
            raise Failure(what, exit_code=Exit.USAGE, hints=did_you_mean(protocol, PROTOCOLS))
        return protocol

    def tls(self) -> "SSLContext | None":
        if not self.protocol.endswith("SSL"):
            return None
        from .tls import client_context

        return client_context(self.properties)

    def login(self) -> "Login | None":
        if not self.protocol.startswith("SASL"):
            return None
        from .login import login_of

        return login_of(self.protocol, self.properties)

    def for_kafka_python(self) -> dict[str, Any]:
        """The settings as arguments of kafka-python."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.protocol,
            "client_id": "trioka",
            "bootstrap_timeout_ms": int(self.timeout_s * 1000),
        }
        login = self.login()
        if login is not None:
            found |= {
                "sasl_mechanism": login.mechanism,
                "sasl_plain_username": login.username,
                "sasl_plain_password": login.password,
            }
        if (tls := self.tls()) is not None:
            found["ssl_context"] = tls
        return found


def find_settings(
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    context: str | None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings from flags, environment and contexts, in the order that the module's docstring lists."""
    chosen: Context | None = None
    if context is not None or not (bootstrap_server or environment.get("KAFKA_BOOTSTRAP_SERVERS")):
        contexts = load_contexts(environment)
        name = context or contexts.current
        if name is not None:
            if name not in contexts.by_name:
                hints = [*did_you_mean(name, contexts.by_name), "see: trioka context list"]
                raise Failure(f"there is no context '{name}'", exit_code=Exit.NOT_FOUND, hints=hints)
            chosen = contexts.by_name[name]
    text = bootstrap_server
    if text is None and context is None:
        text = environment.get("KAFKA_BOOTSTRAP_SERVERS") or None
    if text is None:
        text = chosen.bootstrap_server if chosen is not None else f"localhost:{DEFAULT_PORT}"
    file = command_config or (chosen.command_config if chosen is not None else None)
    return Settings(parse_servers(text), _properties(file), timeout_s)


def _properties(file: str | None) -> Mapping[str, str]:
    if file is None:
        return {}
    from ..config_reference import read_client_properties

    return read_client_properties(file)


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """`a:9092,[::1]:9093,b` is three addresses; the default port is 9092."""
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(r"(?:[A-Z_]+://)?(?:\[([^\]]+)\]|([^:/\[\]]+))(?::(\d{1,5}))?", part)
        if found is None or not 0 < int(found[3] or DEFAULT_PORT) < 65536:
            raise Failure(f"'{part}' is no address; HOST:PORT is one", exit_code=Exit.USAGE)
        servers.append((found[1] or found[2], int(found[3] or DEFAULT_PORT)))
    if not servers:
        raise Failure("no bootstrap server is named", exit_code=Exit.USAGE)
    return tuple(servers)
