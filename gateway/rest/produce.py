"""POST /topics/T and /topics/T/partitions/P: records of a request, written with acks=all.

    {"records": [{"key": …, "value": …, "partition": 0, "timestamp": 1700000000000,
                  "headers": [{"name": "a", "value": "YmFzZTY0"}]}],
     "value_schema": "…", "value_schema_id": 7, "key_schema": …, "key_schema_id": …}

The response has a place for each record: its partition and offset, or an error. Records of different partitions are
written by a request each, so one may fail and others not.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trioka.protocol.errors import KafkaError

from ..clients import CallerClients
from ..failures import Refused
from ..v1 import log_pb2, types_pb2
from .errors import KAFKA_ERROR, KAFKA_RETRIABLE, RestError, as_rest_error
from .formats import WITH_SCHEMA, to_bytes
from .requests import JsonObject, list_of, name_of, object_of, whole

if TYPE_CHECKING:
    from .schemas import Codec, SchemaCodecs

MAX_RECORDS: Final = 10_000
MAX_HEADERS: Final = 1000
MAX_PARTITION: Final = 2**31 - 1
SIDES: Final = ("key", "value")


class Parsed(NamedTuple):
    partition: int | None
    record: types_pb2.Record


class Produced(NamedTuple):
    records: list[Parsed]
    codecs: "dict[str, Codec]"


def registers(body: object) -> bool:
    """Whether the request brings the text of a schema."""
    return isinstance(body, dict) and any(body.get(f"{side}_schema") is not None for side in SIDES)


def parse(topic: str, partition: int | None, form: str, body: object, codecs: "Callable[[], SchemaCodecs]") -> Produced:
    """The records of a request. Blocks, if they have schemas; `codecs` is called only then."""
    found = object_of(body)
    rows = [object_of(each) for each in list_of(found, "records", MAX_RECORDS)]
    if not rows:
        raise RestError(422, "The field 'records' is empty.")
    known: dict[str, Codec] = {}
    if form in WITH_SCHEMA:
        for side in SIDES:
            text, number = found.get(f"{side}_schema"), found.get(f"{side}_schema_id")
            if text is not None or number is not None or any(row.get(side) is not None for row in rows):
                known[side] = codecs().codec(f"{topic}-{side}", form, text, number)

    def convert(side: str, value: Any) -> bytes | None:
        return codecs().encode(known[side], value) if side in known else to_bytes(value, form)

    return Produced([_parsed(row, partition, convert) for row in rows], known)


def _parsed(row: JsonObject, partition: int | None, convert: Callable[[str, Any], bytes | None]) -> Parsed:
    where = partition
    if row.get("partition") is not None:
        if partition is not None:
            raise RestError(422, "A record names no partition where the address names one.")
        where = whole(row["partition"], "partition", 0, MAX_PARTITION)
    record = types_pb2.Record(key=convert("key", row.get("key")), value=convert("value", row.get("value")))
    if row.get("timestamp") is not None:
        record.timestamp_ms = whole(row["timestamp"], "timestamp", 0)
    for each in list_of(row, "headers", MAX_HEADERS) if row.get("headers") is not None else ():
        record.headers.append(_header(object_of(each)))
    return Parsed(where, record)


def _header(found: JsonObject) -> types_pb2.Header:
    """The dialects call a header's key `name` (Confluent) or `key` (Strimzi)."""
    value = found.get("value")
    try:
        data = None if value is None else base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise RestError(422, "The value of a header must be a string of base64, or null.") from None
    return types_pb2.Header(key=name_of(found.get("name", found.get("key")), "name of a header"), value=data)


async def produce(clients: CallerClients, topic: str, produced: Produced) -> dict[str, Any]:
    """Write, and return the body of the response."""
    metadata = await clients.cluster.topic(topic)
    groups: dict[int | None, list[int]] = {}
    for index, each in enumerate(produced.records):
        if each.partition is not None and each.partition not in metadata.leaders:
            raise RestError(40402, f"Topic '{topic}' has no partition {each.partition}.")
        groups.setdefault(each.partition, []).append(index)
    writer = clients.writer(log_pb2.ACKS_ALL)
    futures = {}
    results: list[dict[str, Any]] = [{} for _ in produced.records]
    for partition, indexes in groups.items():
        try:
            futures[partition] = writer.write(topic, partition, [produced.records[each].record for each in indexes])
        except Refused as error:
            _fail(results, indexes, error)
    await asyncio.gather(*futures.values(), return_exceptions=True)
    for partition, future in futures.items():
        try:
            for index, (where, offset) in zip(groups[partition], future.result().positions, strict=True):
                results[index] = {
                    "partition": where,
                    "offset": offset,
                    "error_code": None,
                    "error": None,
                }
        except (KafkaError, Refused) as error:
            _fail(results, groups[partition], error)
    ids = {f"{side}_schema_id": produced.codecs[side].id if side in produced.codecs else None for side in SIDES}
    return {**ids, "offsets": results}


def _fail(results: list[dict[str, Any]], indexes: list[int], error: Exception) -> None:
    found = as_rest_error(error)
    is_retriable = getattr(error, "retriable", False)
    text = "" if found is None else found.message
    for index in indexes:
        results[index] = {
            "partition": None,
            "offset": None,
            "error_code": KAFKA_RETRIABLE if is_retriable else KAFKA_ERROR,
            "error": text,
        }
