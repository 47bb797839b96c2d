"""`trioka table sync`: a tiered topic as an Iceberg table, filled from the object store and kept up to date.

    trioka table sync orders --archive s3://bucket/prefix --catalog prod
    trioka table sync orders --archive s3://bucket/prefix --catalog prod --table shop.orders --every 1m
    trioka table sync orders --archive s3://bucket/prefix --catalog prod --schema order.avsc

The catalog is one of pyiceberg's configuration (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__PROD__URI` …), or described by
`--catalog-option`. Each commit has the offsets in its snapshot: the command may be stopped and started again at any
time. A second one on the same table is refused. Values that do not follow the schema go to the table `…_dlq`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trioka.archive import Archive
from trioka.archive.table_progress import ConcurrentSync, ForeignTable
from trioka.archive.table_sync import TARGET_BYTES, SyncResult, TableSync, open_catalog
from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.installation.cache import Unreachable

from ..archive.options import archive_url, explained, parse_pairs
from ..command_group import group
from ..options import Duration
from ..terminal.failure import Exit, Failure
from ..terminal.output import write_stderr, write_stdout
from ..terminal.progress import Progress

if TYPE_CHECKING:
    from .avro_columns import AvroColumn

NAMESPACE: Final = "default"
MIN_EVERY_MS: Final = 1000
MAX_SCHEMA_BYTES: Final = 16 << 20
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

table = group("table", "Tiered topics as Iceberg tables.")


@table.command("sync")
@click.argument("topic")
@click.option("--archive", "url", required=True, metavar="URL", help="the store of the tiered topics")
@click.option("--store-option", "store_options", multiple=True, metavar="KEY=VALUE", help="of the store: region, …")
@click.option("--catalog", required=True, metavar="NAME", help="a catalog of pyiceberg")
@click.option("--catalog-option", "catalog_options", multiple=True, metavar="KEY=VALUE", help="type, uri, warehouse, …")
@click.option("--table", "name", metavar="NAMESPACE.TABLE", help=f"default {NAMESPACE}.TOPIC")
@click.option("--topic-id", metavar="ID", help="of a topic whose name was used several times")
@click.option("--schema", metavar="FILE", help="the values are Avro of this schema")
@click.option("--registry", metavar="URL", help="of --schema: where the schemas that the values were written with are")
@click.option("--framed", "is_framed", is_flag=True, help="of --schema: each value begins with a schema id")
@click.option("--every", type=Duration(), metavar="TIME", help="go on, and look for new segments so often")
@click.option("--commit-bytes", type=click.IntRange(min=1), default=TARGET_BYTES, metavar="N", help="default 128 MB")
@click.option("--skip-missing", is_flag=True, help="go on behind offsets that are missing")
def sync(
    topic: str,
    url: str,
    store_options: tuple[str, ...],
    catalog: str,
    catalog_options: tuple[str, ...],
    name: str | None,
    topic_id: str | None,
    schema: str | None,
    registry: str | None,
    is_framed: bool,
    every: int | None,
    commit_bytes: int,
    skip_missing: bool,
) -> int:
    """Appends what is new in TOPIC to its table; the first time, all of it."""
    if schema is None and (registry is not None or is_framed):
        raise click.UsageError("--registry and --framed go with --schema.")
    if every is not None and every < MIN_EVERY_MS:
        raise click.UsageError("--every is at least 1s.")
    table_name = name or f"{NAMESPACE}.{''.join(each if each in LETTERS else '_' for each in topic)}"
    decoder = None if schema is None else _decoder(schema, registry, is_framed or registry is not None)
    with explained(), _explained_table():
        archive = Archive(archive_url(url), parse_pairs("--store-option", store_options))
        found = archive.catalog.topic(topic, topic_id)
        opened = open_catalog(catalog, parse_pairs("--catalog-option", catalog_options))
        with Progress("sync", "records") as progress:
            syncing = TableSync(
                archive,
                found,
                opened,
                table_name,
                decoder=decoder,
                fail_on_data_loss=not skip_missing,
                target_bytes=commit_bytes,
                progress=lambda done: progress.add(done.rows + done.dead_letters),
            )
            while True:
                done = syncing.run()
                if every is None or done.commits:
                    _report(table_name, done)
                if every is None:
                    return Exit.OK
                time.sleep(every / 1000)


def _report(name: str, done: SyncResult) -> None:
    offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(done.offsets.items()))
    write_stdout(f"{name}: {done.rows} rows in {done.commits} commits; next offsets {offsets or 'none'}")
    if done.dead_letters:
        write_stderr(f"{done.dead_letters} values do not follow the schema; they are in the table {name}_dlq")


@contextmanager
def _explained_table() -> Iterator[None]:
    """Errors of the table as failures with an exit code."""
    try:
        yield
    except ConcurrentSync as error:
        raise Failure(str(error), exit_code=Exit.EXISTS) from None
    except ForeignTable as error:
        raise Failure(str(error), exit_code=Exit.EXISTS, hints=["name another table: --table"]) from None
    except Unreachable as error:
        raise Failure(str(error).removesuffix("."), exit_code=Exit.UNREACHABLE) from None


def _decoder(file: str, registry: str | None, is_framed: bool) -> "AvroColumn":
    try:
        from .avro_columns import AvroColumn
    except ImportError as error:
        what = f"--schema needs '{error.name}', which is not installed"
        raise Failure(what, hints=["install it: pip install 'trioka[decode,table]'"]) from None
    path = Path(file)
    try:
        if path.stat().st_size > MAX_SCHEMA_BYTES:
            raise click.UsageError(f"--schema {file} has more than {MAX_SCHEMA_BYTES} bytes.")
        return AvroColumn(path.read_text(), is_framed=is_framed, registry=registry)
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--schema {file} cannot be read: {error}", exit_code=Exit.NOT_FOUND) from None
    except InvalidPipeline as error:
        raise Failure(str(error).removesuffix("."), exit_code=Exit.USAGE) from None
