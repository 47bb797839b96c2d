"""A topic as a stream of decoded records, for definition files.

    @dp.table
    @dead_letters("refused_orders")
    def orders():
        return read_topic("orders", schema="id BIGINT NOT NULL, amount DECIMAL(10,2)")

The stream has the fields of the schema and Kafka's columns, and the column `kafka_refused`: why a record could not be
decoded, null for one that could. A flow whose rows have this column keeps the decoded records and sends the others to
its dead letters. Where a view or a selection comes in between, select the column too.
"""

import os

from pyspark.sql import DataFrame, SparkSession

from ..declaration.toml_reader import read
from ..runner.session import source_options
from ..runner.stages import Stages
from .bootstrap import DEFAULT_BOOTSTRAP, addresses


def read_topic(
    *topics: str,
    schema: str | None = None,
    format: str = "json",
    bootstrap: str | None = None,
    options: dict[str, str] | None = None,
    decode: dict[str, str] | None = None,
) -> DataFrame:
    """The records of these topics as a stream. Without a schema the value stays bytes. `decode` has the keys of
    `[decode]` in the short form, for Avro and Protobuf; `options` are those of Spark's connector.
    """
    address = bootstrap or os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or DEFAULT_BOOTSTRAP
    addresses(address)
    spark = SparkSession.active()
    given = {
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "subscribe": ",".join(topics),
        **(options or {}),
    }
    records = spark.readStream.format("kafka").options(**source_options(address, **given)).load()
    decoding = dict(decode or {})
    if decoding or schema is not None:
        decoding = {"format": format, **({"schema": schema} if schema is not None else {}), **decoding}
    declared = read(
        {
            "name": "topic",
            "source": {"topics": list(topics)},
            "sink": {"kind": "console"},
            "dead_letters": {"kind": "discard"},
            **({"decode": decoding} if decoding else {}),
        },
        bootstrap=address,
    )
    return Stages(declared).decoded(records)
