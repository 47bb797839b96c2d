"""`trioka gateway` in front of trioka and in front of Apache Kafka: every call, and records byte for byte with kcat."""

import json
import queue
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import gateway_programs
import grpc
import pytest
import toolchains
from broker_under_test import Node, start_kafka, start_trioka

from trioka.gateway.v1 import admin_pb2, log_pb2, types_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.pipeline.installation.cache import Unavailable

TIMEOUT_S = 60
FILES = (admin_pb2.DESCRIPTOR, log_pb2.DESCRIPTOR)
LINE = re.compile(r"gRPC +(\S+:\d+)")
HTTP_LINE = re.compile(r"HTTP +(\S+:\d+)")


class Gateway:
    def __init__(self, node: Node) -> None:
        words = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "off"]
        words += ["--bootstrap-server", node.bootstrap]
        self.node = node
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trioka", "gateway", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = next(found[1] for line in self._process.stdout if (found := LINE.search(line)))
        self.http = next(found[1] for line in self._process.stdout if (found := HTTP_LINE.search(line)))
        self.channel = grpc.insecure_channel(self.address)
        self.log, self.admin = LogServiceStub(self.channel), AdminServiceStub(self.channel)

    def close(self) -> None:
        self.channel.close()
        self._process.terminate()
        self._process.communicate(timeout=TIMEOUT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=TIMEOUT_S)


@pytest.fixture(scope="module", params=["trioka", "kafka"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if request.param == "kafka":
        request.getfixturevalue("apache_kafka")
    with {"trioka": start_trioka, "kafka": start_kafka}[request.param](tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def gateway(node: Node) -> Iterator[Gateway]:
    gateway = Gateway(node)
    yield gateway
    gateway.close()


def create(gateway: Gateway, topic: str, partitions: int = 1) -> str:
    gateway.admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=topic, partitions=partitions), timeout=TIMEOUT_S)
    return topic


RECORDS = [
    types_pb2.Record(key=b"k", value=b"v", headers=[types_pb2.Header(key="h", value=b"x")], timestamp_ms=1000),
    types_pb2.Record(key=b"", value=b"", timestamp_ms=2000),
    types_pb2.Record(value=b"null key", timestamp_ms=3000),
    types_pb2.Record(key=b"tombstone", timestamp_ms=4000),
]


def test_every_call_of_the_log_service(gateway: Gateway) -> None:
    log, topic = gateway.log, create(gateway, "calls")
    written = log.Produce(log_pb2.ProduceRequest(topic=topic, records=RECORDS), timeout=TIMEOUT_S)
    assert [each.offset for each in written.positions] == [0, 1, 2, 3]
    message = log_pb2.ProduceStreamRequest(id=7, request=log_pb2.ProduceRequest(topic=topic, records=RECORDS[:1]))
    refused = log_pb2.ProduceStreamRequest(id=8, request=log_pb2.ProduceRequest(topic="nowhere", records=RECORDS))
    answers = list(log.ProduceStream(iter([message, refused]), timeout=TIMEOUT_S))
    assert [each.WhichOneof("result") for each in answers] == ["written", "failure"]
    assert answers[1].failure.name == "UNKNOWN_TOPIC_OR_PARTITION"
    consumed = [r for each in log.Consume(log_pb2.ConsumeRequest(topic=topic), timeout=TIMEOUT_S) for r in each.records]
    assert [(each.key, each.value, each.timestamp_ms) for each in consumed[:4]] == [
        (each.key, each.value, each.timestamp_ms) for each in RECORDS
    ]
    whole = log.Consume(log_pb2.ConsumeRequest(topic=topic, encoding=types_pb2.ENCODING_BATCHES), timeout=TIMEOUT_S)
    batches = b"".join(each.batches for each in whole)
    copy = create(gateway, "copy")
    log.Produce(log_pb2.ProduceRequest(topic=copy, partition=0, batches=batches), timeout=TIMEOUT_S)
    copied = [r for each in log.Consume(log_pb2.ConsumeRequest(topic=copy), timeout=TIMEOUT_S) for r in each.records]
    assert copied == consumed
    for fields, offset in (({"offset": 2}, 2), ({"timestamp_ms": 2500}, 2), ({"latest_of_key": b"k"}, 4)):
        request = log_pb2.ReadRequest(topic=topic, **fields)
        assert log.Read(request, timeout=TIMEOUT_S).record.offset == offset
    with pytest.raises(grpc.RpcError) as raised:
        log.Read(
            log_pb2.ReadRequest(topic=topic, offset=0, consistency=types_pb2.CONSISTENCY_LINEARIZABLE),
            timeout=TIMEOUT_S,
        )
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_subscription_goes_on_behind_what_it_accepted(gateway: Gateway) -> None:
    topic = create(gateway, "subscribed")
    gateway.log.Produce(log_pb2.ProduceRequest(topic=topic, records=RECORDS), timeout=TIMEOUT_S)
    join = log_pb2.SubscribeRequest(join=log_pb2.Join(group="g", topics=[topic], auto_commit=True))
    for expected in (RECORDS[:3], RECORDS[3:]):
        requests: queue.SimpleQueue[log_pb2.SubscribeRequest | None] = queue.SimpleQueue()
        requests.put(join)
        requests.put(log_pb2.SubscribeRequest(credit=len(expected)))
        found: list[types_pb2.Record] = []
        for response in gateway.log.Subscribe(iter(requests.get, None), timeout=TIMEOUT_S):
            found += response.delivery.records
            if len(found) == len(expected):
                requests.put(None)
        assert [each.timestamp_ms for each in found] == [each.timestamp_ms for each in expected]
        deadline = 100
        while deadline and _members(gateway):  # the member leaves in its thread
            deadline -= 1


def _members(gateway: Gateway) -> int:
    described = gateway.admin.DescribeGroup(admin_pb2.DescribeGroupRequest(group="g"), timeout=TIMEOUT_S)
    return len(described.members)


def test_every_call_of_the_admin_service(gateway: Gateway) -> None:
    admin, topic = gateway.admin, create(gateway, "administered", 2)
    listed = admin.ListTopics(admin_pb2.ListTopicsRequest(), timeout=TIMEOUT_S).topics
    assert (topic, 2) in [(each.name, each.partitions) for each in listed]
    described = admin.DescribeTopic(admin_pb2.DescribeTopicRequest(topic=topic), timeout=TIMEOUT_S)
    assert [each.partition for each in described.partitions] == [0, 1]
    found = admin.ListOffsets(admin_pb2.ListOffsetsRequest(topic=topic), timeout=TIMEOUT_S)
    assert [(each.earliest, each.end) for each in found.partitions] == [(0, 0), (0, 0)]
    offsets = [admin_pb2.GroupOffset(topic=topic, partition=each, offset=each) for each in (0, 1)]
    committed = admin_pb2.CommitGroupOffsetsRequest(group="administered", offsets=offsets)
    admin.CommitGroupOffsets(committed, timeout=TIMEOUT_S)
    listing = admin_pb2.ListGroupOffsetsRequest(group="administered")
    assert list(admin.ListGroupOffsets(listing, timeout=TIMEOUT_S).offsets) == offsets
    groups = admin.ListGroups(admin_pb2.ListGroupsRequest(), timeout=TIMEOUT_S).groups
    assert "administered" in [each.group for each in groups]
    state = admin.DescribeGroup(admin_pb2.DescribeGroupRequest(group="administered"), timeout=TIMEOUT_S).state
    assert state == "Empty"
    gone = admin_pb2.DeleteGroupOffsetsRequest(
        group="administered", partitions=[types_pb2.TopicPartition(topic=topic, partition=1)]
    )
    admin.DeleteGroupOffsets(gone, timeout=TIMEOUT_S)
    assert list(admin.ListGroupOffsets(listing, timeout=TIMEOUT_S).offsets) == offsets[:1]
    admin.DeleteGroup(admin_pb2.DeleteGroupRequest(group="administered"), timeout=TIMEOUT_S)
    admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=topic), timeout=TIMEOUT_S)


def test_named_requests_are_written_once_over_a_kill_and_two_gateways(node: Node, gateway: Gateway) -> None:
    """Judged by a consumer of librdkafka that reads committed records only."""
    topic = create(gateway, "once")

    def send(through: Gateway, sequence: int) -> bool:
        request = log_pb2.ProduceRequest(
            topic=topic,
            records=[types_pb2.Record(value=b"%d" % sequence)],
            producer=log_pb2.Producer(name="once", sequence=sequence),
        )
        return bool(through.log.Produce(request, timeout=TIMEOUT_S).duplicate)

    other = Gateway(node)
    assert [send(other, each) for each in (0, 1, 1, 2)] == [False, False, True, False]
    other.kill()
    assert [send(gateway, each) for each in (2, 3)] == [True, False]
    other = Gateway(node)
    assert [send(other, each) for each in (3, 4)] == [True, False]
    with pytest.raises(grpc.RpcError) as raised:
        send(gateway, 5)
    assert raised.value.code() is grpc.StatusCode.ABORTED
    assert not send(gateway, 5)
    other.close()
    consumed = gateway.log.Consume(
        log_pb2.ConsumeRequest(topic=topic, consistency=types_pb2.CONSISTENCY_STABLE), timeout=TIMEOUT_S
    )
    assert [record.value for each in consumed for record in each.records] == [b"%d" % each for each in range(6)]


def kcat(node: Node, *words: str, stdin: bytes = b"") -> str:
    try:
        program = toolchains.kcat()
    except Unavailable as missing:
        toolchains.unavailable(missing)
    done = subprocess.run([program, "-b", node.bootstrap, *words], input=stdin, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_kcat_reads_what_was_written_by_grpc_and_the_reverse(node: Node, gateway: Gateway) -> None:
    topic = create(gateway, "kcat")
    gateway.log.Produce(log_pb2.ProduceRequest(topic=topic, records=RECORDS), timeout=TIMEOUT_S)
    lines = [json.loads(line) for line in kcat(node, "-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    assert [(each["key"], each["payload"], each.get("headers", [])) for each in lines] == [
        ("k", "v", ["h", "x"]),
        ("", "", []),
        (None, "null key", []),
        ("tombstone", None, []),
    ]
    back = create(gateway, "kcat-back")
    kcat(node, "-P", "-t", back, "-K", ":", "-Z", "-H", "h=x", stdin=b"k:v\ntombstone:\n")
    consumed = gateway.log.Consume(log_pb2.ConsumeRequest(topic=back), timeout=TIMEOUT_S)
    found = [record for each in consumed for record in each.records]
    assert [(each.key, each.value, each.HasField("value")) for each in found] == [
        (b"k", b"v", True),
        (b"tombstone", b"", False),
    ]
    assert [(each.headers[0].key, each.headers[0].value) for each in found] == [("h", b"x")] * 2


def rest(gateway: Gateway, path: str, body: object = None) -> Any:
    media = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(gateway.http + path, data, media), timeout=TIMEOUT_S) as answer:
        return json.loads(answer.read())


def test_kcat_reads_what_was_written_by_rest_and_the_reverse(node: Node, gateway: Gateway) -> None:
    """Null and empty keys and values, bytes that are no text, and headers."""
    topic = create(gateway, "kcat-rest")
    header = {"name": "h", "value": "eA=="}
    rows = [
        {"key": "aw==", "value": "dg==", "headers": [header, {"name": "n", "value": None}], "timestamp": 1000},
        {"key": "", "value": "", "timestamp": 2000},
        {"key": None, "value": "AP8=", "timestamp": 3000},
        {"key": "dA==", "value": None, "timestamp": 4000},
    ]
    rest(gateway, f"/topics/{topic}/partitions/0", {"records": rows})
    # the lengths of key and value, -1 for null
    lines = kcat(node, "-C", "-t", topic, "-e", "-q", "-f", "%K|%k|%S|%h|%T\n").splitlines()
    assert [[each for at, each in enumerate(line.split("|")) if at != 1] for line in lines] == [
        ["1", "1", "h=x,n=NULL", "1000"],
        ["0", "0", "", "2000"],
        ["-1", "2", "", "3000"],
        ["1", "-1", "", "4000"],
    ]
    back = create(gateway, "kcat-rest-back")
    kcat(node, "-P", "-t", back, "-K", ":", "-Z", "-H", "h=x", stdin=b"k:v\ntombstone:\n")
    found = rest(gateway, f"/topics/{back}/partitions/0/records?format=binary")
    assert [(each["key"], each["value"]) for each in found] == [("aw==", "dg=="), ("dG9tYnN0b25l", None)]
    assert [each["headers"] for each in found] == [[header]] * 2


@pytest.mark.nightly
def test_a_go_program_from_generated_stubs_passes_every_call(gateway: Gateway) -> None:
    try:
        program = gateway_programs.go_client()
    except Unavailable as missing:
        toolchains.unavailable(missing)
    done = subprocess.run([*program, gateway.address], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all calls passed"


@pytest.mark.nightly
def test_grpcurl_passes_every_kind_of_call(gateway: Gateway) -> None:
    try:
        program = gateway_programs.grpcurl()
    except Unavailable as missing:
        toolchains.unavailable(missing)

    def call(method: str, *messages: object) -> str:
        words = [*program, "-plaintext", "-d", "@", gateway.address, f"trioka.v1.{method}"]
        text = "".join(json.dumps(each) for each in messages)
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        return done.stdout + done.stderr

    topic = {"topic": "grpcurl"}
    record = {"value": "aGk=", "key": "aw==", "headers": [{"key": "h"}]}
    group = {"group": "grpcurl"}
    place = {"topic": "grpcurl", "partition": 0}
    stream = [{"id": str(each), "request": {**topic, "records": [record]}} for each in (3, 4)]
    named = {**topic, "records": [record], "producer": {"name": "grpcurl", "sequence": "1"}}
    join = [{"join": {**group, "topics": ["grpcurl"], "autoCommit": True}}, {"credit": 1}]
    results: list[tuple[str, list[Any], str]] = [
        ("AdminService/CreateTopic", [{**topic, "partitions": 1}], "topic_id"),
        ("LogService/Produce", [{**topic, "records": [record]}], "positions"),
        ("LogService/Produce", [named], "positions"),
        ("LogService/Produce", [named], '"duplicate": true'),
        ("LogService/ProduceStream", stream, '"id": "4"'),
        ("LogService/Consume", [topic], "aGk="),
        ("LogService/Consume", [{**topic, "encoding": "ENCODING_BATCHES"}], "batches"),
        ("LogService/Read", [{**topic, "offset": 0}], '"key": "h"'),
        ("LogService/Read", [{**topic, "latestOfKey": "aw=="}], "aGk="),
        ("LogService/Subscribe", join, ""),
        ("AdminService/ListTopics", [{}], "grpcurl"),
        ("AdminService/DescribeTopic", [topic], "in_sync_replicas"),
        ("AdminService/ListOffsets", [topic], '"end"'),
        ("AdminService/CommitGroupOffsets", [{"group": "curled", "offsets": [{**place, "offset": 1}]}], "{"),
        ("AdminService/ListGroups", [{}], "curled"),
        ("AdminService/DescribeGroup", [{"group": "curled"}], "Empty"),
        ("AdminService/ListGroupOffsets", [{"group": "curled"}], '"offset": "1"'),
        ("AdminService/DeleteGroupOffsets", [{"group": "curled", "partitions": [place]}], "{"),
        ("AdminService/DeleteGroup", [{"group": "curled"}], "{"),
        ("AdminService/DeleteTopic", [topic], "{"),
        ("LogService/Produce", [{"topic": "nowhere", "records": [{}]}], "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    for method, messages, expected in results:
        found = call(method, *messages)
        assert expected in found, (method, found)
        assert ("ERROR" in found) == (expected == "UNKNOWN_TOPIC_OR_PARTITION"), (method, found)
    services = [each for file in FILES for each in file.services_by_name.values()]
    methods = {f"{each.name}/{method.name}" for each in services for method in each.methods}
    assert {method for method, _, _ in results} == methods
