"""Credentials: the caller's login is used towards the cluster, over TLS on both sides, and nothing is shared."""

import base64
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from security.tokens import AUDIENCE, ISSUER, claims, key_set, other_rsa_key
from security.tokens import signed as signed_token
from support.certificates import Identity, authority, signed
from support.gateway import GatewayUnderTest
from support.gateway_calls import TIMEOUT_S, Stream, failing, produce

from trioka.cli.node.certificates import make_certificates
from trioka.cli.node.secured import USER
from trioka.gateway.cluster_access import ClusterAccess, Login
from trioka.gateway.credentials import login_of
from trioka.gateway.failures import Refused
from trioka.gateway.v1 import admin_pb2, log_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.protocol.sasl.jaas import OAUTHBEARER_MODULE
from trioka.testing.broker import Broker

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def basic(name: str, password: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"),)


def client_file(folder: Path, broker: Broker, mechanism: str | None = None) -> str:
    properties = broker.client_config("java")
    properties.pop("bootstrap.servers")
    if mechanism is not None:
        properties["sasl.mechanism"] = mechanism
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(tls=True, sasl=True) as kafka:
        kafka.create_topic("t", 1)
        yield kafka


@pytest.fixture(scope="module")
def password(secured: Broker) -> str:
    found: str = secured.client_config("confluent-kafka")["sasl.password"]
    return found


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    made = make_certificates()
    (folder / "ca.pem").write_text(made.authority)
    (folder / "server.pem").write_text(made.identity)
    return folder


@pytest.fixture(scope="module", params=["SCRAM-SHA-512", "PLAIN"])
def guarded(
    request: pytest.FixtureRequest, secured: Broker, tls_files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayUnderTest]:
    """In front of the secured broker, with TLS of its own."""
    config = client_file(tmp_path_factory.mktemp("client"), secured, request.param)
    server = tls_files / "server.pem"
    words = ["--override", f"tls.certificate.file={server}", "--override", f"tls.key.file={server}"]
    with GatewayUnderTest(secured.bootstrap_servers, "--command-config", config, *words) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def channel(guarded: GatewayUnderTest, tls_files: Path) -> Iterator[grpc.Channel]:
    credentials = grpc.ssl_channel_credentials((tls_files / "ca.pem").read_bytes())
    port = guarded.grpc.rpartition(":")[2]
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        yield channel


def test_a_caller_reads_writes_and_subscribes_as_its_own_user(channel: grpc.Channel, password: str) -> None:
    log, who = LogServiceStub(channel), basic(USER, password)
    end = log.Produce(produce("t", b"mine"), metadata=who, timeout=TIMEOUT_S).positions[0].offset
    assert log.Read(log_pb2.ReadRequest(topic="t", offset=end), metadata=who, timeout=TIMEOUT_S).record.value == b"mine"
    one = log_pb2.ConsumeRequest(topic="t", start=log_pb2.Start(offset=end), limit=1)
    (response,) = log.Consume(one, metadata=who, timeout=TIMEOUT_S)
    assert response.records[0].value == b"mine"
    named = log.Produce(produce("t", b"once", producer=("secured", end + 1)), metadata=who, timeout=TIMEOUT_S)
    assert not named.duplicate

    def subscribe(requests: Any, timeout: float) -> Any:
        return log.Subscribe(requests, timeout=timeout, metadata=who)

    join = log_pb2.SubscribeRequest(join=log_pb2.Join(group="g", topics=["t"]))
    stream = Stream(subscribe, join, log_pb2.SubscribeRequest(credit=1))
    assert stream.next().HasField("assignment")
    stream.end()
    stream.rest()


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ((), "the cluster wants a login"),
        ((("authorization", "Digest x"),), "must be Basic or Bearer"),
        ((("authorization", "Basic !!!"),), "not base64"),
        ((("authorization", "Basic " + base64.b64encode(b"nocolon").decode()),), "base64 of name:password"),
        ((("authorization", "Bearer a b"),), "characters that no token has"),
        (basic(USER, "wrong"), ""),
        (basic("nobody", "x"), ""),
        ((("authorization", "Bearer abc.def.ghi"),), ""),
    ],
)
def test_a_wrong_login_is_unauthenticated_in_every_service(channel: grpc.Channel, metadata: Any, sentence: str) -> None:
    log, admin = LogServiceStub(channel), AdminServiceStub(channel)
    calls: list[Callable[[], object]] = [
        lambda: log.Produce(produce("t", b"x"), metadata=metadata, timeout=TIMEOUT_S),
        lambda: log.Read(log_pb2.ReadRequest(topic="t", offset=0), metadata=metadata, timeout=TIMEOUT_S),
        lambda: list(log.Consume(log_pb2.ConsumeRequest(topic="t"), metadata=metadata, timeout=TIMEOUT_S)),
        lambda: admin.ListTopics(admin_pb2.ListTopicsRequest(), metadata=metadata, timeout=TIMEOUT_S),
    ]
    for call in calls:
        with failing() as failed:
            call()
        assert failed.code is UNAUTHENTICATED
        assert sentence in failed.failure.message


def test_the_gateways_own_login_makes_it_ready_and_serves_no_client(guarded: GatewayUnderTest) -> None:
    status = 503
    for _ in range(100):
        status, text = guarded.get("/readyz")
        if status == 200:
            break
    assert (status, text) == (200, "ok\n")


def test_a_client_without_tls_gets_nothing(guarded: GatewayUnderTest, password: str) -> None:
    with grpc.insecure_channel(guarded.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        LogServiceStub(channel).Produce(produce("t", b"x"), metadata=basic(USER, password), timeout=5)
    assert raised.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_the_metrics_listener_has_no_tls(guarded: GatewayUnderTest) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        urllib.request.urlopen(f"https://{guarded.addresses['Metrics']}/livez", timeout=5)
    assert guarded.get("/livez")[0] == 200


def test_a_client_without_a_certificate_is_refused_where_one_is_wanted(broker: Broker, tmp_path: Path) -> None:
    trusted = authority()
    own = signed(trusted, "CN=client")
    server = signed(trusted).write(tmp_path / "server.pem")
    ca = tmp_path / "ca.pem"
    ca.write_text(trusted.chain_pem)
    words: list[str] = []
    for key, path in (("certificate", server), ("key", server), ("client.ca", ca)):
        words += ["--override", f"tls.{key}.file={path}"]
    name = broker.create_topic("mtls", 1)
    with GatewayUnderTest(broker.bootstrap_servers, *words) as gateway:
        address = f"localhost:{gateway.grpc.rpartition(':')[2]}"
        without = grpc.ssl_channel_credentials(ca.read_bytes())
        with_one = grpc.ssl_channel_credentials(ca.read_bytes(), own.key_pem().encode(), own.chain_pem.encode())
        with grpc.secure_channel(address, without) as channel, pytest.raises(grpc.RpcError) as raised:
            LogServiceStub(channel).Produce(produce(name, b"x"), timeout=5)
        assert raised.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        with grpc.secure_channel(address, with_one) as channel:
            assert LogServiceStub(channel).Produce(produce(name, b"x"), timeout=TIMEOUT_S).positions


def test_the_gateways_certificate_is_its_name_at_a_cluster_that_wants_one(tmp_path: Path) -> None:
    """For what it reads itself, and for librdkafka. Who reaches the gateway is that user, so it stays on loopback."""
    trusted = authority()
    (tmp_path / "ca.pem").write_text(trusted.chain_pem)
    key = signed(trusted, "CN=gateway").write(tmp_path / "gateway.pem")
    settings = {
        "ssl.client.auth": "requested",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=gateway",
    }
    with Broker(tls=True, **settings) as kafka:  # type: ignore[arg-type]
        config = client_file(tmp_path, kafka)
        for identity, code in (("", grpc.StatusCode.PERMISSION_DENIED), (f"ssl.keystore.location={key}\n", None)):
            with Path(config).open("a") as file:
                file.write(f"{identity}ssl.keystore.type=PEM\n" if identity else "")
            with (
                GatewayUnderTest(kafka.bootstrap_servers, "--command-config", config) as gateway,
                grpc.insecure_channel(gateway.grpc) as channel,
            ):
                log, admin = LogServiceStub(channel), AdminServiceStub(channel)
                if code is not None:
                    with failing() as failed:
                        admin.CreateTopic(admin_pb2.CreateTopicRequest(topic="t"), timeout=TIMEOUT_S)
                    assert failed.code is code
                    continue
                admin.CreateTopic(admin_pb2.CreateTopicRequest(topic="t"), timeout=TIMEOUT_S)
                assert log.Produce(produce("t", b"x"), timeout=TIMEOUT_S).positions
                assert log.Read(log_pb2.ReadRequest(topic="t", offset=0), timeout=TIMEOUT_S).record.value == b"x"


def test_a_certificate_that_is_replaced_is_used_for_new_connections(broker: Broker, tmp_path: Path) -> None:
    """Of gRPC and of HTTP; a file that cannot be used changes nothing."""
    old, new = authority("CN=old"), authority("CN=new")
    server = signed(old).write(tmp_path / "server.pem")
    words = ["--override", "tls.reload.interval.ms=100", "--log-level", "info"]
    for key in ("certificate", "key"):
        words += ["--override", f"tls.{key}.file={server}"]
    name = broker.create_topic("reloaded", 1)

    def is_trusted(root: Identity, gateway: GatewayUnderTest) -> tuple[bool, bool]:
        """By gRPC, and by HTTP."""
        address = f"localhost:{gateway.grpc.rpartition(':')[2]}"
        credentials = grpc.ssl_channel_credentials(root.chain_pem.encode())
        option = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(address, credentials, options=option) as channel:
            try:
                by_grpc = bool(LogServiceStub(channel).Produce(produce(name, b"x"), timeout=TIMEOUT_S).positions)
            except grpc.RpcError:
                by_grpc = False
        context = ssl.create_default_context(cadata=root.chain_pem)
        try:
            port = gateway.addresses["HTTP"].rpartition(":")[2]
            with urllib.request.urlopen(f"https://localhost:{port}/topics", timeout=TIMEOUT_S, context=context):
                return by_grpc, True
        except urllib.error.URLError:
            return by_grpc, False

    with GatewayUnderTest(broker.bootstrap_servers, *words) as gateway:
        assert is_trusted(old, gateway) == (True, True)
        server.write_text("no certificate")
        time.sleep(0.3)
        assert is_trusted(old, gateway) == (True, True)
        signed(new).write(server)
        deadline = time.monotonic() + TIMEOUT_S
        while is_trusted(new, gateway) != (True, True):
            assert time.monotonic() < deadline
        assert is_trusted(old, gateway) == (False, False)


def test_users_beyond_the_limit_take_the_place_of_idle_ones(secured: Broker, password: str, tmp_path: Path) -> None:
    config = client_file(tmp_path, secured)
    words = ["--command-config", config, "--override", "cluster.max.principals=1"]
    with (
        GatewayUnderTest(secured.bootstrap_servers, *words) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log = LogServiceStub(channel)
        for _ in range(2):
            with failing() as failed:
                log.Read(log_pb2.ReadRequest(topic="t"), metadata=basic("other", "x"), timeout=TIMEOUT_S)
            log.Produce(produce("t", b"x"), metadata=basic(USER, password), timeout=TIMEOUT_S)
        reader = log.Consume(
            log_pb2.ConsumeRequest(topic="t", follow=True), metadata=basic(USER, password), timeout=TIMEOUT_S
        )
        next(reader)
        with failing() as failed:
            log.Read(log_pb2.ReadRequest(topic="t"), metadata=basic("other", "x"), timeout=TIMEOUT_S)
        assert failed.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        reader.cancel()


# -- bearer tokens


@pytest.fixture(scope="module")
def token_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_bytes(key_set())
    settings: dict[str, str] = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "trioka.oauth.allowed.files": str(keys),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": f"User:{USER};User:ann",
    }
    with Broker(sasl=True, **settings) as kafka:  # type: ignore[arg-type]
        kafka.create_topic("t", 1)
        yield kafka


def test_a_bearer_token_becomes_the_callers_login_and_its_rights_count(token_broker: Broker, tmp_path: Path) -> None:
    config = client_file(tmp_path, token_broker)
    now = int(time.time())

    def bearer(name: str, **changed: Any) -> tuple[tuple[str, str]]:
        token = signed_token(claims(sub=name, iat=now, exp=now + 600), **changed)
        return (("authorization", f"Bearer {token}"),)

    with (
        GatewayUnderTest(token_broker.bootstrap_servers, "--command-config", config) as gateway,
        grpc.insecure_channel(gateway.grpc) as channel,
    ):
        log, ann = LogServiceStub(channel), bearer("ann")
        assert log.Produce(produce("t", b"1"), metadata=ann, timeout=TIMEOUT_S).positions
        assert not log.Produce(produce("t", b"2", producer=("ann", 1)), metadata=ann, timeout=TIMEOUT_S).duplicate
        first = log_pb2.ReadRequest(topic="t", offset=0)
        assert log.Read(first, metadata=ann, timeout=TIMEOUT_S).record.value == b"1"
        for metadata, code in (
            (bearer("bob"), grpc.StatusCode.PERMISSION_DENIED),
            (bearer("ann", key=other_rsa_key()), UNAUTHENTICATED),
        ):
            with failing() as failed:
                log.Read(first, metadata=metadata, timeout=TIMEOUT_S)
            assert failed.code is code
            with failing() as failed:
                log.Produce(produce("t", b"x"), metadata=metadata, timeout=TIMEOUT_S)
            assert failed.code is code


# -- the header, without a cluster

ACCESS = ClusterAccess(servers=(("localhost", 1),), protocol="SASL_SSL", mechanism="SCRAM-SHA-256")


def test_a_password_may_hold_colons_and_a_cluster_without_users_takes_no_login() -> None:
    header = basic("ann", "a:b:ü")[0][1]
    assert login_of(header, ACCESS) == Login(mechanism="SCRAM-SHA-256", username="ann", password="a:b:ü")
    assert login_of("bearer abc", ACCESS) == Login(mechanism="OAUTHBEARER", username="", password="abc")
    plain = ClusterAccess(servers=(("localhost", 1),))
    assert login_of(header, plain) is None
    assert login_of(None, plain) is None


def test_passwords_are_in_no_text_of_a_login() -> None:
    login = Login(mechanism="PLAIN", username="ann", password="secret")
    access = ClusterAccess(servers=(("localhost", 1),), protocol="SASL_SSL", login=login)
    assert "secret" not in f"{login!r}{access!r}{login}{access}"


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="with a name"):
        login_of(basic("", "x")[0][1], ACCESS)
