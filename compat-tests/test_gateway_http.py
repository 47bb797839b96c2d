"""The schema registry and REST in front of Apache Kafka: the gateway works with any Kafka."""

import base64
import json
import sys
import urllib.request
from typing import Any

from oracle import ApacheKafka

sys.path.insert(0, "tests")
from support.gateway import GatewayUnderTest
from support.registry import Registry

BINARY = "application/vnd.kafka.binary.v2+json"


def request(url: str, body: Any = None, media: str = BINARY) -> Any:
    made = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), {"Content-Type": media})
    with urllib.request.urlopen(made, timeout=60) as response:
        return json.loads(response.read() or b"null")


def test_the_registry_and_rest_serve_apache_kafka() -> None:
    with ApacheKafka() as kafka:
        kafka.create_topic("orders")
        words = ("--registry", "--override", "registry.topic.replication.factor=1")
        with GatewayUnderTest(kafka.bootstrap, *words) as gateway, GatewayUnderTest(kafka.bootstrap, *words) as other:
            one, two = Registry(gateway.http), Registry(other.http)
            assert [one.register("a", '"int"'), two.register("b", '"long"'), one.register("c", '"long"')] == [1, 2, 2]
            assert two("DELETE", "/subjects/a") == (200, [1])
            assert one("GET", "/subjects") == (200, ["b", "c"])
            value = base64.b64encode(b"\0\xff").decode()
            written = request(f"{gateway.http}/topics/orders", {"records": [{"value": value}]})
            assert written["offsets"][0]["offset"] == 0
            (record,) = request(f"{other.http}/topics/orders/partitions/0/records")
            assert record["value"] == value
            created = request(f"{gateway.http}/consumers/group", {"auto.offset.reset": "earliest"})
            request(f"{created['base_uri']}/subscription", {"topics": ["orders"]})
            found: list[Any] = []
            while not found:
                found = request(f"{created['base_uri']}/records?timeout=10000")
            assert found[0]["value"] == value
            gateway.kill()
            gateway.start()
            assert one("GET", "/schemas/ids/2")[1]["schema"] == '"long"'
