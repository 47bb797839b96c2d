"""Reads a TOML file as a `Declaration`, or reports all of its errors.

Paths in the file are relative to the file; an address with a scheme (`s3a://…`, `hdfs://…`) is unchanged. Schema files
are read here, so that a declaration needs no further file, and so that an unreadable schema is reported like any other
error of the declaration.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

from ..errors import InvalidPipeline
from ..expectations.rules import Action, Expectation
from ..sources.bootstrap import DEFAULT_BOOTSTRAP, InvalidAddress, addresses
from ..sources.brokers import security_of
from .ddl import InvalidSchema, parse
from .model import (
    Aggregation,
    Avro,
    ConsoleSink,
    DeadLetters,
    Declaration,
    Decoding,
    Discard,
    IcebergSink,
    Json,
    ParquetSink,
    Positions,
    Protobuf,
    Raw,
    Sink,
    Source,
    Start,
    TopicSink,
    Watermark,
)
from .toml_section import Problems, Section

MAX_FILE_BYTES = 1 << 20
MAX_DESCRIPTOR_BYTES = 16 << 20
PIPELINE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
DELIVERIES = ("at_least_once", "exactly_once")
COLUMN = re.compile(r"[A-Za-z_]\w*")
# Options that Spark's connector refuses or that would break exactly once, and the key to use instead.
TAKEN_OPTIONS = {
    "kafka.bootstrap.servers": "source.bootstrap",
    "subscribe": "source.topics",
    "subscribePattern": "source.pattern",
    "startingOffsets": "source.start",
    "startingTimestamp": "source.start",
    "failOnDataLoss": "source.on_data_loss",
    "maxOffsetsPerTrigger": "source.max_records_per_batch",
    "minPartitions": "source.min_partitions",
}


def read_file(path: str | Path, *, bootstrap: str | None = None) -> Declaration:
    """The declaration in a file; `bootstrap` replaces the address in it."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidPipeline(f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidPipeline(f"{path} has {len(content)} bytes; a pipeline's file has at most {MAX_FILE_BYTES}.")
    try:
        text = content.decode()
        values = tomllib.loads(text)
    except UnicodeDecodeError:
        raise InvalidPipeline(f"{path} is not a text in UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline(f"{path} is not TOML: {error}.") from None
    try:
        return read(values, folder=Path(path).parent, bootstrap=bootstrap, text=text)
    except InvalidPipeline as wrong:
        raise InvalidPipeline([f"{path}: {problem}" for problem in wrong.problems]) from None


def read(
    values: Mapping[str, Any], *, folder: str | Path = ".", bootstrap: str | None = None, text: str = ""
) -> Declaration:
    """The declaration in a dictionary of the same shape as the file."""
    problems = Problems(text)
    declaration = _Reading(Section(values, "", problems), Path(folder).absolute(), bootstrap).declaration()
    if problems.found:
        raise InvalidPipeline(problems.found)
    return declaration


class _Reading:
    def __init__(self, top: Section, folder: Path, bootstrap: str | None) -> None:
        self.top = top
        self.folder = folder
        self.bootstrap = bootstrap

    def declaration(self) -> Declaration:
        name = self.top.needed_text("name", '"orders"')
        if name != "?" and not PIPELINE_NAME.fullmatch(name):
            self.top.add("name", f"'{name}' must be letters, digits, '.', '_' and '-', at most 200.")
        source = self.source()
        watermark = self.watermark()
        aggregation = self.aggregation(watermark)
        distinct_by = self.distinct_by(watermark)
        made = Declaration(
            name=name,
            group=self.top.text("group") or name,
            checkpoint=self.path(self.top.text("checkpoint") or f"checkpoints/{name}"),
            every=self.top.interval("every", "10 seconds") or "",
            source=source,
            decoding=self.decoding(source),
            rules=self.rules(),
            sql=self.sql(),
            watermark=watermark,
            distinct_by=distinct_by,
            aggregation=aggregation,
            sink=self.sink(source),
            dead_letters=self.dead_letters(source),
        )
        self.agree(made)
        self.top.unread()
        return made

    def agree(self, made: Declaration) -> None:
        """Check the rules between sections."""
        if made.aggregation and made.aggregation.emits_updates and made.sink.kind == "parquet":
            self.top.problems.add(
                "aggregate.emit",
                "a Parquet table cannot be changed, only added to; use emit = 'final', or an Iceberg table.",
            )
        if made.may_refuse and not self.top.section("dead_letters").is_there:
            self.top.problems.add(
                "dead_letters",
                "is missing: say where records go that do not decode, such as [dead_letters] kind = 'topic', topic = "
                f"'{made.name}-dead-letters', or kind = 'discard'.",
            )
        where = [made.sink.target, made.dead_letters.target]
        if where[0] == where[1] and made.sink.kind != "console":
            self.top.problems.add("dead_letters", "go where the good records go; name another place.")
        if made.source.archive is not None and made.declares_state:
            self.top.problems.add("source.archive", "cannot be combined with windows and distinct keys.")
        if made.source.archive is not None and made.sink.kind not in ("parquet", "iceberg"):
            self.top.problems.add("source.archive", "needs a table as its sink, which tells what it has already.")
        if isinstance(made.sink, TopicSink) and _is_source(made.source, made.sink.topic):
            self.top.problems.add(
                "sink.topic", f"'{made.sink.topic}' is a source of this pipeline: it would feed itself."
            )

    # -- source --------------------------------------------------------------------------------------------------------

    def source(self) -> Source:
        section = self.top.section("source")
        if not section.is_there:
            section.problems.add("source", "is missing; for example [source] topics = ['orders'].")
            return Source(bootstrap="?")
        topics, pattern = section.texts("topics"), section.text("pattern")
        if (not topics) == (pattern is None) and not (section.raw("topics") is not None and not topics):
            section.add("topics", "name the topics, or give a pattern; one of the two.")
        for topic in topics:
            section.check_topic("topics", topic)
        try:
            re.compile(pattern or "")
        except re.error as error:
            section.add("pattern", f"is not a regular expression: {error}.")
        options = section.table_of_texts("options")
        for key in options:
            if key in TAKEN_OPTIONS:
                section.add(f"options.{key}", f"is said by {TAKEN_OPTIONS[key]}.")
        archive = section.text("archive")
        if archive is not None and pattern is not None:
            section.add("archive", "has topics by name: give topics, and no pattern.")
        if archive is not None and not (section.raw("start") is None is section.raw("start_offsets")):
            section.add("archive", "is where the pipeline begins: leave out start and start_offsets.")
        made = Source(
            archive=archive,
            archive_options=section.table_of_texts("archive_options"),
            bootstrap=self.address(section),
            topics=topics,
            pattern=pattern,
            start=self.start(section),
            max_records_per_batch=section.number("max_records_per_batch"),
            min_partitions=section.number("min_partitions"),
            stops_on_data_loss=section.choice("on_data_loss", ("stop", "skip"), "stop") == "stop",
            options=options,
        )
        section.unread()
        return made

    def address(self, section: Section, default: str | None = None) -> str:
        given = section.text("bootstrap")
        value = self.bootstrap or given or default or os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or DEFAULT_BOOTSTRAP
        try:
            addresses(value)
        except InvalidAddress as error:
            section.add("bootstrap", str(error))
        return value

    def start(self, section: Section) -> Start:
        value, offsets = section.raw("start"), section.raw("start_offsets")
        if offsets is not None:
            if value is not None:
                section.add("start", "and start_offsets cannot both be given.")
            try:
                return Start(offsets=positions(offsets))
            except ValueError as error:
                section.add("start_offsets", f"{error}.")
                return Start()
        if value in (None, "earliest"):
            return Start()
        if value == "latest":
            return Start(at="latest")
        try:
            return Start(timestamp_ms=milliseconds(value))
        except ValueError as error:
            section.add("start", f"{error}.")
            return Start()

    # -- decoding ------------------------------------------------------------------------------------------------------

    def decoding(self, source: Source) -> Decoding:
        section = self.top.section("decode")
        kind = section.choice("format", ("raw", "json", "avro", "protobuf"), None if section.is_there else "raw")
        made: Decoding = Raw()
        if kind == "json":
            made = self.json(section, source)
        elif kind == "avro":
            made = self.avro(section, source)
        elif kind == "protobuf":
            made = self.protobuf(section, source)
        if kind is not None:
            section.unread(("schema", "schema_file", "registry", "subject", "descriptor", "message", "framing"))
        return made

    def registry(self, section: Section, source: Source) -> tuple[str | None, str | None]:
        """The URL of a registry, and the subject whose schema is meant."""
        registry = section.text("registry")
        if registry is not None and not re.match(r"https?://\S+$", registry):
            section.add("registry", f"'{registry}' is not an address that begins with http:// or https://.")
        subject = section.text("subject")
        if registry and subject is None and len(source.topics) == 1:
            subject = f"{source.topics[0]}-value"
        return registry, subject

    def is_framed(self, section: Section, default: str) -> bool:
        return section.choice("framing", ("confluent", "none"), default) == "confluent"

    def json(self, section: Section, source: Source) -> Json:
        registry, subject = self.registry(section, source)
        is_framed = self.is_framed(section, "none" if registry is None else "confluent")
        if registry is not None and not {"schema", "schema_file"} & section.values.keys():
            if subject is None:
                section.add("subject", "is missing: with several topics it is not clear whose schema is meant.")
            return Json(ddl="", fields=(), registry=registry, subject=subject, is_framed=is_framed)
        ddl = section.text("schema")
        file = self.content(section, "schema_file")
        if (ddl is None) == (file is None) and "schema_file" not in section.values:
            section.add("schema", "is missing; for example schema = 'id BIGINT NOT NULL, amount DOUBLE'.")
        elif ddl is not None and file is not None:
            section.add("schema", "and schema_file cannot both be given.")
        key = "schema" if ddl is not None else "schema_file"
        ddl = ddl if ddl is not None else (file or b"").decode(errors="replace")
        try:
            return Json(ddl=ddl, fields=parse(ddl) if ddl else (), is_framed=is_framed)
        except InvalidSchema as error:
            section.add(key, f"{error}.")
            return Json(ddl=ddl, fields=())

    def avro(self, section: Section, source: Source) -> Avro:
        schema = self.content(section, "schema_file")
        registry, subject = self.registry(section, source)
        if schema is None and "schema_file" not in section.values:
            if registry is None:
                section.add("schema_file", "is missing: give a schema file, or the URL of a registry.")
            elif subject is None:
                section.add("subject", "is missing: with several topics it is not clear whose schema is meant.")
        writers = {}
        given = section.section("writers")
        for id in given.values:
            content = self.content(given, id)
            if not id.isdigit() or int(id) >= 1 << 31:
                given.add(id, "must be a schema's id, a number.")
            elif content is not None:
                writers[int(id)] = self.avro_text(given, id, content)
        return Avro(
            schema=None if schema is None else self.avro_text(section, "schema_file", schema),
            registry=registry,
            subject=subject,
            writers=writers,
            is_framed=self.is_framed(section, "confluent"),
        )

    def avro_text(self, section: Section, key: str, content: bytes) -> str:
        try:
            schema = json.loads(content)
            if not isinstance(schema, dict) or schema.get("type") != "record":
                section.add(key, "must be an Avro schema whose type is record.")
        except ValueError as error:
            section.add(key, f"is not JSON, which an Avro schema is: {error}.")
        return content.decode(errors="replace")

    def protobuf(self, section: Section, source: Source) -> Protobuf:
        registry, subject = self.registry(section, source)
        is_framed = self.is_framed(section, "none" if registry is None else "confluent")
        if registry is not None and "descriptor" not in section.values:
            if subject is None:
                section.add("subject", "is missing: with several topics it is not clear whose schema is meant.")
            message = section.text("message") or ""
            return Protobuf(descriptor=b"", message=message, is_framed=is_framed, registry=registry, subject=subject)
        descriptor = self.content(section, "descriptor", MAX_DESCRIPTOR_BYTES)
        if descriptor is None and "descriptor" not in section.values:
            section.add(
                "descriptor", "is missing: protoc --include_imports --descriptor_set_out=orders.desc orders.proto."
            )
        return Protobuf(
            descriptor=descriptor or b"",
            message=section.needed_text("message", '"shop.Order"'),
            is_framed=is_framed,
        )

    def rules(self) -> tuple[Expectation, ...]:
        """`name = "SQL"` drops, `name = { sql = "SQL", action = "warn" }` says what to do."""
        section = self.top.section("validate")
        found = []
        for name, value in section.values.items():
            if isinstance(value, str | bool | int | float):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                section.raw(name)
                found.append(Expectation(name=name, condition=text, action="drop"))
                continue
            inner = section.section(name)
            condition = inner.needed_text("sql", '"amount > 0"')
            action = inner.choice("action", ("warn", "drop", "fail"), "drop")
            inner.unread()
            if action in ("warn", "drop", "fail"):
                found.append(Expectation(name=name, condition=condition, action=cast(Action, action)))
        return tuple(found)

    # -- between source and sink ---------------------------------------------------------------------------------------

    def sql(self) -> str | None:
        section = self.top.section("transform")
        value = section.needed_text("sql", '"SELECT * FROM records"') if section.is_there else None
        section.unread()
        if value is not None and value != "?" and not re.match(r"\s*(select|with)\b", value, re.I):
            section.add("sql", "must be one SELECT from the view 'records'.")
        return value

    def watermark(self) -> Watermark | None:
        section = self.top.section("watermark")
        if not section.is_there:
            return None
        column, delay = section.needed_text("column", '"at"'), section.interval("delay")
        if delay is None and "delay" not in section.values:
            section.add("delay", "is missing; for example delay = '10 minutes'.")
        section.unread()
        return Watermark(column=column, delay=delay or "1 minute")

    def distinct_by(self, watermark: Watermark | None) -> tuple[str, ...]:
        section = self.top.section("deduplicate")
        if not section.is_there:
            return ()
        keys = section.texts("keys")
        if not keys and "keys" not in section.values:
            section.add("keys", "is missing; for example keys = ['order_id'].")
        if watermark is None:
            section.add("", "needs a [watermark]: without one, every key would have to be remembered for ever.")
        section.unread()
        return keys

    def aggregation(self, watermark: Watermark | None) -> Aggregation | None:
        section = self.top.section("aggregate")
        if not section.is_there:
            return None
        window = section.interval("window")
        if window is None and "window" not in section.values:
            section.add("window", "is missing; for example window = '1 minute'.")
        if watermark is None:
            section.add("", "needs a [watermark]: without one, no window is ever finished.")
        by, columns = section.texts("by"), section.table_of_texts("columns")
        if not columns and "columns" not in section.values:
            section.add("columns", "is missing; for example columns = { revenue = 'sum(amount)' }.")
        for name in columns:
            if not COLUMN.fullmatch(name) or name in (*by, "window_start", "window_end"):
                section.add(f"columns.{name}", "cannot be a column's name here, or is taken.")
        made = Aggregation(
            window=window or "1 minute",
            slide=section.interval("slide"),
            by=by,
            columns=columns,
            emits_updates=section.choice("emit", ("final", "updates"), "final") == "updates",
        )
        section.unread()
        return made

    # -- sinks ---------------------------------------------------------------------------------------------------------

    def sink(self, source: Source) -> Sink:
        section = self.top.section("sink")
        if not section.is_there:
            section.problems.add("sink", "is missing; for example [sink] kind = 'parquet', path = 'tables/orders'.")
            return ConsoleSink()
        kind = section.choice("kind", ("parquet", "iceberg", "topic", "console"))
        made = self.sink_of(kind, section, source)
        if kind is not None:
            section.unread(("path", "table", "topic", "warehouse", "partition_by", "on_unknown_rows"))
        return made

    def dead_letters(self, source: Source) -> DeadLetters:
        section = self.top.section("dead_letters")
        if not section.is_there:
            return Discard()
        kind = section.choice("kind", ("topic", "parquet", "iceberg", "console", "discard"))
        made: DeadLetters = Discard()
        if kind == "topic":
            address = self.address(section, source.bootstrap)
            made = TopicSink(topic=section.topic("topic"), bootstrap=address, security=security_for(address, source))
        elif kind != "discard":
            made = self.sink_of(kind, section, source)
        if kind is not None:
            section.unread(("path", "table", "topic", "warehouse"))
        return made

    def sink_of(self, kind: str | None, section: Section, source: Source) -> Sink:
        if kind == "parquet":
            path = self.path(section.needed_text("path", '"tables/orders"'))
            return ParquetSink(
                path=path,
                partition_by=section.texts("partition_by"),
                takes_unknown_rows=self.takes_unknown_rows(section),
            )
        if kind == "iceberg":
            return self.iceberg(section)
        if kind == "topic":
            address = self.address(section, source.bootstrap)
            return TopicSink(
                topic=section.topic("topic"),
                bootstrap=address,
                security=security_for(address, source),
                key=section.text("key"),
                value=section.text("value"),
                is_exactly_once=section.choice("delivery", DELIVERIES, "at_least_once") == "exactly_once",
            )
        return ConsoleSink(rows=(section.number("rows") if kind == "console" else None) or 20)

    def iceberg(self, section: Section) -> IcebergSink:
        table = section.needed_text("table", '"shop.orders"')
        if table != "?" and not re.fullmatch(r"\w+(\.\w+)+", table):
            section.add("table", f"'{table}' must be namespace.name, such as shop.orders.")
        catalog = section.text("catalog") or "trioka"
        if not COLUMN.fullmatch(catalog):
            section.add("catalog", f"'{catalog}' must be one word.")
        properties = section.table_of_texts("properties")
        warehouse = section.text("warehouse")
        if warehouse is None and not {"type", "catalog-impl"} & properties.keys():
            section.add("warehouse", "is missing: a folder for the tables, or the properties of another catalog.")
        return IcebergSink(
            catalog=catalog,
            table=table,
            warehouse=self.path(warehouse) if warehouse else None,
            properties=properties,
            partition_by=section.texts("partition_by"),
            takes_unknown_rows=self.takes_unknown_rows(section),
        )

    def takes_unknown_rows(self, section: Section) -> bool:
        return section.choice("on_unknown_rows", ("stop", "append"), "stop") == "append"

    # -- files ---------------------------------------------------------------------------------------------------------

    def path(self, given: str) -> str:
        if re.match(r"[a-zA-Z][\w+.-]+:/", given):
            return given.rstrip("/")
        return os.path.normpath(self.folder / os.path.expanduser(given))

    def content(self, section: Section, key: str, limit: int = MAX_FILE_BYTES) -> bytes | None:
        """The content of the file that a key names; None if there is no such key, or if the file cannot be read."""
        name = section.text(key)
        if name is None:
            return None
        try:
            found = Path(self.path(name)).read_bytes()
        except OSError as error:
            section.add(key, f"{name} cannot be read: {error.strerror}.")
            return None
        if len(found) > limit:
            section.add(key, f"{name} has {len(found)} bytes; at most {limit} are read.")
            return None
        return found


def security_for(bootstrap: str, source: Source) -> Mapping[str, str]:
    """The options of TLS and logins of a sink: those of the source, on the same brokers."""
    return security_of(source.options) if bootstrap == source.bootstrap else {}


def _is_source(source: Source, topic: str) -> bool:
    try:
        return topic in source.topics or (source.pattern is not None and bool(re.fullmatch(source.pattern, topic)))
    except re.error:  # already reported
        return False


def positions(given: object) -> Positions:
    """`{"orders": {"0": 23}}` as topic → partition → offset."""
    if not isinstance(given, Mapping):
        raise ValueError("must be like { orders = { 0 = 23, 1 = 42 } }")
    found: dict[str, dict[int, int]] = {}
    for topic, offsets in given.items():
        if not isinstance(offsets, Mapping):
            raise ValueError(f"{topic} must be a table of offsets by partition")
        for partition, offset in offsets.items():
            if not str(partition).isdigit() or type(offset) is not int or offset < -2:
                raise ValueError(f"{topic}: {partition} = {offset!r} is not an offset of a partition")
            found.setdefault(str(topic), {})[int(partition)] = offset
    return found


def milliseconds(given: object) -> int:
    """A point in time, from TOML, ISO 8601 or milliseconds since 1970. Without a zone it is UTC."""
    if type(given) is int and given >= 0:
        return given
    try:
        if isinstance(given, str):
            given = int(given) if given.isdigit() else datetime.fromisoformat(given)
            if isinstance(given, int):
                return given
        if isinstance(given, date) and not isinstance(given, datetime):
            given = datetime(given.year, given.month, given.day)
        if isinstance(given, datetime):
            return int((given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{given!r} is neither earliest, latest, nor a time such as 2026-11-16T08:00:00Z")
