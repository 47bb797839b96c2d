"""The names on disk: what Kafka 4.3.1 makes of them, and what it would not."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.storage.files import layout
from trioka.storage.files.layout import CheckpointState, DirectoryState, Kind, Suffix, TopicPartition

UNIQUE = "ea1095979b48409bb2b2e0211e8f4f6f"


@pytest.fixture
def storage() -> ModuleType:
    return layout


def test_a_segments_files_are_named_after_its_base_offset_in_twenty_digits(storage: ModuleType) -> None:
    assert storage.segment_file(0, Kind.LOG) == "00000000000000000000.log"
    assert storage.segment_file(42, Kind.TXN_INDEX) == "00000000000000000042.txnindex"
    assert storage.segment_file(2**63 - 1, Kind.SNAPSHOT) == "09223372036854775807.snapshot"
    assert storage.segment_file(7, Kind.TIME_INDEX, Suffix.SWAP) == "00000000000000000007.timeindex.swap"


@pytest.mark.parametrize("suffix", Suffix)
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("offset", [0, 1, 2**31, 2**63 - 1])
def test_every_name_of_a_segment_file_reads_back(offset: int, kind: Kind, suffix: Suffix) -> None:
    assert layout.parse_segment_file(layout.segment_file(offset, kind, suffix)) == (offset, kind, suffix)


def test_what_is_no_segment_file_is_left_alone(storage: ModuleType) -> None:
    for name in (
        "0.log",
        "00000000000000000000",
        "00000000000000000000.logs",
        "00000000000000000000.log.old",
        "x00000000000000000000.log",
        "00000000000000000000.log.deleted.deleted",
        "٠0000000000000000000.log",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
        "00000000000000000000.log\n",
    ):
        assert storage.parse_segment_file(name) is None, name


def test_a_partition_directory_reads_back_whatever_the_topic_is_called(storage: ModuleType) -> None:
    for topic in ("orders", "a.b-c", "x-1", "__cluster_metadata", "t-3.x-delete", "-"):
        name = storage.partition_directory(TopicPartition(topic, 12))
        assert storage.parse_partition_directory(name) == (TopicPartition(topic, 12), DirectoryState.LIVE, "")


@pytest.mark.parametrize("state", [DirectoryState.DELETE, DirectoryState.FUTURE, DirectoryState.STRAY])
def test_a_renamed_directory_says_what_becomes_of_it(state: DirectoryState) -> None:
    name = layout.renamed_directory(TopicPartition("t-a", 3), state, UNIQUE)
    assert name == f"t-a-3.{UNIQUE}{state.value}"
    assert layout.parse_partition_directory(name) == (TopicPartition("t-a", 3), state, UNIQUE)


def test_a_long_topic_is_cut_on_its_way_out_so_that_the_name_fits(storage: ModuleType) -> None:
    name = storage.renamed_directory(TopicPartition("x" * 249, 3), DirectoryState.DELETE, UNIQUE)
    assert name == "x" * 213 + f"-3.{UNIQUE}-delete"
    assert len(name) == 255


def test_what_is_no_partition_directory_is_left_alone(storage: ModuleType) -> None:
    for name in ("orders", "-0", "orders-", "orders-x", "orders-0-delete", "orders-0.-delete", "or ders-0",
                 "orders-99999999999", "orders-2147483648", "lost+found", "orders-0.x-gone"):  # fmt: skip
        assert storage.parse_partition_directory(name) is None, name


def test_a_metadata_snapshot_is_named_after_its_end_and_epoch(storage: ModuleType) -> None:
    assert storage.metadata_snapshot(42, 3) == "00000000000000000042-0000000003.checkpoint"
    for state in CheckpointState:
        assert storage.parse_metadata_snapshot(storage.metadata_snapshot(42, 3, state)) == (42, 3, state)
    partial = "00000000000000000042-0000000003-8541.checkpoint.part"  # as Kafka names it
    assert storage.parse_metadata_snapshot(partial) == (42, 3, CheckpointState.PART)
    for name in ("00000000000000000042-0000000003-8541.checkpoint", "bootstrap.checkpoint", "42-3.checkpoint"):
        assert storage.parse_metadata_snapshot(name) is None, name


def test_a_damaged_file_names_its_path_and_line() -> None:
    assert str(layout.CorruptFile("a/b", "is torn", line=3)) == "a/b, line 3: is torn"
    assert str(layout.CorruptFile("a/b", "is torn")) == "a/b: is torn"


MISTAKES: list[tuple[str, str, Rule]] = [
    ("OFFSET_DIGITS: Final = 20", "OFFSET_DIGITS: Final = 19",
     test_a_segments_files_are_named_after_its_base_offset_in_twenty_digits),
    ('_SEGMENT_FILE.fullmatch(name)', '_SEGMENT_FILE.match(name)', test_what_is_no_segment_file_is_left_alone),
    ('SegmentFile(base_offset, Kind(kind), Suffix(suffix or "")) if base_offset <= MAX_OFFSET ' "else None",
     'SegmentFile(base_offset, Kind(kind), Suffix(suffix or ""))', test_what_is_no_segment_file_is_left_alone),
    ('re.compile(r"(\\S+)-([0-9]{1,10})(?:\\.([^\\s.]+)(-delete|-future|-stray))?")',
     're.compile(r"([^-]+)-([0-9]{1,10})(?:\\.([^\\s.]+)(-delete|-future|-stray))?")',
     test_a_partition_directory_reads_back_whatever_the_topic_is_called),
    ("MAX_NAME_BYTES - len(ending)", "MAX_NAME_BYTES", test_a_long_topic_is_cut_on_its_way_out_so_that_the_name_fits),
    ("_PARTITION_DIRECTORY.fullmatch(name)", "_PARTITION_DIRECTORY.match(name)",
     test_what_is_no_partition_directory_is_left_alone),
    ("if random and state != CheckpointState.PART:", "if False:",
     test_a_metadata_snapshot_is_named_after_its_end_and_epoch),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(layout, right, wrong, rule)
