"""`trioka schemas`, and `consume --decode registry`, against a registry beside a broker."""

import base64
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.command_line import Ended, command
from support.registry import Registry

from trioka.cli.client.registry_client import RegistryClient
from trioka.cli.terminal.failure import Exit, Failure
from trioka.testing import Broker

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
LATER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"n","type":"int"}]}'
PROTO = 'syntax = "proto3"; import "item.proto"; import "google/protobuf/timestamp.proto"; message A { int32 x = 1; } '
PROTO += "message Order { message Line { Item item = 1; google.protobuf.Timestamp at = 2; } }"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def schemas(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`schemas("list")` runs the command; the files are in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("order.avsc").write_text(ORDER)
    Path("later.avsc").write_text(LATER)
    Path("orders.avsc").write_text('{"type":"array","items":"Order"}')
    Path("order.json").write_text('{"type":"object"}')
    Path("broken.avsc").write_text("{")

    def run(*words: str) -> Ended:
        return command("schemas", *words, environment={"SCHEMA_REGISTRY_URL": kafka.registry_url})

    return run


def test_a_schema_is_added_shown_listed_checked_and_deleted(schemas: Any) -> None:
    added = schemas("add", "cli", "order.avsc")
    number = added.out.strip()
    assert (added.code, number.isdecimal()) == (Exit.OK, True)
    assert schemas("show", "cli").out == f"{ORDER}\n" == schemas("show", "--id", number).out
    (row,) = schemas("list", "--prefix", "cli", "-o", "json").rows
    assert (row["subject"], row["version"], row["type"], row["level"]) == ("cli", 1, "AVRO", "BACKWARD")
    assert schemas("check", "cli", "order.avsc") == Ended(Exit.OK, "", "")
    checked = schemas("check", "cli", "later.avsc")
    assert checked.code == Exit.UNHEALTHY and "READER_FIELD_MISSING_DEFAULT_VALUE" in checked.out
    planned = schemas("delete", "cli")
    assert "This is the plan" in planned.stderr and schemas("show", "cli").code == Exit.OK
    assert schemas("delete", "cli", "-y").code == Exit.OK
    assert schemas("show", "cli").code == Exit.NOT_FOUND
    assert schemas("show", "--id", number).code == Exit.OK
    assert schemas("delete", "cli", "--permanent", "-y").code == Exit.OK


def test_references_are_named_on_the_command_line(schemas: Any) -> None:
    schemas("add", "target", "order.avsc")
    assert schemas("add", "refers", "orders.avsc").code == Exit.FAILED
    assert schemas("add", "refers", "orders.avsc", "--reference", "Order=target:1").code == Exit.OK
    (row,) = schemas("list", "--prefix", "refers", "-o", "json").rows
    assert row["references"] == ["target:1"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("add", "x", "absent.avsc"), Exit.NOT_FOUND, "absent.avsc cannot be read"),
        (("add", "x", "broken.avsc"), Exit.FAILED, "not valid JSON"),
        (("add", "x", "order.txt"), Exit.USAGE, "give --type"),
        (("add", "x", "order.avsc", "--reference", "a"), Exit.USAGE, "NAME=SUBJECT:VERSION"),
        (("show",), Exit.USAGE, "name a subject"),
        (("show", "nothing"), Exit.NOT_FOUND, "'nothing' not found"),
        (("show", "--id", "99999"), Exit.NOT_FOUND, "99999 not found"),
        (("delete", "nothing", "-y"), Exit.NOT_FOUND, "not found"),
        (("list", "--registry", "nonsense"), Exit.USAGE, "is no address of a registry"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(schemas: Any, words: tuple[str, ...], code: int, sentence: str) -> None:
    ended = schemas(*words)
    assert (ended.code, sentence in ended.stderr) == (code, True), ended


def test_a_registry_that_does_not_answer_ends_the_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Failure) as caught:
            RegistryClient(url, 0.2).get("subjects")
        assert caught.value.exit_code == Exit.UNREACHABLE
    assert command("schemas", "list", "--registry", url).code == Exit.UNREACHABLE


def test_values_and_keys_of_every_type_are_decoded_by_the_registry(kafka: Broker) -> None:
    registry = Registry(kafka.registry_url)
    by_avro = registry.register("order", ORDER)
    by_json = registry.register("json", '{"type":"object"}', "JSON")
    registry.register("item", 'syntax = "proto3"; message Item { string name = 1; }', "PROTOBUF")
    reference = {"name": "item.proto", "subject": "item", "version": 1}
    by_proto = registry.register("proto", PROTO, "PROTOBUF", references=[reference])
    target = io.BytesIO()
    fastavro.schemaless_writer(target, json.loads(ORDER), {"id": 7})
    kafka.create_topic("decoded")

    def frame(number: int, data: bytes) -> bytes:
        return b"\0" + number.to_bytes(4) + data

    line = b"\x0a\x03\x0a\x01a\x12\x02\x08\x05"  # item { name: "a" } at { seconds: 5 }
    kafka.produce("decoded", frame(by_avro, target.getvalue()), key=frame(by_json, b'{"k":1}'))
    kafka.produce("decoded", frame(by_proto, b"\x04\x02\x00" + line), key=b"plain")
    kafka.produce("decoded", None, key=b"tombstone")
    kafka.produce("decoded", frame(by_proto, b"\x04\x02\x02" + line), frame(99999, b""), b"unframed", key=None)
    ended = command(
        "consume", "decoded", "-e", "-f", "json", "--decode", "registry", "--registry", kafka.registry_url,
        at=kafka.bootstrap_servers,
    )  # fmt: skip
    rows = [json.loads(each) for each in ended.out.splitlines()]
    assert [row["key"] for row in rows] == [{"k": 1}, "plain", "tombstone", None, None, None]
    values = [row["value"] for row in rows]
    assert values[:3] == [{"id": 7}, {"item": {"name": "a"}, "at": "1970-01-01T00:00:05Z"}, None]
    assert [base64.b64decode(each["base64"])[5:] for each in values[3:]] == [b"\x04\x02\x02" + line, b"", b"med"]
    assert ended.code == Exit.PARTLY and "3 values could not be decoded" in ended.stderr
