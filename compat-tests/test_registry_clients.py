"""Clients of other projects on the schema registry: confluent-kafka, python-schema-registry-client, franz-go and two
of Node.

They register, evolve and look up schemas of all formats, with references, and records go through the broker in the
frames that their serializers write.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from toolchains import go_program, node_registry, unavailable

from trioka.gateway.registry.formats.protobuf import MAIN, compile_files
from trioka.pipeline.installation.cache import Unavailable
from trioka.testing import Broker

sys.path.insert(0, "tests")
from support.gateway import GatewayUnderTest

try:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from schema_registry.client import SchemaRegistryClient as OtherClient
    from schema_registry.client.schema import AvroSchema as OtherAvro
    from schema_registry.client.schema import JsonSchema as OtherJson
    from schema_registry.serializers.message_serializer import AvroMessageSerializer, JsonMessageSerializer

    MISSING = None
except ImportError as error:
    MISSING = f"{error.name} is not installed."

pytestmark = pytest.mark.filterwarnings("ignore")  # clients that do not close their connections


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def url(kafka: Broker) -> Iterator[str]:
    if MISSING is not None:
        unavailable(Unavailable(MISSING))
    with GatewayUnderTest(kafka.bootstrap_servers, "--registry") as gateway:
        yield gateway.http


@pytest.fixture
def client(url: str) -> "SchemaRegistryClient":
    return SchemaRegistryClient({"url": url})


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)})


ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def through(kafka: Broker, topic: str, data: bytes) -> bytes:
    """What a consumer gets of it."""
    kafka.produce(topic, data)
    value = kafka.consume(topic)[0].value
    assert isinstance(value, bytes)
    return value


def test_avro_records_are_written_and_read_by_a_later_schema(kafka: Broker, client: "SchemaRegistryClient") -> None:
    kafka.create_topic("avro")
    context = SerializationContext("avro", MessageField.VALUE)
    data = AvroSerializer(client, avro(ID))({"id": 7}, context)
    AvroSerializer(client, avro(ID, NOTE))({"id": 8, "note": "x"}, context)
    assert client.get_versions("avro-value") == [1, 2]
    read = AvroDeserializer(client, avro(ID, NOTE))(through(kafka, "avro", data), context)
    assert read == {"id": 7, "note": None}


def test_avro_references_are_followed(kafka: Broker, client: "SchemaRegistryClient") -> None:
    kafka.create_topic("avro-ref")
    client.register_schema("shop.Order", Schema(avro(ID), "AVRO"))
    reference = SchemaReference("shop.Order", "shop.Order", 1)
    schema = Schema(json.dumps({"type": "array", "items": "shop.Order"}), "AVRO", [reference])
    context = SerializationContext("avro-ref", MessageField.VALUE)
    data = AvroSerializer(client, schema)([{"id": 1}, {"id": 2}], context)
    assert AvroDeserializer(client)(through(kafka, "avro-ref", data), context) == [{"id": 1}, {"id": 2}]


def test_json_records_are_written_and_read_with_references(kafka: Broker, client: "SchemaRegistryClient") -> None:
    kafka.create_topic("json")
    client.register_schema("money", Schema('{"$id":"http://shop/money.json","type":"number"}', "JSON"))
    text = json.dumps(
        {
            "$id": "http://shop/order.json",
            "title": "Order",
            "type": "object",
            "properties": {"price": {"$ref": "money.json"}},
            "additionalProperties": False,
        }
    )
    schema = Schema(text, "JSON", [SchemaReference("http://shop/money.json", "money", 1)])
    context = SerializationContext("json", MessageField.VALUE)
    data = JSONSerializer(schema, client)({"price": 2.5}, context)
    read = JSONDeserializer(schema, schema_registry_client=client)(through(kafka, "json", data), context)
    assert read == {"price": 2.5}
    narrower = text.replace("additionalProperties", "maxProperties").replace("false", "0")
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("json-value", Schema(narrower, "JSON", schema.references))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)


ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
ORDER = """syntax = "proto3";
package shop;
import "shop/item.proto";
import "google/protobuf/timestamp.proto";
message Order { int32 id = 1; repeated Item items = 2; google.protobuf.Timestamp at = 3; }
"""


def protobuf_class(text: str) -> Any:
    """The class of messages shop.Order, as generated code has it."""
    pool = DescriptorPool()
    for name, descriptor in compile_files({"shop/item.proto": ITEM, MAIN: text}).items():
        if name == MAIN:
            descriptor.name = "shop/order.proto"
        pool.Add(descriptor)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_records_are_written_and_read_with_their_imports(
    kafka: Broker, client: "SchemaRegistryClient"
) -> None:
    kafka.create_topic("proto")
    context = SerializationContext("proto", MessageField.VALUE)
    first, second = protobuf_class(ORDER), protobuf_class(ORDER.replace("int32 id", "string note = 4; int32 id"))
    data = ProtobufSerializer(first, client)(first(id=7, items=[{"name": "x"}]), context)
    ProtobufSerializer(second, client)(second(note="later"), context)  # the serializer registers imports, too
    assert client.get_versions("proto-value") == [1, 2]
    read = ProtobufDeserializer(second, {}, client)(through(kafka, "proto", data), context)
    assert (read.id, read.items[0].name, read.note) == (7, "x", "")
    found = client.get_version("proto-value", 1).schema
    assert found.schema_type == "PROTOBUF"
    assert next(iter(found.references or ())).name == "shop/item.proto"
    assert client.get_versions("shop/item.proto") == [1]
    changed = protobuf_class(ORDER.replace("int32 id", "string id"))
    with pytest.raises(SchemaRegistryError) as caught:
        ProtobufSerializer(changed, client)(changed(), context)
    assert caught.value.http_status_code == 409


def test_levels_deletions_and_lookups_of_confluents_client(client: "SchemaRegistryClient") -> None:
    number = client.register_schema("life", Schema(avro(ID), "AVRO"))
    assert client.get_schema(number).schema_str == client.get_version("life", "latest").schema.schema_str
    assert client.lookup_schema("life", Schema(avro(ID), "AVRO")).version == 1
    assert client.test_compatibility("life", Schema(avro({"name": "id", "type": "string"}), "AVRO")) is False
    client.set_compatibility("life", "FULL")
    assert client.get_compatibility("life") == "FULL"
    assert client.delete_version("life", 1) == 1
    assert client.delete_subject("life", permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_latest_version("life")
    assert caught.value.http_status_code == 404


def test_python_schema_registry_client_registers_evolves_and_reads(kafka: Broker, url: str) -> None:
    client = OtherClient(url=url)
    first, second = OtherAvro(avro(ID)), OtherAvro(avro(ID, NOTE))
    number = client.register("other", first)
    assert client.register("other", first) == number
    assert client.test_compatibility("other", second)
    assert not client.test_compatibility("other", OtherAvro(avro({"name": "id", "type": "string"})))
    checked = client.check_version("other", first)
    assert checked is not None and checked.version == 1
    client.update_compatibility("NONE", subject="other")
    assert client.get_compatibility("other") == "NONE"
    assert client.register("other", second) > number
    assert client.get_versions("other") == [1, 2]
    kafka.create_topic("other")
    serializer = AvroMessageSerializer(client)
    data = serializer.encode_record_with_schema("other", second, {"id": 1, "note": "x"})
    assert serializer.decode_message(through(kafka, "other", data)) == {"id": 1, "note": "x"}
    by_json = JsonMessageSerializer(client)
    kafka.create_topic("other-json")
    for form in (
        '{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}',
        '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":"string"}},"additionalProperties":false}',
    ):
        data = by_json.encode_record_with_schema("other-json", OtherJson(form), {"id": 1})
    assert by_json.decode_message(through(kafka, "other-json", data)) == {"id": 1}
    assert client.get_versions("other-json") == [1, 2]
    assert client.get_by_id(number) is not None
    assert client.delete_version("other", 1) == 1
    assert client.delete_subject("other") == [2]
    assert "other" not in client.get_subjects()


@pytest.mark.nightly
def test_franz_go_registers_evolves_and_deletes() -> None:
    try:
        program = go_program("registry")
    except Unavailable as missing:
        unavailable(missing)
    with Broker() as kafka:
        done = subprocess.run([*program, kafka.registry_url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        '1 1 {"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}',
        "2 3 4 [go-avro go-json go-proto go-ref]",
        "false",
        "FULL <nil>",
        "1 3",
        "[1] [1]",
        "[0 0 0 0 1]",
        *(
            " ".join(f"{version} {form} [{{{name} part-{form} 1}}]" for version in (1, 2, 2)) + " [1 2]"
            for form, name in (("AVRO", "n.Part"), ("JSON", "http://n/part.json"), ("PROTOBUF", "part.proto"))
        ),
        "2.5 [10 0]",
    ]


@pytest.mark.nightly
def test_the_two_clients_of_node_round_trip_all_formats_and_read_each_other(url: str) -> None:
    try:
        program, environment = node_registry()
    except Unavailable as missing:
        unavailable(missing)
    words = [*program, url, base64.b64encode(node_descriptors()).decode()]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    value = {"id": 7, "item": {"name": "x"}}
    values = {"AVRO": value, "JSON": {"price": 2.5}, "PROTOBUF": value}
    parts = {"AVRO": "shop.Item", "JSON": "http://shop/money.json", "PROTOBUF": "shop/item.proto"}
    expected: list[object] = []
    for form in ("AVRO", "JSON", "PROTOBUF"):
        expected += [["kafkajs", form, True, True, values[form], 409], ["kafkajs", form, "latest", True]]
    for form in ("AVRO", "JSON", "PROTOBUF"):
        read = None if form == "PROTOBUF" else values[form]
        reference = {"name": parts[form], "subject": f"confluent-{form}-part", "version": 1}
        expected += [
            ["confluent", form, True, True, read, False, 409],
            ["confluent", form, [1, 2], [reference]],
            ["confluent", form, "FULL", [1], [1]],
        ]
    imported = {"name": "shop/item.proto", "subject": "shop/item.proto", "version": 1}
    expected += [["confluent", "PROTOBUF", 7, "x", [1]], ["confluent", "PROTOBUF", [imported]]]
    expected += [["across", form, values[form]] for form in ("AVRO", "AVRO", "JSON", "JSON")]
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected


def node_descriptors() -> bytes:
    """The messages that the program makes, as a FileDescriptorSet."""
    order = 'syntax = "proto3"; package shop; import "shop/item.proto"; message Order { int32 id = 1; Item item = 2; }'
    found = FileDescriptorSet()
    for name, descriptor in compile_files({"shop/item.proto": ITEM, MAIN: order}).items():
        if name == MAIN:
            descriptor.name = "shop/order.proto"
        found.file.append(descriptor)
    return bytes(found.SerializeToString())
