"""Appends a topic of the archive to an Iceberg table, each record once.

    archive ──▶ records ──▶ Arrow ──▶ one commit: data files, and the offsets in the snapshot's properties

A sync reads the offsets from the table (table_progress.py) and goes on from there, so it is started again after a crash
without losing or repeating a row; the first one fills the table from the archive's start. A commit is made for every
`TARGET_BYTES` of records, and for the rest.

**Two syncs at once.** pyiceberg repeats a commit that lost a race by default, which would append the same records
twice. The tables have `commit.retry.num-retries=0`, and the commit of a sync whose table has changed is refused. The
sync then reads the table again: if the offsets are still its own (the change was maintenance), it repeats the commit;
otherwise another sync is at work, and this one ends with `ConcurrentSync`.

**Dead letters.** With a `ValueDecoder`, the column `value` is what it returns. A value that it refuses goes to the
table `<name>_dlq` as it is, with the reason. Two tables have no common commit, so the dead letters are committed first,
with the offsets that they cover. After a crash in between, those that are there already are left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .archive import Archive
from .arrow import BATCH_BYTES, BATCH_ROWS, load_pyarrow, record_batch, record_schema
from .catalog import ArchivedTopic
from .errors import ArchiveError, StoreUnavailable
from .records import ArchivedRecord
from .table_progress import ConcurrentSync, ForeignTable, TableProgress, read_progress

TARGET_BYTES: Final = 128 * 1024 * 1024
COMMIT_ATTEMPTS: Final = 3
DEAD_LETTERS: Final = "_dlq"
RETRIES: Final = "commit.retry.num-retries"
CATALOG_LIBRARIES: Final = frozenset({"botocore", "pyiceberg", "pyarrow", "pydantic_core", "requests", "sqlalchemy"})

Table: TypeAlias = Any  # pyiceberg's, which is imported where a catalog is opened
Row: TypeAlias = tuple[ArchivedRecord, Any]


class Undecodable(Exception):
    """A value that does not follow its schema; the message says why."""


class ValueDecoder(Protocol):
    """Makes values of a type of Arrow. Raises `Undecodable` for a value that is to be a dead letter."""

    @property
    def type(self) -> Any: ...

    def __call__(self, value: bytes) -> Any: ...


@frozen
class SyncResult:
    """What a sync did, or one commit of it."""

    rows: int
    dead_letters: int
    commits: int
    offsets: Mapping[int, int]


class TableSync:
    def __init__(
        self,
        archive: Archive,
        topic: ArchivedTopic,
        catalog: Any,
        name: str,
        *,
        decoder: ValueDecoder | None = None,
        fail_on_data_loss: bool = True,
        target_bytes: int = TARGET_BYTES,
        progress: Callable[[SyncResult], None] = lambda _: None,
    ) -> None:
        self._archive = archive
        self._topic = topic
        self._decoder = decoder
        self._fail_on_data_loss = fail_on_data_loss
        self._target_bytes = target_bytes
        self._progress = progress
        self._rows = _TableWriter(catalog, name, topic, self._schema())
        self._dead = (
            None if decoder is None else _TableWriter(catalog, name + DEAD_LETTERS, topic, dead_letter_schema())
        )

    def run(self) -> SyncResult:
        """Everything that is in the archive now."""
        total = SyncResult(rows=0, dead_letters=0, commits=0, offsets=self._rows.progress.offsets)
        for gathered, offsets in self._chunks():
            done = self._commit(gathered, offsets)
            self._progress(done)
            total = SyncResult(
                rows=total.rows + done.rows,
                dead_letters=total.dead_letters + done.dead_letters,
                commits=total.commits + 1,
                offsets=done.offsets,
            )
        return total

    def _schema(self) -> Any:
        schema = record_schema()
        if self._decoder is None:
            return schema
        place = schema.get_field_index("value")
        return schema.set(place, load_pyarrow().field("value", self._decoder.type))

    def _chunks(self) -> Iterator[tuple[list[ArchivedRecord], dict[int, int]]]:
        """Records of about `target_bytes`, and the offsets of the table once they are in it."""
        offsets = dict(self._rows.progress.offsets)
        gathered: list[ArchivedRecord] = []
        size = 0
        for partition in self._archive.catalog.partitions(self._topic):
            records = self._archive.records(
                self._topic.name,
                partition,
                offsets=(offsets.get(partition), None),
                topic_id=self._topic.topic_id,
                fail_on_data_loss=self._fail_on_data_loss,
            )
            for batch in records.batches():
                gathered += batch
                size += sum(len(record.key or b"") + len(record.value or b"") for record in batch)
                if batch:
                    offsets[partition] = batch[-1].offset + 1
                if size >= self._target_bytes:
                    yield gathered, dict(offsets)
                    gathered, size = [], 0
            offsets[partition] = records.position
        if gathered:
            yield gathered, offsets

    def _commit(self, gathered: Sequence[ArchivedRecord], offsets: Mapping[int, int]) -> SyncResult:
        rows, dead = self._decoded(gathered)
        if dead and self._dead is not None:
            known = self._dead.offsets_since(self._rows.progress)
            fresh = [each for each in dead if (each[0].partition, each[0].offset) not in known]
            if fresh:
                self._dead.append(_dead_letter_table(self._topic.name, fresh), offsets)
        self._rows.append(self._row_table(rows), offsets)
        return SyncResult(rows=len(rows), dead_letters=len(dead), commits=1, offsets=offsets)

    def _decoded(self, gathered: Sequence[ArchivedRecord]) -> tuple[list[Row], list[tuple[ArchivedRecord, str]]]:
        """The records with their values, and the dead letters with their reasons."""
        if self._decoder is None:
            return [(record, record.value) for record in gathered], []
        rows: list[Row] = []
        dead: list[tuple[ArchivedRecord, str]] = []
        pa = load_pyarrow()
        for record in gathered:
            try:
                value = None if record.value is None else self._decoder(record.value)
                pa.array([value], self._decoder.type)  # what no column can hold is a dead letter, too
            except (Undecodable, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                dead.append((record, str(error) or type(error).__name__))
            else:
                rows.append((record, value))
        return rows, dead

    def _row_table(self, rows: Sequence[Row]) -> Any:
        pa = load_pyarrow()
        schema = self._schema()
        batches = []
        for part in _parts(rows):
            batch = record_batch(record_schema(), self._topic.name, [record for record, _ in part])
            if self._decoder is not None:
                values = pa.array([value for _, value in part], self._decoder.type)
                columns = [values if field.name == "value" else batch.column(field.name) for field in schema]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            batches.append(batch)
        return pa.Table.from_batches(batches, schema=schema)


class _TableWriter:
    """One table of the catalog: its progress, and commits that are refused if it has changed."""

    def __init__(self, catalog: Any, name: str, topic: ArchivedTopic, schema: Any) -> None:
        self._name = name
        self._topic = topic
        with _explained(name):
            self._table = self._open(catalog, schema)
        self._check_columns(schema)
        self.progress = self._read()

    def _check_columns(self, schema: Any) -> None:
        """ForeignTable if the table was made for other records: raw ones, or those of another schema."""
        has = {field.name: str(field.field_type) for field in self._table.schema().fields}
        if set(has) != set(schema.names):
            raise ForeignTable(
                f"the table {self._name} has the columns {', '.join(has)}, not {', '.join(schema.names)}"
            )
        is_struct, wants_struct = (
            has["value"].startswith("struct"),
            str(schema.field("value").type).startswith("struct"),
        )
        if is_struct != wants_struct:
            what = "structs" if is_struct else "bytes"
            raise ForeignTable(f"the values of the table {self._name} are {what}; sync it as it was made")

    def append(self, rows: Any, offsets: Mapping[int, int]) -> None:
        """The rows and the offsets, both or none."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        moved = replace(self.progress, offsets=dict(offsets))
        for _ in range(COMMIT_ATTEMPTS):
            try:
                with _explained(self._name), self._table.transaction() as transaction:
                    transaction.set_properties(moved.properties())
                    transaction.append(rows, snapshot_properties=moved.properties())
            except CommitFailedException:
                with _explained(self._name):
                    self._table.refresh()
                if self._read() != self.progress:
                    raise ConcurrentSync(f"another sync is writing to the table {self._name}; one is enough") from None
            except CommitStateUnknownException as error:
                what = f"the catalog did not say whether the commit to {self._name} was made: run the sync again"
                raise StoreUnavailable(what) from error
            else:
                self.progress = moved
                return
        raise ConcurrentSync(
            f"the table {self._name} changed during each of {COMMIT_ATTEMPTS} commits; try again later"
        )

    def offsets_since(self, other: TableProgress) -> set[tuple[int, int]]:
        """Partition and offset of the rows that this table has and the other, which is committed later, has not."""
        ahead = [each for each, offset in self.progress.offsets.items() if offset > other.offsets.get(each, 0)]
        if not ahead:
            return set()
        first = min(other.offsets.get(each, 0) for each in ahead)
        with _explained(self._name):
            found = self._table.scan(f"offset >= {first}", selected_fields=("partition", "offset")).to_arrow()
        return set(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))

    def _open(self, catalog: Any, schema: Any) -> Table:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            table = catalog.load_table(self._name)
        except NoSuchTableError:
            try:
                catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                table = catalog.create_table(self._name, schema=schema, properties={RETRIES: "0"})
            except TableAlreadyExistsError:
                table = catalog.load_table(self._name)
        if table.properties.get(RETRIES) != "0":
            with table.transaction() as transaction:
                transaction.set_properties({RETRIES: "0"})
        return table

    def _read(self) -> TableProgress:
        return read_progress(
            self._name,
            self._snapshots(),
            self._table.properties,
            topic=self._topic.name,
            topic_id=self._topic.id_text,
        )

    def _snapshots(self) -> Iterator[Mapping[str, str]]:
        """The properties of the snapshots from the current one back."""
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            yield {} if snapshot.summary is None else snapshot.summary.additional_properties
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of the catalog and of its files as one sentence. What decides about the commit passes as it is."""
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        TableAlreadyExistsError,
    )

    try:
        yield
    except (
        ArchiveError,
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        TableAlreadyExistsError,
    ):
        raise
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CATALOG_LIBRARIES:
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise StoreUnavailable(f"the table {name}: {first_line}") from error
        if isinstance(error, ValueError):  # by which pyiceberg refuses rows that have other columns
            raise ForeignTable(f"the table {name} does not take the rows: {str(error).splitlines()[0]}") from error
        raise


def dead_letter_schema() -> Any:
    """The columns of the records, and why the value was refused."""
    pa = load_pyarrow()
    return record_schema().append(pa.field("reason", pa.string(), nullable=False))


def _dead_letter_table(topic: str, dead: Sequence[tuple[ArchivedRecord, str]]) -> Any:
    pa = load_pyarrow()
    batch = record_batch(record_schema(), topic, [record for record, _ in dead])
    reasons = pa.array([reason for _, reason in dead], pa.string())
    return pa.Table.from_arrays([*batch.columns, reasons], schema=dead_letter_schema())


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows in parts that an Arrow batch can hold."""
    start = size = 0
    for number, (record, _) in enumerate(rows):
        size += len(record.key or b"") + len(record.value or b"")
        if number + 1 - start >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows[start : number + 1]
            start, size = number + 1, 0
    if start < len(rows):
        yield rows[start:]


def open_catalog(name: str, options: Mapping[str, str]) -> Any:
    """A catalog of pyiceberg's configuration, or of the options."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ArchiveError(f"this needs {error.name}: pip install 'trioka[table]'") from error
    try:
        return load_catalog(name, **options)
    except Exception as error:  # pyiceberg's catalogs raise what their libraries raise
        raise ArchiveError(f"the catalog {name}: {str(error).strip().splitlines()[0]}") from error
