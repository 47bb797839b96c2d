"""How to reach the cluster: addresses, TLS, and a login, for both clients that the gateway uses.

`trioka gateway` reads them from a client.properties. The login there is the gateway's own: it asks for the state of the
cluster, and keeps the registry's records. Requests of a caller go to the cluster with the caller's credentials
(`as_caller`).
"""

from collections.abc import Mapping
from dataclasses import field
from ssl import SSLContext
from typing import Any, Final

from trioka.protocol.lazy_dataclass import frozen

OAUTHBEARER: Final = "OAUTHBEARER"


@frozen
class Login:
    """A name with a password (PLAIN, SCRAM), or a bearer token (OAUTHBEARER), whose text is the password."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.username!r})"


@frozen
class ClusterAccess:
    servers: tuple[tuple[str, int], ...]
    protocol: str = "PLAINTEXT"
    tls: SSLContext | None = None
    librdkafka_tls: Mapping[str, Any] = field(default_factory=dict)  # the same trust and identity, as librdkafka's keys
    login: Login | None = None
    mechanism: str = "PLAIN"  # of callers' names and passwords; sasl.mechanism of the client.properties
    rack: str = ""  # where this gateway is, for reads from the nearest replica

    def __repr__(self) -> str:
        return f"ClusterAccess({self.bootstrap_servers}, {self.protocol})"

    @property
    def is_authenticated(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def as_caller(self, login: Login | None) -> "ClusterAccess":
        """The same cluster, with a caller's login in the place of the gateway's."""
        return ClusterAccess(
            servers=self.servers,
            protocol=self.protocol,
            tls=self.tls,
            librdkafka_tls=self.librdkafka_tls,
            login=login,
            mechanism=self.mechanism,
            rack=self.rack,
        )

    def librdkafka(self) -> dict[str, Any]:
        """The settings of a client of librdkafka, without what it is used for. A bearer token is set by its callback
        (`sasl.oauthbearer` has no key for a token)."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.protocol,
            **self.librdkafka_tls,
        }
        if self.rack:
            found["client.rack"] = self.rack
        if self.login is None:
            return found
        found["sasl.mechanism"] = self.login.mechanism
        if self.login.mechanism != OAUTHBEARER:
            found |= {"sasl.username": self.login.username, "sasl.password": self.login.password}
        return found
