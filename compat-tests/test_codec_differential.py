"""Every message, in every version, is written and read as Apache Kafka's own code and kafka-python do it."""

import base64
import importlib
import json
import pkgutil
from random import Random
from typing import Any

import kafka.protocol
import pytest
from oracle import run_program
from support.declared_messages import every_version
from support.random_messages import sample

from trioka.protocol.codec import decode, encode
from trioka.protocol.messages.api_versions import ApiVersionsResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.primitives import uuid_text
from trioka.protocol.schema import Field, Message, Struct

SAMPLES = 8  # of each version of each message


def camel_case(name: str) -> str:
    """The name of a field in Kafka's JSON."""
    first, *others = name.split("_")
    return ("kRaft" if first == "kraft" else first) + "".join(word.capitalize() for word in others)


def as_json(struct: Struct, version: int) -> dict[str, Any]:
    """A message as Kafka's converters read it: only what the version has."""
    return {
        camel_case(f.name): _value(getattr(struct, f.name), f, version)
        for f in struct.__fields__
        if version in f.versions
    }


def _value(value: Any, f: Field, version: int) -> Any:
    if isinstance(value, list):
        return [_value(element, f, version) for element in value]
    if isinstance(value, Struct):
        return as_json(value, version)
    if isinstance(value, bytes):
        assert f.wire is not None
        return uuid_text(value) if f.wire.name == "uuid" else base64.b64encode(value).decode()
    return value


def judged(lines: list[str]) -> list[str]:
    *problems, last = run_program("Codec", stdin="\n".join(lines) + "\n").splitlines()
    assert last == f"judged {len(lines)}"
    return problems


def statement(message: Message, version: int, bytes_: bytes) -> str:
    return f"{type(message).__name__}\t{version}\t{json.dumps(as_json(message, version))}\t{bytes_.hex()}"


@pytest.mark.usefixtures("apache_kafka")
def test_kafka_writes_and_reads_every_message_as_we_do() -> None:
    lines = []
    for message, version in every_version():
        for seed in range(SAMPLES):
            text = sample(message, version, Random(f"{message.__name__} {version} {seed} judged"))
            lines.append(statement(text, version, encode(text, version)))
    assert judged(lines) == []


@pytest.mark.usefixtures("apache_kafka")
def test_the_judge_sees_one_wrong_byte() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    right = encode(heartbeat, 4)
    wrong = right.replace(b"\x01", b"\x02")
    assert judged([statement(heartbeat, 4, right)]) == []
    assert "Kafka writes" in judged([statement(heartbeat, 4, wrong)])[0]


# -- kafka-python ------------------------------------------------------------------------------------------------------


def kafka_python_messages() -> dict[str, Any]:
    """The messages that kafka-python declares, by name."""
    found = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            for name, declared in vars(importlib.import_module(module.name)).items():
                if (
                    isinstance(declared, type)
                    and getattr(declared, "_valid_versions", None)
                    and name.endswith(("Request", "Response"))
                ):
                    found[name] = declared
    return found


def test_kafka_python_reads_what_we_write_and_writes_what_we_read() -> None:
    theirs = kafka_python_messages()
    compared = set()
    for message, version in every_version():
        peer = theirs.get(message.__name__)
        if peer is None or not peer.min_version <= version <= peer.max_version:
            continue
        for seed in range(SAMPLES):
            text = sample(message, version, Random(f"{message.__name__} {version} {seed} compared"))
            if message is ApiVersionsResponse:
                text.error_code = 0  # with an error, kafka-python takes any version of it for version 0
            whole = encode(text, version)
            heard = peer.decode(whole, version=version)
            again = peer(version=version, **kafka_python_fields(heard, version))
            assert decode(message, version, again.encode(version=version)) == text, (message.__name__, version)
            compared.add(message.__name__)
    assert len(compared) > 40, sorted(compared)


def kafka_python_fields(message: Any, version: int) -> dict[str, Any]:
    return {f.name: getattr(message, f.name) for f in message._struct._fields if f.for_version_q(version)}
