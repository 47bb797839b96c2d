"""The brokers of a topic, and how trioka's own requests log in there: by the options that Spark's connector has.

    kafka.security.protocol                     PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    kafka.sasl.mechanism, kafka.sasl.jaas.config     PLAIN and SCRAM, with a user name and a password
    kafka.ssl.truststore.location, .certificates     PEM; the system's authorities without either
    kafka.ssl.keystore.location, kafka.ssl.key.password     PEM: the certificates and the key in one file
    kafka.ssl.endpoint.identification.algorithm      empty: any host name is accepted

Java's own stores (JKS, PKCS12) cannot be read here: `problem` says so.
"""

import ssl
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.sasl.jaas import JaasError, parse_jaas

from ..errors import InvalidPipeline

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
SECURITY_KEYS = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
PEM = "PEM"


def security_of(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are about TLS and logins."""
    return {key: value for key, value in options.items() if key.startswith(SECURITY_KEYS)}


@frozen
class Brokers:
    """`security` are options of Spark's connector; passwords are among them."""

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Brokers":
        """The brokers that the options of a read or a write of Spark name."""
        return cls(bootstrap=options[BOOTSTRAP], security=security_of(options))

    def __str__(self) -> str:
        return self.bootstrap

    @property
    def protocol(self) -> str:
        return self._value("security.protocol", PLAINTEXT).upper()

    @property
    def is_plain(self) -> bool:
        return self.protocol == PLAINTEXT

    def client_settings(self) -> dict[str, Any]:
        """The settings of a client of kafka-python; `InvalidPipeline` if it cannot log in so."""
        problem = self.problem()
        if problem is not None:
            raise InvalidPipeline(problem)
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap.split(","), "security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl_context"] = self._context()
        if self.protocol.startswith("SASL"):
            login = parse_jaas(self._value("sasl.jaas.config")).options
            found |= {
                "sasl_mechanism": self._mechanism,
                "sasl_plain_username": login["username"],
                "sasl_plain_password": login["password"],
            }
        return found

    def problem(self) -> str | None:
        """Why trioka cannot make requests of its own there, in one sentence; None if it can."""
        if self.protocol not in PROTOCOLS:
            return f"kafka.security.protocol is '{self.protocol}'; there are {', '.join(PROTOCOLS)}."
        if self.protocol.endswith("SSL"):
            for store in ("truststore", "keystore"):
                kind = self._value(f"ssl.{store}.type", "JKS").upper()
                if self._value(f"ssl.{store}.location") and kind != PEM:
                    return (
                        f"kafka.ssl.{store}.location is a store of the type {kind}, which trioka's own requests cannot "
                        f"read: write it as PEM, and set kafka.ssl.{store}.type to PEM."
                    )
        return self._login_problem() if self.protocol.startswith("SASL") else None

    def _login_problem(self) -> str | None:
        if self._mechanism not in MECHANISMS:
            return (
                f"kafka.sasl.mechanism is '{self._mechanism}', with which trioka's own requests cannot log in; they "
                f"know {', '.join(MECHANISMS)}."
            )
        try:
            login = parse_jaas(self._value("sasl.jaas.config")).options
        except JaasError as error:
            return f"kafka.sasl.jaas.config {error}."
        if not {"username", "password"} <= login.keys():
            return "kafka.sasl.jaas.config has no username and password."
        return None

    @property
    def _mechanism(self) -> str:
        return self._value("sasl.mechanism", "GSSAPI").upper()

    def _value(self, key: str, default: str = "") -> str:
        return self.security.get(f"{PREFIX}{key}", default).strip()

    def _context(self) -> ssl.SSLContext:
        key = "kafka.ssl.truststore"
        try:
            inline, file = self._value("ssl.truststore.certificates"), self._value("ssl.truststore.location")
            context = ssl.create_default_context(cafile=file or None, cadata=inline or None)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java: what is in the store is trusted
            algorithm = self.security.get("kafka.ssl.endpoint.identification.algorithm", "https")
            context.check_hostname = bool(algorithm.strip())
            key = "kafka.ssl.keystore"
            if chain := self._value("ssl.keystore.location"):
                context.load_cert_chain(chain, password=self._value("ssl.key.password") or None)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise InvalidPipeline(f"{key} cannot be used: {reason}.") from None
        return context
