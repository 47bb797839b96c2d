"""A Spark session with the Kafka connector ready.

    from trioka.pipeline.runner.session import session, source_options

    spark = session("orders", bootstrap="localhost:9092")
    orders = spark.read.format("kafka").options(**source_options("localhost:9092")).option("subscribe", "orders").load()

`prepare` first decides the configuration of Spark, as plain data: the settings, and the variables that the JVM and the
Python workers inherit. `session` then applies it in this process, and the commands `trioka spark shell` and `submit`
pass it to Spark's own scripts. With a master other than `local…`, it contains no settings for this machine.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trioka.protocol.lazy_dataclass import frozen

from ..installation import jars
from ..installation.java import spark_java
from ..installation.progress import Progress
from ..installation.repository import all_checked
from ..sources.bootstrap import reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
CATALOG = "trioka"
WAREHOUSE = "warehouse"
PLAIN = "PLAINTEXT"

# A consumer fetches 500 records and a megabyte at a time by default, and an executor is idle while it waits for the
# next. These settings make a batch read about one and a half times as fast, for some megabytes of memory.
FAST_SOURCE: Mapping[str, str] = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


@frozen
class Prepared:
    """The configuration of Spark: `environment` is added to the process's own."""

    settings: Mapping[str, str]
    environment: Mapping[str, str]


def source_options(bootstrap: str, **options: str) -> dict[str, str]:
    """Options for reading with `format("kafka")`, batch or stream: fast defaults and yours (`subscribe="orders"`)."""
    return {"kafka.bootstrap.servers": bootstrap, **FAST_SOURCE, **options}


def sink_options(bootstrap: str, **options: str) -> dict[str, str]:
    """Options for writing with `format("kafka")`; `topic="orders"` unless the rows have a column for it."""
    return {"kafka.bootstrap.servers": bootstrap, **options}


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def prepare(
    *,
    master: str = LOCAL_MASTER,
    iceberg: bool = False,
    warehouse: str | Path = WAREHOUSE,
    catalog: str = CATALOG,
    avro: bool = False,
    settings: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Find Java, download missing jars, and return the configuration of Spark. The user's `settings` take precedence.

    `Unavailable` names what is missing.
    """
    version = jars.installed_pyspark()
    java = spark_java(progress.say if progress else None)
    files: list[Path] = []
    if not jars.are_provided():
        pins = jars.pins_for(jars.release_of(version), iceberg=iceberg, avro=avro)
        files = all_checked(pins, progress.download if progress else None)
    tables = iceberg_settings(warehouse, catalog) if iceberg else {}
    return decide(master=master, java_home=java.home, files=files, settings={**tables, **(settings or {})})


def decide(*, master: str, java_home: Path, files: Sequence[Path], settings: Mapping[str, str]) -> Prepared:
    """The configuration of Spark, from the Java that was found and the jars to add."""
    given = dict(settings)
    result = {"spark.master": master, "spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    environment = {"JAVA_HOME": str(java_home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local(master):
        # A laptop's host name may not resolve, or resolve to an address of a network that it has left.
        result |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.ui.enabled": "false"}
        environment |= {"SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    if files:
        result["spark.jars"] = ",".join([*map(str, files), *filter(None, [given.pop("spark.jars", "")])])
    return Prepared(settings=result | given, environment=environment)


def iceberg_settings(warehouse: str | Path, catalog: str = CATALOG) -> dict[str, str]:
    """Tables below `warehouse`, listed in a SQLite file there, which pyiceberg opens too (hence the schema's version).

    A warehouse with a scheme (s3://…) needs another catalog, which the user's own settings define.
    """
    folder = Path(warehouse).absolute()
    key = f"spark.sql.catalog.{catalog}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "jdbc",
        f"{key}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        f"{key}.warehouse": str(folder),
        f"{key}.jdbc.schema-version": "V1",
    }


def session(
    name: str,
    *,
    master: str = LOCAL_MASTER,
    bootstrap: str | None = None,
    security_protocol: str = PLAIN,
    iceberg: bool = False,
    warehouse: str | Path = WAREHOUSE,
    catalog: str = CATALOG,
    avro: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The session of this process, created if there is none. A JVM has only one: settings that apply only at its start
    (master, jars) have no effect on an existing one.

    With `bootstrap` the brokers are contacted first, so that a wrong address fails immediately with one sentence. A
    missing download raises `Unavailable`, with one sentence too.
    """
    if bootstrap is not None:
        reach(bootstrap, is_plain=security_protocol == PLAIN)
    with Progress() as progress:
        prepared = prepare(
            master=master,
            iceberg=iceberg,
            warehouse=warehouse,
            catalog=catalog,
            avro=avro,
            settings=settings,
            progress=progress,
        )
    if iceberg:
        Path(warehouse).mkdir(parents=True, exist_ok=True)
    os.environ.update(prepared.environment)  # the JVM and the workers inherit the environment of this process

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in prepared.settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
