"""Maintenance of a pipeline's Iceberg tables: small files become large ones, old snapshots and orphan files go.

The progress of pipelines is in the properties of the tables, which none of this changes, so it may run beside a
pipeline. Snapshots are kept for a while: a reader may be at one of them, and a batch that is just being delivered is
one that no reader sees yet.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..errors import InvalidPipeline, PipelineFailed, first_sentence

# Files that were written a moment ago may belong to a batch that is not published yet; Iceberg itself asks for a day.
MIN_KEPT = timedelta(days=1)


def maintain(
    spark: SparkSession, catalog: str, table: str, *, now: datetime, keep: timedelta, say: Callable[[str], None]
) -> None:
    """Maintain one table, `table` without its catalog; a table that does not exist yet is skipped."""
    if keep < MIN_KEPT:
        raise InvalidPipeline("Snapshots and files are kept for a day at least: a batch may just be written.")
    if not spark.catalog.tableExists(f"{catalog}.{table}"):
        return
    until = f"TIMESTAMP '{(now - keep).strftime('%Y-%m-%d %H:%M:%S')}'"
    try:
        rewritten = _call(spark, catalog, f"rewrite_data_files(table => '{table}')")
        _call(spark, catalog, f"rewrite_manifests(table => '{table}')")
        expired = _call(
            spark, catalog, f"expire_snapshots(table => '{table}', older_than => {until}, retain_last => 1)"
        )
        orphans = spark.sql(f"CALL {catalog}.system.remove_orphan_files(table => '{table}', older_than => {until})")
        removed = orphans.count()
    except (PySparkException, Py4JError) as error:
        raise PipelineFailed(f"The table {catalog}.{table} is not maintained: {first_sentence(error)}") from error
    before, after = rewritten["rewritten_data_files_count"], rewritten["added_data_files_count"]
    gone = expired["deleted_data_files_count"]
    say(f"{catalog}.{table}: {before} files became {after}, {gone} old data files and {removed} orphan files removed")


def _call(spark: SparkSession, catalog: str, procedure: str) -> Any:
    return spark.sql(f"CALL {catalog}.system.{procedure}").collect()[0]
