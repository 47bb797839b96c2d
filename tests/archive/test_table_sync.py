"""An Iceberg table gets each record of the archive once: after restarts, beside another sync, and with dead letters."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from mutants.plant import assert_noticed, within
from pyiceberg.catalog.sql import SqlCatalog
from support.archive_objects import Objects, append_records, digest, new_log, objects_of, sample_log
from support.archive_stores import put_objects
from support.log_fixtures import NOW_MS

from trioka.archive import Archive
from trioka.archive import table_sync as sync_module
from trioka.archive.table_progress import ConcurrentSync, ForeignTable
from trioka.archive.table_sync import SyncResult, Undecodable
from trioka.protocol.record import Record

NAME = "shop.orders"
SyncRule = Callable[[ModuleType, str, SqlCatalog], None]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    yield made
    made.engine.dispose()


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return (tmp_path / "store").as_uri()


@pytest.fixture
def syncs() -> ModuleType:
    return sync_module


def sync_of(syncs: ModuleType, store: str, catalog: SqlCatalog, **options: Any) -> Any:
    archive = Archive(store)
    return syncs.TableSync(archive, archive.catalog.topic("orders"), catalog, NAME, **options)


def rows_of(catalog: SqlCatalog, name: str = NAME) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def digest_of_table(catalog: SqlCatalog) -> str:
    return digest((row["offset"], row["key"], row["value"], row["leaderEpoch"]) for row in rows_of(catalog))


def digest_of_archive(store: str) -> str:
    return digest(
        (each.offset, each.key, each.value, each.leader_epoch) for each in Archive(store).records("orders", 0)
    )


def first_segments(objects: Objects, number: int) -> Objects:
    stems = sorted(key.rpartition(".")[0] for key in objects if key.endswith("manifest"))
    return {key: data for key, data in objects.items() if key.rpartition(".")[0] in stems[:number]}


def test_a_table_is_filled_and_then_gets_what_is_new(syncs: ModuleType, store: str, catalog: SqlCatalog) -> None:
    objects = objects_of(sample_log())
    put_objects(store, first_segments(objects, 3))
    done = sync_of(syncs, store, catalog, target_bytes=1000).run()
    assert done.commits > 1 and digest_of_table(catalog) == digest_of_archive(store)
    put_objects(store, objects)
    for _ in range(2):
        sync_of(syncs, store, catalog).run()
    assert digest_of_table(catalog) == digest_of_archive(store)
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary.additional_properties["trioka.offsets"] == '{"0": 408}'
    assert table.properties["commit.retry.num-retries"] == "0"


def test_of_two_syncs_the_second_is_refused_and_no_row_is_doubled(
    syncs: ModuleType, store: str, catalog: SqlCatalog
) -> None:
    put_objects(store, objects_of(sample_log(rounds=6)))
    first, second = sync_of(syncs, store, catalog), sync_of(syncs, store, catalog)
    first.run()
    with pytest.raises(ConcurrentSync, match="another sync is writing"):
        second.run()
    assert digest_of_table(catalog) == digest_of_archive(store)


def test_retries_that_would_double_rows_are_switched_off_again(
    syncs: ModuleType, store: str, catalog: SqlCatalog
) -> None:
    put_objects(store, objects_of(sample_log(rounds=3)))
    sync_of(syncs, store, catalog).run()
    with catalog.load_table(NAME).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    sync_of(syncs, store, catalog)
    assert catalog.load_table(NAME).properties["commit.retry.num-retries"] == "0"


def test_a_commit_that_lost_to_maintenance_is_repeated(syncs: ModuleType, store: str, catalog: SqlCatalog) -> None:
    objects = objects_of(sample_log(rounds=12))
    put_objects(store, first_segments(objects, 1))
    sync_of(syncs, store, catalog).run()
    put_objects(store, objects)
    second = sync_of(syncs, store, catalog)
    table = catalog.load_table(NAME)
    table.append(table.scan().to_arrow().slice(0, 0))  # a snapshot without offsets, as maintenance makes them
    second.run()
    assert digest_of_table(catalog) == digest_of_archive(store)


def test_a_table_that_was_not_made_by_a_sync_is_refused(syncs: ModuleType, store: str, catalog: SqlCatalog) -> None:
    put_objects(store, objects_of(sample_log(rounds=3)))
    catalog.create_namespace("shop")
    rows = pa.table({"id": [1, 2]})
    catalog.create_table(NAME, schema=rows.schema).append(rows)
    with pytest.raises(ForeignTable, match="has the columns id"):
        sync_of(syncs, store, catalog)


class Numbers:
    """Values that are decimal digits; all others are dead letters."""

    type = pa.struct([pa.field("number", pa.int32())])

    def __call__(self, value: bytes) -> dict[str, int]:
        if not value.isdigit():
            raise Undecodable(f"{value!r} is no number")
        return {"number": int(value)}


VALUES = (b"1", b"x", None, b"2", b"9999999999999", b"3")


def put_numbers(store: str) -> None:
    log = new_log()
    for value in VALUES:
        append_records(log, Record(0, NOW_MS, b"k", value))
        log.roll(now_ms=NOW_MS)
    put_objects(store, objects_of(log))


def test_values_that_do_not_follow_the_schema_are_dead_letters(
    syncs: ModuleType, store: str, catalog: SqlCatalog
) -> None:
    put_numbers(store)
    done = sync_of(syncs, store, catalog, decoder=Numbers()).run()
    assert (done.rows, done.dead_letters) == (4, 2)
    assert [(row["offset"], row["value"]) for row in rows_of(catalog)] == [
        (0, {"number": 1}),
        (2, None),
        (3, {"number": 2}),
        (5, {"number": 3}),
    ]
    dead = rows_of(catalog, f"{NAME}_dlq")
    assert [(row["offset"], row["value"]) for row in dead] == [(1, b"x"), (4, b"9999999999999")]
    assert dead[0]["reason"] == "b'x' is no number"


def test_only_dead_letters_move_the_offsets_too(syncs: ModuleType, store: str, catalog: SqlCatalog) -> None:
    log = new_log()
    append_records(log, Record(0, NOW_MS, b"k", b"x"))
    put_objects(store, objects_of(log))
    for commits in (1, 0):
        assert sync_of(syncs, store, catalog, decoder=Numbers()).run().commits == commits
    assert len(rows_of(catalog, f"{NAME}_dlq")) == 1


def test_dead_letters_are_not_repeated_after_a_crash_between_the_two_tables(
    syncs: ModuleType, store: str, catalog: SqlCatalog
) -> None:
    put_numbers(store)

    class Crash(Exception):
        pass

    crashing = sync_of(syncs, store, catalog, decoder=Numbers())

    def crash(*_: object) -> None:
        raise Crash

    crashing._rows.append = crash
    with pytest.raises(Crash):
        crashing.run()
    sync_of(syncs, store, catalog, decoder=Numbers(), target_bytes=1).run()
    assert [row["offset"] for row in rows_of(catalog)] == [0, 2, 3, 5]
    assert [row["offset"] for row in rows_of(catalog, f"{NAME}_dlq")] == [1, 4]


def test_a_value_that_another_schema_refuses_after_a_crash_is_not_lost(
    syncs: ModuleType, store: str, catalog: SqlCatalog
) -> None:
    put_numbers(store)
    crashing = sync_of(syncs, store, catalog, decoder=Numbers())

    def crash(*_: object) -> None:
        raise InterruptedError

    crashing._rows.append = crash
    with pytest.raises(InterruptedError):
        crashing.run()

    class Odd(Numbers):
        def __call__(self, value: bytes) -> dict[str, int]:
            found = super().__call__(value)
            if found["number"] % 2 == 0:
                raise Undecodable("even")
            return found

    sync_of(syncs, store, catalog, decoder=Odd()).run()
    assert [row["offset"] for row in rows_of(catalog)] == [0, 2, 5]
    assert [row["offset"] for row in rows_of(catalog, f"{NAME}_dlq")] == [1, 3, 4]


def test_progress_is_reported_for_each_commit(store: str, catalog: SqlCatalog) -> None:
    put_numbers(store)
    reported: list[SyncResult] = []
    sync_of(sync_module, store, catalog, target_bytes=1, progress=reported.append).run()
    assert sum(done.rows for done in reported) == len(VALUES)
    assert [done.offsets[0] for done in reported] == sorted({done.offsets[0] for done in reported})


MISTAKES: list[tuple[str, str, SyncRule]] = [
    ('table.properties.get(RETRIES) != "0"', "False", test_retries_that_would_double_rows_are_switched_off_again),
    ("self._read() != self.progress", "False", test_of_two_syncs_the_second_is_refused_and_no_row_is_doubled),
    ("self._read() != self.progress", "True", test_a_commit_that_lost_to_maintenance_is_repeated),
    (
        "(each[0].partition, each[0].offset) not in known",
        "True",
        test_dead_letters_are_not_repeated_after_a_crash_between_the_two_tables,
    ),
    (
        "(each[0].partition, each[0].offset) not in known",
        "each[0].offset >= self._dead.progress.offsets.get(each[0].partition, 0)",
        test_a_value_that_another_schema_refuses_after_a_crash_is_not_lost,
    ),
    (
        within("TableSync._chunks", "offsets=(offsets.get(partition), None)"),
        "offsets=(None, None)",
        test_a_table_is_filled_and_then_gets_what_is_new,
    ),
    (
        "transaction.append(rows, snapshot_properties=moved.properties())",
        "transaction.append(rows)",
        test_a_table_is_filled_and_then_gets_what_is_new,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_planted_mistake_is_noticed(number: int, tmp_path: Path) -> None:
    right, wrong, rule = MISTAKES[number]
    tried = iter(range(2))

    def with_fixtures(module: ModuleType) -> None:
        folder = tmp_path / str(next(tried))
        (folder / "store").mkdir(parents=True)
        made = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        try:
            rule(module, (folder / "store").as_uri(), made)
        finally:
            made.engine.dispose()

    assert_noticed(sync_module, right, wrong, with_fixtures)
