"""Large payments into another topic, each once, and payments per minute although some come late."""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trioka.pipeline import read_topic

spark = SparkSession.active()
BROKERS = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")

dp.create_sink("alerts", "kafka", {"kafka.bootstrap.servers": BROKERS, "topic": "alerts"})


@dp.table
def payments():
    return read_topic("payments", schema="card STRING NOT NULL, at TIMESTAMP NOT NULL, amount DOUBLE NOT NULL")


@dp.append_flow(target="alerts")
def large_payments():
    large = spark.readStream.table("payments").where("amount >= 1000")
    return large.select(F.col("card").alias("key"), F.to_json(F.struct("card", "at", "amount")).alias("value"))


@dp.table
def payments_per_minute():
    timely = spark.readStream.table("payments").withWatermark("at", "1 minute")
    counted = timely.groupBy(F.window("at", "1 minute").alias("minute")).agg(F.count("*").alias("payments"))
    return counted.selectExpr("minute.start AS minute", "payments")
