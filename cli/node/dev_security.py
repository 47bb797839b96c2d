"""The security files of `trioka dev --tls --sasl` in its data directory, and the lines that it prints for clients.

    ca.pem               the certificate of the authority that signed the broker's, for clients to trust
    server.pem           the broker's key and certificate
    client.properties    for Java clients and for `--command-config`
    kcat.conf            for kcat -F

They are files and not a folder, because Kafka treats each folder of a data directory as a partition. With `--data` a
later start uses them again, unless the certificate expires soon. The user's password is also that of PLAIN, which a
change of the SCRAM password leaves as it is.
"""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.sasl.jaas import JaasError, parse_jaas
from trioka.protocol.sasl.scram import SALT_RANDOM_BYTES

from ..terminal.failure import CannotStart
from .secured import MECHANISM, PASSWORD_BYTES, USER, Access, properties_text, scram_upsertion

CA, SERVER, CLIENT, KCAT = "ca.pem", "server.pem", "client.properties", "kcat.conf"
RENEW_S: Final = 7 * 86_400  # a certificate with less time left is replaced


class DevSecurity(NamedTuple):
    """The files and the user. `new_password` is True if the user must be created, or its password set."""

    folder: Path
    access: Access
    new_password: bool

    @property
    def settings(self) -> dict[str, str]:
        identity = str(self.folder / SERVER) if self.access.authority is not None else None
        return self.access.broker_settings(identity, self.access.protocol)

    @property
    def client_file(self) -> Path:
        return self.folder / CLIENT

    def upsertions(self) -> list[AlterUserScramCredentialsRequest.Upsertion]:
        if self.access.password is None or not self.new_password:
            return []
        return [scram_upsertion(self.access.password, secrets.token_bytes(SALT_RANDOM_BYTES))]

    def lines(self, address: str) -> Iterator[str]:
        """The lines to print for users. They contain the password only when it is new."""
        access, client = self.access, self.client_file
        if access.password is not None:
            shown = access.password if self.new_password else f"in {client}"
            yield f"  Login    user {USER}, {MECHANISM}, password {shown}"
        if access.authority is not None:
            yield f"  CA       {access.authority}"
        masked = access._replace(password=None if access.password is None else "PASSWORD")
        python = "".join(f', {key}="{value}"' for key, value in masked.client_config("kafka-python").items())
        librdkafka = "".join(f', "{key}": "{value}"' for key, value in masked.client_config("confluent-kafka").items())
        yield f'  kafka-python     KafkaProducer(bootstrap_servers="{address}"{python})'
        yield f'  confluent-kafka  Producer({{"bootstrap.servers": "{address}"{librdkafka}}})'
        yield f"  Java             kafka-topics.sh --bootstrap-server {address} --command-config {client} --list"
        yield f"  kcat             kcat -F {self.folder / KCAT} -b {address} -L"


def prepare(folder: Path, *, tls: bool, sasl: bool) -> DevSecurity:
    """Create the missing files in the data directory."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if tls and not _is_current(folder):
        try:
            from .certificates import make_certificates
        except ImportError:
            hints = ["install it: pip install 'trioka[security]'"]
            raise CannotStart("--tls makes certificates with the package cryptography", hints=hints) from None
        made = make_certificates()
        _write(folder / SERVER, made.identity)
        _write(folder / CA, made.authority)
    kept = _kept_password(folder / CLIENT) if sasl else None
    password = kept or secrets.token_urlsafe(PASSWORD_BYTES) if sasl else None
    access = Access(str(folder / CA) if tls else None, password)
    _write(folder / CLIENT, properties_text(access.client_config("java")))
    _write(folder / KCAT, properties_text(access.kcat_config()))
    return DevSecurity(folder, access, new_password=sasl and kept is None)


def _is_current(folder: Path) -> bool:
    from ..client.tls_probe import authority_end_s

    end_s = authority_end_s(str(folder / CA), str(folder / SERVER))
    return end_s is not None and end_s - time.time() > RENEW_S


def _kept_password(path: Path) -> str | None:
    """The password of an earlier start."""
    from ..config_reference import read_properties

    if not path.exists():
        return None
    try:
        return parse_jaas(read_properties(str(path)).get("sasl.jaas.config", "")).options.get("password")
    except JaasError:
        return None


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read at any time."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
