"""Certificates for tests: an authority, and the certificates that it signs."""

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

DAY: datetime.timedelta = datetime.timedelta(days=1)


SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Identity(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()

    def key_pem(self, password: str = "") -> str:
        how: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    @property
    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.issuers))

    @property
    def pem(self) -> str:
        return self.key_pem() + self.chain_pem

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        path.chmod(0o600)
        return path


def name(text: str) -> x509.Name:
    """Of the text of RFC 4514, such as CN=ann,O=Example."""
    return x509.Name.from_rfc4514_string(text)


def authority(subject: str = "CN=Authority", *, signed_by: Identity | None = None) -> Identity:
    return _signed(name(subject), signed_by, is_authority=True)


def signed(
    authority: Identity | None,
    subject: str = "CN=localhost",
    *,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    days: tuple[int, int] = (-1, 30),
    usage: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
) -> Identity:
    """A certificate of an authority; without one, of itself. `days` are its first and its last, from today on."""
    return _signed(name(subject), authority, names=names, days=days, usage=usage)


def _signed(
    subject: x509.Name,
    authority: Identity | None,
    *,
    is_authority: bool = False,
    names: tuple[str, ...] = (),
    days: tuple[int, int] = (-1, 30),
    usage: tuple[x509.ObjectIdentifier, ...] = (),
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    # Python 3.13 verifies by X509_STRICT, which wants key usage and identifiers.
    issuer_key = (authority.key if authority else key).public_key()
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    if is_authority:
        builder = builder.add_extension(SIGNS_CERTIFICATES, critical=True)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
    certificate = builder.sign(authority.key if authority else key, hashes.SHA256())
    return Identity(key, certificate, (authority.certificate, *authority.issuers) if authority else ())


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def client_tls(authority: Identity, identity: Identity | None, directory: Path) -> ssl.SSLContext:
    """The trusted certificates of a client, and its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate.public_bytes(Encoding.PEM).decode())
    if identity is not None:
        context.load_cert_chain(identity.write(directory / "client.pem"))
    return context
