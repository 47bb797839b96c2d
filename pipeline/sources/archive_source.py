"""Spark reads the archive of tiered topics: `spark.read.format("trioka-archive")`, batch and stream, without a broker.

    from trioka.pipeline.sources.archive_source import register

    register(spark)
    orders = spark.read.format("trioka-archive").option("topic", "orders").load("s3://bucket/prefix")
    recent = orders.where("timestamp >= now() - interval 1 hour and partition in (0, 1)")

One task reads one segment, and yields Arrow batches with the columns of Spark's Kafka source and `leaderEpoch`. Filters
on `partition`, `offset` and `timestamp` choose segments by their manifests before anything else is read; Spark applies
them again to the rows.

A stream's offset is the next offset of each partition, `{"0": 1200, "1": 1180}`. So is what `end_offsets` returns: read
the archive up to there, and the topic from there on (`startingOffsets` of Spark's Kafka source).

Spark does not tell a Python source where the next micro-batch begins. `ArchiveStreamReader` knows it, for its limits,
from the end of the last one: a query that is started again plans that batch once more, before it asks for the latest
offset.

| option | default | |
|---|---|---|
| `path` | – | the URL of the store; also the argument of `load` |
| `topic` | – | |
| `topicId` | – | of a topic whose name was used several times |
| `isolation` | `read_committed` | or `read_uncommitted` |
| `startingOffsets`, `endingOffsets` | all | JSON, `{"0": 100}`; the end is exclusive |
| `failOnDataLoss` | `true` | `false` leaves out offsets that are missing |
| `maxSegmentsPerTrigger`, `maxBytesPerTrigger` | no limit | of a stream: most that a micro-batch reads, oldest first |
| `store.<option>` | – | of the store: `store.region`, `store.endpoint`, … |
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from trioka.archive import Archive, ArchivedTopic
from trioka.archive.archive import isolation_level
from trioka.archive.arrow import record_batches
from trioka.archive.errors import ArchiveError
from trioka.archive.excerpt import SliceExcerpt, excerpts
from trioka.archive.lineage import Slice
from trioka.archive.partition import ALL_OFFSETS, ALL_TIMES, ArchivedPartition, OffsetRange, TimeRange
from trioka.archive.records import Isolation
from trioka.archive.store import StoreOptions
from trioka.protocol.lazy_dataclass import frozen

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "trioka-archive"
SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL, "
    "timestamp TIMESTAMP, timestampType INT NOT NULL, "
    "headers ARRAY<STRUCT<key: STRING NOT NULL, value: BINARY>>, leaderEpoch INT NOT NULL"
)
STORE_OPTION: Final = "store."
MAX_OFFSET: Final = (1 << 63) - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def register(spark: "SparkSession") -> None:
    """Makes the format known to a session, and has Spark push filters down to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(ArchiveDataSource)


def end_offsets(url: str, topic: str, **options: str) -> dict[str, int]:
    """The next offset of each partition behind the archive, as `endingOffsets` here and `startingOffsets` of Kafka's
    source take it. `options` are those of the data source."""
    source = _Source(parse_options({"path": url, "topic": topic, **options}))
    return {str(number): source.end_offset(number) for number in source.partitions()}


@frozen
class SourceOptions:
    url: str
    topic: str
    topic_id: str | None
    isolation: Isolation
    fail_on_data_loss: bool
    max_segments: int | None
    max_bytes: int | None
    starting_offsets: Mapping[int, int]
    ending_offsets: Mapping[int, int]
    store: Mapping[str, str]


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: "StructType") -> "ArchiveReader":
        return ArchiveReader(parse_options(self.options))

    def streamReader(self, schema: "StructType") -> "ArchiveStreamReader":
        return ArchiveStreamReader(parse_options(self.options))


class SegmentTask(InputPartition):
    """What one task reads."""

    def __init__(self, excerpt: SliceExcerpt) -> None:
        super().__init__(excerpt)
        self.excerpt = excerpt


class ArchiveReader(DataSourceReader):
    """A batch: everything that is in the archive when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.limits = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self.limits = self.limits.narrowed(each)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        source = _Source(self.options)
        return [
            SegmentTask(task)
            for number in source.partitions()
            if self.limits.may_have(number)
            for task in source.tasks(number, self._offsets(source.partition(number)), self.limits.times)
        ]

    def _offsets(self, found: ArchivedPartition) -> OffsetRange:
        """What the options name must be there; a filter only chooses from what is."""
        start = self.options.starting_offsets.get(found.partition, found.start_offset)
        end = self.options.ending_offsets.get(found.partition, found.end_offset)
        first, last = self.limits.offsets
        return OffsetRange(start if first is None else max(start, first), end if last is None else min(end, last))

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return _read(partition)


class ArchiveStreamReader(DataSourceStreamReader):
    """A stream: what is uploaded while it runs."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._archive: Archive | None = None  # has read manifests, which need not be read again for the next batch
        self._position: dict[str, int] | None = None  # the end of the last batch; None: there was none yet

    def __getstate__(self) -> dict[str, object]:
        """Without the archive: the tasks, to which readers are sent, have what they need."""
        return {**self.__dict__, "_archive": None}

    def _source(self) -> "_Source":
        if self._archive is None:
            self._archive = Archive(self.options.url, self.options.store)
        return _Source(self.options, self._archive)

    def initialOffset(self) -> dict[str, int]:
        source = self._source()
        starting = self.options.starting_offsets
        return {str(each): starting.get(each, source.partition(each).start_offset) for each in source.partitions()}

    def latestOffset(self) -> dict[str, int]:
        source = self._source()
        ends = {number: source.end_offset(number) for number in source.partitions()}
        if self.options.max_segments is not None or self.options.max_bytes is not None:
            start = self.initialOffset() if self._position is None else self._position
            ends = limited_ends(
                {int(number): offset for number, offset in start.items()},
                ends,
                {number: source.partition(number).slices for number in ends},
                max_segments=self.options.max_segments,
                max_bytes=self.options.max_bytes,
            )
        return {str(number): end for number, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A partition that `start` does not name is new, and read from its first offset."""
        self._position = end
        source = self._source()
        return [
            SegmentTask(task)
            for name, stop in end.items()
            if start.get(name, -1) < stop
            for task in source.tasks(int(name), OffsetRange(start.get(name), stop), ALL_TIMES)
        ]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return _read(partition)


def limited_ends(
    start: Mapping[int, int],
    ends: Mapping[int, int],
    slices: Mapping[int, Sequence[Slice]],
    *,
    max_segments: int | None,
    max_bytes: int | None,
) -> dict[int, int]:
    """Where a micro-batch from `start` ends, by partition: behind the oldest segments, as many as the limits allow, and
    at least one, or the stream would not go on. Pure."""
    found = {number: min(start.get(number, _first(slices[number])), end) for number, end in ends.items()}
    left = {
        number: deque(each for each in slices[number] if each.end_offset > found[number] and each.start_offset < end)
        for number, end in ends.items()
    }
    oldest = [(each[0].manifest.max_timestamp_ms, number) for number, each in left.items() if each]
    heapify(oldest)
    segments = size = 0
    while oldest:
        _, number = heappop(oldest)
        taken = left[number].popleft()
        segments, size = segments + 1, size + taken.manifest.size
        is_over = (max_segments is not None and segments > max_segments) or (max_bytes is not None and size > max_bytes)
        if is_over and segments > 1:
            return found
        found[number] = min(taken.end_offset, ends[number])
        if left[number]:
            heappush(oldest, (left[number][0].manifest.max_timestamp_ms, number))
    return dict(ends)


def _first(slices: Sequence[Slice]) -> int:
    return slices[0].start_offset if slices else 0


def _read(partition: InputPartition) -> Iterator["RecordBatch"]:
    assert isinstance(partition, SegmentTask)
    return record_batches(partition.excerpt.topic, partition.excerpt.batches())


class _Source:
    """The topic, as it is listed for one plan."""

    def __init__(self, options: SourceOptions, archive: Archive | None = None) -> None:
        self._options = options
        self._archive = Archive(options.url, options.store) if archive is None else archive
        self._topic: ArchivedTopic = self._archive.catalog.topic(options.topic, options.topic_id)
        self._partitions: dict[int, ArchivedPartition] = {}

    def partitions(self) -> list[int]:
        return self._archive.catalog.partitions(self._topic)

    def partition(self, number: int) -> ArchivedPartition:
        if number not in self._partitions:
            topic_id = self._topic.topic_id
            self._partitions[number] = self._archive.partition(self._topic.name, number, topic_id=topic_id)
        return self._partitions[number]

    def end_offset(self, number: int) -> int:
        found = self.partition(number)
        committed = self._options.isolation is Isolation.READ_COMMITTED
        return found.last_stable_offset if committed else found.end_offset

    def tasks(self, number: int, offsets: OffsetRange, times: TimeRange) -> Iterator[SliceExcerpt]:
        return excerpts(
            self._archive,
            self._topic.topic_id,
            self.partition(number),
            offsets=offsets,
            times=times,
            isolation=self._options.isolation,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of the data source, whose names Spark gives in any case. ArchiveError for a wrong one."""
    given = {name.lower(): value for name, value in options.items()}
    url, topic = given.pop("path", None), given.pop("topic", None)
    if not url or not topic:
        raise ArchiveError(f'{FORMAT} needs the URL of the store and option("topic", …)')
    store = StoreOptions(
        {name.removeprefix(STORE_OPTION): given.pop(name) for name in list(given) if name.startswith(STORE_OPTION)}
    )
    fail_on_data_loss = given.pop("failondataloss", "true").lower()
    if fail_on_data_loss not in ("true", "false"):
        raise ArchiveError(f"failOnDataLoss {fail_on_data_loss!r}: it is true or false")
    parsed = SourceOptions(
        url=url,
        topic=topic,
        topic_id=given.pop("topicid", None),
        isolation=isolation_level(given.pop("isolation", Isolation.READ_COMMITTED)),
        fail_on_data_loss=fail_on_data_loss == "true",
        max_segments=_limit("maxSegmentsPerTrigger", given),
        max_bytes=_limit("maxBytesPerTrigger", given),
        starting_offsets=_offsets("startingOffsets", given.pop("startingoffsets", "{}")),
        ending_offsets=_offsets("endingOffsets", given.pop("endingoffsets", "{}")),
        store=store,
    )
    if given:
        raise ArchiveError(f"{FORMAT} has no option {next(iter(given))!r}")
    return parsed


def _limit(name: str, given: dict[str, str]) -> int | None:
    text = given.pop(name.lower(), None)
    if text is not None and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArchiveError(f"{name} {text!r}: it is a number above 0")
    return None if text is None else int(text)


def _offsets(name: str, text: str) -> dict[int, int]:
    try:
        found = json.loads(text)
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError):
        offsets = {-1: -1}
    if not all(isinstance(each, int) and 0 <= each <= MAX_OFFSET for pair in offsets.items() for each in pair):
        raise ArchiveError(f'{name} {text!r}: it is JSON of partitions and offsets, as {{"0": 100}}')
    return offsets


@frozen
class PushedFilters:
    """What the filters of a query leave, at least: they hold together, and Spark applies them once more."""

    partitions: frozenset[int] | None = None
    partition_range: OffsetRange = ALL_OFFSETS
    offsets: OffsetRange = ALL_OFFSETS
    times: TimeRange = ALL_TIMES

    def may_have(self, partition: int) -> bool:
        start, end = self.partition_range
        is_in_range = (start is None or partition >= start) and (end is None or partition < end)
        return is_in_range and (self.partitions is None or partition in self.partitions)

    def narrowed(self, pushed: Filter) -> "PushedFilters":
        """With one more filter, if it says something about partition, offset or timestamp."""
        limits = _limits(pushed)
        if limits is None:
            return self
        column, values, low, high = limits
        if column == "partition" and values is not None:
            return replace(self, partitions=values if self.partitions is None else values & self.partitions)
        if column == "partition":
            return replace(self, partition_range=OffsetRange(*_intersection(self.partition_range, low, high)))
        if values is not None:
            low, high = min(values, default=0), max(values, default=-1) + 1
        if column == "offset":
            return replace(self, offsets=OffsetRange(*_intersection(self.offsets, low, high)))
        return replace(self, times=TimeRange(*_intersection(self.times, low, high)))


def _intersection(
    known: tuple[int | None, int | None], low: int | None, high: int | None
) -> tuple[int | None, int | None]:
    start, end = known
    lows = [each for each in (start, low) if each is not None]
    highs = [each for each in (end, high) if each is not None]
    return max(lows, default=None), min(highs, default=None)


def _limits(pushed: Filter) -> tuple[str, frozenset[int] | None, int | None, int | None] | None:
    """Column, the values it may have or a lower and an exclusive upper limit; None for any other filter."""
    if not isinstance(pushed, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    column = ".".join(pushed.attribute)
    if column not in ("partition", "offset", "timestamp"):
        return None
    raw = pushed.value if isinstance(pushed, In) else (pushed.value,)
    values = [_number(each) for each in raw]
    if not all(isinstance(each, int) for each in values):
        return None
    numbers = frozenset(each for each in values if each is not None)
    if isinstance(pushed, EqualTo | In):
        return column, numbers, None, None
    (number,) = numbers
    if isinstance(pushed, GreaterThan | GreaterThanOrEqual):
        # Of a timestamp the milliseconds count, and there may be microseconds behind them: its own stay in.
        return column, None, number + (isinstance(pushed, GreaterThan) and column != "timestamp"), None
    return column, None, None, number + (isinstance(pushed, LessThanOrEqual) or column == "timestamp")


def _number(value: Any) -> int | None:
    """An int as it is, a timestamp as milliseconds; None for anything else, as one without a time zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - EPOCH) // MILLISECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None
