"""Makes a certificate authority and a certificate for a broker on this machine, for `trioka dev --tls` and for tests.

The key of the authority is discarded, so it signs only this certificate. Keys are P-256, since a handshake with them
costs a third of one with RSA. The module needs the package cryptography, and so is imported lazily.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import Certificate, CertificateBuilder, Name
from cryptography.x509.oid import ExtendedKeyUsageOID

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
VALID_DAYS: Final = 365
CLOCK_SKEW: Final = timedelta(hours=1)  # a client whose clock is behind accepts the certificate too


class Certificates(NamedTuple):
    """PEM texts. `identity` is the broker's key and its certificate."""

    authority: str
    identity: str

    def __repr__(self) -> str:
        return "Certificates()"


def make_certificates(names: Sequence[str] = LOCAL_NAMES, *, now: datetime | None = None) -> Certificates:
    """An authority and a certificate that it signed for these host names and addresses."""
    moment = now or datetime.now(UTC)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name, name = _name("trioka dev CA"), _name(names[0])
    authority = _sign(
        _builder(authority_name, authority_name, authority_key, moment)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False),
        authority_key,
    )
    certificate = _sign(
        _builder(name, authority_name, key, moment)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative_name, names))), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False),
        authority_key,
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Certificates(
        authority=authority.public_bytes(Encoding.PEM).decode(),
        identity=pem + certificate.public_bytes(Encoding.PEM).decode(),
    )


def _name(common_name: str) -> Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _builder(subject: Name, issuer: Name, key: EllipticCurvePrivateKey, moment: datetime) -> CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - CLOCK_SKEW)
        .not_valid_after(moment + timedelta(days=VALID_DAYS))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _sign(builder: CertificateBuilder, key: EllipticCurvePrivateKey) -> Certificate:
    return builder.sign(key, SHA256())
