"""Cipher suites by Java's names, which Kafka's configuration uses, and by OpenSSL's names.

The suites of TLS 1.3 have one name in both, and Python's ssl cannot select them before 3.15, so they are checked after
the handshake. Anonymous, export, NULL, RC4 and DES suites are not in the table: a configuration that names one prevents
the start.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

TLS_1_3: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
TLS_1_2: Final = {
    f"TLS_{exchange}_WITH_{java}": f"{prefix}-{openssl}"
    for exchange, prefix in (
        ("ECDHE_ECDSA", "ECDHE-ECDSA"),
        ("ECDHE_RSA", "ECDHE-RSA"),
        ("DHE_RSA", "DHE-RSA"),
    )
    for java, openssl in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
} | {
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
_JAVA_NAMES: Final = {openssl: java for java, openssl in TLS_1_2.items()}

DEFAULT: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"
"""The default suites of TLS 1.2: forward secrecy and authenticated encryption. All Kafka clients have them."""
SECURITY_LEVEL: Final = "@SECLEVEL=2"  # at least 112 bits: no RSA keys below 2048 bits, no SHA-1 signatures
EXAMPLE: Final = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
EMPTY_RENEGOTIATION_INFO: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # Java's lists have it; it is no suite


class Suites(NamedTuple):
    tls_1_2: str  # for SSLContext.set_ciphers
    tls_1_3: frozenset[str]  # allowed suites; empty for none


def chosen(names: Iterable[str]) -> Suites:
    """The suites of ssl.cipher.suites. ValueError, whose message starts with "has", for one that is not supported."""
    named = [name for name in names if name != EMPTY_RENEGOTIATION_INFO]
    if not named:
        return Suites(f"{DEFAULT}:{SECURITY_LEVEL}", TLS_1_3)
    if unknown := [name for name in named if name not in TLS_1_2 and name not in TLS_1_3]:
        raise ValueError(f"has {unknown[0][:100]}, which is unknown or too weak; use Java's names, such as {EXAMPLE}")
    openssl = [TLS_1_2[name] for name in named if name in TLS_1_2]
    return Suites(":".join((*openssl, SECURITY_LEVEL)) if openssl else "", TLS_1_3.intersection(named))


def java_name(openssl_name: str) -> str:
    """Java's name of the suite that a connection uses; TLS 1.3 suites have the same name in OpenSSL."""
    return _JAVA_NAMES.get(openssl_name, openssl_name)
