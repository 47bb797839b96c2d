"""The client side of TLS, from the keys of a client.properties: the trusted authorities and the client certificate.

    ssl.truststore.location or ssl.truststore.certificates                     the system's trust store without either
    ssl.keystore.location, or ssl.keystore.certificate.chain and .key          for listeners that require one
    ssl.truststore.password, ssl.keystore.password, ssl.key.password
    ssl.endpoint.identification.algorithm                                      empty: any host name is accepted

Stores are PEM, PKCS12 or JKS, recognised by their first bytes. The broker's store reader reads them; it opens no
sockets. This is an exception to the rule that the command line imports nothing but the protocol.
"""

import ssl
from collections.abc import Mapping
from typing import Final

from trioka.broker.security.tls.key_stores import KeyStore, key_store, pem_certificates, pem_key_store, trust_store
from trioka.broker.security.tls.store_files import StoreError, read_file

from ..terminal.failure import Exit, Failure

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TRUST_STORE: Final = "ssl.truststore.location"
TRUSTED_INLINE: Final = "ssl.truststore.certificates"
KEY_STORE: Final = "ssl.keystore.location"
CHAIN_INLINE: Final = "ssl.keystore.certificate.chain"
KEY_INLINE: Final = "ssl.keystore.key"


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """`Failure` with one sentence if a store cannot be used."""
    texts = {name: text.strip() for name, text in properties.items() if text.strip()}
    context = _trusting(texts)
    # Like Java, trust a certificate that is in the trust store though it is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    context.minimum_version, context.maximum_version = _versions(texts.get("ssl.enabled.protocols", ""))
    where = CHAIN_INLINE if CHAIN_INLINE in texts else f"{KEY_STORE} {texts.get(KEY_STORE)}"
    try:
        identity = _identity(texts)
        if identity is not None:
            identity.load_into(context)
    except StoreError as error:
        raise _unusable(f"{where} {error}") from None
    return context


def librdkafka_tls(properties: Mapping[str, str]) -> dict[str, str]:
    """The same trust and identity as the settings of a client of librdkafka, with PEM texts instead of files."""
    texts = {name: text.strip() for name, text in properties.items() if text.strip()}
    check_host = properties.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    found = {"ssl.endpoint.identification.algorithm": "https" if check_host else "none"}
    trusted, identity = _trusted(texts), _identity(texts)
    if trusted is not None:
        found["ssl.ca.pem"] = "".join(map(ssl.DER_cert_to_PEM_cert, trusted))
    if identity is not None:
        found |= {
            "ssl.certificate.pem": "".join(ssl.DER_cert_to_PEM_cert(each.der) for each in identity.chain),
            "ssl.key.pem": identity.key_pem,
        }
        if identity.key_password:
            found["ssl.key.password"] = identity.key_password
    return found


def _trusted(texts: Mapping[str, str]) -> list[bytes] | None:
    """The certificates of the trust store, in DER; None for the system's."""
    where = TRUSTED_INLINE if TRUSTED_INLINE in texts else f"{TRUST_STORE} {texts.get(TRUST_STORE)}"
    try:
        if TRUSTED_INLINE in texts:
            return [each.der for each in pem_certificates(texts[TRUSTED_INLINE])]
        if TRUST_STORE in texts:
            stored = trust_store(read_file(texts[TRUST_STORE]), texts.get("ssl.truststore.password"))
            return [each.der for each in stored]
    except StoreError as error:
        raise _unusable(f"{where} {error}") from None
    return None


def _trusting(texts: Mapping[str, str]) -> ssl.SSLContext:
    """A context that trusts the trust store, or the system's trust store if none is named."""
    trusted = _trusted(texts)
    if trusted is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError:
        where = TRUSTED_INLINE if TRUSTED_INLINE in texts else f"{TRUST_STORE} {texts.get(TRUST_STORE)}"
        raise _unusable(f"{where} has a certificate that OpenSSL refuses") from None
    return context


def _identity(texts: Mapping[str, str]) -> KeyStore | None:
    key_password = texts.get("ssl.key.password")
    if CHAIN_INLINE in texts:
        return pem_key_store(texts.get(KEY_INLINE, ""), texts[CHAIN_INLINE], key_password)
    if KEY_STORE in texts:
        return key_store(read_file(texts[KEY_STORE]), texts.get("ssl.keystore.password"), key_password)
    return None


def _versions(text: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise _unusable(f"ssl.enabled.protocols has {unknown[0]}, and {', '.join(VERSIONS)} are supported")
    versions = [VERSIONS[name] for name in names or VERSIONS]
    return min(versions), max(versions)


def _unusable(why: str) -> Failure:
    return Failure(f"TLS cannot be set up: {why}", exit_code=Exit.USAGE)
