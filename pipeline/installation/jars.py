"""The jars that Spark's Kafka connector and the tables need, for each supported PySpark.

Spark could resolve them from `spark.jars.packages`, but that fails: the connector requires a token provider of its own
version, and for Spark 4 the repository has only that of 4.0.0. It works with 4.0.4, 4.1.3 and 4.2.0 too, as the compat
tests show, so four explicit jars suffice; the other patch releases are assumed to be compatible. For the same reason
Avro is that of the newest patch release that has one, and there is none for 4.2. The repository has no spark-protobuf
for any Spark 4.

jars.txt pins each jar. They are downloaded to the cache folder on first use; see repository.py. With
`TRIOKA_SPARK_JARS=provided`, for jars that are already on the class path, nothing is downloaded.
"""

import functools
import os
from importlib import metadata
from pathlib import Path

from trioka.protocol.lazy_dataclass import frozen

from .cache import Unavailable
from .repository import Pin, read_pins

PINS = Path(__file__).with_name("jars.txt")
TESTED_PYSPARK = "4.1.3"
TOKEN_PROVIDER = "4.0.0"
SQLITE = "3.53.0.0"


@frozen
class Release:
    """The versions for one PySpark; None for a jar that it does not have."""

    pyspark: str
    kafka_clients: str
    commons_pool: str
    avro: str | None = None
    iceberg: str | None = None

    @property
    def line(self) -> str:
        """4.1 for 4.1.3."""
        return self.pyspark.rpartition(".")[0]


RELEASES: dict[str, Release] = {
    release.pyspark: release
    for release in (
        Release(pyspark="4.0.0", kafka_clients="3.9.0", commons_pool="2.12.0", avro="4.0.0", iceberg="1.11.0"),
        Release(pyspark="4.0.1", kafka_clients="3.9.1", commons_pool="2.12.0", avro="4.0.1", iceberg="1.11.0"),
        Release(pyspark="4.0.2", kafka_clients="3.9.1", commons_pool="2.12.0", avro="4.0.2", iceberg="1.11.0"),
        Release(pyspark="4.0.3", kafka_clients="3.9.1", commons_pool="2.12.0", avro="4.0.2", iceberg="1.11.0"),
        Release(pyspark="4.0.4", kafka_clients="3.9.1", commons_pool="2.12.0", avro="4.0.2", iceberg="1.11.0"),
        Release(pyspark="4.1.0", kafka_clients="3.9.1", commons_pool="2.12.1", avro="4.1.1", iceberg="1.12.0"),
        Release(pyspark="4.1.1", kafka_clients="3.9.1", commons_pool="2.12.1", avro="4.1.1", iceberg="1.12.0"),
        Release(pyspark="4.1.2", kafka_clients="3.9.1", commons_pool="2.12.1", avro="4.1.1", iceberg="1.12.0"),
        Release(pyspark="4.1.3", kafka_clients="3.9.1", commons_pool="2.12.1", avro="4.1.1", iceberg="1.12.0"),
        Release(pyspark="4.2.0", kafka_clients="3.9.2", commons_pool="2.13.1"),
    )
}


def installed_pyspark() -> str:
    """The version of the PySpark in this environment."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise Unavailable("PySpark is not installed: pip install 'trioka[spark]'.") from None


def release_of(pyspark: str) -> Release:
    try:
        return RELEASES[pyspark]
    except KeyError:
        raise Unavailable(
            f"There is no Kafka connector for PySpark {pyspark}; pip install 'trioka[spark]' brings {TESTED_PYSPARK}, "
            f"and these have one too: {', '.join(sorted(RELEASES.keys() - {TESTED_PYSPARK}))}."
        ) from None


@functools.cache
def _pinned() -> dict[str, Pin]:
    return {pin.coordinates: pin for pin in read_pins(PINS)}


def pins_for(release: Release, *, iceberg: bool = False, avro: bool = False) -> list[Pin]:
    """The pins of the connector's four jars, and of the optional ones that are requested."""
    wanted = [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release.pyspark}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{TOKEN_PROVIDER}",
        f"org.apache.kafka:kafka-clients:{release.kafka_clients}",
        f"org.apache.commons:commons-pool2:{release.commons_pool}",
    ]
    if avro:
        wanted.append(f"org.apache.spark:spark-avro_2.13:{_there_is(release.avro, 'spark-avro', release)}")
    if iceberg:
        version = _there_is(release.iceberg, "Iceberg runtime", release)
        wanted.append(f"org.apache.iceberg:iceberg-spark-runtime-{release.line}_2.13:{version}")
        wanted.append(f"org.xerial:sqlite-jdbc:{SQLITE}")
    return [_pinned()[coordinates] for coordinates in wanted]


def _there_is(version: str | None, what: str, release: Release) -> str:
    if version is None:
        raise Unavailable(f"There is no {what} for PySpark {release.pyspark}: pip install pyspark=={TESTED_PYSPARK}.")
    return version


def are_provided() -> bool:
    """Whether the jars are on Spark's class path already, so that none are downloaded."""
    chosen = os.environ.get("TRIOKA_SPARK_JARS", "")
    if chosen not in ("", "provided"):
        raise Unavailable(f"TRIOKA_SPARK_JARS is {chosen!r}; it can only be 'provided', or not set.")
    return chosen == "provided"
