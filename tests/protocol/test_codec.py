"""Every message in every version is decoded to what was encoded; and what is not a message is refused."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import cast

import pytest
from support.declared_messages import every_message, every_version, structs_of
from support.random_messages import sample

from trioka.protocol.codec import decode, decoder, encode, encode_part, encoder
from trioka.protocol.decoding import MAX_ELEMENTS, MAX_TAGGED_FIELDS, min_encoded_size
from trioka.protocol.errors import ProtocolError
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import Bytes, Int32, Records, String, uvarint
from trioka.protocol.schema import Entry, Message, Response, Struct, field

EVERY_VERSION = every_version()


def edge_versions() -> list[tuple[type[Message], int]]:
    """The first, the first flexible and the last version of each message: where the wire's form differs."""
    found = []
    for message in every_message():
        first, last = message.__versions__
        flexible = max(first, message.__flexible__.first)
        found += [(message, version) for version in sorted({first, min(flexible, last), last})]
    return found


def test_every_message_is_decoded_as_it_was_encoded() -> None:
    for message, version in EVERY_VERSION:
        for seed in range(12):
            text = sample(message, version, Random(f"{message.__name__} {version} {seed}"))
            assert decode(message, version, encode(text, version)) == text, (message.__name__, version, seed)


def test_an_encoded_part_is_equal_to_a_decoded_one() -> None:
    for version in range(MetadataResponse.__versions__.last + 1):
        text = sample(MetadataResponse, version, Random(version), longest=5)
        topics = [encode_part(MetadataResponse, version, topic) for topic in text.topics]
        mixed = [*topics[:1], *text.topics[1:]]
        for instead in (topics, mixed):
            values = {f.name: getattr(text, f.name) for f in MetadataResponse.__fields__} | {"topics": instead}
            assert encode(MetadataResponse(**values), version) == encode(text, version), version


def test_a_part_is_encoded_only_where_its_message_and_list_allow_it() -> None:
    result = MetadataResponse.Topic(error_code=0, name="t", partitions=[])
    with pytest.raises(ProtocolError, match="not 99"):
        encode_part(MetadataResponse, 99, result)
    wrong = MetadataResponse.Topic(error_code=0, name=None, partitions=[])
    with pytest.raises(ProtocolError, match=r"MetadataResponse\.Topic v9: name"):
        encode_part(MetadataResponse, 9, wrong)
    requested = MetadataRequest.Topic(name="t")
    instead = cast(MetadataRequest.Topic, encode_part(MetadataRequest, 9, requested))
    with pytest.raises(ProtocolError, match=r"MetadataRequest v9: topics\[\]"):
        encode(MetadataRequest(topics=[instead]), 9)


def test_no_message_is_whole_before_its_last_byte() -> None:
    for message, version in EVERY_VERSION:
        whole = encode(sample(message, version, Random(version), longest=2), version)
        for size in range(len(whole)):
            with pytest.raises(ProtocolError, match=f"{message.__name__} v{version}"):
                decode(message, version, whole[:size])


def test_a_decoder_stops_where_the_message_ends() -> None:
    for message, version in EVERY_VERSION:
        text = sample(message, version, Random(version))
        whole = encode(text, version)
        view = memoryview(b"before" + whole + b"\xff\x00\x7f behind")
        assert decoder(message, version)(view, 6, MAX_ELEMENTS) == (text, 6 + len(whole))
        with pytest.raises(ProtocolError, match="left over"):
            decode(message, version, whole + b"\x00")


@pytest.mark.slow
def test_a_field_turned_into_any_other_number_is_decoded_or_refused() -> None:
    """Each byte in turn becomes the start of a number that breaks lengths, counts and signs. Nothing but an answer or a
    ProtocolError may come of it."""
    for message, version in edge_versions():
        whole = encode(sample(message, version, Random(version), longest=2), version)[:400]
        numbers = [struct.pack(">i", n) for n in (-(2**31), -1, 0, 1, 2**31 - 1, len(whole) + 1)]
        numbers += [uvarint(2**31 - 1), uvarint(len(whole) + 2), b"\xff" * 10]
        read = decoder(message, version)
        for at in range(len(whole)):
            for number in numbers:
                with suppress(ProtocolError):
                    read(memoryview(whole[:at] + number + whole[at + len(number) :]), 0, MAX_ELEMENTS)


def test_a_refusal_names_the_field() -> None:
    whole = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v0: member_id: its length is 1 where 0 bytes are left"):
        decode(HeartbeatRequest, 0, whole[:-1])
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v0: generation_id: the bytes end too early, at 5$"):
        decode(HeartbeatRequest, 0, whole[:5])
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v0: group_id: it is null$"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + whole[2:])
    with pytest.raises(ProtocolError, match=r"^HeartbeatRequest v0: group_id: it is not UTF-8$"):
        decode(HeartbeatRequest, 0, whole[:2] + b"\xff" + whole[3:])
    topics = [FetchRequest.Topic(topic="t", partitions=[])]
    text = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    with pytest.raises(
        ProtocolError, match=r"FetchRequest v4: topics\[\]\.partitions: it announces 7 elements where 0 bytes"
    ):
        decode(FetchRequest, 4, encode(text, 4)[:-4] + b"\x00\x00\x00\x07")


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest has versions 0-4, not 5"):
        decode(HeartbeatRequest, 5, b"")
    with pytest.raises(ProtocolError, match="FetchResponse has versions 4-18, not 3"):
        encode(FetchResponse(responses=[], throttle_time_ms=0), 3)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_message_has_no_more_elements_than_it_may() -> None:
    topics = [MetadataRequest.Topic(name="") for _ in range(100)]
    whole = encode(MetadataRequest(topics=topics), 0)
    assert len(decode(MetadataRequest, 0, whole, max_elements=100).topics or ()) == 100
    with pytest.raises(ProtocolError, match="topics: with its 100 elements the message has too many"):
        decode(MetadataRequest, 0, whole, max_elements=99)


def test_nested_arrays_share_one_budget() -> None:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition] * 10) for _ in range(10)]
    whole = encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 4)
    decode(FetchRequest, 4, whole, max_elements=110)
    with pytest.raises(ProtocolError, match=r"topics\[\]\.partitions: with its 10 elements"):
        decode(FetchRequest, 4, whole, max_elements=109)


MOST_BYTES_PER_BYTE = 80  # an element of two bytes may become an object with its slots and empty lists
MANY = 300


def crowded(declared: type[Struct], version: int) -> Iterator[Struct]:
    """For each array of a message, however deep: one message in which it holds many of the smallest elements."""
    for f in declared.__fields__:
        if version not in f.versions:
            continue
        if f.is_array:
            crowd = declared.with_defaults()
            element = f.struct.with_defaults() if f.struct is not None else f.wire.zero if f.wire is not None else None
            setattr(crowd, f.name, [element] * MANY)
            yield crowd
        if f.struct is not None:
            for inner in crowded(f.struct, version):
                outer = declared.with_defaults()
                setattr(outer, f.name, [inner] if f.is_array else inner)
                yield outer


@pytest.mark.slow
def test_a_small_message_never_becomes_a_large_one_in_memory() -> None:
    measured = 0
    for message in every_message():
        version = message.__versions__.last
        for crowd in crowded(message, version):
            whole = memoryview(encode(cast(Message, crowd), version))
            read = decoder(message, version)
            read(whole, 0, MAX_ELEMENTS)  # so that what is made once is not counted
            tracemalloc.start()
            decoded = read(whole, 0, MAX_ELEMENTS)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            del decoded
            assert peak < MOST_BYTES_PER_BYTE * len(whole) + 4096, (message.__name__, peak / len(whole))
            measured += 1
    assert measured > 400


def test_the_least_size_of_a_struct_is_what_its_smallest_value_takes() -> None:
    """The bound on array counts stands on it: one byte too many and a whole message would be refused."""
    for message, version in EVERY_VERSION:
        flexible = version in message.__flexible__
        smallest = message.with_defaults()
        for f in message.__fields__:
            if version in f.versions and version in f.nullable:
                setattr(smallest, f.name, None if version not in f.tagged or f.default is None else f.fallback())
        assert min_encoded_size(message, version, flexible) == len(encode(smallest, version)), (
            message.__name__,
            version,
        )


@pytest.mark.parametrize(
    ("tagged", "problem"),
    [
        (uvarint(MAX_TAGGED_FIELDS + 1), "65 tagged fields, more than 64"),
        (uvarint(2**31 - 1), "2147483647 tagged fields"),
        (b"\x01\x09" + uvarint(70_000) + bytes(70_000), "a tagged field of 70000 bytes, more than 65536"),
        (b"\x01\x09\x05\x00", "a tagged field of 5 bytes where 1 are left"),
        (b"\x02\x09\x00\x09\x00", "tag 9 comes after tag 9"),
        (b"\x02\x09\x00\x08\x00", "tag 8 comes after tag 9"),
        (b"\xff\xff\xff\xff\xff\x01", "a varint at byte .* is longer than 5 bytes"),
    ],
)
def test_tagged_fields_are_bounded(tagged: bytes, problem: str) -> None:
    whole = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    with pytest.raises(ProtocolError, match=f"tagged fields: {problem}"):
        decode(HeartbeatRequest, 4, whole[:-1] + tagged)


# -- tagged fields -----------------------------------------------------------------------------------------------------


def test_unknown_tagged_fields_are_stepped_over() -> None:
    text = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    whole = encode(text, 3)
    assert decode(ApiVersionsRequest, 3, whole[:-1] + b"\x02\x05\x01x\x90\x01\x00") == text


def test_a_known_tagged_field_takes_what_it_says_that_it_takes() -> None:
    text = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=0, finalized_features_epoch=7)
    whole = encode(text, 3)
    assert whole.endswith(b"\x01\x01\x08" + (7).to_bytes(8, "big"))
    assert decode(ApiVersionsResponse, 3, whole) == text
    with pytest.raises(ProtocolError, match="finalized_features_epoch: it takes 8 bytes, and announces 9"):
        decode(ApiVersionsResponse, 3, whole[:-9] + b"\x09" + whole[-8:] + b"\x00")


def test_a_tagged_field_that_says_nothing_is_not_sent() -> None:
    silent = encode(ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=0), 3)
    assert silent == b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00" + b"\x00"


# -- what a version cannot say -----------------------------------------------------------------------------------------


def test_a_version_without_a_field_refuses_to_drop_what_it_says() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest v2: group_instance_id: this version has no such field"):
        encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i"), 2)


def test_an_ignorable_field_is_dropped_where_there_is_no_place_for_it() -> None:
    response = FetchResponse(throttle_time_ms=0, responses=[], error_code=7)
    assert decode(FetchResponse, 4, encode(response, 4)).error_code == 0


@pytest.mark.parametrize(
    ("mistaken", "problem"),
    [
        ({"group_id": None}, "group_id"),
        ({"generation_id": 2**31}, "generation_id"),
        ({"generation_id": "one"}, "generation_id"),
        ({"group_id": "x" * 40_000}, "group_id: its length is 40000, more than 32767"),
        ({"member_id": "\ud800"}, "member_id"),
    ],
)
@pytest.mark.parametrize("version", [0, 4])
def test_a_value_that_cannot_be_encoded_is_refused_by_name(
    mistaken: dict[str, object], problem: str, version: int
) -> None:
    values: dict[str, object] = {"group_id": "g", "generation_id": 1, "member_id": "m"} | mistaken
    out = bytearray(b"frame")
    with pytest.raises(ProtocolError, match=f"^HeartbeatRequest v{version}: {problem}"):
        encoder(HeartbeatRequest, version)(HeartbeatRequest(**values), out)  # type: ignore[arg-type]


def test_a_uuid_of_another_length_is_refused() -> None:
    topic = FetchRequest.Topic(topic_id=b"short", partitions=[])
    with pytest.raises(ProtocolError, match=r"topics\[\]\.topic_id: a uuid has 16 bytes, not 5"):
        encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 13)


# -- records -----------------------------------------------------------------------------------------------------------


class Untouchable:
    """Records in a file: they have a length, and must not be read."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def fetched(*records: object) -> FetchResponse:
    partition = FetchResponse.Topic.Partition
    partitions = [
        partition(
            partition_index=i,
            error_code=0,
            high_watermark=1,
            aborted_transactions=None,
            records=r,  # type: ignore[arg-type]
        )
        for i, r in enumerate(records)
    ]
    return FetchResponse(throttle_time_ms=0, responses=[FetchResponse.Topic(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_encoder_hands_records_on_without_touching_them(version: int) -> None:
    here, there = Untouchable(5), Untouchable(100_000)
    out = bytearray(b"head")
    pieces = encoder(FetchResponse, version)(fetched(here, there, None, b""), out)
    assert pieces[0] is out
    assert pieces[1] is here
    assert pieces[3] is there
    in_memory = [bytes(len(piece)) if isinstance(piece, Untouchable) else piece for piece in pieces]
    whole = b"".join(in_memory)[4:]  # type: ignore[arg-type]
    decoded = decode(FetchResponse, version, whole).responses[0].partitions
    assert [p.records if p.records is None else len(p.records) for p in decoded] == [5, 100_000, None, 0]


def test_decoded_records_are_a_view_of_the_frame() -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=b"records")
    topics = [ProduceRequest.Topic(name="t", partition_data=[partition])]
    frame = bytearray(encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9))
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


# -- declarations ------------------------------------------------------------------------------------------------------


class Nested(Message, versions="0-2", flexible="1+"):
    class Inner(Struct):
        class Innermost(Struct):
            names: list[String] = field("1+", default=[])

        innermost: Innermost | None = field("1+", default=None)
        count: Int32

    inner: Inner | None
    several: list[Inner] | None = field("2+", default=None, tag=1, tagged="2+")
    blob: Bytes | None = field(default=None)
    records: Records | None = field(default=None)


def test_structs_nest_may_be_null_and_may_be_tagged() -> None:
    inner = Nested.Inner(count=1, innermost=Nested.Inner.Innermost(names=["a", ""]))
    for text in (
        Nested(inner=None),
        Nested(inner=inner, several=[inner, Nested.Inner(count=2)], blob=b"", records=b"r"),
        Nested(inner=Nested.Inner(count=3), several=[]),
    ):
        assert decode(Nested, 2, encode(text, 2)) == text
    with pytest.raises(ProtocolError, match=r"Nested v0: inner\.innermost: this version has no such field"):
        encode(Nested(inner=inner), 0)


def test_lists_and_structs_that_are_not_given_are_not_shared() -> None:
    one, other = (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]) for _ in range(2))
    assert one.forgotten_topics_data is not other.forgotten_topics_data
    assert one.replica_state is not other.replica_state
    assert one == other


def test_a_message_without_a_required_field_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="member_id"):
        HeartbeatRequest(group_id="g", generation_id=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unheard"):
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m", unheard=1)  # type: ignore[call-arg]


def test_messages_are_slotted_and_printed_whole() -> None:
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert repr(heartbeat) == "HeartbeatRequest(group_id='g', generation_id=1, member_id='m', group_instance_id=None)"
    assert heartbeat != HeartbeatRequest(group_id="g", generation_id=1, member_id="n")
    with pytest.raises(AttributeError):
        heartbeat.other = 1  # type: ignore[attr-defined]
    for message in every_message():
        for declared in structs_of(message):
            assert not hasattr(declared.with_defaults(), "__dict__"), declared


def test_a_compiled_codec_can_be_read_in_a_debugger() -> None:
    import linecache

    decode(HeartbeatRequest, 4, encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4))
    assert "def HeartbeatRequest_v4(buffer, p, budget):" in linecache.getline("<trioka decoder HeartbeatRequest_v4>", 1)


def test_keys_say_which_api_or_entry_it_is() -> None:
    for message in every_message():
        if issubclass(message, Response | Entry) and message.__module__ != "trioka.protocol.header":
            assert message.__key__ is not None or issubclass(message, Entry), message
