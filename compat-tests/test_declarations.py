"""Our declarations say what Apache Kafka's specifications say.

Kafka's jars carry the specification of every message and of every record that Kafka keeps for itself. Each is read from
the jar and compared with our declaration: key, valid and flexible versions, and for each field its name, its place, its
type, whether it is an array, its versions, where it may be null, its tag, its default and whether it may be dropped.
"""

import json
import keyword
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import jars
import pytest
from support.declared_messages import every_message

from trioka.protocol.primitives import NULL_UUID, Int16, Int32, String
from trioka.protocol.schema import EMPTY, NO_VERSIONS, REQUIRED, Field, Message, Struct, VersionRange, field

pytestmark = pytest.mark.usefixtures("apache_kafka")

ARTIFACTS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
    "kafka-storage",
)

Described = dict[str, Any]


def specifications() -> dict[str, Described]:
    found = {}
    for artifact in ARTIFACTS:
        with zipfile.ZipFile(jars.jar(artifact)) as jar:
            for name in jar.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
                    specification = json.loads(_without_comments(jar.read(name).decode()))
                    found[specification["name"]] = specification
    # A message of which no version is left has a name and a key, and nothing that could be declared.
    return {name: s for name, s in found.items() if s["validVersions"] != "none"}


def _without_comments(text: str) -> str:
    return "\n".join(re.sub(r"(^|\s)//.*$", "", line) for line in text.splitlines())


def snake_case(name: str) -> str:
    """The name of a field in Python: ThrottleTimeMs is throttle_time_ms."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


# -- Kafka's side ------------------------------------------------------------------------------------------------------


def kafka_says(specification: Described) -> Iterator[str]:
    """A specification as lines, one a field."""
    shared = {struct["name"]: struct["fields"] for struct in specification.get("commonStructs", ())}
    yield f"key {specification.get('apiKey')}"
    yield f"versions {VersionRange.parse(specification['validVersions'])}"
    yield f"flexible {VersionRange.parse(specification['flexibleVersions'])}"
    yield from _kafka_fields(specification["fields"], "", shared)


def _kafka_fields(fields: list[Described], path: str, shared: dict[str, list[Described]]) -> Iterator[str]:
    for f in fields:
        kind = f["type"].removeprefix("[]")
        inner = f.get("fields") or shared.get(kind)
        name = f"{path}{snake_case(f['name'])}"
        # Some tagged fields do not say again in which versions they are.
        versions = VersionRange.parse(f["versions"] if "versions" in f else f["taggedVersions"])
        yield line(
            name,
            "struct" if inner is not None else kind,
            f["type"].startswith("[]"),
            versions=versions,
            nullable=VersionRange.parse(f.get("nullableVersions", "none")),
            tag=f.get("tag"),
            tagged=VersionRange.parse(f.get("taggedVersions", "none")),
            default=_kafka_default(f, kind, inner is not None),
            ignorable=f.get("ignorable", False) in (True, "true"),
            flexible=VersionRange.parse(f["flexibleVersions"]) if "flexibleVersions" in f else None,
        )
        if inner is not None:
            yield from _kafka_fields(inner, f"{name}.", shared)


def _kafka_default(f: Described, kind: str, is_struct: bool) -> object:
    """What the field holds when nothing is said. Not to give a default is to give the type's nothing."""
    text = f.get("default")
    if text == "null":
        return None
    if f["type"].startswith("[]"):
        assert text is None
        return []
    if is_struct:
        return EMPTY
    if kind == "bool":
        return str(text).lower() == "true"
    if kind == "uuid":
        return NULL_UUID
    if kind == "string":
        return text or ""
    if kind in ("bytes", "records"):
        return b""
    return float(text or 0) if kind == "float64" else int(str(text or 0), 0)


# -- our side ----------------------------------------------------------------------------------------------------------


def we_say(message: type[Message]) -> Iterator[str]:
    yield f"key {message.__key__}"
    yield f"versions {message.__versions__}"
    yield f"flexible {message.__flexible__}"
    yield from _our_fields(message, "")


def _our_fields(struct: type[Struct], path: str) -> Iterator[str]:
    for f in struct.__fields__:
        yield line(
            f"{path}{f.name}",
            f.wire.name if f.wire is not None else "struct",
            f.is_array,
            versions=f.versions,
            nullable=f.nullable,
            tag=f.tag,
            tagged=f.tagged,
            default=_our_default(f),
            ignorable=f.ignorable,
            flexible=f.flexible,
        )
        if f.struct is not None:
            yield from _our_fields(f.struct, f"{path}{f.name}.")


def _our_default(f: Field) -> object:
    return EMPTY if f.struct is not None and not f.is_array and f.default is not None else f.fallback()


def line(name: str, kind: str, is_array: bool, **facts: object) -> str:
    array = "[]" if is_array else ""
    return f"{name}: {array}{kind}, " + ", ".join(f"{key} {value!s}" for key, value in facts.items())


# -- the tests ---------------------------------------------------------------------------------------------------------


def test_every_specification_is_declared_and_nothing_else_is() -> None:
    assert [message.__name__ for message in every_message()] == sorted(specifications())


def test_every_declaration_says_what_its_specification_says() -> None:
    specified = specifications()
    for message in every_message():
        assert list(we_say(message)) == list(kafka_says(specified[message.__name__])), message.__name__


def test_the_comparison_sees_many_fields_of_every_kind() -> None:
    """A comparison of two empty lists would pass as well."""
    lines = [text for specification in specifications().values() for text in kafka_says(specification)]
    assert len(lines) > 2500
    for kind in ("int8", "uint16", "uint32", "float64", "uuid", "records", "[]struct", "[]uuid", "bool"):
        assert any(f": {kind}, " in text for text in lines), kind


HEARTBEAT: dict[str, Any] = {"key": 12, "versions": "0-4", "flexible": "4+"}


def heartbeat(keywords: dict[str, Any] = HEARTBEAT, generation: Any = Int32, **changes: Any) -> type[Message]:
    """HeartbeatRequest once more, with something changed."""
    options: dict[str, Any] = {"default": None, "nullable": "3+"} | changes

    class HeartbeatRequest(Message, **keywords):
        group_id: String
        generation_id: generation
        member_id: String
        group_instance_id: String | None = field("3+", **options)  # type: ignore[misc]

    return HeartbeatRequest


@pytest.mark.parametrize(
    "mistaken",
    [
        heartbeat(HEARTBEAT | {"key": 13}),
        heartbeat(HEARTBEAT | {"versions": "0-3"}),
        heartbeat(HEARTBEAT | {"flexible": "3+"}),
        heartbeat(nullable="4+"),
        heartbeat(default="here"),
        heartbeat(default=REQUIRED),
        heartbeat(ignorable=True),
        heartbeat(tag=0, tagged="4+"),
        heartbeat(generation=Int16),
    ],
)
def test_a_planted_mistake_is_seen(mistaken: type[Message]) -> None:
    right = list(kafka_says(specifications()["HeartbeatRequest"]))
    assert list(we_say(heartbeat())) == right
    assert list(we_say(mistaken)) != right


def test_versions_are_written_as_kafka_writes_them() -> None:
    assert [str(VersionRange.parse(text)) for text in ("0", "3+", "0-12", "none")] == ["0", "3+", "0-12", "none"]
    assert VersionRange.parse("none") == NO_VERSIONS
