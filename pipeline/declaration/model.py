"""A pipeline as data: the validated content of one TOML file, with every path and default filled in.

    source → decode → validate → transform → deduplicate → aggregate → sink
                 ╰────────┴→ dead letters

`declaration/toml_reader.py` makes a `Declaration` from a file or a dictionary; nothing else does, so these invariants
hold: a windowed aggregate has its watermark, a topic pattern compiles, a schema parses.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from trioka.protocol.lazy_dataclass import frozen

from ..expectations.rules import Expectation
from ..sources.brokers import Brokers, security_of
from .ddl import Field

# Topic → partition → offset: the format of positions in Spark and in commits.
Positions = Mapping[str, Mapping[int, int]]


@frozen
class Start:
    """The start of a pipeline without a checkpoint: an end, a time, or offsets. Later runs use the checkpoint."""

    at: Literal["earliest", "latest"] = "earliest"
    timestamp_ms: int | None = None
    offsets: Positions | None = None

    def __str__(self) -> str:
        if self.offsets is not None:
            return "given offsets"
        return self.at if self.timestamp_ms is None else f"timestamp {self.timestamp_ms}"


@frozen
class Source:
    """Topics by name, or by a pattern, but not both. `options` are passed to Spark's connector unchanged."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Start = Start()
    max_records_per_batch: int | None = None
    min_partitions: int | None = None
    stops_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    archive: str | None = None  # the URL of the object store in which the pipeline begins
    archive_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def brokers(self) -> Brokers:
        return Brokers(bootstrap=self.bootstrap, security=security_of(self.options))


@frozen
class Raw:
    """The value stays bytes."""

    format: Literal["raw"] = "raw"


@frozen
class Json:
    """`ddl` is the schema in Spark's syntax, `fields` the result of `ddl.parse`. With a `registry`, both come from the
    newest JSON Schema of the `subject`, when the pipeline starts. `is_framed`: a schema id precedes the data.
    """

    ddl: str
    fields: tuple[Field, ...]
    registry: str | None = None
    subject: str | None = None
    is_framed: bool = False
    format: Literal["json"] = "json"


@frozen
class Avro:
    """`schema` is the reader's, as text; None uses the newest of `subject` in the registry. `writers` are the schemas
    by id where there is no registry. `is_framed`: a schema id precedes the data.
    """

    schema: str | None
    registry: str | None
    subject: str | None
    writers: Mapping[int, str]
    is_framed: bool
    format: Literal["avro"] = "avro"


@frozen
class Protobuf:
    """`descriptor` is a compiled FileDescriptorSet, `message` the full name of a message in it. With a `registry`, the
    newest schema of the `subject` is compiled when the pipeline starts, and no `message` is the first one in it.
    """

    descriptor: bytes = field(repr=False)
    message: str
    is_framed: bool
    registry: str | None = None
    subject: str | None = None
    format: Literal["protobuf"] = "protobuf"


Decoding = Raw | Json | Avro | Protobuf


@frozen
class Watermark:
    """How late a record may come, by one of its columns; stateful steps drop later records."""

    column: str
    delay: str


@frozen
class Aggregation:
    """`columns` are SQL aggregates by name. `emits_updates`: a window is written each time it changes, and replaces its
    earlier row; otherwise it is written once, when the watermark has passed its end.
    """

    window: str
    slide: str | None
    by: tuple[str, ...]
    columns: Mapping[str, str]
    emits_updates: bool


@frozen
class ParquetSink:
    """`takes_unknown_rows`: the table may contain rows of unknown origin."""

    path: str
    partition_by: tuple[str, ...] = ()
    takes_unknown_rows: bool = False
    kind: Literal["parquet"] = "parquet"

    @property
    def target(self) -> str:
        return f"Parquet table {self.path}"


@frozen
class IcebergSink:
    """`table` is `namespace.name` in the catalog. A `warehouse` is a folder, whose tables are listed in a SQLite file
    or, if it has a scheme, by its own folders; `properties` are those of Iceberg's Spark catalog, and take precedence.
    `takes_unknown_rows`: the table may contain rows of unknown origin.
    """

    catalog: str
    table: str
    warehouse: str | None
    properties: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    takes_unknown_rows: bool = False
    kind: Literal["iceberg"] = "iceberg"

    @property
    def full_name(self) -> str:
        return ".".join(f"`{part}`" for part in (self.catalog, *self.table.split(".")))

    @property
    def target(self) -> str:
        return f"Iceberg table {self.catalog}.{self.table}"


@frozen
class TopicSink:
    """`key` and `value` are SQL expressions; without them there is no key, and the value is the row as JSON.
    `is_exactly_once`: batches are written by transactions, into a topic that has each row once for readers of committed
    records. `security` are the source's options of TLS and logins, if the topic is on the same brokers.
    """

    topic: str
    bootstrap: str
    key: str | None = None
    value: str | None = None
    is_exactly_once: bool = False
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    kind: Literal["topic"] = "topic"

    @property
    def target(self) -> str:
        return f"topic {self.topic}"


@frozen
class ConsoleSink:
    rows: int = 20
    kind: Literal["console"] = "console"

    @property
    def target(self) -> str:
        return "the console"


@frozen
class Discard:
    """Drop dead letters. This must be declared: a missing section is an error."""

    kind: Literal["discard"] = "discard"

    @property
    def target(self) -> str:
        return "nowhere"


Sink = ParquetSink | IcebergSink | TopicSink | ConsoleSink
DeadLetters = Sink | Discard


@frozen
class Declaration:
    """One pipeline. `group` is the consumer group to which it commits its progress."""

    name: str
    group: str
    checkpoint: str
    every: str
    source: Source
    decoding: Decoding
    rules: tuple[Expectation, ...]
    sql: str | None
    watermark: Watermark | None
    distinct_by: tuple[str, ...]
    aggregation: Aggregation | None
    sink: Sink
    dead_letters: DeadLetters

    @property
    def declares_state(self) -> bool:
        """Whether the file declares state. SQL may need state too, which only Spark's plan shows: see state.py."""
        return bool(self.distinct_by) or self.aggregation is not None

    @property
    def may_refuse(self) -> bool:
        """Whether a record can become a dead letter."""
        return self.decoding.format != "raw" or any(rule.action == "drop" for rule in self.rules)
