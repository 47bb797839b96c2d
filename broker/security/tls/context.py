"""TLS contexts of listeners and of connections to other nodes, from Kafka's `ssl.*` keys.

    server_context(config, "EXTERNAL")    what a listener presents and demands
    client_context(config, "INTERNAL")    what this node presents to another one, and demands of it

Each key may be set for one listener, as `listener.name.<listener>.ssl.…`. A setting that cannot be honoured raises
ConfigError with one sentence: a listener is never served with less security than its configuration demands.
"""

import ssl
from typing import Final, NamedTuple

from ...config import security_keys as keys
from ...config.key import LISTENER_PREFIX, Key
from ...config.layers import Config, ConfigError
from ...config.values import Secret
from .certificate import Certificate
from .cipher_suites import Suites, chosen
from .key_stores import KeyStore, is_pem, key_store, pem_certificates, pem_key_store, trust_store
from .principal_mapping import InvalidRules, PrincipalMapping
from .store_files import StoreError, read_file

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM: Final = "PEM"
STORE_TYPES: Final = ("JKS", "PKCS12", PEM)
CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
MAX_CHAIN_DEPTH: Final = 10


class ServerTls(NamedTuple):
    """The TLS side of a listener."""

    context: ssl.SSLContext
    certificate: Certificate  # the listener's own
    mapping: PrincipalMapping
    tls_1_3_suites: frozenset[str]  # allowed suites, which an SSLContext does not contain
    is_sasl: bool  # the principal comes from SASL and not from the certificate


class TlsSession(NamedTuple):
    """The negotiated parameters of a client's connection."""

    version: str
    cipher: str  # Java's name
    peer_certificate: bytes | None  # DER


class ClientTls(NamedTuple):
    """The TLS side of connections to other nodes by one listener."""

    context: ssl.SSLContext
    checks_host_name: bool  # whether the other node's name is compared with its certificate
    tls_1_3_suites: frozenset[str]


class _Keys:
    """The keys of one listener, and their names for errors."""

    def __init__(self, config: Config, listener: str) -> None:
        self.config = config
        self.listener = listener

    def name(self, key: Key[object]) -> str:
        prefixed = f"{LISTENER_PREFIX}{self.listener.lower()}.{key.name}"
        layers = (self.config.broker, self.config.cluster, self.config.static)
        return prefixed if any(prefixed in texts for texts in layers) else key.name

    def secret(self, key: Key[Secret | None]) -> str | None:
        found = self.config.of_listener(self.listener, key)
        return None if found is None or not found.value else found.value

    def text(self, key: Key[str | None]) -> str | None:
        return self.config.of_listener(self.listener, key) or None

    def error(self, key: Key[object], value: str, complaint: str) -> ConfigError:
        return ConfigError(f"{self.name(key)}{f' is {value}, which' if value else ''} {complaint}.")


def server_context(config: Config, listener: str, *, is_sasl: bool = False) -> ServerTls:
    """The TLS side of a listener; raises ConfigError."""
    known = _Keys(config, listener)
    if known.text(keys.SSL_ENGINE_FACTORY_CLASS) is not None:
        raise ConfigError(
            f"{known.name(keys.SSL_ENGINE_FACTORY_CLASS)} must not be set for the TLS listener {listener}: "
            "trioka has no Java runtime, and ignoring the class could allow more than is configured."
        )
    store = _key_store(known)
    if store is None:
        raise ConfigError(
            f"The listener {listener} uses TLS, but has no certificate: set ssl.keystore.location, "
            "or ssl.keystore.key and ssl.keystore.certificate.chain with ssl.keystore.type=PEM."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    suites = _restrict(context, known)
    _load(store, context, known)
    client_auth = config.of_listener(listener, keys.SSL_CLIENT_AUTH)
    if is_sasl and known.name(keys.SSL_CLIENT_AUTH) == keys.SSL_CLIENT_AUTH.name:
        client_auth = "none"  # as in Kafka: with SASL, only the listener's own key requests certificates
    trusted = _trust_store(known)
    if trusted is not None:
        _trust(context, trusted, known)
    elif client_auth != "none":
        raise ConfigError(
            f"{known.name(keys.SSL_CLIENT_AUTH)} is {client_auth}, but the listener {listener} has no trust store "
            "to verify clients with: set ssl.truststore.location or ssl.truststore.certificates."
        )
    context.verify_mode = CLIENT_AUTH[client_auth]
    try:
        mapping = PrincipalMapping(config.of_listener(listener, keys.SSL_PRINCIPAL_MAPPING_RULES))
    except InvalidRules as error:
        raise known.error(keys.SSL_PRINCIPAL_MAPPING_RULES, "", str(error)) from None
    return ServerTls(context, store.chain[0], mapping, suites.tls_1_3, is_sasl)


def client_context(config: Config, listener: str) -> ClientTls:
    """The TLS side of connections to other nodes; raises ConfigError. Without a trust store the system's certificate
    authorities are trusted, as in Java."""
    known = _Keys(config, listener)
    algorithm = known.text(keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM) or ""
    if algorithm.lower() not in ("", "https"):
        raise known.error(keys.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM, algorithm, "must be https or empty")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.check_hostname = bool(algorithm)
    suites = _restrict(context, known)
    if (store := _key_store(known)) is not None:
        _load(store, context, known)
    trusted = _trust_store(known)
    if trusted is not None:
        _trust(context, trusted, known)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return ClientTls(context, bool(algorithm), suites.tls_1_3)


def _restrict(context: ssl.SSLContext, known: _Keys) -> Suites:
    """Sets versions and cipher suites."""
    config, listener = known.config, known.listener
    enabled = config.of_listener(listener, keys.SSL_ENABLED_PROTOCOLS)
    versions = []
    for name in enabled:
        if name not in VERSIONS:
            raise known.error(keys.SSL_ENABLED_PROTOCOLS, name[:40], "must be TLSv1.2 or TLSv1.3")
        versions.append(VERSIONS[name])
    if not versions:
        raise known.error(keys.SSL_ENABLED_PROTOCOLS, "", "is empty, but must have TLSv1.2 or TLSv1.3")
    if (protocol := config.of_listener(listener, keys.SSL_PROTOCOL)) not in (*VERSIONS, "TLS"):
        raise known.error(keys.SSL_PROTOCOL, protocol[:40], "must be TLSv1.2, TLSv1.3 or TLS")
    try:
        suites = chosen(config.of_listener(listener, keys.SSL_CIPHER_SUITES))
    except ValueError as error:
        raise known.error(keys.SSL_CIPHER_SUITES, "", str(error)) from None
    if not suites.tls_1_3:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_2]
    if not suites.tls_1_2:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise known.error(keys.SSL_CIPHER_SUITES, "", f"has no suite of {' or '.join(enabled)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if suites.tls_1_2:
        try:
            context.set_ciphers(suites.tls_1_2)
        except ssl.SSLError:
            raise known.error(keys.SSL_CIPHER_SUITES, "", "has no suite that this machine's OpenSSL offers") from None
    return suites


def _load(store: KeyStore, context: ssl.SSLContext, known: _Keys) -> None:
    inline = known.secret(keys.SSL_KEYSTORE_KEY) is not None
    location = known.text(keys.SSL_KEYSTORE_LOCATION)
    try:
        store.load_into(context)
    except StoreError as error:
        key: Key[object] = keys.SSL_KEYSTORE_KEY if inline else keys.SSL_KEYSTORE_LOCATION
        raise known.error(key, "" if inline else str(location), str(error)) from None


def _trust(context: ssl.SSLContext, trusted: tuple[Certificate, ...], known: _Keys) -> None:
    try:
        context.load_verify_locations(cadata=b"".join({each.der: None for each in trusted}))
    except ssl.SSLError as error:
        complaint = f"has a certificate that OpenSSL refuses ({error.reason or 'unknown reason'})"
        raise known.error(keys.SSL_TRUSTSTORE_LOCATION, "", complaint) from None


def _store_type(known: _Keys, key: Key[str]) -> str:
    kind = known.config.of_listener(known.listener, key)
    if kind.upper() not in STORE_TYPES:
        raise known.error(key, kind[:40], f"must be {', '.join(STORE_TYPES[:-1])} or {STORE_TYPES[-1]}")
    return kind.upper()


def _key_store(known: _Keys) -> KeyStore | None:
    """The configured key store, by Kafka's rules for combining keys; None if there is none."""
    kind = _store_type(known, keys.SSL_KEYSTORE_TYPE)
    location, password = known.text(keys.SSL_KEYSTORE_LOCATION), known.secret(keys.SSL_KEYSTORE_PASSWORD)
    key, chain = known.secret(keys.SSL_KEYSTORE_KEY), known.secret(keys.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    key_password = known.secret(keys.SSL_KEY_PASSWORD)
    if (key is None) is not (chain is None):
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together.")
    if key is not None and chain is not None:
        if kind != PEM:
            raise known.error(keys.SSL_KEYSTORE_KEY, "", f"needs ssl.keystore.type=PEM, but the type is {kind}")
        if location is not None:
            raise ConfigError("Both ssl.keystore.location and ssl.keystore.key are set; set only one of them.")
        if password is not None:
            raise known.error(keys.SSL_KEYSTORE_PASSWORD, "", "has no use with PEM; a key has ssl.key.password")
        try:
            return pem_key_store(key, chain, key_password)
        except StoreError as error:
            raise known.error(keys.SSL_KEYSTORE_KEY, "", str(error)) from None
    if location is None:
        if password is not None:
            raise known.error(keys.SSL_KEYSTORE_PASSWORD, "", "is set, but ssl.keystore.location is not")
        return None
    try:
        data = read_file(location)
        if is_pem(data):
            if password is not None and kind == PEM:
                raise StoreError("is PEM, which takes ssl.key.password instead of ssl.keystore.password")
            return key_store(data, None, key_password if key_password is not None else password)
        if kind == PEM:
            raise StoreError("is not PEM, as ssl.keystore.type says")
        if password is None:
            raise StoreError("needs ssl.keystore.password")
        return key_store(data, password, key_password)
    except StoreError as error:
        raise known.error(keys.SSL_KEYSTORE_LOCATION, location, str(error)) from None


def _trust_store(known: _Keys) -> tuple[Certificate, ...] | None:
    kind = _store_type(known, keys.SSL_TRUSTSTORE_TYPE)
    location, password = known.text(keys.SSL_TRUSTSTORE_LOCATION), known.secret(keys.SSL_TRUSTSTORE_PASSWORD)
    certificates = known.secret(keys.SSL_TRUSTSTORE_CERTIFICATES)
    if certificates is not None:
        if kind != PEM:
            raise known.error(
                keys.SSL_TRUSTSTORE_CERTIFICATES, "", f"needs ssl.truststore.type=PEM, but the type is {kind}"
            )
        if location is not None:
            raise ConfigError(
                "Both ssl.truststore.location and ssl.truststore.certificates are set; set only one of them."
            )
        if password is not None:
            raise known.error(keys.SSL_TRUSTSTORE_PASSWORD, "", "has no use with PEM")
        try:
            return pem_certificates(certificates)
        except StoreError as error:
            raise known.error(keys.SSL_TRUSTSTORE_CERTIFICATES, "", str(error)) from None
    if location is None:
        if password is not None:
            raise known.error(keys.SSL_TRUSTSTORE_PASSWORD, "", "is set, but ssl.truststore.location is not")
        return None
    try:
        data = read_file(location)
        if kind == PEM and not is_pem(data):
            raise StoreError("is not PEM, as ssl.truststore.type says")
        return trust_store(data, password)
    except StoreError as error:
        raise known.error(keys.SSL_TRUSTSTORE_LOCATION, location, str(error)) from None
