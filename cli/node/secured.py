"""Client settings for a secured broker, in the format of each client, and the broker settings.

`trioka dev --tls --sasl` and the fixture `kafka` of `trioka.testing` use it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from trioka.protocol.sasl.plain import PLAIN
from trioka.protocol.sasl.scram import MIN_ITERATIONS, SALT_RANDOM_BYTES, SCRAM_MECHANISMS, salt_text, salted_password

USER: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
PASSWORD_BYTES: Final = 18  # random bytes, before encoding as text
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENTS: Final = ("java", "confluent-kafka", "kafka-python")


class Access(NamedTuple):
    """`authority` is the file of the CA certificate; None without TLS. `password` is None without SASL."""

    authority: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Access({self.protocol})"

    @property
    def protocol(self) -> str:
        """The name of the security protocol, which is also the name of the listener."""
        transport = "PLAINTEXT" if self.authority is None else "SSL"
        return transport if self.password is None else f"SASL_{transport}"

    def client_config(self, client: str) -> dict[str, Any]:
        """The settings of one of the CLIENTS, without the bootstrap servers."""
        return {"java": self._java, "confluent-kafka": self._librdkafka, "kafka-python": self._kafka_python}[client]()

    def kcat_config(self) -> dict[str, str]:
        """The settings of librdkafka, but with PLAIN: the kcat of Debian and Ubuntu brings a librdkafka before 2.6.1,
        whose SCRAM logins fail.
        """
        return self._librdkafka() | ({} if self.password is None else {"sasl.mechanism": PLAIN})

    def broker_settings(self, identity: str | None, listener: str) -> dict[str, str]:
        """Keys of server.properties. `identity` is the file with the broker's key and certificate."""
        settings = {
            "listener.security.protocol.map": f"{listener}:{self.protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": listener,
        }
        if identity is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": identity}
        if self.password is not None:
            settings |= {
                "sasl.enabled.mechanisms": f"{MECHANISM},{PLAIN}",
                "sasl.mechanism.inter.broker.protocol": PLAIN,
                f"listener.name.{listener.lower()}.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
                f"listener.name.{listener.lower()}.{PLAIN.lower()}.sasl.jaas.config": self._plain_users,
                "authorizer.class.name": AUTHORIZER,
                "super.users": f"User:{USER}",
            }
        return settings

    @property
    def _plain_users(self) -> str:
        """PLAIN users: the node itself, and the user of clients that do not support SCRAM."""
        login = f'username="{USER}" password="{self.password}" user_{USER}="{self.password}"'
        return f"{PLAIN_MODULE} required {login};"

    def _java(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.authority is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if self.password is not None:
            login = f'{SCRAM_MODULE} required username="{USER}" password="{self.password}";'
            found |= {"sasl.mechanism": MECHANISM, "sasl.jaas.config": login}
        return found

    def _librdkafka(self) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.authority is not None:
            found |= {"ssl.ca.location": self.authority}
        if self.password is not None:
            found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": self.password}
        return found

    def _kafka_python(self) -> dict[str, str]:
        found = {"security_protocol": self.protocol}
        if self.authority is not None:
            found |= {"ssl_cafile": self.authority}
        if self.password is not None:
            found |= {
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": USER,
                "sasl_plain_password": self.password,
            }
        return found


def scram_upsertion(password: str, random: bytes) -> AlterUserScramCredentialsRequest.Upsertion:
    """The credential of USER. `random` has SALT_RANDOM_BYTES."""
    assert len(random) == SALT_RANDOM_BYTES
    mechanism, salt = SCRAM_MECHANISMS[MECHANISM], salt_text(random)
    return AlterUserScramCredentialsRequest.Upsertion(
        name=USER,
        mechanism=mechanism.number,
        iterations=MIN_ITERATIONS,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, MIN_ITERATIONS),
    )


def properties_text(properties: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())
