"""The registry's HTTP interface, in a gateway before a real broker."""

import json
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from support.gateway import GatewayUnderTest
from support.registry import Registry

from trioka.gateway.registry.http import ENDPOINTS
from trioka.testing import Broker

INT, LONG, STRING = '"int"', '"long"', '"string"'


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def gateway(kafka: Broker) -> Iterator[GatewayUnderTest]:
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry") as running:
        yield running


@pytest.fixture(scope="module")
def registry(gateway: GatewayUnderTest) -> Registry:
    return Registry(gateway.http)


def test_a_schema_is_found_by_version_by_id_and_by_its_text(registry: Registry) -> None:
    status, made = registry("POST", "/subjects/found/versions", {"schema": INT})
    assert (status, made["version"]) == (200, 1)
    number = made["id"]
    found = registry("GET", "/subjects/found/versions/1")[1]
    assert (found["id"], found["schemaType"], found["schema"], found["guid"]) == (number, "AVRO", INT, made["guid"])
    assert registry("GET", "/subjects/found/versions/latest")[1]["schema"] == INT
    assert registry("GET", "/subjects/found/versions/-1/schema") == (200, "int")
    assert registry("POST", "/subjects/found", {"schema": INT})[1]["version"] == 1
    assert registry("GET", f"/schemas/ids/{number}")[1]["schema"] == INT
    assert registry("GET", f"/schemas/ids/{number}/schema") == (200, "int")
    assert registry("GET", f"/schemas/ids/{number}?fetchMaxId=true")[1]["maxId"] >= number
    assert "found" in registry("GET", f"/schemas/ids/{number}/subjects")[1]
    assert {"subject": "found", "version": 1} in registry("GET", f"/schemas/ids/{number}/versions")[1]
    assert "found" in registry("GET", "/subjects")[1]
    assert [each["subject"] for each in registry("GET", "/schemas?subjectPrefix=found")[1]] == ["found"]


def test_a_subject_may_contain_a_slash_a_space_and_other_letters(registry: Registry) -> None:
    registry.register("a/b ü", INT)
    assert registry("GET", "/subjects/a%2Fb%20%C3%BC/versions") == (200, [1])
    assert registry("GET", "/subjects?subjectPrefix=a%2Fb") == (200, ["a/b ü"])


def test_lists_have_pages_and_deleted_members_on_request(registry: Registry) -> None:
    for name in ("page-a", "page-b", "page-c"):
        registry.register(name, INT)
    assert registry("GET", "/subjects?subjectPrefix=page-&offset=1&limit=1") == (200, ["page-b"])
    registry("DELETE", "/subjects/page-b")
    assert registry("GET", "/subjects?subjectPrefix=page-") == (200, ["page-a", "page-c"])
    assert registry("GET", "/subjects?subjectPrefix=page-&deleted=true") == (200, ["page-a", "page-b", "page-c"])
    assert registry("GET", "/subjects?subjectPrefix=page-&deletedOnly=true") == (200, ["page-b"])
    assert registry("GET", "/subjects/page-b/versions?deleted=true") == (200, [1])


def test_contexts_are_registries_of_their_own(registry: Registry) -> None:
    registry.register(":.own:a", STRING)
    assert registry("GET", "/subjects?subjectPrefix=:.own:") == (200, [":.own:a"])
    assert registry("GET", "/schemas/ids/1?subject=:.own:a")[1]["schema"] == STRING
    assert ".own" in registry("GET", "/contexts")[1]


def test_compatibility_is_tested_without_registering(registry: Registry) -> None:
    registry.register("tested", INT)
    path = "/compatibility/subjects/tested/versions/latest"
    assert registry("POST", path, {"schema": LONG}) == (200, {"is_compatible": True})
    status, found = registry("POST", f"{path}?verbose=true", {"schema": STRING})
    assert (status, found["is_compatible"], bool(found["messages"])) == (200, False, True)
    assert registry("POST", "/compatibility/subjects/tested/versions", {"schema": STRING})[1]["is_compatible"] is False
    assert registry("POST", "/compatibility/subjects/unknown/versions/latest", {"schema": INT})[1]["is_compatible"]
    assert registry("GET", "/subjects/tested/versions") == (200, [1])


def test_references_are_listed_and_protected(registry: Registry) -> None:
    registry.register("target", '{"type":"fixed","name":"Id","size":4}')
    reference = {"name": "Id", "subject": "target", "version": 1}
    number = registry.register("referrer", '{"type":"array","items":"Id"}', references=[reference])
    assert registry("GET", f"/schemas/ids/{number}")[1]["references"] == [reference]
    assert registry("GET", "/subjects/target/versions/1/referencedby") == (200, [number])
    assert registry("DELETE", "/subjects/target")[1]["error_code"] == 42206


def test_a_descriptor_in_base64_is_answered_as_text_or_as_a_descriptor(registry: Registry) -> None:
    registry.register("proto", 'syntax = "proto3"; message A { int32 a = 1; }', "PROTOBUF")
    found = registry("GET", "/subjects/proto/versions/1?format=serialized")[1]
    assert registry("POST", "/subjects/proto", {"schema": found["schema"], "schemaType": "PROTOBUF"})[1]["version"] == 1
    registry.register("proto-2", found["schema"], "PROTOBUF")
    assert registry("GET", "/subjects/proto-2/versions/1")[1]["schema"].startswith('syntax = "proto3";')


def test_levels_and_modes_are_set_and_deleted(registry: Registry) -> None:
    assert registry("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert registry("PUT", "/config/level", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert registry("GET", "/config/level") == (200, {"compatibilityLevel": "FULL"})
    assert registry("DELETE", "/config/level") == (200, {"compatibilityLevel": "FULL"})
    assert registry("GET", "/config/level?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})
    assert registry("PUT", "/mode/level", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert registry("POST", "/subjects/level/versions", {"schema": INT})[1]["error_code"] == 42205
    assert registry("DELETE", "/mode/level") == (200, {"mode": "READONLY"})
    assert registry("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])


BAD_REQUESTS: list[tuple[str, str, Any, int]] = [
    ("GET", "/subjects/none/versions", None, 40401),
    ("GET", "/subjects/none/versions/1", None, 40401),
    ("GET", "/subjects/there/versions/9", None, 40402),
    ("GET", "/subjects/there/versions/0", None, 42202),
    ("GET", "/subjects/there/versions/abc", None, 42202),
    ("GET", "/subjects/there/versions/99999999999999999999", None, 42202),
    ("GET", "/schemas/ids/999999", None, 40403),
    ("GET", "/schemas/ids/99999999999999999999", None, 40403),
    ("GET", "/schemas/ids/x", None, 40403),
    ("GET", f"/schemas/ids/{'0' * 5000}", None, 40403),
    ("POST", "/subjects/there", {"schema": STRING}, 40403),
    ("POST", "/subjects/there/versions", {"schema": STRING}, 409),
    ("POST", "/subjects/there/versions", {"schema": "{"}, 42201),
    ("POST", "/subjects/there/versions", {}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "schemaType": "XML"}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "schemaType": 5}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "references": [{}]}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "references": 5}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "id": "x"}, 42201),
    ("POST", "/subjects/there/versions", {"schema": INT, "id": 7}, 42205),
    ("POST", "/subjects/there/versions", {"schema": INT, "ruleSet": {}}, 42210),
    ("POST", "/subjects/there/versions", [], 422),
    ("POST", "/subjects/%00/versions", {"schema": INT}, 42208),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": INT}, 42208),
    ("GET", "/subjects/:.x:/versions", None, 42208),
    ("DELETE", "/subjects/none", None, 40401),
    ("DELETE", "/subjects/there?permanent=true", None, 40405),
    ("DELETE", "/subjects/there/versions/1?permanent=true", None, 40407),
    ("PUT", "/config", {"compatibility": "SOME"}, 42203),
    ("PUT", "/config", {}, 42203),
    ("GET", "/config/none", None, 40408),
    ("DELETE", "/config/none", None, 40408),
    ("PUT", "/mode", {"mode": "SOME"}, 42204),
    ("GET", "/mode/none", None, 40409),
    ("DELETE", "/mode/none", None, 40409),
    ("GET", "/subjects?limit=x", None, 400),
    ("GET", "/subjects/there/nonsense", None, 404),
    ("PATCH", "/subjects/there", None, 405),
    ("POST", "/compatibility/subjects/there/versions/9", {"schema": INT}, 40402),
    ("POST", "/compatibility/subjects/there/versions/1", {"schema": "{"}, 42201),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), BAD_REQUESTS)
def test_a_bad_request_gets_its_code_and_a_sentence(
    registry: Registry, method: str, path: str, body: Any, code: int
) -> None:
    registry.register("there", INT)
    status, found = registry(method, path, body)
    assert found["error_code"] == code, found
    assert status == (code if code < 1000 else code // 100)
    assert len(found["message"]) > 10


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 200_000, b'"a"', b'{"schema": "\\ud800"}'])
def test_a_body_that_is_no_request_is_refused(registry: Registry, body: bytes) -> None:
    status, found = registry.send("POST", "/subjects/body/versions", body)
    assert (400 <= status < 500) and found["error_code"]


def test_a_body_above_the_limit_is_refused(registry: Registry) -> None:
    assert registry.send("POST", "/subjects/body/versions", b" " * (5 << 20))[0] == 413


def test_fuzzed_requests_end_nothing(registry: Registry) -> None:
    random = Random(11)
    pieces = ["a", "%00", "..", "%2F", ":.x:b", "versions", "1", "-1", "latest", "schema", "%ff", "0x1"]
    values: list[Any] = [
        None,
        5,
        -1,
        1e300,
        [],
        {},
        "",
        INT,
        "{",
        "AVRO",
        "PROTOBUF",
        "JSON",
        True,
        [{}],
        "\ud800",
        "NONE",
    ]
    names = ["schema", "schemaType", "references", "id", "version", "metadata", "compatibility", "mode", "normalize"]
    for _ in range(250):
        endpoint = random.choice(ENDPOINTS)
        if endpoint.path[0] in ("mode", "config") and len(endpoint.path) == 1:
            continue  # of all subjects, and so of the other tests
        path = "/".join(random.choice(pieces) if part == "*" else part for part in endpoint.path)
        body = {random.choice(names): random.choice(values) for _ in range(random.randint(0, 4))}
        status, found = registry.send(endpoint.method, f"/{path}", json.dumps(body).encode())
        assert status < 500, (endpoint.method, path, body, found)
    registry.register("after", INT)


def test_a_restart_replays_the_topic_and_counts_on(kafka: Broker) -> None:
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry", "--override", "registry.topic=restarted") as gateway:
        registry = Registry(gateway.http)
        numbers = [registry.register(name, f'"{kind}"') for name, kind in (("a", "int"), ("b", "long"))]
        registry("DELETE", "/subjects/b")
        registry("PUT", "/config/a", {"compatibility": "NONE"})
        before = registry("GET", "/schemas?deleted=true")[1]
        gateway.kill()
        gateway.start()
        assert registry("GET", "/schemas?deleted=true") == (200, before)
        assert registry("GET", "/config/a") == (200, {"compatibilityLevel": "NONE"})
        assert registry.register("c", STRING) == max(numbers) + 1


def test_two_registries_at_once_give_each_schema_one_id_and_each_id_one_schema(kafka: Broker) -> None:
    words = ("--registry", "--override", "registry.topic=shared")
    with (
        GatewayUnderTest(kafka.bootstrap_servers, *words) as one,
        GatewayUnderTest(kafka.bootstrap_servers, *words) as two,
    ):
        registries = [Registry(one.http), Registry(two.http)]
        found: list[dict[str, int]] = [{}, {}]

        def write(which: int) -> None:
            for number in range(15):
                text = f'{{"type":"fixed","name":"F","size":{number + 1}}}'
                found[which][text] = registries[which].register(f"subject-{number}", text)
                text = f'{{"type":"fixed","name":"G{which}","size":{number + 1}}}'
                found[which][text] = registries[which].register(f"own-{which}-{number}", text)

        threads = [threading.Thread(target=write, args=(which,)) for which in (0, 1)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        shared = found[0].keys() & found[1].keys()
        assert len(shared) == 15
        assert all(found[0][text] == found[1][text] for text in shared)
        numbers = found[0] | found[1]
        assert sorted(numbers.values()) == list(range(1, 46))
        for text, number in numbers.items():
            for registry in registries:
                assert registry("GET", f"/schemas/ids/{number}")[1]["schema"] == text
        one.kill()
        assert registries[1].register("after", INT) == 46


def test_the_topic_of_the_registry_is_compacted_and_a_wrong_one_is_refused(kafka: Broker) -> None:
    kafka.create_topic("forgetful", cleanup_policy="delete")
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry", "--override", "registry.topic=forgetful",
                          "--override", "cluster.request.timeout.ms=1000") as gateway:  # fmt: skip
        status, found = Registry(gateway.http)("GET", "/subjects")
        assert (status, found["error_code"]) == (500, 50002)
        status, reason = gateway.get("/readyz")
        assert status == 503
        assert "cleanup.policy" in reason
