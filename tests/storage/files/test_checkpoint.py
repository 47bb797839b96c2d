"""The text files: Kafka's own bytes, and nothing half-read (S3). The expected bytes were written by Kafka 4.3.1."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage.files import checkpoint
from trioka.storage.files.checkpoint import EpochEntry, MetaProperties
from trioka.storage.files.layout import CorruptFile, TopicPartition
from trioka.testing.disks.memory_disk import MemoryDisk

PATH = "/logs/file"
UUID_TEXT = "Yh0YwpEqQ3-BZ1eQrVf9_A"
UUID = bytes.fromhex("621d18c2912a437f81675790ad57fdfc")

OFFSETS = b"0\n2\na.b-c 12 0\norders 0 17\n"
EPOCHS = b"0\n2\n0 0\n3 17\n"
PARTITION = f"version: 0\ntopic_id: {UUID_TEXT}".encode()
MARKER = b'{"version":0,"brokerEpoch":42}'
META = (
    f"#\n#Mon Nov 16 02:13:44 UTC 2026\nnode.id=1\ndirectory.id={UUID_TEXT}\nversion=1\ncluster.id={UUID_TEXT}\n"
).encode()


@pytest.fixture
def storage() -> ModuleType:
    return checkpoint


def holding(data: bytes) -> MemoryDisk:
    return MemoryDisk({PATH: data})


def empty() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/logs")
    return disk


def written(write: Callable[[MemoryDisk, str], None]) -> bytes:
    disk = empty()
    write(disk, PATH)
    return disk.read(PATH)


def test_offsets_are_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("a.b-c", 12): 0}
    assert storage.read_offsets(holding(OFFSETS), PATH) == offsets
    assert written(lambda disk, path: storage.write_offsets(disk, path, offsets)) == OFFSETS
    assert written(lambda disk, path: storage.write_offsets(disk, path, {})) == b"0\n0\n"


def test_epochs_are_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    epochs = [EpochEntry(0, 0), EpochEntry(3, 17)]
    assert storage.read_epochs(holding(EPOCHS), PATH) == epochs
    assert written(lambda disk, path: storage.write_epochs(disk, path, epochs)) == EPOCHS


def test_a_topic_id_is_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    assert storage.read_topic_id(holding(PARTITION), PATH) == UUID
    assert written(lambda disk, path: storage.write_topic_id(disk, path, UUID)) == PARTITION


def test_the_clean_marker_is_kafkas_bytes_in_both_directions(storage: ModuleType) -> None:
    assert storage.read_clean_marker(holding(MARKER), PATH) == 42
    assert written(lambda disk, path: storage.write_clean_marker(disk, path, 42)) == MARKER
    assert storage.read_clean_marker(holding(b'{"version":0,"brokerEpoch":-1}'), PATH) == -1
    assert storage.read_clean_marker(empty(), PATH) is None


def test_meta_properties_of_kafka_are_read_and_ours_keep_unknown_keys(storage: ModuleType) -> None:
    read = storage.read_meta_properties(holding(META), PATH)
    assert (read.cluster_id, read.node_id, read.directory_id, read.others) == (UUID_TEXT, 1, UUID, ())
    later = storage.read_meta_properties(holding(META + b"rack = r\\u00e9 1\n"), PATH)
    assert later.others == (("rack", "ré 1"),)
    disk = empty()
    storage.write_meta_properties(disk, PATH, later)
    assert storage.read_meta_properties(disk, PATH) == later


def test_a_missing_or_never_written_checkpoint_has_no_entries(storage: ModuleType) -> None:
    assert storage.read_offsets(empty(), PATH) == {}
    assert storage.read_epochs(empty(), PATH) == []
    assert storage.read_offsets(holding(b""), PATH) == {}
    assert storage.read_epochs(holding(b""), PATH) == []


def whole_files(storage: ModuleType) -> list[tuple[bytes, Callable[[MemoryDisk, str], object]]]:
    meta = MetaProperties(cluster_id="c", node_id=12, directory_id=UUID, others=(("rack", "r1"),))
    ours = written(lambda disk, path: storage.write_meta_properties(disk, path, meta))
    return [
        (OFFSETS, storage.read_offsets),
        (EPOCHS, storage.read_epochs),
        (PARTITION, storage.read_topic_id),
        (MARKER, storage.read_clean_marker),
        (ours, storage.read_meta_properties),
    ]


def test_a_file_torn_at_any_byte_is_refused(storage: ModuleType) -> None:
    for data, read in whole_files(storage):
        read(holding(data), PATH)
        for end in range(1, len(data)):
            with pytest.raises(CorruptFile, match=PATH):
                read(holding(data[:end]), PATH)


def test_a_file_with_anything_behind_it_is_refused(storage: ModuleType) -> None:
    for data, read in whole_files(storage)[:4]:
        for more in (b"\0", b"x", b"1 1\n", b"a 1 1\n", b"\nz: 1"):
            with pytest.raises(CorruptFile):
                read(holding(data + more), PATH)


def test_blocks_of_zeros_or_noise_are_refused(storage: ModuleType) -> None:
    for data, read in whole_files(storage):
        for noise in (bytes(len(data)), b"\xff" * len(data), b"\n" * len(data), data + bytes(512)):
            with pytest.raises(CorruptFile):
                read(holding(noise), PATH)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1\n0\n", 1),
        (b"0\n-1\n", 2),
        (b"0\n1\norders 0 1\norders 1 1\n", 2),
        (b"0\n2\norders 0 1\norders 0 1\n", 4),
        (b"0\n1\norders 0 -1\n", 3),
        (b"0\n1\norders 0 +1\n", 3),
        (b"0\n1\norders 0 01\n", 3),
        (b"0\n1\norders 0  1\n", 3),
        (b"0\n1\norders 2147483648 1\n", 3),
        (b"0\n1\norders 0 9223372036854775808\n", 3),
        (b"0\n1\n 0 1\n", 3),
        ("0\n1\norders 0 ١\n".encode(), 3),
        (b"0\r\n0\r\n", 1),
    ],
)
def test_a_wrong_line_of_offsets_is_named(data: bytes, line: int) -> None:
    with pytest.raises(CorruptFile) as caught:
        checkpoint.read_offsets(holding(data), PATH)
    assert caught.value.line == line


def test_epochs_and_their_offsets_rise(storage: ModuleType) -> None:
    for entries in (b"3 0\n3 5\n", b"3 0\n2 5\n", b"3 5\n4 5\n", b"3 5\n4 4\n"):
        with pytest.raises(CorruptFile) as caught:
            storage.read_epochs(holding(b"0\n2\n" + entries), PATH)
        assert caught.value.line == 4


def test_a_topic_without_an_id_is_refused_and_a_later_version_may_say_more(storage: ModuleType) -> None:
    for text in ("version: 0\ntopic_id: " + "A" * 22, "version: 0\ntopic_id: !" + "A" * 21, "topic_id: x\nversion: 0"):
        with pytest.raises(CorruptFile):
            storage.read_topic_id(holding(text.encode()), PATH)
    later = f"version: 1\ntopic_id: {UUID_TEXT}\nmore: 1\n".encode()
    assert storage.read_topic_id(holding(later), PATH) == UUID


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "{}", '{"version":0}', '{"version":"0","brokerEpoch":1}', '{"version":0,"brokerEpoch":"1"}',
     '{"version":0,"brokerEpoch":null}', '{"version":0,"brokerEpoch":true}', '{"version":-1,"brokerEpoch":1}',
     '{"version":0,"brokerEpoch":-2}', '{"version":0,"brokerEpoch":9223372036854775808}', "[" * 4000, " " * 5000],
)  # fmt: skip
def test_a_marker_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(CorruptFile):
        checkpoint.read_clean_marker(holding(text.encode()), PATH)


def test_a_marker_of_a_later_version_still_tells_its_epoch() -> None:
    assert checkpoint.read_clean_marker(holding(b'{"version":1,"brokerEpoch":7,"more":[]}'), PATH) == 7


def test_properties_are_parsed_as_java_does(storage: ModuleType) -> None:
    text = (
        "# comment\n! comment\n\n  \n"
        "a=1\nb:2\nc 3\nd = 4 \ne\nf\\ g\\=\\:=5\nh = one \\\n   two\ni=\\u00e9\\ud83d\\ude00\nj=a\\tb\\\\\n=k\r\nl=1\r"
        "a\\ b\\:c\\=d=\\  lead \\# \\! é \\t tab\\nnl\\\\bs \\= \\: x\n"
    )
    assert storage.parse_properties(PATH, text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "4 ",
        "e": "",
        "f g=:": "5",
        "h": "one two",
        "i": "é😀",
        "j": "a\tb\\",
        "": "k",
        "l": "1",
        "a b:c=d": "  lead # ! é \t tab\nnl\\bs = : x",
    }


@pytest.mark.parametrize("text", ["a=\\u12\n", "a=\\ud83d\n", "a=1\na=2\n", "a=1"])
def test_properties_that_java_could_not_have_written_are_refused(text: str) -> None:
    with pytest.raises(CorruptFile):
        checkpoint.parse_properties(PATH, text)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("version=1\n", "version=0\n"), ("version=1\n", ""), ("node.id=1\n", ""), ("node.id=1", "node.id=-1"),
     ("node.id=1", "node.id=one"), (f"cluster.id={UUID_TEXT}\n", ""), (f"directory.id={UUID_TEXT}", "directory.id=x")],
)  # fmt: skip
def test_a_directory_without_a_clear_owner_is_refused(right: str, wrong: str) -> None:
    with pytest.raises(CorruptFile, match=PATH):
        checkpoint.read_meta_properties(holding(META.replace(right.encode(), wrong.encode())), PATH)


def test_odd_values_survive_writing_and_stay_ascii(storage: ModuleType) -> None:
    meta = MetaProperties(
        cluster_id="a=b:c #!\\ é😀\n\t\r\f", node_id=0, others=((" odd key\n", " lead and trail "), ("empty", ""))
    )
    disk = empty()
    storage.write_meta_properties(disk, PATH, meta)
    assert disk.read(PATH).isascii()
    read = storage.read_meta_properties(disk, PATH)
    assert (read.cluster_id, read.node_id, read.directory_id, read.others) == (meta.cluster_id, 0, None, meta.others)


def test_a_file_beyond_all_reason_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_FILE_BYTES", 20)
    with pytest.raises(CorruptFile, match="no such file has more"):
        checkpoint.read_clean_marker(holding(b" " * 5000), PATH)


MISTAKES: list[tuple[str, str, Rule]] = [
    ('f"version: 0\\ntopic_id: {uuid_text(topic_id)}"', 'f"version: 0\\ntopicid: {uuid_text(topic_id)}"',
     test_a_topic_id_is_kafkas_bytes_in_both_directions),
    ('    if lines.pop():\n', '    if not lines.pop() and False:\n', test_a_file_torn_at_any_byte_is_refused),
    ("if count != len(lines) - 2:", "if count < len(lines) - 2:", test_a_file_torn_at_any_byte_is_refused),
    ('raise CorruptFile(path, "ends before the number of entries", line=2)', "return\n"
     'raise CorruptFile(path, "ends before the number of entries", line=2)',
     test_a_file_torn_at_any_byte_is_refused),
    ("if count != len(lines) - 2:", "if count > len(lines) - 2:", test_a_file_with_anything_behind_it_is_refused),
    ('if text and not text.endswith("\\n"):', "if False:", test_a_file_torn_at_any_byte_is_refused),
    ('properties |= {"node.id": str(meta.node_id), "cluster.id": meta.cluster_id, "version": ' '"1"}',
     'properties = {"version": "1", "cluster.id": meta.cluster_id, "node.id": ""} | '
     'properties | {"node.id": str(meta.node_id), "cluster.id": meta.cluster_id, "version": ' '"1"}',
     test_a_file_torn_at_any_byte_is_refused),
    ("entry.epoch <= entries[-1].epoch", "entry.epoch < entries[-1].epoch", test_epochs_and_their_offsets_rise),
    ("entry.start_offset <= entries[-1].start_offset", "False", test_epochs_and_their_offsets_rise),
    ("for key in sorted(offsets)", "for key in offsets", test_offsets_are_kafkas_bytes_in_both_directions),
    ('(match.end() != len(text) and match[1] == "0")', "False", test_a_file_with_anything_behind_it_is_refused),
    ("if topic_id == NULL_UUID:", "if False:",
     test_a_topic_without_an_id_is_refused_and_a_later_version_may_say_more),
    ("others=tuple((key, value) for key, value in properties.items() if key not in _KNOWN_KEYS)", "others=()",
     test_meta_properties_of_kafka_are_read_and_ours_keep_unknown_keys),
    ('(character == " " and (in_key or index == 0))', "False", test_odd_values_survive_writing_and_stay_ascii),
    ('(len(line) - len(line.rstrip("\\\\"))) % 2', '(len(line) - len(line.rstrip("\\\\"))) % 3',
     test_properties_are_parsed_as_java_does),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(checkpoint, right, wrong, rule)
