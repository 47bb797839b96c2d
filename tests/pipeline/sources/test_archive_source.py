"""The Spark source of the archive, without Spark: its tasks, filters, offsets and options."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed, planted
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType
from support.archive_objects import (
    append_records,
    end_transaction,
    new_log,
    objects_of,
    sample_log,
    some_records,
)
from support.archive_stores import put_objects
from support.log_fixtures import NOW_MS

from trioka.archive import Archive, ArchiveError
from trioka.archive import excerpt as excerpt_module
from trioka.archive.store import ReadOnlyStore
from trioka.pipeline.sources import archive_source as source_module
from trioka.pipeline.sources.archive_source import ArchiveDataSource, end_offsets
from trioka.protocol.record import Record

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An archive of two partitions."""
    for partition in (0, 1):
        put_objects(tmp_path.as_uri(), objects_of(sample_log(partition, rounds=16), partition=partition))
    return tmp_path.as_uri()


def source(url: str, **options: str) -> ArchiveDataSource:
    return ArchiveDataSource({"path": url, "topic": "orders", **options})


def rows_of(reader: Any, tasks: Sequence[InputPartition]) -> list[Row]:
    """The rows of all tasks, each of which goes to another process."""
    found: list[Row] = []
    for task in tasks:
        for batch in reader.read(pickle.loads(pickle.dumps(task))):
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def read(url: str, *filters: Filter, **options: str) -> tuple[list[Row], int]:
    """The rows that satisfy the filters, as Spark would apply them again, and the number of tasks."""
    reader = source(url, **options).reader(StructType())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    tasks = pickle.loads(pickle.dumps(reader)).partitions()
    return [row for row in rows_of(reader, tasks) if all(satisfies(row, each) for each in filters)], len(tasks)


def satisfies(row: Row, pushed: Any) -> bool:
    (column,) = pushed.attribute
    value = row[column]
    match pushed:
        case EqualTo():
            return bool(value == pushed.value)
        case In():
            return value in pushed.value
        case GreaterThan():
            return bool(value > pushed.value)
        case GreaterThanOrEqual():
            return bool(value >= pushed.value)
        case LessThan():
            return bool(value < pushed.value)
        case LessThanOrEqual():
            return bool(value <= pushed.value)
        case _:
            return value is not None


def test_a_task_for_each_segment_and_all_records_of_the_archive(url: str) -> None:
    rows, tasks = read(url)
    archive = Archive(url)
    assert tasks == sum(len(archive.segments("orders", partition)) for partition in (0, 1))
    expected = [record for partition in (0, 1) for record in archive.records("orders", partition)]
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        (each.partition, each.offset, each.key, each.value) for each in expected
    ]
    assert rows[0]["topic"] == "orders" and rows[0]["timestamp"] == EPOCH + timedelta(milliseconds=NOW_MS)


@pytest.fixture
def sources() -> ModuleType:
    return source_module


def filters_lose_nothing(sources: ModuleType, url: str) -> None:
    """Tasks chosen by random filters have all rows that satisfy them; fewer tasks where the filter is narrow."""
    everything, all_tasks = read(url)
    random = Random(7)
    kinds = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    fewer = 0
    for _ in range(60):
        filters: list[Filter] = []
        for _ in range(random.randrange(1, 3)):
            row = random.choice(everything)
            column = random.choice(("partition", "offset", "timestamp"))
            value = row[column]
            if column == "timestamp":
                value += timedelta(microseconds=random.choice((-500, 0, 0, 500)))
            if random.random() < 0.2:
                filters.append(In((column,), (value, random.choice(everything)[column])))
            else:
                filters.append(random.choice(kinds)((column,), value))
        reader = sources.ArchiveReader(sources.parse_options({"path": url, "topic": "orders"}))
        list(reader.pushFilters(filters))
        tasks = reader.partitions()
        found = [row for row in rows_of(reader, tasks) if all(satisfies(row, each) for each in filters)]
        expected = [row for row in everything if all(satisfies(row, each) for each in filters)]
        assert found == expected, filters
        fewer += len(tasks) < all_tasks
    assert fewer > 20


def test_filters_choose_segments_and_lose_nothing(sources: ModuleType, url: str) -> None:
    filters_lose_nothing(sources, url)


def test_a_filter_that_says_nothing_useful_is_left_to_spark(url: str) -> None:
    _, tasks = read(url)
    for ignored in (
        IsNotNull(("offset",)),
        EqualTo(("offset",), None),
        GreaterThan(("timestamp",), datetime(2030, 1, 1)),
    ):
        reader = source(url).reader(StructType())
        assert list(reader.pushFilters([ignored])) == [ignored]
        assert len(reader.partitions()) == tasks
    assert read(url, EqualTo(("partition",), 9)) == ([], 0)
    one, few = read(url, EqualTo(("partition",), 1), LessThan(("offset",), 10))
    assert one and few == 1


def test_a_stream_reads_each_record_once_as_segments_come(tmp_path: Path) -> None:
    objects = objects_of(sample_log(3, rounds=16))
    manifests = sorted(key for key in objects if key.endswith("manifest"))
    reader = source(tmp_path.as_uri()).streamReader(StructType())
    found: list[Row] = []
    position: dict[str, int] | None = None
    for manifest in manifests:
        stem = manifest.removesuffix("rsm-manifest")
        put_objects(tmp_path.as_uri(), {key: data for key, data in objects.items() if key.startswith(stem)})
        if position is None:
            position = json.loads(json.dumps(reader.initialOffset()))
        end = json.loads(json.dumps(reader.latestOffset()))
        found += rows_of(reader, reader.partitions(position, end))
        position = end
    assert [row["offset"] for row in found] == [each.offset for each in Archive(tmp_path.as_uri()).records("orders", 0)]


def test_a_stream_reads_each_manifest_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_keys: list[str] = []
    read_object = ReadOnlyStore.read

    def counted(store: ReadOnlyStore, key: str, *, limit: int) -> bytes:
        read_keys.append(key)
        return read_object(store, key, limit=limit)

    monkeypatch.setattr(ReadOnlyStore, "read", counted)
    reader = source(url).streamReader(StructType())
    start = reader.initialOffset()
    for _ in range(3):
        reader.partitions(start, reader.latestOffset())
    manifests = [key for key in read_keys if key.endswith("manifest")]
    assert manifests and len(manifests) == len(set(manifests))
    assert pickle.loads(pickle.dumps(reader)).latestOffset() == reader.latestOffset()


def test_a_partition_that_is_new_is_read_from_its_start(url: str) -> None:
    reader = source(url).streamReader(StructType())
    end = reader.latestOffset()
    rows = rows_of(reader, reader.partitions({"0": end["0"]}, end))
    assert {row["partition"] for row in rows} == {1} and rows[0]["offset"] == 0


def test_a_task_lists_the_partition_if_the_marker_is_far_behind(tmp_path: Path) -> None:
    log = new_log()
    append_records(log, Record(0, NOW_MS, b"aborted", b""), producer=(7, 0, 0), transactional=True)
    append_records(log, Record(0, NOW_MS, b"kept", b""), producer=(8, 0, 0), transactional=True)
    end_transaction(log, 8, commit=True)
    for number in range(excerpt_module.LATER_SLICES + 2):
        log.roll(now_ms=NOW_MS)
        append_records(log, *some_records(Random(number), 3))
    log.roll(now_ms=NOW_MS)
    end_transaction(log, 7, commit=False)
    put_objects(tmp_path.as_uri(), objects_of(log))
    rows, tasks = read(tmp_path.as_uri())
    assert tasks == excerpt_module.LATER_SLICES + 4
    assert [row["key"] for row in rows if row["offset"] < 3] == [b"kept"]


def test_the_archive_is_read_up_to_where_the_topic_goes_on(url: str) -> None:
    everything, _ = read(url)
    end = end_offsets(url, "orders")
    assert end == {str(each): Archive(url).partition("orders", each).last_stable_offset for each in (0, 1)}
    assert read(url, endingOffsets=json.dumps(end))[0] == everything
    earlier = {"0": 50, "1": 60}
    history, _ = read(url, endingOffsets=json.dumps(earlier))
    rest, _ = read(url, startingOffsets=json.dumps(earlier))
    assert sorted(history + rest, key=lambda row: (row["partition"], row["offset"])) == everything


def test_offsets_of_the_options_are_read_and_must_be_there(url: str) -> None:
    rows, _ = read(url, startingOffsets='{"0": 100}', endingOffsets='{"0": 110, "1": 0}')
    assert rows and all(row["partition"] == 0 and 100 <= row["offset"] < 110 for row in rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "orders"}, "needs the URL"),
        ({"path": "file:///tmp"}, "needs the URL"),
        ({"path": "file:///tmp", "topic": "t", "startingOffset": "{}"}, "no option 'startingoffset'"),
        ({"path": "file:///tmp", "topic": "t", "startingOffsets": "earliest"}, "startingOffsets 'earliest'"),
        ({"path": "file:///tmp", "topic": "t", "endingOffsets": '{"0": -2}'}, "endingOffsets"),
        ({"path": "file:///tmp", "topic": "t", "isolation": "none"}, "read_committed or read_uncommitted"),
        ({"path": "file:///tmp", "topic": "t", "failOnDataLoss": "no"}, "it is true or false"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, str], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        ArchiveDataSource(options).reader(StructType())


def test_options_of_the_store_are_passed_on() -> None:
    parsed = source_module.parse_options({"PATH": "s3://b", "Topic": "t", "store.region": "eu-1", "topicId": "x"})
    assert (parsed.store, parsed.topic_id) == ({"region": "eu-1"}, "x")


MISTAKES: list[tuple[str, str]] = [
    ("isinstance(pushed, LessThanOrEqual) or column == 'timestamp'", "isinstance(pushed, LessThanOrEqual)"),
    ("isinstance(pushed, GreaterThan) and column != 'timestamp'", "isinstance(pushed, GreaterThan)"),
    ("max(lows, default=None)", "max(lows, default=0) + 1"),
    ("values if self.partitions is None else values & self.partitions", "frozenset()"),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, url: str) -> None:
    def rule(module: ModuleType) -> None:
        filters_lose_nothing(module, url)

    assert_noticed(source_module, right, wrong, rule)


# -- micro-batches with a limit ----------------------------------------------------------------------------------------


def batches(url: str, restarts: bool = False, **options: str) -> list[tuple[int, list[Row]]]:
    """The number of tasks and the rows of each micro-batch, in Spark's order of calls."""
    reader = source(url, **options).streamReader(StructType())
    found: list[tuple[int, list[Row]]] = []
    position: dict[str, int] | None = None
    while True:
        end = reader.latestOffset()
        position = reader.initialOffset() if position is None else position
        if end == position:
            return found
        assert all(end[number] >= offset for number, offset in position.items()), "a position never goes back"
        tasks = reader.partitions(position, end)
        found.append((len(tasks), rows_of(reader, tasks)))
        position = json.loads(json.dumps(end))
        if restarts:  # a query that was started again plans its last batch once more
            reader = source(url, **options).streamReader(StructType())
            assert not reader.partitions(position, position)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_stream_with_a_limit_reads_all_in_small_batches(url: str, isolation: str, restarts: bool) -> None:
    ((_, everything),) = batches(url, isolation=isolation)
    limited = batches(url, restarts, isolation=isolation, maxSegmentsPerTrigger="2")
    assert len(limited) > 2 and max(tasks for tasks, _ in limited) <= 2
    rows = [row for _, part in limited for row in part]
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == everything
    assert {row["partition"] for row in limited[0][1]} == {0, 1}, "of the oldest segments, not of one partition"


def test_a_segment_that_is_larger_than_the_limit_is_a_batch_of_its_own(url: str) -> None:
    ((tasks, everything),) = batches(url)
    limited = batches(url, maxBytesPerTrigger="1")
    assert {each for each, _ in limited} == {1} and len(limited) == tasks
    assert sum(len(rows) for _, rows in limited) == len(everything)


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_limit_is_a_number_above_0(url: str, text: str) -> None:
    with pytest.raises(ArchiveError, match="maxSegmentsPerTrigger"):
        source(url, maxSegmentsPerTrigger=text).streamReader(StructType())


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("start = self.initialOffset() if self._position is None else self._position", "start = self.initialOffset()"),
        ("self._position = end", "pass"),
        ("is_over and segments > 1", "is_over"),
        ("min(start.get(number, _first(slices[number])), end)", "_first(slices[number])"),
    ],
)
def test_a_planted_mistake_about_micro_batches_is_noticed(
    url: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(source_module, right, wrong)
    vars(mistaken)["SegmentTask"] = source_module.SegmentTask  # which is pickled
    monkeypatch.setattr(source_module.ArchiveDataSource, "streamReader", mistaken.ArchiveDataSource.streamReader)
    monkeypatch.setattr(mistaken.ArchiveStreamReader, "read", source_module.ArchiveStreamReader.read)

    def test() -> None:
        for restarts in (False, True):
            test_a_stream_with_a_limit_reads_all_in_small_batches(url, "read_committed", restarts)
        test_a_segment_that_is_larger_than_the_limit_is_a_batch_of_its_own(url)

    with pytest.raises(AssertionError):
        test()
