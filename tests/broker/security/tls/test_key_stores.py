"""Key stores and trust stores in PEM, PKCS12 and JKS, as OpenSSL, keytool and Kafka's users write them."""

import hashlib
import shutil
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import authority, signed

from trioka.broker.security.tls.jks import MAGIC, InvalidJks, read_jks
from trioka.broker.security.tls.key_stores import key_store, pem_certificates, pem_key_store, trust_store
from trioka.broker.security.tls.store_files import MAX_STORE_BYTES, StoreError, read_file

AUTHORITY = authority()
SERVER = signed(AUTHORITY)
PASSWORD = "secret1"


def keytool(*arguments: str | Path) -> None:
    found = shutil.which("keytool")
    if found is None:
        pytest.skip("there is no keytool")
    subprocess.run([found, *map(str, arguments)], check=True, capture_output=True)


def generated(path: Path, kind: str, key_password: str = PASSWORD) -> bytes:
    keytool(
        *("-genkeypair", "-alias", "server", "-keyalg", "RSA", "-dname", "CN=server", "-storetype", kind),
        *("-keystore", path, "-storepass", PASSWORD, "-keypass", key_password),
    )
    return path.read_bytes()


def jks(entries: bytes, count: int, password: str = PASSWORD) -> bytes:
    body = MAGIC + struct.pack(">ii", 2, count) + entries
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def trusted(alias: str, der: bytes) -> bytes:
    name = alias.encode()
    return struct.pack(">iH", 2, len(name)) + name + struct.pack(">qH5si", 0, 5, b"X.509", len(der)) + der


@pytest.mark.parametrize("newline", ["\n", " ", "\\n", "\r\n"])
def test_pem_is_read_however_its_lines_are_joined(newline: str) -> None:
    key, chain = (text.replace("\n", newline) for text in (SERVER.key_pem(), SERVER.chain_pem))
    store = pem_key_store(key, chain, None)
    assert [each.der for each in store.chain] == [
        SERVER.der,
        AUTHORITY.der,
    ]
    store.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", ["", "secret"])
def test_keys_of_pkcs8_and_sec1_are_loaded(form: PrivateFormat, password: str) -> None:
    how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    key = SERVER.key.private_bytes(Encoding.PEM, form, how).decode()
    pem_key_store(key, SERVER.chain_pem, password or None).load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    if password:
        with pytest.raises(StoreError, match=r"needs ssl\.key\.password"):
            pem_key_store(key, SERVER.chain_pem, None)
        with pytest.raises(StoreError, match=r"does not fit ssl\.key\.password"):
            pem_key_store(key, SERVER.chain_pem, "wrong").load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_pkcs12_is_read_with_its_chain() -> None:
    data = pkcs12.serialize_key_and_certificates(
        b"server", SERVER.key, SERVER.certificate, SERVER.issuers, BestAvailableEncryption(PASSWORD.encode())
    )
    store = key_store(data, PASSWORD, None)
    assert [each.der for each in store.chain] == [SERVER.der, AUTHORITY.der]
    store.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    with pytest.raises(StoreError, match="does not fit its password"):
        key_store(data, "wrong", None)


def test_stores_of_keytool_are_read(tmp_path: Path) -> None:
    for kind in ("JKS", "PKCS12"):
        store = key_store(generated(tmp_path / kind, kind), PASSWORD, None)
        assert store.chain[0].subject == "CN=server"
        store.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    other = generated(tmp_path / "other", "JKS", "secret2")
    key_store(other, PASSWORD, "secret2").load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    with pytest.raises(StoreError, match=r"does not fit ssl\.key\.password"):
        key_store(other, PASSWORD, None)
    with pytest.raises(StoreError, match="does not fit its password"):
        key_store(other, "wrong", None)


def test_trust_stores_of_keytool_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate.public_bytes(Encoding.PEM))
    for kind in ("JKS", "PKCS12"):
        keytool(
            *("-importcert", "-noprompt", "-alias", "ca", "-file", tmp_path / "ca.pem", "-storetype", kind),
            *("-keystore", tmp_path / kind, "-storepass", PASSWORD),
        )
        assert [each.der for each in trust_store((tmp_path / kind).read_bytes(), PASSWORD)] == [AUTHORITY.der]
    assert trust_store((tmp_path / "JKS").read_bytes(), None)  # Java needs no password to trust


def test_what_is_no_store_is_named() -> None:
    for data, sentence in {
        b"\xce\xce\xce\xce" + bytes(50): "keytool -importkeystore",
        b"hello": "neither PEM nor PKCS12 nor JKS",
        b"-----BEGIN CERTIFICATE-----\nMII": "has a PEM block without an end",
        b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----": "not base64",
        b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----": "is not a certificate",
        b"-----BEGIN X-----\nMAA=\n-----END X-----": "no certificate in PEM",
        jks(b"", 0): "has no trusted certificate",
    }.items():
        with pytest.raises(StoreError, match=sentence):
            trust_store(data, None)


def test_a_file_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(MAX_STORE_BYTES + 1))
    with pytest.raises(StoreError, match="is larger than"):
        read_file(str(tmp_path / "large"))
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read_file(str(tmp_path / "missing"))


def test_a_key_never_appears_in_the_text_of_a_store() -> None:
    store = pem_key_store(SERVER.key_pem(), SERVER.chain_pem, None)
    assert "PRIVATE" not in repr(store) + str(store)


def test_jks_is_read_whole_or_not_at_all() -> None:
    data = jks(trusted("ca", AUTHORITY.der) + trusted("other", SERVER.der), 2)
    assert read_jks(data, PASSWORD).trusted == {"ca": AUTHORITY.der, "other": SERVER.der}
    with pytest.raises(InvalidJks, match="does not fit its password"):
        read_jks(data, "wrong")
    for size in range(len(data)):
        with pytest.raises(InvalidJks):
            read_jks(data[:size], None)
    for count in (-1, 1, 3, 2**31 - 1):
        with pytest.raises(InvalidJks):
            read_jks(jks(trusted("ca", AUTHORITY.der) + trusted("other", SERVER.der), count), PASSWORD)


@given(st.binary(max_size=400), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_hostile_bytes_are_a_store_error(noise: bytes, kind: int) -> None:
    starts = (b"", MAGIC + struct.pack(">ii", 2, 1), b"\x30\x82", b"-----BEGIN ", MAGIC, b"-----BEGIN CERTIFICATE-----")
    data = starts[kind] + noise or b"x"
    for read in (lambda: trust_store(data, None), lambda: key_store(data, PASSWORD, None)):
        with pytest.raises(StoreError):
            read()


def test_inline_certificates_keep_their_order() -> None:
    text = AUTHORITY.certificate.public_bytes(Encoding.PEM).decode() + SERVER.chain_pem
    assert [each.der for each in pem_certificates(text)] == [AUTHORITY.der, SERVER.der, AUTHORITY.der]
