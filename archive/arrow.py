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
    """Arrow batches of bounded size. A batch of Kafka's that is larger is cut."""
    schema = record_schema()
    gathered: list[ArchivedRecord] = []
    size = 0
    for batch in batches:
        for record in batch:
            gathered.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if len(gathered) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield record_batch(schema, topic, gathered)
                gathered, size = [], 0
    if gathered:
        yield record_batch(schema, topic, gathered)


def write_parquet(path: str, topic: str, batches: Iterable[Sequence[ArchivedRecord]]) -> None:
    """One file with the records, written as they come."""
    load_pyarrow()
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(path, record_schema(), compression="zstd") as writer:
        for batch in record_batches(topic, batches):
            writer.write_batch(batch)


def record_batch(schema: "pyarrow.Schema", topic: str, records: Sequence[ArchivedRecord]) -> "pyarrow.RecordBatch":
    """Column by column; a column that all records leave empty is not looked at record by record."""
    pa = load_pyarrow()
    if not records:
        return pa.RecordBatch.from_pylist([], schema=schema)
    partitions, offsets, timestamps, kinds, keys, values, headers, epochs = zip(*records, strict=True)
    if max(timestamps) > MAX_TIMESTAMP_MS:
        record = max(records, key=lambda each: each.timestamp)
        place = f"partition {record.partition}, offset {record.offset}"
        raise ArchiveError(f"{place}: the timestamp {record.timestamp} ms is beyond what a column of timestamps holds")
    columns = {
        "key": keys,
        "value": values,
        "topic": pa.repeat(topic, len(records)),
        "partition": partitions,
        "offset": offsets,
        "timestamp": [None if each == NO_TIMESTAMP else 1000 * each for each in timestamps],
        "timestampType": [int(each is TimestampType.LOG_APPEND_TIME) for each in kinds],
        "headers": _headers(headers) if any(headers) else pa.nulls(len(records), schema.field("headers").type),
        "leaderEpoch": epochs,
    }
    arrays = [
        columns[field.name] if isinstance(columns[field.name], pa.Array) else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(headers: Sequence[Headers]) -> list[list[dict[str, str | bytes | None]] | None]:
    return [[{"key": _text(key), "value": value} for key, value in each] or None for each in headers]


def _text(key: str) -> str:
    """A header's key; bytes that are not UTF-8 become U+FFFD, as in Kafka's clients."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return key
