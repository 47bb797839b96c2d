"""How the nodes of a chaos run are secured, and how its clients get in: `--security sasl_ssl`.

    plaintext                   no logins, no authorizer
    sasl_plaintext, sasl_ssl    nodes log in to brokers by SCRAM and to controllers by PLAIN, clients by SCRAM
    mtls                        nodes and clients present certificates

All three listeners are secured the same way, and the authorizer is on. Nodes and the administrator of the run are super
users; the load has the rules of `RULES` and no others. Sessions of logins are so short that nodes and clients log in
again many times during a run.
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and not marked as such
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from support.certificates import Identity, authority, signed

from trioka.cli.client.connection import CLIENT_ID, Connection
from trioka.cli.client.login import Login
from trioka.cli.client.tls import client_context
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE

PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, MTLS = KINDS = ("plaintext", "sasl_plaintext", "sasl_ssl", "mtls")
PROTOCOLS: Final = {
    PLAINTEXT: "PLAINTEXT",
    SASL_PLAINTEXT: "SASL_PLAINTEXT",
    SASL_SSL: "SASL_SSL",
    MTLS: "SSL",
}
NODE, ADMIN, LOAD = USERS = ("node", "admin", "load")
MECHANISM: Final = "SCRAM-SHA-512"
SESSION_MS: Final = 20_000  # Kafka's default is that sessions have no end
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ANY_HOST: Final = "*"
Rule = tuple[str, str, str, str]  # type, name, pattern type, operation
RULES: Final[Sequence[Rule]] = (
    *(("TOPIC", name, "LITERAL", each) for name in ("plain", "moved", "deals") for each in ("READ", "WRITE")),
    *(("TOPIC", "recreated", "LITERAL", each) for each in ("READ", "WRITE", "CREATE", "DELETE")),
    *(("GROUP", name, "LITERAL", "READ") for name in ("classic-readers", "consumer-readers")),
    ("GROUP", "none-", "PREFIXED", "READ"),
    ("TRANSACTIONAL_ID", "dealer-1", "LITERAL", "WRITE"),
    ("TRANSACTIONAL_ID", "pipelined-", "PREFIXED", "WRITE"),
    ("BROKER", "kafka-cluster", "LITERAL", "ALTER"),  # the cluster: partitions are moved
)


class Access(NamedTuple):
    """How a client gets in."""

    servers: str
    librdkafka: Mapping[str, Any]
    kafka_python: Mapping[str, Any]
    tls: ssl.SSLContext | None = None
    login: Login | None = None

    def connection(self, address: str, *, timeout_s: float, client_id: str = CLIENT_ID) -> Connection:
        host, _, port = address.rpartition(":")
        return Connection(host, int(port), timeout_s=timeout_s, tls=self.tls, log_in=self.login, client_id=client_id)


class Security:
    """Of one run. `hosts`: the names that certificates of nodes have."""

    def __init__(self, kind: str, folder: Path, hosts: Sequence[str]) -> None:
        self.kind = kind
        self._folder = folder
        self._has_tls, self._has_sasl = kind in (SASL_SSL, MTLS), kind in (SASL_PLAINTEXT, SASL_SSL)
        if self._has_tls:
            self._authority = authority()
            folder.mkdir(parents=True, exist_ok=True)
            self._trusted.write_text(self._authority.chain_pem)
            for user in USERS:
                self._identity(user, hosts).write(self._key_store(user))

    @property
    def _trusted(self) -> Path:
        return self._folder / "trusted.pem"

    def _key_store(self, user: str) -> Path:
        return self._folder / f"{user}.pem"

    def _identity(self, user: str, hosts: Sequence[str]) -> Identity:
        return signed(self._authority, f"CN={user}", names=tuple(hosts) if user == NODE else (user,))

    def principal(self, user: str) -> str:
        return f"User:CN={user}" if self.kind == MTLS else f"User:{user}"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def properties(self, listeners: Sequence[str]) -> dict[str, object]:
        protocol = PROTOCOLS[self.kind]
        found: dict[str, object] = {
            "listener.security.protocol.map": ",".join(f"{listener}:{protocol}" for listener in listeners)
        }
        if self.kind == PLAINTEXT:
            return found
        found |= {
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"{self.principal(NODE)};{self.principal(ADMIN)}",
        }
        if self._has_tls:
            found |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self._trusted,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._key_store(NODE),
            }
        if self.kind == MTLS:
            found["ssl.client.auth"] = "required"
        if self._has_sasl:
            own = f'username="{NODE}" password="{_password(NODE)}"'
            found |= {
                "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                "sasl.mechanism.controller.protocol": "PLAIN",
                "connections.max.reauth.ms": SESSION_MS,
                "delegation.token.secret.key": _password("token"),
            }
            for listener in listeners:
                prefix = f"listener.name.{listener.lower()}"
                plain = f'{PLAIN_MODULE} required {own} user_{NODE}="{_password(NODE)}";'
                found[f"{prefix}.plain.sasl.jaas.config"] = plain
                found[f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config"] = f"{SCRAM_MODULE} required {own};"
        return found

    def format_words(self) -> list[str]:
        """The users, for `trioka storage format`: without a broker, users cannot be created by a request."""
        if not self._has_sasl:
            return []
        users = [f"{MECHANISM}=[name={user},password={_password(user)}]" for user in USERS]
        return [word for user in users for word in ("--add-scram", user)]

    # -- clients -------------------------------------------------------------------------------------------------------

    def access(self, user: str, servers: str) -> Access:
        protocol = PROTOCOLS[self.kind]
        ours: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": protocol}
        theirs: dict[str, Any] = {"bootstrap_servers": servers.split(","), "security_protocol": protocol}
        tls: ssl.SSLContext | None = None
        login: Login | None = None
        key_store = str(self._key_store(user))
        if self._has_tls:
            stores = {"ssl.truststore.location": str(self._trusted)}
            ours["ssl.ca.location"] = theirs["ssl_cafile"] = str(self._trusted)
            if self.kind == MTLS:
                stores["ssl.keystore.location"] = key_store
                ours |= {"ssl.certificate.location": key_store, "ssl.key.location": key_store}
                theirs |= {"ssl_certfile": key_store, "ssl_keyfile": key_store}
            tls = client_context(stores)
        if self._has_sasl:
            password = _password(user)
            ours |= {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": password}
            theirs |= {
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
            login = Login(mechanism=MECHANISM, username=user, password=password)
        return Access(servers, ours, theirs, tls, login)

    def java(self, user: str) -> dict[str, object]:
        """The properties of a Java client with a login; a node may do so at controllers, by PLAIN."""
        assert self._has_sasl
        mechanism, module = ("PLAIN", PLAIN_MODULE) if user == NODE else (MECHANISM, SCRAM_MODULE)
        found: dict[str, object] = {
            "security.protocol": PROTOCOLS[self.kind],
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{_password(user)}";',
        }
        if self._has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self._trusted}
        return found

    def rules(self) -> list[AclBinding]:
        """Of the load; none without an authorizer."""
        if self.kind == PLAINTEXT:
            return []
        return [
            AclBinding(
                ResourceType[kind],
                name,
                ResourcePatternType[pattern],
                self.principal(LOAD),
                ANY_HOST,
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for kind, name, pattern, operation in RULES
        ]


def _password(user: str) -> str:
    return f"{user}-s3cret"
