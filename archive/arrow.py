"""Records as Arrow batches, for Parquet, Spark and Iceberg; with the columns of Spark's Kafka source.

    key BINARY · value BINARY · topic STRING · partition INT · offset BIGINT · timestamp TIMESTAMP · timestampType INT
    · headers ARRAY<STRUCT<key STRING, value BINARY>> · leaderEpoch INT

A record without a timestamp (-1) has null. pyarrow is imported when the first batch is made.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from trioka.protocol.record import Headers

from .errors import ArchiveError
from .records import ArchivedRecord, TimestampType

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Of keys and values; a batch ends with the record that reaches either limit."""

MAX_TIMESTAMP_MS: Final = (1 << 63) // 1000 - 1
"""Arrow, Spark and Iceberg count microseconds."""

NO_TIMESTAMP: Final = -1


def record_schema() -> "pyarrow.Schema":
    pa = load_pyarrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32(), nullable=False),
            pa.field("headers", pa.list_(pa.field("element", header, nullable=False))),
            pa.field("leaderEpoch", pa.int32(), nullable=False),
        ]
    )


def load_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ArchiveError("this needs pyarrow: pip install 'trioka[archive]'") from error
    return pyarrow


def record_batches(topic: str, batches: Iterable[Sequence[ArchivedRecord]]) -> Iterator["pyarrow.RecordBatch"]:
    """Arrow batches of bounded size; each has whole batches of Kafka's, or a part of a large one."""
    schema = record_schema()
    gathered = RecordColumns()
    for batch in batches:
        for start in range(0, len(batch), BATCH_ROWS):
            gathered.add(batch[start : start + BATCH_ROWS])
            if gathered.rows >= BATCH_ROWS or gathered.size >= BATCH_BYTES:
                yield gathered.made(schema, topic)
                gathered = RecordColumns()
    if gathered.rows:
        yield gathered.made(schema, topic)


def write_parquet(path: str, topic: str, batches: Iterable[Sequence[ArchivedRecord]]) -> None:
    """One file with the records, written as they come."""
    load_pyarrow()
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(path, record_schema(), compression="zstd") as writer:
        for batch in record_batches(topic, batches):
            writer.write_batch(batch)


def record_batch(schema: "pyarrow.Schema", topic: str, records: Sequence[ArchivedRecord]) -> "pyarrow.RecordBatch":
    gathered = RecordColumns()
    gathered.add(records)
    return gathered.made(schema, topic)


class RecordColumns:
    """Records as columns. The records themselves are not kept: the garbage collector would look at each of them again
    and again, as it does not at bytes and numbers."""

    __slots__ = ("epochs", "headers", "keys", "kinds", "offsets", "partitions", "rows", "size", "timestamps", "values")

    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.kinds: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.epochs: list[int] = []
        self.rows = self.size = 0

    def add(self, records: Sequence[ArchivedRecord]) -> None:
        if not records:
            return
        partitions, offsets, timestamps, kinds, keys, values, headers, epochs = zip(*records, strict=True)
        self.partitions += partitions
        self.offsets += offsets
        self.timestamps += timestamps
        self.kinds += [int(each is TimestampType.LOG_APPEND_TIME) for each in kinds]
        self.keys += keys
        self.values += values
        self.headers += headers
        self.epochs += epochs
        self.rows += len(records)
        self.size += sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))

    def made(self, schema: "pyarrow.Schema", topic: str) -> "pyarrow.RecordBatch":
        pa = load_pyarrow()
        if max(self.timestamps, default=0) > MAX_TIMESTAMP_MS:
            number = self.timestamps.index(max(self.timestamps))
            place = f"partition {self.partitions[number]}, offset {self.offsets[number]}"
            raise ArchiveError(f"{place}: the timestamp {self.timestamps[number]} ms is beyond what a column can hold")
        columns: dict[str, Any] = {
            "key": self.keys,
            "value": self.values,
            "topic": [topic] * self.rows,
            "partition": self.partitions,
            "offset": self.offsets,
            "timestamp": [None if each == NO_TIMESTAMP else 1000 * each for each in self.timestamps],
            "timestampType": self.kinds,
            "headers": _headers(self.headers) if any(self.headers) else [None] * self.rows,
            "leaderEpoch": self.epochs,
        }
        return pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in schema], schema=schema)


def _headers(headers: Sequence[Headers]) -> list[list[dict[str, str | bytes | None]] | None]:
    return [[{"key": _text(key), "value": value} for key, value in each] or None for each in headers]


def _text(key: str) -> str:
    """A header's key; bytes that are not UTF-8 become U+FFFD, as in Kafka's clients."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return key
