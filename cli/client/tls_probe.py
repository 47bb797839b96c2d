"""Probes a TLS listener for its certificates and versions, without judging them: `trioka doctor tls` judges."""

import socket
import ssl
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from .. import problems
from .connection import NO_TIME_S
from .time_budget import TimeoutBudget
from .tls import client_context

VERSIONS: Final = {
    "TLSv1.0": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
# OpenSSL offers TLS 1.0 and 1.1 at this security level only.
ALL_CIPHERS: Final = "ALL:@SECLEVEL=0"
# A listener that does not support a version closes the connection, or sends one of these alerts.
NOT_OFFERED: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "WRONG_VERSION", "UNEXPECTED_EOF", "INTERNAL_ERROR")


class NegotiatedTls(NamedTuple):
    version: str
    cipher: str


class Verdict(NamedTuple):
    """The verification result: `trust` and `name` are None if valid, and otherwise the reason."""

    trust: str | None
    name: str | None


class ProbedListener:
    """A host and port, probed repeatedly with different TLS settings."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str], budget: TimeoutBudget) -> None:
        self.host, self.port = host, port
        self._properties = properties
        self._budget = budget

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def handshake(self) -> tuple[NegotiatedTls, list[dict[str, Any]]]:
        """The negotiated version and cipher, and the certificates that the listener sent, its own first."""
        context = client_context(self._properties)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with self._connected() as sock, context.wrap_socket(sock, server_hostname=self.host) as tls:
                cipher = tls.cipher()
                agreed = NegotiatedTls(tls.version() or "unknown", cipher[0] if cipher else "unknown")
                return agreed, chain_of(tls)
        except TimeoutError:
            raise problems.failure_for(
                problems.TIMED_OUT, f"{self.address} did not answer within {self._budget.timeout_s:g} s"
            ) from None
        except ssl.SSLError as error:
            reason = (error.reason or "").replace("_", " ").lower()
            trouble = problems.TLS_REFUSED if "ALERT" in (error.reason or "") else problems.NO_TLS_HERE
            what = f"{self.address} did not answer in TLS" if trouble is problems.NO_TLS_HERE else self.address
            raise problems.failure_for(trouble, f"{what}: {reason}" if reason else what) from None
        except OSError:
            raise problems.failure_for(problems.NO_TLS_HERE, f"{self.address} did not answer in TLS") from None

    def verdict(self) -> Verdict:
        """Whether the command's own settings accept the certificate."""
        trust = self._verified(check_hostname=False)
        return Verdict(trust, None if trust is not None else self._verified(check_hostname=True))

    def offered(self) -> list[str]:
        return [name for name, version in VERSIONS.items() if self._offers(version)]

    def _verified(self, *, check_hostname: bool) -> str | None:
        context = client_context(self._properties)
        context.check_hostname = check_hostname
        try:
            with self._connected() as sock, context.wrap_socket(sock, server_hostname=self.host):
                return None
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message)
        except OSError:
            return None  # a listener that requires a client certificate: its own was accepted

    def _offers(self, version: ssl.TLSVersion) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python deprecates the old versions
            context.minimum_version = context.maximum_version = version
        if version < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers(ALL_CIPHERS)
        try:
            with self._connected() as sock, context.wrap_socket(sock, server_hostname=self.host):
                return True
        except ssl.SSLError as error:
            reason = error.reason or "UNEXPECTED_EOF"
            # otherwise the listener requires a client certificate, and supports this version
            return not any(word in reason for word in NOT_OFFERED)
        except OSError:
            return False

    def _connected(self) -> socket.socket:
        """A connection for one handshake. Its time counts against the timeout of the command."""
        try:
            with self._budget.waiting():
                sock = socket.create_connection((self.host, self.port), self._budget.left_s or NO_TIME_S)
        except socket.gaierror:
            raise problems.failure_for(problems.NO_SUCH_HOST, f"there is no host '{self.host}'") from None
        except ConnectionRefusedError:
            raise problems.failure_for(problems.REFUSED, f"nothing listens on {self.address}") from None
        except TimeoutError:
            raise
        except OSError as error:
            what = f"{self.address} cannot be reached: {error.strerror or error}"
            raise problems.failure_for(problems.REFUSED, what) from None
        sock.settimeout(self._budget.left_s or NO_TIME_S)
        return sock


def chain_of(tls: ssl.SSLSocket) -> list[dict[str, Any]]:
    """The certificates that the listener sent, trusted or not. Python has a public function for them from 3.13 on,
    which returns DER; this one returns their parsed fields, in all versions.
    """
    inner: Any = getattr(tls, "_sslobj", None)
    sent: Sequence[Any] = () if inner is None else inner.get_unverified_chain() or ()
    return [dict(each.get_info()) for each in sent]


def certificate_time_s(text: str) -> int:
    """A time of a certificate, such as `Jan  1 00:00:00 2026 GMT`, in seconds since 1970."""
    return ssl.cert_time_to_seconds(text)


def authority_end_s(authority: str, identity: str) -> int | None:
    """The expiry of the certificates in a file; None if it or the file with the key and the certificate is damaged."""
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(identity)
        return min((certificate_time_s(str(each["notAfter"])) for each in context.get_ca_certs()), default=None)
    except (OSError, ValueError):
        return None
