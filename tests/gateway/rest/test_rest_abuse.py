"""What a hostile or careless client of REST does: it leaves early, and sends values that no library expects."""

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.gateway import GatewayUnderTest

from trioka.gateway.rest.http import MAX_TAILS
from trioka.testing import Broker

JSON = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
FORMATS = {each: f"application/vnd.kafka.{each}.v2+json" for each in ("json", "avro", "jsonschema", "protobuf")}
DEADLINE_S = 30


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture(scope="module")
def gateway(kafka: Broker) -> Iterator[GatewayUnderTest]:
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry", "--override", "rest.max.consumers=50") as running:
        yield running


def send(
    gateway: GatewayUnderTest, method: str, path: str, body: bytes | None = None, media: str = V2
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(gateway.addresses["HTTP"], timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": media})
        response = connection.getresponse()
        if response.headers.get_content_type() == "text/event-stream":
            return response.status, response.read(3)
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def raw(gateway: GatewayUnderTest) -> socket.socket:
    host, _, port = gateway.addresses["HTTP"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def test_clients_that_leave_before_their_tail_begins_leave_room_for_others(gateway: GatewayUnderTest) -> None:
    for _ in range(MAX_TAILS + 5):
        with raw(gateway) as client:
            client.sendall(b"GET /topics/t/tail HTTP/1.1\r\nHost: x\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    deadline = time.monotonic() + DEADLINE_S
    while (found := send(gateway, "GET", "/topics/t/tail"))[0] == 429 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == (200, b"id:")


@pytest.mark.parametrize(
    ("form", "schema", "value"),
    [
        ("json", None, '"\\ud800"'),
        ("json", None, "NaN"),
        ("json", None, "[" * 400 + "]" * 400),
        ("json", None, "[" * 100_000 + "]" * 100_000),
        ("json", None, "1" * 5000),
        ("jsonschema", {}, '"\\ud800"'),
        ("jsonschema", {}, "NaN"),
        ("jsonschema", {}, "[" * 400 + "]" * 400),
        ("jsonschema", {"$ref": "file:///etc/passwd"}, "1"),
        ("jsonschema", {"$ref": "http://127.0.0.1:1/x"}, "1"),
        ("jsonschema", {"$ref": "#"}, "1"),
        ("jsonschema", {"$schema": "http://127.0.0.1:1/x"}, "1"),
        ("jsonschema", {"pattern": "("}, '"a"'),
        ("jsonschema", {"pattern": "\\p{L}(?=a)"}, '"a"'),
        ("jsonschema", {"multipleOf": 1e-300}, "1e300"),
        ("avro", "string", '"\\ud800"'),
        ("avro", "double", "NaN"),
        ("avro", "long", "1" * 100),
        ("avro", "bytes", '"\\u0100"'),
        ("avro", {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, '{"r": {"r": {}}}'),
        ("avro", {"type": "fixed", "name": "F", "size": 2**40}, '"a"'),
        ("protobuf", 'syntax = "proto3"; import "/etc/passwd"; message M {}', "{}"),
        ("protobuf", 'syntax = "proto3"; import "../../etc/passwd"; message M {}', "{}"),
        ("protobuf", 'syntax = "proto3"; message M { M m = 1; }', '{"m":' * 200 + "{}" + "}" * 200),
        ("protobuf", 'syntax = "proto3"; message M { string s = 1; }', '{"s": "\\ud800"}'),
    ],
)
def test_odd_values_and_schemas_are_written_or_refused_with_a_sentence(
    gateway: GatewayUnderTest, form: str, schema: Any, value: str
) -> None:
    text = "" if schema is None else json.dumps(schema if form == "protobuf" else json.dumps(schema))
    fields = f'"value_schema": {text}, ' if text else ""
    body = f'{{{fields}"records": [{{"value": {value}}}]}}'.encode()
    send(gateway, "DELETE", "/subjects/t-value")
    status, found = send(gateway, "POST", "/topics/t", body, FORMATS[form])
    assert status in (200, 400, 422), found
    if status == 200:
        path = f"/topics/t/partitions/0/records?format={form}&offset={found['offsets'][0]['offset']}"
        assert send(gateway, "GET", path)[0] in (200, 406)
    else:
        assert found["message"].endswith((".", "}")) or ":" in found["message"]


@pytest.mark.parametrize("least", ["--5", "0" * 13 + "9" * 20, "9" * 5000, "0" * 5000, -1, 1e3, None, "５"])
def test_odd_options_of_an_instance_are_refused_with_a_sentence(gateway: GatewayUnderTest, least: object) -> None:
    status, found = send(gateway, "POST", "/consumers/odd", json.dumps({"fetch.min.bytes": least}).encode())
    assert status in (200, 422), found
    if status == 200:
        base = found["base_uri"].partition(gateway.addresses["HTTP"])[2]
        assert send(gateway, "DELETE", base)[0] == 204


def test_a_pattern_that_takes_for_ever_does_not_stop_the_gateway(gateway: GatewayUnderTest) -> None:
    """Python's own regular expressions would hold the interpreter for years."""
    slow, text = "^(a+)+$", "a" * 60 + "!"
    doubled = {f"d{each}": {"allOf": [{"$ref": f"#/definitions/d{each + 1}"}] * 2} for each in range(40)}
    dialect = "http://json-schema.org/draft-07/schema#"
    cases: list[tuple[dict[str, Any], Any, int]] = [
        ({"pattern": slow}, text, 422),
        ({"patternProperties": {slow: False}}, {text: 1}, 200),
        ({"patternProperties": {slow: {}}, "additionalProperties": False}, {text: 1}, 422),
        ({"propertyNames": {"pattern": slow}}, {text: 1}, 422),
        ({"$schema": dialect, "properties": {"a": {"$ref": "#"}}, "pattern": slow}, {"a": text}, 422),
        ({"properties": {"a": {"$schema": dialect, "pattern": slow}}}, {"a": text}, 422),
        ({"definitions": {**doubled, "d40": {}}, "$ref": "#/definitions/d0"}, 1, 422),
    ]
    for schema, value, expected in cases:
        body = {"value_schema": json.dumps(schema), "records": [{"value": value}]}
        send(gateway, "DELETE", "/subjects/t-value")
        found = send(gateway, "POST", "/topics/t", json.dumps(body).encode(), FORMATS["jsonschema"])
        assert found[0] == expected, found


def test_instances_that_wait_for_records_do_not_keep_others_from_being_served(
    kafka: Broker, gateway: GatewayUnderTest
) -> None:
    paths = []
    for number in range(40):
        status, found = send(gateway, "POST", f"/consumers/wait-{number}", b'{"auto.offset.reset": "latest"}')
        assert status == 200, found
        paths.append(found["base_uri"].partition(gateway.addresses["HTTP"])[2])
        body = json.dumps({"partitions": [{"topic": "t", "partition": 0}]}).encode()
        assert send(gateway, "POST", f"{paths[-1]}/assignments", body)[0] == 204
    outcome: list[int] = []

    def wait(path: str) -> None:
        outcome.append(send(gateway, "GET", f"{path}/records?timeout=60000")[0])

    threads = [threading.Thread(target=wait, args=(path,)) for path in paths[1:]]
    for thread in threads:
        thread.start()
    assert send(gateway, "GET", f"{paths[0]}/assignments")[0] == 200
    assert not outcome  # the others still wait
    for thread in threads:
        while thread.is_alive():  # more than once: a consumer finds the end of the topic at its own pace
            kafka.produce("t", b"x")
            thread.join(0.1)
    assert outcome == [200] * len(threads)
    for path in paths:
        assert send(gateway, "DELETE", path)[0] == 204
