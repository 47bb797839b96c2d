"""A program on Spark that copies a topic into Parquet files, batch by batch, and is there to be killed.

python driver.py BOOTSTRAP TOPIC TABLE CHECKPOINT RECORDS
"""

import sys

from trioka.pipeline.runner.session import session, source_options

# For a few rows, all the time goes into starting and compiling: Spark's own compiler, and the JVM's second one.
QUICK = {
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto",
}
COLUMNS = ("partition", "offset", "cast(value as string) value")


def main(bootstrap: str, topic: str, table: str, checkpoint: str, records: str) -> None:
    spark = session("driver", master="local[1]", bootstrap=bootstrap, settings=QUICK)
    options = source_options(bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=records)
    rows = spark.readStream.format("kafka").options(**options).load().selectExpr(*COLUMNS)
    writer = rows.writeStream.format("parquet").option("path", table).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
