"""Change data of a table, as Debezium writes it: its current rows, and their history."""

from pyspark import pipelines as dp

from trioka.pipeline import create_auto_cdc_flow, debezium, read_topic


@dp.temporary_view
def customer_changes():
    return debezium(read_topic("crm.public.customers"), schema="id BIGINT NOT NULL, name STRING, city STRING")


for table, kind in (("customers", 1), ("customers_history", 2)):
    dp.create_streaming_table(table)
    create_auto_cdc_flow(
        target=table,
        source="customer_changes",
        keys=["id"],
        sequence_by="__lsn",
        apply_as_deletes="__op = 'd'",
        stored_as_scd_type=kind,
    )
