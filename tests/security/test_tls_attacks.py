"""Attacks on TLS listeners: weak versions and suites, foreign protocols, bad certificates, silent clients, reloads, and
listeners that cannot be what their configuration says."""

import contextlib
import datetime
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from support.certificates import Identity, authority, client_tls, name, signed
from support.serving import SETTINGS, Client, broker_in_thread
from support.tls_broker import HELLO, SECURE, TIMEOUT_S, is_served, read_frame, tls_settings, tls_socket, until

from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.broker.config.server import load
from trioka.broker.network.tls.handshakes import MAX_HANDSHAKES
from trioka.broker.security.tls.listener_check import check_security
from trioka.protocol.errors import InvalidRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

AUTHORITY = authority()
SERVER = signed(AUTHORITY)
ANN = signed(AUTHORITY, "CN=ann,O=Example")
HANDSHAKES = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in_thread(tmp_path / "data", **tls_settings(SERVER, AUTHORITY, tmp_path)) as running:
        yield running


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return client_tls(AUTHORITY, None, tmp_path)


# -- 39: versions and suites -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(broker: Broker, tls: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    tls.set_ciphers("ALL:@SECLEVEL=0")
    tls.minimum_version = tls.maximum_version = version
    assert not is_served(broker, tls)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    assert is_served(broker, tls)


@pytest.mark.parametrize("suites", ["eNULL", "aNULL", "AES128-SHA", "ECDHE-ECDSA-AES128-SHA"])
def test_weak_suites_are_refused(broker: Broker, tls: ssl.SSLContext, suites: str) -> None:
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers(f"{suites}:@SECLEVEL=0")
    assert not is_served(broker, tls)


# -- 13: foreign protocols ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (HELLO, "Kafka's protocol without TLS"),
        (b"\xff" * 64, "no TLS"),
    ],
)
def test_a_foreign_protocol_is_closed_and_named_once(
    broker: Broker, said: bytes, spoken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock:
                sock.sendall(said)
                with_nothing_answered(sock)
    sentences = [record.getMessage() for record in caplog.records if "to the TLS listener" in record.getMessage()]
    assert len(sentences) == 1
    assert f"sent {spoken} to the TLS listener {SECURE}" in sentences[0]


def with_nothing_answered(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):  # the broker had not read everything
        assert sock.recv(1) == b""


def test_tls_to_a_plaintext_listener_is_closed_and_named(
    broker: Broker, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        socket.create_connection(broker.addresses["PLAINTEXT"], TIMEOUT_S) as sock,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        tls.wrap_socket(sock, server_hostname="localhost")
    assert any("sent TLS to the PLAINTEXT listener" in record.getMessage() for record in caplog.records)


# -- 40: client certificates -------------------------------------------------------------------------------------------


def chain_of(length: int) -> Identity:
    issuer = AUTHORITY
    for number in range(length):
        issuer = authority(f"CN=Authority {number}", signed_by=issuer)
    return signed(issuer, "CN=ann")


def with_large_certificate() -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name("CN=ann"))
        .issuer_name(AUTHORITY.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), bytes(110_000)), critical=False)
        .sign(AUTHORITY.key, hashes.SHA256())
    )
    return Identity(key, certificate, (AUTHORITY.certificate,))


BAD_CLIENTS: dict[str, Callable[[], Identity | None]] = {
    "none": lambda: None,
    "self-signed": lambda: signed(None, "CN=ann"),
    "other authority": lambda: signed(authority("CN=Authority"), "CN=ann"),
    "ended": lambda: signed(AUTHORITY, "CN=ann", days=(-3, -1)),
    "not yet valid": lambda: signed(AUTHORITY, "CN=ann", days=(1, 3)),
    "for servers only": lambda: signed(AUTHORITY, "CN=ann", usage=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    "chain of 20": lambda: chain_of(20),
    "100 KB": with_large_certificate,
    "empty name": lambda: signed(AUTHORITY, ""),
}


@pytest.mark.parametrize("kind", BAD_CLIENTS)
def test_a_bad_client_certificate_is_refused_with_one_audit_line(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = BAD_CLIENTS[kind]()
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth="required")
    with broker_in_thread(tmp_path / "data", **settings) as broker, caplog.at_level(logging.INFO, "trioka.audit"):
        assert not is_served(broker, client_tls(AUTHORITY, identity, tmp_path))
        until(lambda: not broker.network.connections)
        lines = [record for record in caplog.records if record.name == "trioka.audit"]
        assert len(lines) == 1
        assert "TLS handshake failed" in lines[0].getMessage()
        assert is_served(broker, client_tls(AUTHORITY, ANN, tmp_path))


# -- 42: mapping rules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", ["RULE:^CN=bob.*$/bob/", "RULE:^CN=(x?).*$/$1/"])
def test_a_certificate_that_maps_to_no_name_is_closed(
    rules: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    with broker_in_thread(tmp_path / "data", **settings) as broker, caplog.at_level(logging.INFO, "trioka.audit"):
        assert not is_served(broker, client_tls(AUTHORITY, ANN, tmp_path))
        (line,) = [record for record in caplog.records if record.name == "trioka.audit"]
        assert "ssl.principal.mapping.rules" in line.getMessage()


# -- 12, and clients that do not go on ---------------------------------------------------------------------------------


def test_others_are_served_during_many_handshakes(broker: Broker, tls: ssl.SSLContext) -> None:
    errors: list[Exception] = []

    def shake() -> None:
        try:
            for _ in range(HANDSHAKES // 4):
                with tls_socket(broker, tls):
                    pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=shake) for _ in range(4)]
    with tls_socket(broker, tls) as sock:
        for thread in threads:
            thread.start()
        answered = 0
        while any(thread.is_alive() for thread in threads):
            sock.sendall(HELLO)
            answered += bool(read_frame(sock))
        assert not errors
        assert answered > 0
    handshakes = broker.network.handshakes
    assert handshakes is not None
    until(lambda: handshakes.succeeded[SECURE] + handshakes.failed.get(SECURE, 0) == HANDSHAKES + 1)


def test_later_handshakes_wait_in_the_backlog(broker: Broker, tls: ssl.SSLContext) -> None:
    handshakes = broker.network.handshakes
    assert handshakes is not None
    silent = [socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) for _ in range(MAX_HANDSHAKES + 20)]
    try:
        until(lambda: len(handshakes) == MAX_HANDSHAKES)
    finally:
        for sock in silent:
            sock.close()
    assert is_served(broker, tls)
    until(lambda: len(handshakes) == 0)


def test_a_handshake_that_takes_too_long_is_closed(tmp_path: Path, tls: ssl.SSLContext) -> None:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, trioka_tls_handshake_timeout_ms="1")
    with (
        broker_in_thread(tmp_path / "data", **settings) as broker,
        socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock,
    ):
        sock.sendall(b"\x16\x03\x01")
        assert sock.recv(1) == b""


# -- 48: reload --------------------------------------------------------------------------------------------------------


def served_by(broker: Broker, context: ssl.SSLContext) -> bytes | None:
    """The certificate that a new connection sees."""
    with tls_socket(broker, context) as sock:
        sock.sendall(HELLO)
        assert read_frame(sock)
        return sock.getpeercert(binary_form=True)


def replace(path: Path, text: str) -> None:
    """As renewal tools do it: the file is never half written."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.rename(path)


BAD_FILES: dict[str, tuple[Callable[[], str], str]] = {
    "key of another": (lambda: signed(AUTHORITY).key_pem() + SERVER.chain_pem, "does not belong"),
    "ended": (lambda: signed(AUTHORITY, days=(-3, -1)).pem, "has ended"),
    "other name": (lambda: signed(AUTHORITY, "CN=other").pem, "ssl.allow.dn.changes"),
    "fewer names": (lambda: signed(AUTHORITY, names=("localhost",)).pem, "ssl.allow.san.changes"),
    "empty": (lambda: "", "is empty"),
}


def test_a_new_file_is_loaded_and_a_bad_one_is_not(
    tmp_path: Path, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, trioka_tls_reload_interval_ms="100")
    store = tmp_path / "server.pem"
    with (
        broker_in_thread(tmp_path / "data", **settings) as broker,
        caplog.at_level(logging.ERROR, "trioka.tls"),
        tls_socket(broker, tls) as old,
    ):
        for make, reason in BAD_FILES.values():
            caplog.clear()
            replace(store, make())
            until(lambda: bool(caplog.records))
            (record,) = caplog.records
            assert reason in record.getMessage()
            assert "keeps its old certificate, which ends in 30.0 days" in record.getMessage()
            assert served_by(broker, tls) == SERVER.der
        renewed = signed(AUTHORITY, names=("localhost", "127.0.0.1", "more"))
        replace(store, renewed.pem)
        until(lambda: served_by(broker, tls) == renewed.der)
        old.sendall(HELLO)
        assert read_frame(old)


def altered(broker: Broker, **configs: str) -> tuple[int, str]:
    wanted = IncrementalAlterConfigsRequest.Resource
    changes = [
        wanted.Config(name=f"listener.name.secure.{key.replace('_', '.')}", config_operation=0, value=value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[wanted(resource_type=4, resource_name="1", configs=changes)], validate_only=False
    )
    client = Client(*broker.addresses["PLAINTEXT"])
    result = client.ask(request, 1).responses[0]
    client.close()
    return result.error_code, result.error_message or ""


def test_stores_are_replaced_by_kafka_configs(broker: Broker, tls: ssl.SSLContext, tmp_path: Path) -> None:
    for make, reason in BAD_FILES.values():
        (tmp_path / "bad.pem").write_text(make())
        error, message = altered(broker, ssl_keystore_location=str(tmp_path / "bad.pem"))
        assert error == InvalidRequest.code
        assert reason in message
    error, message = altered(broker, ssl_keystore_location=str(tmp_path / "missing.pem"))
    assert error == InvalidRequest.code and "cannot be read" in message
    assert altered(broker, ssl_enabled_protocols="TLSv1.1")[0] == InvalidRequest.code
    assert served_by(broker, tls) == SERVER.der
    renewed = signed(AUTHORITY)
    renewed.write(tmp_path / "renewed.pem")
    assert altered(broker, ssl_keystore_location=str(tmp_path / "renewed.pem")) == (0, "")
    until(lambda: served_by(broker, tls) == renewed.der)
    assert broker.listener_manager.tls is not None
    assert 29 * 86_400 < broker.listener_manager.tls.seconds_left()[SECURE] <= 30 * 86_400


# -- 60: listeners that cannot be --------------------------------------------------------------------------------------


def cannot_be(directory: Path, **changed: str) -> str:
    settings = {**SETTINGS, **tls_settings(SERVER, AUTHORITY, directory), **changed}
    loaded = load({key.replace("_", "."): value for key, value in settings.items()})
    with pytest.raises(ConfigError) as refused:
        check_security(loaded.config, loaded.node)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_listener_that_cannot_be_secured_stops_the_start(tmp_path: Path) -> None:
    other = signed(AUTHORITY)
    (tmp_path / "mixed.pem").write_text(other.key_pem() + SERVER.chain_pem)
    (tmp_path / "encrypted.pem").write_text(SERVER.key_pem("secret") + SERVER.chain_pem)
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(b"\x30\x82" + bytes(100))
    (tmp_path / "keyless.pem").write_text(SERVER.chain_pem)
    (tmp_path / "jceks").write_bytes(b"\xce\xce\xce\xce" + bytes(100))
    assert "has no certificate: set ssl.keystore.location" in cannot_be(tmp_path, ssl_keystore_location="")
    for file, sentence in {
        "missing": "cannot be read: No such file",
        "mixed.pem": "has a private key that does not belong to its certificate",
        "encrypted.pem": "needs ssl.key.password",
        "empty": "is empty",
        "keyless.pem": "has no private key in PEM",
    }.items():
        assert sentence in cannot_be(tmp_path, ssl_keystore_location=str(tmp_path / file))
    assert "does not fit ssl.key.password" in cannot_be(
        tmp_path, ssl_keystore_location=str(tmp_path / "encrypted.pem"), ssl_key_password="wrong"
    )
    for file, sentence in {"noise": "or is not PKCS12", "jceks": "keytool -importkeystore"}.items():
        assert sentence in cannot_be(
            tmp_path,
            ssl_keystore_type="JKS",
            ssl_keystore_location=str(tmp_path / file),
            ssl_keystore_password="secret",
        )
    for key, value, sentence in (
        ("ssl_enabled_protocols", "TLSv1.1,TLSv1.2", "must be TLSv1.2 or TLSv1.3"),
        ("ssl_protocol", "SSLv3", "must be TLSv1.2, TLSv1.3 or TLS"),
        ("ssl_cipher_suites", "SSL_RSA_WITH_RC4_128_MD5", "unknown or too weak"),
        ("ssl_principal_mapping_rules", "RULE:(?=a)/b/", "RE2 does not accept"),
        ("ssl_engine_factory_class", "org.example.Engine", "must not be set"),
        ("ssl_keystore_type", "BKS", "must be JKS, PKCS12 or PEM"),
    ):
        assert sentence in cannot_be(tmp_path, **{key: value})
    assert "no trust store" in cannot_be(tmp_path, ssl_client_auth="required", ssl_truststore_location="")


def test_a_key_that_others_may_read_is_a_remark_only(tmp_path: Path) -> None:
    settings = {**SETTINGS, **tls_settings(SERVER, AUTHORITY, tmp_path)}
    loaded = load({key.replace("_", "."): value for key, value in settings.items()})
    assert check_security(loaded.config, loaded.node) == ()
    (tmp_path / "server.pem").chmod(0o644)
    (remark,) = check_security(loaded.config, loaded.node)
    assert "chmod 600" in remark
