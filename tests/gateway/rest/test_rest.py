"""REST in a gateway before a real broker: topics, produce, consumer instances, reads, tails."""

import base64
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from support.gateway import GatewayUnderTest
from support.registry import Registry

from trioka.gateway.rest.http import ENDPOINTS
from trioka.gateway.rest.openapi import document, template
from trioka.testing import Broker

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
AVRO = "application/vnd.kafka.avro.v2+json"
V2 = "application/vnd.kafka.v2+json"


class Rest:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(
        self, method: str, path: str, body: Any = None, media: str = V2, accept: str | None = None
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            headers = {"Content-Type": media, **({} if accept is None else {"Accept": accept})}
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()


class Consumer:
    """A consumer instance."""

    def __init__(self, rest: Rest, group: str, form: str = "json", **options: Any) -> None:
        body = {"name": "one", "format": form, "auto.offset.reset": "earliest", **options}
        status, found = rest("POST", f"/consumers/{group}", body)
        assert status == 200, found
        assert found["base_uri"].endswith(f"/consumers/{group}/instances/one")
        self.rest, self.path, self.form = rest, f"/consumers/{group}/instances/one", form

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.rest(method, f"{self.path}{path}", body, accept=f"application/vnd.kafka.{self.form}.v2+json")

    def records(self, count: int) -> list[dict[str, Any]]:
        """Waits for so many."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            status, some = self("GET", "/records?timeout=10000")
            assert status == 200, some
            found += some
        return found


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def gateway(kafka: Broker) -> Iterator[GatewayUnderTest]:
    words = ("--registry", "--override", "rest.max.consumers=20")
    with GatewayUnderTest(kafka.bootstrap_servers, *words) as running:
        yield running


@pytest.fixture(scope="module")
def rest(gateway: GatewayUnderTest) -> Rest:
    return Rest(gateway.http)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_partitions_offsets_and_brokers_are_listed(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("listed", 2, retention_ms=1234567)
    kafka.produce("listed", b"a", b"b", partition=1)
    assert "listed" in rest("GET", "/topics")[1]
    status, found = rest("GET", "/topics/listed")
    assert (status, found["name"], found["configs"]["retention.ms"]) == (200, "listed", "1234567")
    place = {"partition": 1, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
    assert found["partitions"][1] == place == rest("GET", "/topics/listed/partitions/1")[1]
    assert rest("GET", "/topics/listed/partitions") == (200, found["partitions"])
    assert rest("GET", "/topics/listed/partitions/1/offsets") == (200, {"beginning_offset": 0, "end_offset": 2})
    assert rest("GET", "/brokers") == (200, {"brokers": [1]})


# -- produce -----------------------------------------------------------------------------------------------------------


def test_binary_records_arrive_byte_for_byte(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("binary", 2)
    records = [
        {"key": b64(b"k\0\xff"), "value": b64(b"\0\xff"), "partition": 1, "timestamp": 1234,
         "headers": [{"name": "h", "value": b64(b"\xfe")}, {"key": "none", "value": None}]},
        {"key": "", "value": "", "partition": 1},
        {"value": None, "key": b64(b"gone"), "partition": 1},
        {"value": b64(b"x"), "partition": 0},
    ]  # fmt: skip
    status, found = rest("POST", "/topics/binary", {"records": records}, BINARY)
    assert status == 200
    assert [(each["partition"], each["offset"], each["error_code"]) for each in found["offsets"]] == [
        (1, 0, None), (1, 1, None), (1, 2, None), (0, 0, None),
    ]  # fmt: skip
    first, empty, tombstone = kafka.records("binary", 1)
    assert (first.key, first.value, first.timestamp_ms) == (b"k\0\xff", b"\0\xff", 1234)
    assert list(first.headers) == [("h", b"\xfe"), ("none", None)]
    assert (empty.key, empty.value, tombstone.key, tombstone.value) == (b"", b"", b"gone", None)


def test_json_records_are_compact_text(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("json")
    body = {"records": [{"key": "k", "value": {"a": [1, None, "ü"]}}, {"value": None}]}
    assert rest("POST", "/topics/json/partitions/0", body, JSON)[0] == 200
    first, second = kafka.records("json")
    assert (first.key, first.value) == (b'"k"', '{"a":[1,null,"ü"]}'.encode())
    assert (second.key, second.value) == (None, None)


SCHEMAS = {
    "avro": ('{"type":"record","name":"A","fields":[{"name":"n","type":["null","int"]}]}', {"n": {"int": 7}}),
    "protobuf": ('syntax = "proto3"; message A { int32 n = 1; }', {"n": 7}),
    "jsonschema": ('{"type":"object","required":["n"]}', {"n": 7}),
}


@pytest.mark.parametrize("form", SCHEMAS)
def test_records_with_a_schema_are_framed_checked_and_read_back(rest: Rest, kafka: Broker, form: str) -> None:
    topic, media = f"with-{form}", f"application/vnd.kafka.{form}.v2+json"
    kafka.create_topic(topic)
    text, value = SCHEMAS[form]
    status, found = rest("POST", f"/topics/{topic}", {"value_schema": text, "records": [{"value": value}]}, media)
    assert status == 200, found
    number = found["value_schema_id"]
    again = {"value_schema_id": number, "records": [{"value": value}, {"value": None}]}
    assert rest("POST", f"/topics/{topic}", again, media)[0] == 200
    first, second, third = kafka.records(topic)
    assert first.value is not None and first.value[:5] == b"\0" + number.to_bytes(4)
    assert (second.value, third.value) == (first.value, None)
    assert f"{topic}-value" in Registry(rest.url)("GET", "/subjects")[1]
    path = f"/topics/{topic}/partitions/0/records?format={form}"
    assert [each["value"] for each in rest("GET", path)[1]] == [value, value, None]
    wrong = {"value_schema_id": number, "records": [{"value": {"n": "x", "m": 1} if form != "jsonschema" else []}]}
    assert rest("POST", f"/topics/{topic}", wrong, media)[1]["error_code"] == 42203


def test_records_of_one_request_keep_the_order_of_their_partition(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("ordered", 3)
    records = [{"key": number % 7, "value": number} for number in range(300)]
    offsets = rest("POST", "/topics/ordered", {"records": records}, JSON)[1]["offsets"]
    written = {(each["partition"], each["offset"]): number for number, each in enumerate(offsets)}
    for record in kafka.records("ordered"):
        assert record.value == str(written.pop((record.partition, record.offset))).encode()
    assert not written


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_what_rest_wrote_and_rest_what_kcat_wrote(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("kcat")
    rest("POST", "/topics/kcat", {"records": [{"key": b64(b"k"), "value": b64(b"by rest")}]}, BINARY)
    words = ["kcat", "-b", kafka.bootstrap_servers, "-t", "kcat"]
    subprocess.run([*words, "-P", "-K", ":", "-H", "a=b", "-p", "0"], input=b"k2:by kcat\n", check=True, timeout=60)
    shown = subprocess.run(
        [*words, "-C", "-e", "-q", "-o", "beginning", "-f", "%k=%s\n"], capture_output=True, check=True, timeout=60
    )
    assert shown.stdout == b"k=by rest\nk2=by kcat\n"
    found = rest("GET", "/topics/kcat/partitions/0/records?offset=1")[1]
    assert [(each["key"], each["value"]) for each in found] == [(b64(b"k2"), b64(b"by kcat"))]
    assert found[0]["headers"] == [{"name": "a", "value": b64(b"b")}]


# -- reads -------------------------------------------------------------------------------------------------------------


def test_records_are_read_from_an_offset_up_to_the_limits(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("read")
    kafka.produce("read", *(b"%d" % number for number in range(10)))
    path = "/topics/read/partitions/0/records"

    def offsets(query: str) -> list[int]:
        return [each["offset"] for each in rest("GET", f"{path}?{query}")[1]]

    assert offsets("") == list(range(10))
    assert offsets("offset=7&format=json") == [7, 8, 9]
    assert offsets("offset=2&count=3") == [2, 3, 4]
    assert offsets("max_bytes=3") == [0, 1, 2]
    assert offsets("offset=10&timeout=50") == offsets("offset=latest") == []
    assert rest("GET", f"{path}?offset=11")[1]["error_code"] == 41601


def test_a_read_at_the_end_waits_for_a_record(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("awaited")
    connection = http.client.HTTPConnection(urlsplit(rest.url).netloc, timeout=60)
    connection.request("GET", "/topics/awaited/partitions/0/records?timeout=60000&format=json")
    kafka.produce("awaited", b"1")
    assert [each["value"] for each in json.loads(connection.getresponse().read())] == [1]
    connection.close()


class Events:
    """A reader of server-sent events."""

    def __init__(self, rest: Rest, path: str, last_id: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(rest.url).netloc, timeout=60)
        headers = {"Accept": "text/event-stream", **({} if last_id is None else {"Last-Event-ID": last_id})}
        self._connection.request("GET", path, headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self.last_id = ""
        self._block()  # the positions at the beginning

    def _block(self) -> str | None:
        data = None
        while line := self._response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data":
                data = value
        return data

    def next(self) -> dict[str, Any]:
        while (data := self._block()) is None:
            continue
        found = json.loads(data)
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def test_a_tail_that_is_taken_up_again_misses_nothing_and_repeats_nothing(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("tailed", 2)
    kafka.produce("tailed", b"0")
    tail = Events(rest, "/topics/tailed/tail?format=json")
    assert tail.last_id == "0:1,1:0"
    kafka.produce("tailed", b"1")
    assert (tail.next()["value"], tail.last_id) == (1, "0:2,1:0")
    tail.close()
    kafka.produce("tailed", b"2", partition=1)
    kafka.produce("tailed", b"3")
    tail = Events(rest, "/topics/tailed/tail?format=json", tail.last_id)
    assert sorted(tail.next()["value"] for _ in range(2)) == [2, 3]
    assert tail.last_id == "0:3,1:1"
    kafka.produce("tailed", b"no json")
    assert tail.next()["error_code"] == 40601
    tail.close()


# -- consumer instances ------------------------------------------------------------------------------------------------


def test_an_instance_subscribes_reads_commits_and_another_goes_on(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("subscribed")
    kafka.produce("subscribed", b"1", b"2", key=b'"k"')
    one = Consumer(rest, "group-1", **{"auto.commit.enable": "false"})
    assert one("POST", "/subscription", {"topics": ["subscribed"]}) == (204, None)
    assert one("GET", "/subscription") == (200, {"topics": ["subscribed"]})
    found = one.records(2)
    assert [(each["key"], each["value"], each["offset"], each["partition"]) for each in found] == [
        ("k", 1, 0, 0), ("k", 2, 1, 0),
    ]  # fmt: skip
    assert one("GET", "/assignments") == (200, {"partitions": [{"topic": "subscribed", "partition": 0}]})
    assert one("POST", "/offsets", {"offsets": [{"topic": "subscribed", "partition": 0, "offset": 0}]})[0] == 200
    place = {"partitions": [{"topic": "subscribed", "partition": 0}]}
    assert one("GET", "/offsets", place)[1]["offsets"][0]["offset"] == 1
    assert one("DELETE", "") == (204, None)
    two = Consumer(rest, "group-1")
    two("POST", "/subscription", {"topics": ["subscribed"]})
    assert [each["value"] for each in two.records(1)] == [2]
    assert two("POST", "/offsets")[0] == 200
    assert two("GET", "/offsets", place)[1]["offsets"][0]["offset"] == 2
    two("DELETE", "")
    assert two("GET", "/records")[1]["error_code"] == 40403


def test_what_a_deleted_instance_has_delivered_is_committed(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("kept")
    kafka.produce("kept", b"1", b"2")
    for expected in ([1, 2], [3]):
        one = Consumer(rest, "group-2")
        one("POST", "/subscription", {"topic_pattern": "kep."})
        assert [each["value"] for each in one.records(len(expected))] == expected
        one("DELETE", "")
        kafka.produce("kept", b"3")


def test_an_assigned_instance_moves_where_it_is_told(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("assigned", 2)
    kafka.produce("assigned", b"1", b"2", b"3", partition=1)
    place = {"topic": "assigned", "partition": 1}
    one = Consumer(rest, "group-3", "binary")
    assert one("GET", "/records")[1]["error_code"] == 40903
    assert one("POST", "/assignments", {"partitions": [place]}) == (204, None)
    assert one("POST", "/subscription", {"topics": ["assigned"]})[1]["error_code"] == 40903
    assert len(one.records(3)) == 3
    assert one("POST", "/positions", {"offsets": [{**place, "offset": 2}]}) == (204, None)
    assert [each["value"] for each in one.records(1)] == [b64(b"3")]
    assert one("POST", "/positions/beginning", {"partitions": [place]}) == (204, None)
    assert [each["offset"] for each in one.records(3)] == [0, 1, 2]
    assert one("POST", "/positions/end", {"partitions": [place]}) == (204, None)
    assert one("GET", "/records?timeout=100") == (200, [])
    assert one("POST", "/positions/end", {"partitions": [{**place, "partition": 0}]})[1]["error_code"] == 40903
    one("DELETE", "")


def test_a_record_that_is_not_of_the_format_is_given_back(rest: Rest, kafka: Broker) -> None:
    kafka.create_topic("odd")
    kafka.produce("odd", b"no json")
    one = Consumer(rest, "group-4")
    one("POST", "/assignments", {"partitions": [{"topic": "odd", "partition": 0}]})
    for _ in range(2):
        status, found = one("GET", "/records?timeout=10000")
        assert (status, found["error_code"]) == (406, 40601)
    assert rest("GET", f"{one.path}/records", accept=BINARY)[1]["error_code"] == 40601
    one("DELETE", "")


def test_instances_expire_and_have_a_limit(kafka: Broker) -> None:
    words = ("--override", "rest.max.consumers=2", "--override", "rest.consumer.idle.ms=1000")
    with GatewayUnderTest(kafka.bootstrap_servers, *words) as gateway:
        rest = Rest(gateway.http)
        for name in ("a", "b"):
            assert rest("POST", "/consumers/limited", {"name": name})[0] == 200
        assert rest("POST", "/consumers/limited", {"name": "a"})[1]["error_code"] == 40902
        assert rest("POST", "/consumers/limited", {"name": "c"})[0] == 429
        while rest("POST", "/consumers/limited", {"name": "d"})[0] == 429:  # until an idle one has expired
            pass
        assert rest("POST", "/topics/x", {"value_schema": "{}", "records": [{"value": 1}]}, AVRO)[0] in (404, 501)


# -- refusals ----------------------------------------------------------------------------------------------------------

RECORDS = {"records": [{"value": "eA=="}]}
BAD: list[tuple[str, str, Any, str, int]] = [
    ("GET", "/topics/absent", None, V2, 40401),
    ("GET", "/topics/absent/partitions", None, V2, 40401),
    ("GET", "/topics/there/partitions/9", None, V2, 40402),
    ("GET", "/topics/there/partitions/9/offsets", None, V2, 40402),
    ("GET", "/topics/there/partitions/x", None, V2, 422),
    ("GET", "/topics/absent/partitions/0/records", None, V2, 40401),
    ("GET", "/topics/there/partitions/9/records", None, V2, 40402),
    ("GET", "/topics/there/partitions/0/records?offset=-1", None, V2, 422),
    ("GET", "/topics/there/partitions/0/records?count=0", None, V2, 422),
    ("GET", "/topics/there/partitions/0/records?timeout=x", None, V2, 422),
    ("GET", "/topics/there/partitions/0/records?isolation=x", None, V2, 422),
    ("GET", "/topics/there/partitions/0/records?isolation=linearizable", None, V2, 501),
    ("GET", "/topics/there/partitions/0/records?format=xml", None, V2, 415),
    ("GET", "/topics/absent/tail", None, V2, 40401),
    ("GET", "/topics/there/tail?partition=7", None, V2, 40402),
    ("POST", "/topics/absent", RECORDS, BINARY, 40401),
    ("POST", "/topics/there/partitions/9", RECORDS, BINARY, 40402),
    ("POST", "/topics/there", RECORDS, "text/xml", 415),
    ("POST", "/topics/there", RECORDS, V2, 415),
    ("POST", "/topics/there", {"records": []}, BINARY, 422),
    ("POST", "/topics/there", {"records": 5}, BINARY, 422),
    ("POST", "/topics/there", [], BINARY, 422),
    ("POST", "/topics/there", {"records": [{"value": "!"}]}, BINARY, 422),
    ("POST", "/topics/there", {"records": [{"value": 5}]}, BINARY, 422),
    ("POST", "/topics/there", {"records": [{"value": "eA==", "partition": -1}]}, BINARY, 422),
    ("POST", "/topics/there", {"records": [{"value": "eA==", "headers": [{"value": 5}]}]}, BINARY, 422),
    ("POST", "/topics/there", {"records": [{"value": 1}]}, AVRO, 42202),
    ("POST", "/topics/there", {"records": [{"key": 1}]}, AVRO, 42201),
    ("POST", "/topics/there", {"value_schema_id": 999, "records": [{"value": 1}]}, AVRO, 40403),
    ("POST", "/topics/there", {"value_schema": "{", "records": [{"value": 1}]}, AVRO, 42201),
    ("POST", "/consumers/g", {"format": "xml"}, V2, 42204),
    ("POST", "/consumers/g", {"auto.offset.reset": "x"}, V2, 42204),
    ("POST", "/consumers/g", {"name": ""}, V2, 422),
    ("GET", "/consumers/g/instances/none/records", None, V2, 40403),
    ("DELETE", "/consumers/g/instances/none", None, V2, 40403),
    ("GET", "/consumers", None, V2, 404),
    ("PUT", "/topics", None, V2, 405),
    ("POST", "/topics/there", b"{", BINARY, 400),
    ("POST", "/topics/there", b"[" * 100_000, BINARY, 400),
    ("POST", "/topics/there", b'{"records": [{"value": "\\ud800"}]}', JSON, 422),
]


@pytest.mark.parametrize(("method", "path", "body", "media", "code"), BAD)
def test_a_bad_request_gets_its_code_and_a_sentence(
    rest: Rest, kafka: Broker, method: str, path: str, body: Any, media: str, code: int
) -> None:
    if "there" not in rest("GET", "/topics")[1]:
        kafka.create_topic("there")
    status, found = rest(method, path, body, media)
    assert found["error_code"] == code, found
    assert status == (code if code < 1000 else code // 100)
    assert len(found["message"]) > 10 and (found["message"][0].isupper() or found["message"][0] == "'")


def test_fuzzed_requests_end_nothing(rest: Rest, kafka: Broker) -> None:
    random = Random(3)
    kafka.create_topic("fuzzed")
    pieces = ["fuzzed", "absent", "0", "-1", "x", "%00", "one", "9999999999", "%2F"]
    values: list[Any] = [None, 5, -1, 1e300, [], {}, "", "eA==", True, [{}], [{"value": "eA=="}], "\ud800", "fuzzed",
                         ["fuzzed"], [{"topic": "fuzzed", "partition": 0, "offset": 0}], [5]]  # fmt: skip
    names = ["records", "value_schema", "value_schema_id", "topics", "partitions", "offsets", "topic_pattern", "name"]
    for _ in range(250):
        endpoint = random.choice(ENDPOINTS)
        if endpoint.path[-1] == "tail":
            continue
        path = "/".join(random.choice(pieces) if part == "*" else part for part in endpoint.path)
        body = {random.choice(names): random.choice(values) for _ in range(random.randint(0, 3))}
        status, found = rest(endpoint.method, f"/{path}?timeout=1", body, random.choice((BINARY, JSON, AVRO, V2)))
        assert status != 500, (endpoint.method, path, body, found)
    assert rest("POST", "/topics/fuzzed", RECORDS, BINARY)[0] == 200


def test_the_openapi_document_has_every_endpoint(rest: Rest) -> None:
    status, found = rest("GET", "/openapi.json")
    assert (status, found) == (200, document())
    for endpoint in ENDPOINTS:
        operation = found["paths"][template(endpoint.path)][endpoint.method.lower()]
        named = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert len(named) == endpoint.path.count("*") == len(set(named))
    names = [each["operationId"] for path in found["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    assert "/subjects/{subject}/versions/{version}" in found["paths"]


def test_a_group_with_a_slash_in_its_name_is_one_part_of_the_path(rest: Rest) -> None:
    status, found = rest("POST", f"/consumers/{quote('a/b', safe='')}", {"name": "x/y"})
    assert status == 200
    assert rest("DELETE", urlsplit(found["base_uri"]).path) == (204, None)
