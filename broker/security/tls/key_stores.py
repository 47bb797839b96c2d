"""Key stores and trust stores: PEM, PKCS12 and JKS.

`keytool` writes PKCS12 regardless of the file name, and Kafka's default type is JKS, so the first bytes of a file
determine its format, as in Java: `-----` or text is PEM, 30 is PKCS12, FEEDFEED is JKS.

PEM and JKS need only the standard library. PKCS12 needs the package `cryptography`, which is imported on first use.
Private keys are passed to OpenSSL in a memory file (`memfd_create`), since `ssl` accepts only paths: a key from a
password store or an inline key is never written to a disk.
"""

import base64
import binascii
import ssl
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from .certificate import Certificate, read_certificate
from .der import InvalidDer
from .jks import MAGIC, InvalidJks, read_jks, recovered_key
from .store_files import StoreError, file_in_memory

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

MAX_CERTIFICATES: Final = 10_000
JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_PKCS12_FIRST_BYTE: Final = 0x30
_BEGIN: Final = "-----BEGIN "
_DASHES: Final = "-----"
_CERTIFICATE_LABELS: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})


class KeyStore(NamedTuple):
    """A private key with its certificate chain, the own certificate first."""

    key_pem: str
    key_password: str | None
    chain: tuple[Certificate, ...]

    def __repr__(self) -> str:
        return f"KeyStore({self.chain[0].subject})"

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises StoreError if OpenSSL refuses the key or the chain."""
        text = "".join((self.key_pem, *(_pem("CERTIFICATE", each.der) for each in self.chain)))
        try:
            with file_in_memory(text) as path:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(path, password=self.key_password or "")
        except ssl.SSLError as error:
            raise StoreError(_refusal(error, self.key_password is not None)) from None
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot be used: {error}") from None


def _refusal(error: ssl.SSLError, is_encrypted: bool) -> str:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return "has a private key that does not belong to its certificate"
    if "DECRYPT" in reason or (is_encrypted and not reason):  # some versions of OpenSSL give no reason
        return "has a private key that does not fit ssl.key.password"
    if reason == "EE_KEY_TOO_SMALL":
        return "has a key that is too short: RSA needs 2048 bits"
    return f"is refused by OpenSSL ({reason.replace('_', ' ').lower() or 'the private key cannot be read'})"


def is_pem(data: bytes) -> bool:
    return _BEGIN.encode() in data and data[:4] not in (MAGIC, JCEKS_MAGIC) and data[0] != _PKCS12_FIRST_BYTE


def key_store(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    """The key store in the bytes of a file; raises StoreError."""
    if is_pem(data):
        text = _ascii(data)
        return pem_key_store(text, text, key_password)
    if data.startswith(MAGIC):
        return _jks_key_store(data, password, key_password)
    if data[0] != _PKCS12_FIRST_BYTE:
        raise StoreError(_unknown_format(data))
    store = _load_pkcs12(data, password)
    if store.key is None or store.cert is None:
        raise StoreError("has no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    others = _certificates(each.certificate.public_bytes(Encoding.DER) for each in store.additional_certs)
    own = _certificates((store.cert.certificate.public_bytes(Encoding.DER),))[0]
    return KeyStore(key, None, _ordered(own, others))


def trust_store(data: bytes, password: str | None) -> tuple[Certificate, ...]:
    """The trusted certificates in the bytes of a file; raises StoreError."""
    if is_pem(data):
        return pem_certificates(_ascii(data))
    if data.startswith(MAGIC):
        try:
            trusted = tuple(read_jks(data, password).trusted.values())
        except InvalidJks as error:
            raise StoreError(str(error)) from None
    elif data[0] == _PKCS12_FIRST_BYTE:
        from cryptography.hazmat.primitives.serialization import Encoding

        store = _load_pkcs12(data, password)
        found = [store.cert, *store.additional_certs] if store.cert else store.additional_certs
        trusted = tuple(each.certificate.public_bytes(Encoding.DER) for each in found)
    else:
        raise StoreError(_unknown_format(data))
    if not trusted:
        raise StoreError("has no trusted certificate")
    return _certificates(trusted)


def _unknown_format(data: bytes) -> str:
    if data.startswith(JCEKS_MAGIC):
        return (
            "is a JCEKS store, which is not supported; convert it by "
            "`keytool -importkeystore -srckeystore FILE -srcstoretype JCEKS -destkeystore NEW -deststoretype PKCS12`"
        )
    return "is neither PEM nor PKCS12 nor JKS"


def _jks_key_store(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if password is None:
        raise StoreError("needs ssl.keystore.password")
    try:
        keys = list(read_jks(data, password).keys.values())
        if not keys:
            raise StoreError("has no private key")
        plain = recovered_key(keys[0], key_password if key_password is not None else password)
    except InvalidJks as error:
        raise StoreError(str(error)) from None
    chain = _certificates(keys[0].chain)
    if not chain:
        raise StoreError("has no certificate for its private key")
    return KeyStore(_pem("PRIVATE KEY", plain), None, chain)


def _load_pkcs12(data: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise StoreError(
            "is PKCS12, which needs the package cryptography: install `trioka[security]`, or convert the store to PEM"
        ) from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise StoreError("does not fit its password, or is not PKCS12") from None
    except Exception as error:  # an algorithm that is not supported, or hostile bytes
        raise StoreError(f"cannot be read as PKCS12 ({type(error).__name__})") from None


def _ordered(own: Certificate, others: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The chain from the own certificate towards its root, as far as the certificates are present."""
    issuers = {each.subject_der: each for each in others}
    chain = [own]
    while (issuer := issuers.pop(chain[-1].issuer_der, None)) is not None and issuer.der != chain[-1].der:
        chain.append(issuer)
    return tuple(chain)


# -- PEM ---------------------------------------------------------------------------------------------------------------


def pem_key_store(key_text: str, chain_text: str, key_password: str | None) -> KeyStore:
    """A key and its chain in PEM, from one file or inline; raises StoreError."""
    keys = [(label, body) for label, body in _pem_blocks(key_text) if label.endswith("PRIVATE KEY")]
    if not keys:
        raise StoreError("has no private key in PEM")
    if len(keys) > 1:
        raise StoreError(f"has {len(keys)} private keys, but must have one")
    label, body = keys[0]
    is_encrypted = label == "ENCRYPTED PRIVATE KEY" or "Proc-Type" in body
    if is_encrypted and not key_password:
        raise StoreError("has an encrypted private key, which needs ssl.key.password")
    if "Proc-Type" in body:  # the older form, whose headers are lines
        key = f"{_BEGIN}{label}{_DASHES}{body}-----END {label}{_DASHES}\n"
    else:
        key = _pem(label, _decoded(body))
    return KeyStore(key, key_password if is_encrypted else None, pem_certificates(chain_text))


def pem_certificates(text: str) -> tuple[Certificate, ...]:
    """All certificates in a text of PEM, in their order; raises StoreError."""
    found = _certificates(_decoded(body) for label, body in _pem_blocks(text) if label in _CERTIFICATE_LABELS)
    if not found:
        raise StoreError("has no certificate in PEM")
    return found


def _pem_blocks(text: str) -> list[tuple[str, str]]:
    """Labels and bodies. Configurations often have a block on one line, with blanks or `\\n` for newlines."""
    text = text.replace("\\n", "\n")
    blocks: list[tuple[str, str]] = []
    at = text.find(_BEGIN)
    while at >= 0:
        label_end = text.find(_DASHES, at + len(_BEGIN))
        label = text[at + len(_BEGIN) : label_end]
        end = text.find(closing := f"-----END {label}{_DASHES}", label_end) if label_end >= 0 else -1
        if end < 0 or len(label) > 40:
            raise StoreError("has a PEM block without an end")
        blocks.append((label, text[label_end + len(_DASHES) : end]))
        if len(blocks) > MAX_CERTIFICATES:
            raise StoreError(f"has more than {MAX_CERTIFICATES} PEM blocks")
        at = text.find(_BEGIN, end + len(closing))
    return blocks


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise StoreError("has a PEM block that is not base64") from None


def _pem(label: str, der: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"{_BEGIN}{label}{_DASHES}\n{lines}\n-----END {label}{_DASHES}\n"


def _ascii(data: bytes) -> str:
    return data.decode("ascii", errors="replace")


def _certificates(found: Iterable[bytes]) -> tuple[Certificate, ...]:
    try:
        return tuple(map(read_certificate, found))
    except InvalidDer as error:
        raise StoreError(f"has a certificate that {error}") from None
