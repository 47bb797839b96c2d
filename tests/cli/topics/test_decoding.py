"""`consume --decode avro` and `--decode protobuf`: values by their schema; wrong schemas and wrong values."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import kafka as kafka_python
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Proto
from mutants.plant import Rule, assert_noticed
from support.command_line import Ended, at, command

from trioka.cli.terminal.failure import Exit, Failure
from trioka.cli.topics import decoding
from trioka.pipeline.formats.protobuf import message_class

__all__ = ["at"]

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seal", "type": "bytes"},
    ],
}
SAID = {"id": 7, "at": "2023-11-14T22:13:20+00:00", "seal": "s"}


def avro(number: int | None = None) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, ORDER, {"id": 7, "at": 1_700_000_000_000, "seal": b"s"})
    return (b"" if number is None else b"\0" + number.to_bytes(4)) + target.getvalue()


def descriptor() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Proto.TYPE_UINT64, label=1)
    order.field.add(name="note", number=2, type=Proto.TYPE_STRING, label=1)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/schemas/ids/5"
        body = json.dumps({"schema": json.dumps(ORDER)}).encode()
        self.send_response(200 if known else 500 if self.path.endswith("/500") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def schemas(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.desc").write_bytes(descriptor())
    (tmp_path / "wrong").write_text("no schema")
    return {name: str(tmp_path / name) for name in ("order.avsc", "order.desc", "wrong", "absent")}


def read(at: str, topic: str, values: list[bytes], *how: str) -> Ended:
    assert command("topics", "create", topic, at=at).code == Exit.OK
    producer = kafka_python.KafkaProducer(bootstrap_servers=at)
    for value in values:
        producer.send(topic, value, key=b"k").get(timeout=60)
    producer.close()
    return command("consume", topic, "-e", "-f", "%k %s\n", *how, at=at)


def test_avro_is_read_by_a_schema_file_or_by_the_registry(at: str, schemas: dict[str, str], registry: str) -> None:
    shown = f"k {json.dumps(SAID)}\n"
    plain = ("--decode", "avro", "--schema", schemas["order.avsc"])
    assert read(at, "plain", [avro()], *plain) == Ended(Exit.OK, shown, "")
    assert read(at, "framed", [avro(9)], *plain, "--framed") == Ended(Exit.OK, shown, "")
    assert read(at, "registered", [avro(5), avro(5)], "--decode", "avro", "--registry", registry).out == 2 * shown
    (line,) = command("consume", "plain", "-e", "-f", "json", *plain, at=at).out.splitlines()
    assert json.loads(line)["value"] == SAID and json.loads(line)["key"] == "k"


def test_protobuf_is_read_by_what_protoc_writes(at: str, schemas: dict[str, str]) -> None:
    made: Any = message_class(descriptor(), "shop.Order")
    value = made(id=2**64 - 1, note="x").SerializeToString()
    ended = read(
        at, "proto", [value], "--decode", "protobuf", "--schema", schemas["order.desc"], "--message", "shop.Order"
    )
    assert ended == Ended(Exit.OK, f'k {{"id": "{2**64 - 1}", "note": "x"}}\n', "")


def test_what_cannot_be_decoded_is_shown_in_base64_and_counted(at: str, registry: str) -> None:
    ended = read(at, "odd", [b"text", avro(404), avro(5)], "--decode", "avro", "--registry", registry)
    assert ended.code == Exit.PARTLY
    assert [line.count("base64") for line in ended.out.splitlines()] == [1, 1, 0]
    assert ended.stderr.startswith(
        "2 values could not be decoded and are shown in base64; the first: the value does not"
    )
    down = read(at, "down", [avro(500)], "--decode", "avro", "--registry", registry)
    assert down.code == Exit.UNREACHABLE and "The schema registry answered 500" in down.stderr


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("--decode avro", Exit.USAGE, "needs --schema FILE or --registry URL"),
        ("--decode protobuf --message a.B", Exit.USAGE, "needs --schema FILE"),
        ("--decode protobuf --schema order.desc", Exit.USAGE, "which needs it"),
        ("--decode avro --schema order.avsc --message a.B", Exit.USAGE, "--message names a Protobuf message"),
        ("--decode avro --schema order.avsc --registry http://x", Exit.USAGE, "not both"),
        ("--decode protobuf --message a.B --registry http://x", Exit.USAGE, "decoded by --decode registry"),
        ("--decode avro --schema wrong", Exit.USAGE, "wrong: is not an Avro schema"),
        ("--decode avro --schema absent", Exit.NOT_FOUND, "absent cannot be read"),
        ("--decode protobuf --schema wrong --message a.B", Exit.USAGE, "is not a FileDescriptorSet"),
        ("--decode protobuf --schema order.desc --message a.B", Exit.USAGE, "there is no 'a.B', but shop.Order"),
        ("--schema order.avsc", Exit.USAGE, "a schema goes with --decode avro, protobuf or registry"),
    ],
)
def test_a_schema_that_makes_no_sense_is_one_sentence(
    at: str, schemas: dict[str, str], line: str, code: int, said: str
) -> None:
    ended = command("consume", "any", *(schemas.get(word, word) for word in line.split()), at=at)
    assert ended.code == code, ended
    assert said in ended.stderr and ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


def test_without_the_libraries_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, schemas: dict[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "trioka.pipeline.formats.avro", raising=False)
    with pytest.raises(Failure, match="--decode avro needs 'fastavro'") as failed:
        decoding.decoder_for("avro", schemas["order.avsc"], None, None, False, 10.0)
    assert "pip install 'trioka[decode]'" in str(failed.value)


def test_consuming_without_a_schema_loads_neither_library() -> None:
    program = (
        "import sys; from trioka.__main__ import main; main(['consume', 'x', '-b', 'localhost:1'])\n"
        "print(sorted(name for name in sys.modules if name in ('fastavro', 'google.protobuf', 'pyspark')))"
    )
    message = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert message.stdout == "[]\n"


def a_value_that_fails_is_counted_and_not_lost(module: ModuleType) -> None:
    decoder = module.Decoder(lambda data: dict(data))
    assert [decoder(b"ab"), decoder(b"")] == [{"base64": "YWI="}, {}]
    assert (decoder.failures, decoder.verdict()) == (1, Exit.PARTLY)
    assert "dictionary" in decoder.first or "sequence" in decoder.first


MISTAKES: list[tuple[str, str, Rule]] = [
    ("            self.failures += 1\n", "", a_value_that_fails_is_counted_and_not_lost),
    ("return Exit.PARTLY", "return Exit.OK", a_value_that_fails_is_counted_and_not_lost),
    ("(Undecodable, TypeError, ValueError)", "Undecodable", a_value_that_fails_is_counted_and_not_lost),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(decoding, right, wrong, rule)
