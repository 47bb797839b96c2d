"""The client side of TLS: stores of each kind, certificates of clients, alerts, and what `trioka doctor tls` finds."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import SHUT_RDWR, SHUT_WR, create_server, socket

import pytest
from support import certificates
from support.command_line import Ended, command, home
from support.serving import broker_in_thread
from support.tls_broker import SECURE, tls_settings

from trioka.cli.client.tls import client_context
from trioka.cli.client.tls_probe import Verdict
from trioka.cli.cluster.doctor_tls import certificate_findings, trust_findings, version_findings
from trioka.cli.terminal.failure import Exit, Failure

__all__ = ["home"]

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Authority:
    """A certificate authority of openssl, and the certificates that it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
        self._options = options
        _openssl("req", "-x509", *options, "-subj", "/CN=Test CA", "-keyout", folder / "ca.key", "-out", self.ca)

    def signed(self, name: str, *extensions: str) -> Path:
        """A file with a key and its certificate."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        options: list[str] = [*self._options[:5], *(word for each in extensions for word in ("-addext", each))]
        _openssl("req", *options, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signing: list[str | Path] = ["-CA", self.ca, "-CAkey", self.folder / "ca.key"]
        signing += ["-copy_extensions", "copy", "-days", "40"]
        _openssl("x509", "-req", "-in", request, *signing, "-CAcreateserial", "-out", certificate)
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: "str | Path") -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Path:
    return authority.signed("server", NAMES)


@contextmanager
def listener(certificate: Path, change: Callable[[ssl.SSLContext], None] = lambda _: None) -> Iterator[str]:
    """A TLS listener that shakes hands, waits for one byte, and closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    change(context)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = waiting.accept()
                client.settimeout(5)
                inside = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
                with suppress(OSError):
                    inside.do_handshake()
                    inside.recv(1)
                # Read what is left, or the kernel resets the connection and the client may lose the alert.
                with socket(fileno=inside.detach()) as raw, suppress(OSError):
                    raw.shutdown(SHUT_WR)
                    raw.settimeout(5)
                    while raw.recv(1 << 16):
                        pass

    with create_server(("127.0.0.1", 0)) as waiting:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"localhost:{waiting.getsockname()[1]}"
        waiting.shutdown(SHUT_RDWR)
    thread.join()


def wants_certificates_of(ca: Path) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)

    return change


def with_config(home: Path, properties: Mapping[str, object], *arguments: str) -> Ended:
    file = home / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return command(*arguments, "--command-config", str(file), "--timeout", "10s")


# -- stores ------------------------------------------------------------------------------------------------------------


def test_a_trust_store_may_be_pem_pkcs12_or_inline_in_one_line(authority: Authority, server: Path, home: Path) -> None:
    p12 = home / "trust.jks"  # keytool writes PKCS12, whatever the file is called
    _openssl("pkcs12", "-export", "-nokeys", "-in", authority.ca, "-out", p12, "-passout", "pass:changeit")
    one_line = authority.ca.read_text().replace("\n", " ")
    with listener(server) as address:
        for stores in (
            {"ssl.truststore.location": authority.ca},
            {"ssl.truststore.location": p12, "ssl.truststore.password": "changeit", "ssl.truststore.type": "JKS"},
            {"ssl.truststore.certificates": one_line},
        ):
            ended = with_config(home, {"security.protocol": "SSL", **stores}, "doctor", "tls", address, "-o", "json")
            found = {row["check"]: row["status"] for row in ended.rows}
            assert found["trust"] == found["host name"] == "ok", (stores, ended)
            assert ended.code == Exit.OK


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.truststore.location": "/no/such/ca.pem"}, "ssl.truststore.location /no/such/ca.pem cannot be read"),
        ({"ssl.truststore.certificates": "hunter2"}, "ssl.truststore.certificates has no certificate"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.certificate.chain has no private key"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "ssl.enabled.protocols has TLSv1.1"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_sentence(properties: Mapping[str, str], reason: str) -> None:
    with pytest.raises(Failure) as result:
        client_context(properties)
    assert reason in result.value.what and result.value.exit_code == Exit.USAGE
    assert "hunter2" not in str(result.value)


def test_a_wrong_password_of_a_store_is_reported_without_the_password(authority: Authority, home: Path) -> None:
    p12 = home / "trust.p12"
    _openssl("pkcs12", "-export", "-nokeys", "-in", authority.ca, "-out", p12, "-passout", "pass:changeit")
    stores = {"security.protocol": "SSL", "ssl.truststore.location": p12, "ssl.truststore.password": "hunter2"}
    ended = with_config(home, stores, "topics", "list")
    assert ended.code == Exit.USAGE and "does not fit its password" in ended.stderr and "hunter2" not in ended.stderr


# -- certificates of clients -------------------------------------------------------------------------------------------


def test_a_listener_that_wants_a_certificate_gets_one_or_says_so(
    authority: Authority, server: Path, home: Path
) -> None:
    ours = authority.signed("ann")
    base = {"security.protocol": "SSL", "ssl.truststore.location": authority.ca}
    with listener(server, wants_certificates_of(authority.ca)) as address:
        without = with_config(home, base, "topics", "list", "-b", address)
        with_one = with_config(home, {**base, "ssl.keystore.location": ours}, "topics", "list", "-b", address)
    assert without.code == Exit.UNAUTHORISED and "TRK-2013" in without.stderr, without
    assert "name a key and a certificate by ssl.keystore.location" in without.stderr.lower()
    assert "TRK-2007" in with_one.stderr, with_one  # let in; this listener then only closes


def test_an_alert_about_versions_is_reported_as_one(authority: Authority, server: Path, home: Path) -> None:
    def only_1_3(context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3

    base = {"security.protocol": "SSL", "ssl.truststore.location": authority.ca, "ssl.enabled.protocols": "TLSv1.2"}
    with listener(server, only_1_3) as address:
        ended = with_config(home, base, "topics", "list", "-b", address)
    assert ended.code == Exit.UNREACHABLE and "TRK-2014" in ended.stderr and "protocol version" in ended.stderr, ended


# -- doctor tls --------------------------------------------------------------------------------------------------------


def test_the_doctor_names_what_is_wrong_with_a_listener(authority: Authority, home: Path) -> None:
    def only_1_2(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    base = {"security.protocol": "SSL", "ssl.truststore.location": authority.ca}
    with listener(authority.signed("elsewhere", "subjectAltName=DNS:elsewhere"), only_1_2) as address:
        ended = with_config(home, base, "doctor", "tls", address, "-o", "json")
        untrusted = command("doctor", "tls", address, "-o", "json", "--timeout", "10s")
    found = {row["check"]: row for row in ended.rows}
    assert ended.code == Exit.UNHEALTHY
    assert found["certificate"]["status"] == "ok" and "elsewhere has 39 days left" in found["certificate"]["found"]
    assert found["names"]["found"] == "DNS:elsewhere"
    assert found["trust"]["status"] == "ok" and found["host name"]["status"] == "failed"
    assert found["versions"]["status"] == "warning" and "TLSv1.2; TLSv1.3 is missing" in found["versions"]["found"]
    assert {row["check"]: row["status"] for row in untrusted.rows}["trust"] == "failed"


def test_the_doctor_reports_a_listener_without_tls(home: Path) -> None:
    with create_server(("127.0.0.1", 0)) as free:

        def hang_up() -> None:
            with suppress(OSError):
                client, _ = free.accept()
                client.recv(10)
                client.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        ended = command("doctor", "tls", f"localhost:{free.getsockname()[1]}", "--timeout", "10s")
        thread.join()
    assert ended.code == Exit.UNREACHABLE and "did not answer in TLS" in ended.stderr and "TRK-2008" in ended.stderr


def test_days_left_are_counted_and_judged() -> None:
    begins, ends = "Jan  1 00:00:00 2026 GMT", "Jan 31 00:00:00 2026 GMT"
    certificate = {
        "subject": ((("commonName", "broker"),),),
        "notBefore": begins,
        "notAfter": ends,
        "subjectAltName": (("DNS", "broker"),),
    }
    ended = ssl.cert_time_to_seconds(ends)

    def status(days_before: float) -> tuple[str, str]:
        first = next(certificate_findings([certificate], ended - days_before * 86_400))
        return first.status, first.found

    assert status(10.5) == ("warning", "broker has 10 days left")
    assert status(-2.5)[0] == "failed" and "ended" in status(-2.5)[1]
    assert status(30.0) == ("ok", "broker has 30 days left")
    assert status(31.0)[0] == "failed" and "is not valid before" in status(31.0)[1]
    *_, names = certificate_findings([{**certificate, "subjectAltName": ()}], ended - 1)
    assert names.status == "failed" and "no subject alternative names" in names.found


def test_old_versions_and_distrust_fail() -> None:
    assert next(version_findings(["TLSv1.1", "TLSv1.2"])).status == "failed"
    assert next(version_findings(["TLSv1.2", "TLSv1.3"])).status == "ok"
    (distrust,) = trust_findings(Verdict("self-signed certificate", None), "localhost", [])
    assert distrust.status == "failed" and "self-signed" in distrust.found


def test_the_doctor_of_a_cluster_tells_the_days_left_of_each_brokers_certificate(tmp_path: Path, home: Path) -> None:
    authority = certificates.authority()
    for days, status in ((30, "ok"), (5, "warning")):
        server = certificates.signed(authority, days=(-1, days + 1))
        settings = tls_settings(server, authority, tmp_path)
        with broker_in_thread(tmp_path / f"data-{days}", **settings) as broker:
            host, port = broker.addresses[SECURE]
            trusted = {"security.protocol": "SSL", "ssl.truststore.location": tmp_path / "authority.pem"}
            rows = with_config(home, trusted, "doctor", "--bootstrap-server", f"{host}:{port}", "-o", "json").rows
            plain = command("doctor", "-o", "json", at="{}:{}".format(*broker.addresses["PLAINTEXT"])).rows
        (found,) = [row for row in rows if row["check"] == "certificate"]
        assert (found["status"], found["found"]) == (status, f"broker 1: localhost has {days} days left")
        assert "certificate" not in {row["check"] for row in plain}
