"""Orders and customers from topics, and each order with its customer."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from trioka.pipeline import dead_letters, expect, expect_or_drop, read_topic

spark = SparkSession.active()

dp.create_streaming_table("refused_orders")


@dp.table(partition_cols=["currency"])
@expect("has a customer", "customer IS NOT NULL")
@expect_or_drop("an amount is above zero", "amount > 0")
@dead_letters("refused_orders")
def orders():
    return read_topic("orders", schema="id BIGINT NOT NULL, customer BIGINT, currency STRING, amount DOUBLE")


@dp.table
def customers():
    return read_topic("customers", schema="customer BIGINT NOT NULL, name STRING")


@dp.table
def orders_with_names():
    """A join of two streams keeps an hour of both, so an order may come before its customer, or after it."""
    placed = spark.readStream.table("orders").withWatermark("kafka_timestamp", "1 hour").alias("o")
    known = spark.readStream.table("customers").withWatermark("kafka_timestamp", "1 hour").alias("c")
    joined = placed.join(known, "customer")
    return joined.selectExpr("id", "name", "currency", "amount")
