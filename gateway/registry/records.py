"""The records of `_schemas`, byte for byte as Confluent's registry writes them: compact JSON, in this order.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":"orders-value","version":1,"id":7,"schemaType":"PROTOBUF",
            "references":[{"name":"a.proto","subject":"a","version":1}],"schema":"…","deleted":false}

    key    {"keytype":"CONFIG","subject":"orders-value","magic":0}   value {"subject":…,"compatibilityLevel":"FULL"}
    key    {"keytype":"MODE","subject":"orders-value","magic":0}     value {"subject":…,"mode":"READONLY"}
    key    {"keytype":"DELETE_SUBJECT","subject":"…","magic":0}      value {"subject":…,"version":3}
    key    {"keytype":"CLEAR_SUBJECT","subject":"…","magic":0}       value {"subject":…}
    key    {"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}  value {"tenant":"default","context":".x"}
    key    {"keytype":"NOOP","magic":0}                              no value

This is how version 8 writes them. Version 7 left out the schema type AVRO, and all versions leave out empty lists and
null. The topic is compacted by the bytes of the keys, so the fields of a key are never written in another order. CONFIG
and MODE without a subject are those of all subjects; older versions wrote `"subject":null` there, and both are read.
Fields that this registry does not know, such as rule sets, are kept when a value is written again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
SCHEMA_TYPES: Final = (JSON, PROTOBUF, AVRO)
SCHEMA, CONFIG, MODE, NOOP = "SCHEMA", "CONFIG", "MODE", "NOOP"
DELETE_SUBJECT, CLEAR_SUBJECT, CONTEXT = "DELETE_SUBJECT", "CLEAR_SUBJECT", "CONTEXT"
MAX_INT32: Final = 2**31 - 1

JsonObject: TypeAlias = Mapping[str, Any]


class Record(NamedTuple):
    """A record to append; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


class BadRecord(ValueError):
    """A record of the topic that is none of the above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    subject: str
    version: int
    id: int
    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    is_deleted: bool = False
    unknown: JsonObject = field(default_factory=dict)  # fields of the value that are only kept


class Key(NamedTuple):
    """A key of the topic. `subject` of a CONTEXT is the context's name."""

    keytype: str
    subject: str | None
    version: int = 0


def dump(value: JsonObject) -> bytes:
    """Compact JSON in UTF-8, as Jackson writes it."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        return json.dumps(value, separators=(",", ":")).encode()


def schema_key(subject: str, version: int) -> bytes:
    return dump({"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1})


def subject_key(keytype: str, subject: str | None) -> bytes:
    """The key of a CONFIG, MODE, DELETE_SUBJECT or CLEAR_SUBJECT."""
    return dump({"keytype": keytype, **_named(subject), "magic": 0})


def _named(subject: str | None) -> JsonObject:
    return {} if subject is None else {"subject": subject}


def schema_record(schema: StoredSchema) -> Record:
    value: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if "md5" in schema.unknown:
        value["md5"] = schema.unknown["md5"]
    value["schemaType"] = schema.schema_type
    if schema.references:
        value["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        value["metadata"] = schema.metadata
    if "ruleSet" in schema.unknown:
        value["ruleSet"] = schema.unknown["ruleSet"]
    value["schema"] = schema.text
    value["deleted"] = schema.is_deleted
    return Record(schema_key(schema.subject, schema.version), dump(value | dict(schema.unknown)))


def schema_tombstone(subject: str, version: int) -> Record:
    return Record(schema_key(subject, version), None)


def config_record(subject: str | None, config: JsonObject | None) -> Record:
    """`config` has the fields of the value without the subject; None deletes."""
    value = None if config is None else dump({**_named(subject), **config})
    return Record(subject_key(CONFIG, subject), value)


def mode_record(subject: str | None, mode: str | None) -> Record:
    return Record(subject_key(MODE, subject), None if mode is None else dump({**_named(subject), "mode": mode}))


def delete_subject_record(subject: str, version: int) -> Record:
    return Record(subject_key(DELETE_SUBJECT, subject), dump({"subject": subject, "version": version}))


def clear_subject_record(subject: str | None) -> Record:
    return Record(subject_key(CLEAR_SUBJECT, subject), dump(_named(subject)))


def context_record(context: str) -> Record:
    named = {"tenant": "default", "context": context}
    return Record(dump({"keytype": CONTEXT, **named, "magic": 0}), dump(named))


def noop_record() -> Record:
    return Record(dump({"keytype": NOOP, "magic": 0}), None)


def guid_of(schema: StoredSchema) -> str | None:
    """Confluent's identity of a schema in all contexts and registries: MD5 of its text and its references, as a UUID.

    None with metadata or rules: what of them is counted is not known here.
    """
    if schema.metadata is not None or schema.unknown.get("ruleSet") is not None:
        return None
    digest = hashlib.md5(schema.text.encode("utf-8", "replace"), usedforsecurity=False)
    for each in schema.references:
        digest.update(each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big"))
    return str(UUID(bytes=digest.digest()))


# -- reading -----------------------------------------------------------------------------------------------------------


def load(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadRecord("no JSON object")
    return found


def decode_key(data: bytes) -> Key:
    found = load(data)
    keytype, subject = found.get("keytype"), found.get("subject")
    if keytype == SCHEMA:
        if found.get("magic") not in (0, 1) or not isinstance(subject, str):
            raise BadRecord("a key of a schema without subject, or with another magic than 0 and 1")
        return Key(SCHEMA, subject, _number(found, "version", 1))
    if keytype == CONTEXT:
        return Key(CONTEXT, _string(found, "context"))
    if keytype in (CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT):
        if subject is not None and not isinstance(subject, str):
            raise BadRecord("a subject that is no string")
        return Key(keytype, subject)
    return Key(str(keytype), None)


KNOWN: Final = ("subject", "version", "id", "schemaType", "references", "metadata", "schema", "deleted")
WITHOUT_MEANING: Final = ("offset", "ts")  # of a copy in memory; a value that is written again has others


def decode_schema(data: bytes) -> StoredSchema:
    found = load(data)
    references = found.get("references") or []
    metadata = found.get("metadata")
    if not isinstance(references, list) or not isinstance(metadata, dict | None):
        raise BadRecord("references that are no list, or metadata that are no object")
    return StoredSchema(
        subject=_string(found, "subject"),
        version=_number(found, "version", 1),
        id=_number(found, "id", 0),
        text=_string(found, "schema"),
        schema_type=found.get("schemaType") or AVRO,
        references=tuple(decode_reference(each) for each in references),
        metadata=metadata,
        is_deleted=found.get("deleted") is True,
        unknown={name: found[name] for name in found if name not in (*KNOWN, *WITHOUT_MEANING)},
    )


def decode_reference(found: object) -> Reference:
    if not isinstance(found, dict):
        raise BadRecord("a reference must be an object with name, subject and version")
    return Reference(_string(found, "name"), _string(found, "subject"), _number(found, "version", 1))


def _number(found: JsonObject, name: str, least: int) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_INT32:
        raise BadRecord(f"{name} must be a number of at least {least}")
    return value


def _string(found: JsonObject, name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise BadRecord(f"{name} must be a string")
    return value
