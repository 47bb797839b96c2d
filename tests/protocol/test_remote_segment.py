"""The objects of a tiered segment: what is written is read, keys have one spelling, every damaged bit is noticed."""

import json
from contextlib import suppress
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed

from trioka.protocol.checksum import crc32c
from trioka.protocol.compression import Codec
from trioka.protocol.errors import ProtocolError
from trioka.protocol.primitives import uuid_from_text
from trioka.protocol.remote_segment import indexes as indexes_module
from trioka.protocol.remote_segment import manifest as manifest_module
from trioka.protocol.remote_segment import object_key as key_module
from trioka.protocol.remote_segment.indexes import (
    AbortedTransaction,
    IndexRange,
    IndexRanges,
    InvalidIndexes,
    LeaderEpoch,
    SegmentIndexes,
    decode_indexes,
    decode_leader_epochs,
    decode_offset_index,
    decode_time_index,
    decode_transactions,
    encode_leader_epochs,
    encode_transactions,
)
from trioka.protocol.remote_segment.json_fields import InvalidManifest, UnsupportedManifest
from trioka.protocol.remote_segment.manifest import (
    SegmentContent,
    SegmentManifest,
    Tombstone,
    Uploader,
    decode_manifest,
    encode_manifest,
    encode_tombstone,
)
from trioka.protocol.remote_segment.object_key import (
    ObjectSuffix,
    RemoteSegment,
    TopicIdPartition,
    parse_key,
    parse_topic_directory,
)

TOPIC_ID = uuid_from_text("MWJ6FHTfRYy67jzwZdeqSQ")
SEGMENT = RemoteSegment(TopicIdPartition(TOPIC_ID, "topic", 7), 1234, uuid_from_text("tqimKeZwStOEOwRzT3L5oQ"))
KEY = "topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ"
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=30).filter(lambda name: name not in (".", ".."))
UUIDS = st.binary(min_size=16, max_size=16)
OFFSETS = st.integers(0, (1 << 63) - 1)
RANGES = IndexRanges(
    offset=IndexRange(0, 16),
    timestamp=IndexRange(16, 24),
    producer_snapshot=IndexRange(40, 10),
    leader_epoch=IndexRange(50, 8),
    transaction=IndexRange(58, 34),
)
MANIFEST = SegmentManifest(
    segment=SEGMENT,
    end_offset=2000,
    max_timestamp_ms=1_700_000_000_500,
    broker_id=3,
    event_timestamp_ms=1_700_000_100_000,
    leader_epochs=(LeaderEpoch(4, 1234), LeaderEpoch(6, 1500)),
    size=9 * 1024 * 1024,
    indexes=RANGES,
    uploader=Uploader(cluster_id="q1Sh-9_ISia_zwGINzRvyQ", incarnation=1, leader_epoch=6),
    content=SegmentContent(
        crc32c=0xDEADBEEF,
        indexes_crc32c=17,
        min_timestamp_ms=1_700_000_000_000,
        records=767,
        batches=90,
        control_batches=2,
        codecs=frozenset({Codec.NONE, Codec.ZSTD}),
        retention_until_ms=None,
    ),
)
TOMBSTONE = Tombstone(
    segment=SEGMENT,
    broker_id=3,
    event_timestamp_ms=1_700_000_100_000,
    uploader=Uploader(cluster_id="q1Sh-9_ISia_zwGINzRvyQ", incarnation=1, leader_epoch=7),
)

# --- keys


def test_keys_are_those_of_the_plugin() -> None:
    assert SEGMENT.key(ObjectSuffix.LOG, "someprefix/") == f"someprefix/{KEY}.log"
    assert SEGMENT.key(ObjectSuffix.INDEXES) == f"{KEY}.indexes"
    assert SEGMENT.key(ObjectSuffix.MANIFEST, "/a/b") == f"a/b/{KEY}.rsm-manifest"


@given(NAMES, UUIDS, st.integers(0, (1 << 31) - 1), OFFSETS, UUIDS, st.sampled_from(ObjectSuffix))
def test_a_key_is_parsed_back(
    topic: str, topic_id: bytes, partition: int, offset: int, segment_id: bytes, suffix: ObjectSuffix
) -> None:
    segment = RemoteSegment(TopicIdPartition(topic_id, topic, partition), offset, segment_id)
    for prefix in ("", "p/q"):
        assert parse_key(segment.key(suffix, prefix), prefix) == (segment, suffix)
    assert parse_topic_directory(segment.key(suffix).split("/")[0]) == (topic, topic_id)


@pytest.fixture
def keys() -> ModuleType:
    return key_module


def test_a_key_has_one_spelling(keys: ModuleType) -> None:
    for wrong in (
        f"{KEY}.txt",
        f"{KEY}.log.bak",
        f"/{KEY}.log",
        f"x/{KEY}.log",
        f"{KEY}.log".replace("/7/", "/07/"),
        f"{KEY}.log".replace("/7/", "/2147483648/"),
        f"{KEY}.log".replace("/7/", "/-7/"),
        f"{KEY}.log".replace("0000000000000000123", "123"),
        f"{KEY}.log".replace("00000000000000001234", "99999999999999999999"),
        f"{KEY}.log".replace("5oQ", "5oR"),  # the same sixteen bytes
        f"{KEY}.log".replace("deqSQ", "deqSR"),
        f"{KEY}.log".replace("topic-", "..-"),
        f"{KEY}.log".replace("topic-", "to pic-"),
        "_trioka/q1Sh/incarnation-0000000001.json",
        "",
    ):
        with pytest.raises(ProtocolError):
            keys.parse_key(wrong)


# --- indexes


def test_indexes_lie_one_behind_the_other() -> None:
    content = SegmentIndexes(
        offset=b"o" * 8, timestamp=b"t" * 12, producer_snapshot=b"", leader_epoch=b"e" * 5, transaction=None
    )
    data = content.encode()
    assert data == b"o" * 8 + b"t" * 12 + b"e" * 5
    assert content.ranges().leader_epoch == IndexRange(20, 5)
    assert decode_indexes(data, content.ranges()) == content
    for wrong in (data[:-1], data + b"x"):
        with pytest.raises(InvalidIndexes):
            decode_indexes(wrong, content.ranges())


@pytest.fixture
def indexes() -> ModuleType:
    return indexes_module


def test_leader_epochs_are_those_of_the_checkpoint(indexes: ModuleType) -> None:
    epochs = (LeaderEpoch(0, 0), LeaderEpoch(3, 17), LeaderEpoch(7, 30))
    text = b"0\n3\n0 0\n3 17\n7 30\n"
    assert encode_leader_epochs(epochs) == text
    assert indexes.decode_leader_epochs(text) == epochs
    wrong_texts = [text[:cut] for cut in range(len(text))]
    wrong_texts += [b"1" + text[1:], text + b"8 40\n", b"0\n2\n3 17\n0 30\n", b"0\n2\n0 17\n3 17\n", b"0\n1\n00 1\n"]
    for wrong in wrong_texts:
        with pytest.raises(InvalidIndexes if indexes is indexes_module else Exception):
            indexes.decode_leader_epochs(wrong)


def test_aborted_transactions_are_parsed_back_and_checked(indexes: ModuleType) -> None:
    entries = [AbortedTransaction(5, 10, 20, 10), AbortedTransaction(6, 12, 25, 21)]
    data = encode_transactions(entries)
    assert len(data) == 68
    assert [tuple(entry) for entry in indexes.decode_transactions(data)] == entries
    for wrong in (
        data[:-1],
        b"\1" + data[1:],
        encode_transactions(reversed(entries)),
        encode_transactions([AbortedTransaction(5, 10, 10, 10)]),
        encode_transactions([AbortedTransaction(5, 10, 20, 22)]),
        encode_transactions([AbortedTransaction(-1, 10, 20, 10)]),
    ):
        with pytest.raises(ProtocolError):
            indexes.decode_transactions(wrong)


def test_offsets_and_timestamps_rise(indexes: ModuleType) -> None:
    data = bytes.fromhex("00000003 00000100 00000009 00000200")
    assert [tuple(entry) for entry in indexes.decode_offset_index(data, 100)] == [(103, 256), (109, 512)]
    times = bytes.fromhex("0000000000000064 00000002 00000000000000c8 00000009")
    assert [tuple(entry) for entry in indexes.decode_time_index(times, 100)] == [(100, 102), (200, 109)]
    for decode, wrong in (
        (indexes.decode_offset_index, data[:-1]),
        (indexes.decode_offset_index, data[8:] + data[:8]),
        (indexes.decode_time_index, times[:-1]),
        (indexes.decode_time_index, times[12:] + times[:12]),
    ):
        with pytest.raises(ProtocolError):
            decode(wrong, 100)


@given(st.binary(max_size=300))
def test_any_bytes_are_indexes_or_a_protocol_error(data: bytes) -> None:
    for decode in (decode_leader_epochs, decode_transactions):
        with suppress(ProtocolError):
            decode(data)
    for decode_from in (decode_offset_index, decode_time_index):
        with suppress(ProtocolError):
            decode_from(data, 0)


# --- manifests


@pytest.fixture
def manifests() -> ModuleType:
    return manifest_module


def test_a_manifest_has_the_fields_of_the_plugin_in_its_order() -> None:
    document = json.loads(encode_manifest(MANIFEST))
    assert list(document) == ["version", "chunkIndex", "segmentIndexes", "compression", "remoteLogSegmentMetadata"]
    metadata = document["remoteLogSegmentMetadata"]
    block = metadata.pop("trioka")
    assert document["version"] == "1" and document["compression"] is False
    assert document["chunkIndex"] == {
        "type": "fixed",
        "originalChunkSize": 4194304,
        "originalFileSize": 9437184,
        "transformedChunkSize": 4194304,
        "finalTransformedChunkSize": 1048576,
    }
    assert document["segmentIndexes"]["leaderEpoch"] == {"position": 50, "size": 8}
    assert metadata == {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": "MWJ6FHTfRYy67jzwZdeqSQ",
                "topicPartition": {"topic": "topic", "partition": 7},
            },
            "id": "tqimKeZwStOEOwRzT3L5oQ",
        },
        "startOffset": 1234,
        "endOffset": 2000,
        "maxTimestampMs": 1_700_000_000_500,
        "brokerId": 3,
        "eventTimestampMs": 1_700_000_100_000,
        "segmentLeaderEpochs": {"4": 1234, "6": 1500},
    }
    assert (block["format"], block["codecs"], block["retentionUntilMs"]) == (1, ["none", "zstd"], None)


def test_manifests_and_tombstones_are_read_back(manifests: ModuleType) -> None:
    assert str(manifests.decode_manifest(encode_manifest(MANIFEST))) == str(MANIFEST)
    assert str(manifests.decode_manifest(encode_tombstone(TOMBSTONE))) == str(TOMBSTONE)
    for size in (1, 4 * 1024 * 1024, 4 * 1024 * 1024 + 1, (1 << 31) - 1):
        sized = replace(MANIFEST, size=size)
        assert str(manifests.decode_manifest(manifests.encode_manifest(sized))) == str(sized)


def foreign_document() -> dict[str, object]:
    """A manifest as Kafka writes it with the plugin."""
    document: dict[str, object] = json.loads(encode_manifest(MANIFEST))
    metadata = document["remoteLogSegmentMetadata"]
    assert isinstance(metadata, dict)
    del metadata["trioka"]
    return document


def test_a_manifest_of_kafka_has_no_block_and_is_read() -> None:
    document = foreign_document()
    metadata = document["remoteLogSegmentMetadata"]
    assert isinstance(metadata, dict)
    metadata["txnIdxEmpty"] = False
    decoded = decode_manifest(json.dumps(document).encode())
    assert isinstance(decoded, SegmentManifest)
    assert decoded.content is None and decoded.uploader_epoch == 6
    assert decoded.next_offset == 2001


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "2"}, "version '2'"),
        ({"compression": True}, "compressed"),
        ({"encryption": {"dataKey": "k", "aad": "a"}}, "encrypted"),
        ({"chunkIndex": {"type": "variable", "transformedChunks": "A"}}, "variable"),
        ({"segmentFormat": "iceberg"}, "segmentFormat"),
    ],
)
def test_what_is_not_a_raw_segment_is_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedManifest, match=words):
        decode_manifest(json.dumps(foreign_document() | change).encode())


def test_an_unknown_field_is_refused_by_name() -> None:
    text = json.dumps(foreign_document()).replace('"brokerId"', '"rackId": "a", "brokerId"')
    with pytest.raises(UnsupportedManifest, match=r"remoteLogSegmentMetadata.'rackId'"):
        decode_manifest(text.encode())


def test_a_later_format_is_refused_by_its_number() -> None:
    data = encode_manifest(MANIFEST).replace(b'"format":1', b'"format":2')
    with pytest.raises(UnsupportedManifest, match="format 2"):
        decode_manifest(data)


@pytest.mark.parametrize("written", [encode_manifest(MANIFEST), encode_tombstone(TOMBSTONE)])
def test_every_flipped_bit_of_a_manifest_is_noticed(written: bytes) -> None:
    for position in range(len(written)):
        for bit in range(8):
            damaged = bytearray(written)
            damaged[position] ^= 1 << bit
            with pytest.raises(ProtocolError):
                decode_manifest(bytes(damaged))


def test_every_manifest_that_was_cut_off_is_noticed() -> None:
    written = encode_manifest(MANIFEST)
    for end in range(len(written)):
        with pytest.raises(InvalidManifest):
            decode_manifest(written[:end])


def resealed(document: dict[str, object]) -> bytes:
    """A document with the right checksum: a manifest that was written wrongly and not damaged."""
    text = json.dumps(document, separators=(",", ":"))
    place = text.index('"manifestCrc32c":"') + len('"manifestCrc32c":"')
    zeroed = f"{text[:place]}00000000{text[place + 8 :]}"
    return f"{text[:place]}{crc32c(zeroed.encode()):08x}{text[place + 8 :]}".encode()


def test_a_manifest_that_contradicts_itself_is_refused(manifests: ModuleType) -> None:
    assert manifests.decode_manifest(resealed(json.loads(encode_manifest(MANIFEST))))
    for path, value in (
        (("remoteLogSegmentMetadata", "endOffset"), 1000),
        (("remoteLogSegmentMetadata", "startOffset"), True),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {"4": 1234, "6": 1234}),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {"4": 1234, "6": 2001}),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {"04": 1234}),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {}),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {"1" * 5000: 1234}),
        (("remoteLogSegmentMetadata", "segmentLeaderEpochs"), {"²": 1234}),
        (("remoteLogSegmentMetadata", "trioka", "leaderEpoch"), 5),
        (("remoteLogSegmentMetadata", "trioka", "segmentSizeInBytes"), 1),
        (("remoteLogSegmentMetadata", "trioka", "codecs"), "none"),
        (("segmentIndexes", "offset"), None),
        (("segmentIndexes", "timestamp", "position"), 17),
        (("chunkIndex", "originalFileSize"), 0),
        (("chunkIndex", "finalTransformedChunkSize"), 4194304),
    ):
        document = json.loads(encode_manifest(MANIFEST))
        place = document
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        with pytest.raises(ProtocolError):
            manifests.decode_manifest(resealed(document))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_manifest_or_a_protocol_error(data: bytes) -> None:
    with suppress(ProtocolError):
        decode_manifest(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_a_manifest_with_any_other_value_is_a_manifest_or_a_protocol_error(data: st.DataObject) -> None:
    document = json.loads(encode_manifest(MANIFEST))
    place = document
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or data.draw(st.booleans()):
            place[name] = data.draw(JSON_VALUES)
            break
        place = place[name]
    with suppress(ProtocolError):
        decode_manifest(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 50_000, b'{"version":NaN}', b'{"a":1,"a":2}', b"\xff", b""]
)
def test_hostile_json_is_an_invalid_manifest(data: bytes) -> None:
    with pytest.raises(InvalidManifest):
        decode_manifest(data)


def test_a_manifest_above_the_limit_is_neither_written_nor_read() -> None:
    epochs = tuple(LeaderEpoch(100_000 + index, 1234 + index) for index in range(90_000))
    uploader = Uploader(cluster_id="c", incarnation=1, leader_epoch=1_000_000)
    many = replace(MANIFEST, leader_epochs=epochs, end_offset=1 << 40, uploader=uploader)
    with pytest.raises(InvalidManifest, match="limit"):
        encode_manifest(many)
    with pytest.raises(InvalidManifest, match="limit"):
        decode_manifest(b" " * (1024 * 1024 + 1))


MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (key_module, "uuid_text(uuid) != text", "False", test_a_key_has_one_spelling),
    (key_module, "partition > MAX_PARTITION or start_offset > MAX_OFFSET", "False", test_a_key_has_one_spelling),
    (
        indexes_module,
        "_number(lines[1], MAX_LEADER_EPOCHS) != len(lines) - 2",
        "False",
        test_leader_epochs_are_those_of_the_checkpoint,
    ),
    (
        indexes_module,
        "entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= previous",
        "entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset",
        test_aborted_transactions_are_parsed_back_and_checked,
    ),
    (
        indexes_module,
        "relative <= last_offset or position <= last_position",
        "False",
        test_offsets_and_timestamps_rise,
    ),
    (
        manifest_module,
        "manifest.uploader is not None and manifest.uploader.leader_epoch < manifest.leader_epochs[-1].epoch",
        "False",
        test_a_manifest_that_contradicts_itself_is_refused,
    ),
    (
        manifest_module,
        'block.integer("segmentSizeInBytes", 1, MAX_SEGMENT_BYTES) != size',
        'block.integer("segmentSizeInBytes", 1, MAX_SEGMENT_BYTES) == -1',
        test_a_manifest_that_contradicts_itself_is_refused,
    ),
    (
        manifest_module,
        "final_chunk = manifest.size - (manifest.size - 1) // CHUNK_BYTES * CHUNK_BYTES",
        "final_chunk = manifest.size % CHUNK_BYTES",
        test_manifests_and_tombstones_are_read_back,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
