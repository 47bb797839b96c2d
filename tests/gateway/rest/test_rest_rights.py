"""Users of a cluster with an authorizer before REST and the registry: nobody gets more than their own rights."""

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and not marked as such
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.gateway import GatewayUnderTest

from trioka.cli.node.secured import USER
from trioka.testing import Broker

AVRO = "application/vnd.kafka.avro.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
WRITER, READER = "writer:one-secret", "reader:other-secret"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """`writer` may write and read the topic t; `reader` may also read the schemas."""
    with Broker(sasl=True) as broker:
        broker.create_topic("t")
        broker.create_topic("other")
        admin = AdminClient(broker.client_config("confluent-kafka"))
        made = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = [each.partition(":") for each in (WRITER, READER)]
        changes: list[Any] = [UserScramCredentialUpsertion(name, made, word.encode()) for name, _, word in users]
        rights = [
            *((name, "t", each) for name, _, _ in users for each in (AclOperation.WRITE, AclOperation.READ)),
            ("reader", "_schemas", AclOperation.READ),
        ]
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                each,
                AclPermissionType.ALLOW,
            )
            for name, topic, each in rights
        ]
        futures: list[Any] = [
            *admin.alter_user_scram_credentials(changes).values(),
            *admin.create_acls(bindings).values(),
        ]
        for future in futures:
            future.result(30)
        yield broker


@pytest.fixture(scope="module")
def gateway(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayUnderTest]:
    path: Path = tmp_path_factory.mktemp("client") / "client.properties"
    properties = {**kafka.client_config("java"), "sasl.mechanism": "SCRAM-SHA-512"}
    properties.pop("bootstrap.servers")
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    words = ["--command-config", str(path), "--registry", "--override", "cluster.max.principals=10"]
    with GatewayUnderTest(kafka.bootstrap_servers, *words) as running:
        yield running


@pytest.fixture(scope="module")
def owner(kafka: Broker) -> str:
    return f"{USER}:{kafka.client_config('confluent-kafka')['sasl.password']}"


def send(
    gateway: GatewayUnderTest, method: str, path: str, login: str, body: Any = None, media: str = JSON
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(gateway.addresses["HTTP"], timeout=60)
    headers = {"Content-Type": media, "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def avro(**schema: Any) -> dict[str, Any]:
    return {"records": [{"value": 1}], **schema}


def test_a_schema_is_registered_and_used_only_with_rights_to_the_registry(
    gateway: GatewayUnderTest, owner: str
) -> None:
    for login in (WRITER, READER):
        status, found = send(gateway, "POST", "/topics/t", login, avro(value_schema='"int"'), AVRO)
        assert (status, found["error_code"]) == (403, 403), found
    assert send(gateway, "GET", "/subjects", owner) == (200, [])
    status, found = send(gateway, "POST", "/topics/t", owner, avro(value_schema='"int"'), AVRO)
    assert (status, found["offsets"][0]["error_code"]) == (200, None), found
    number = found["value_schema_id"]
    assert send(gateway, "POST", "/topics/t", READER, avro(value_schema_id=number), AVRO)[0] == 200
    assert send(gateway, "POST", "/topics/t", WRITER, avro(value_schema_id=number), AVRO)[0] == 403
    path = "/topics/t/partitions/0/records?format="
    assert send(gateway, "GET", f"{path}avro", READER)[0] == 200
    assert send(gateway, "GET", f"{path}avro", WRITER)[0] == 403
    assert send(gateway, "GET", f"{path}binary", WRITER)[0] == 200
    assert send(gateway, "GET", "/topics/t/tail?format=avro", WRITER)[0] == 403


def test_a_user_gets_nothing_through_the_open_clients_of_another(gateway: GatewayUnderTest, owner: str) -> None:
    record = {"records": [{"value": 1}]}
    assert send(gateway, "POST", "/topics/other", owner, record)[0] == 200
    assert send(gateway, "GET", "/topics/other/partitions/0/records", owner)[0] == 200
    for login, expected in ((WRITER, 403), (f"{USER}:wrong", 401), ("writer:other-secret", 401), (f"{USER}:", 401)):
        for method, path, body in (
            ("POST", "/topics/other", record),
            ("GET", "/topics/other/partitions/0/records?format=json", None),
            ("GET", "/topics/other/tail", None),
        ):
            status, found = send(gateway, method, path, login, body)
            assert status in (expected, 404 if expected == 403 else expected), (login, path, found)
    metrics = gateway.get("/metrics")[1]
    assert not any(word in metrics for word in ("secret", "writer", "other"))


def test_wrong_passwords_do_not_take_the_places_of_users_with_open_clients(
    gateway: GatewayUnderTest, owner: str
) -> None:
    """The metric counts the clients of all parts."""

    def open_clients() -> str:
        lines = gateway.get("/metrics")[1].splitlines()
        return next(each for each in lines if each.startswith("trioka_gateway_cluster_clients "))

    for path in ("/topics", "/subjects"):
        assert send(gateway, "GET", path, owner)[0] == 200
        before = open_clients()
        for number in range(3):
            assert send(gateway, "GET", path, f"nobody-{number}:x")[0] == 401
        assert open_clients() == before
