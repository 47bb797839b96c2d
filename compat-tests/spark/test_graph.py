"""Graphs on real Spark against trioka: tables, views and sinks, defined with Spark's decorators and in SQL."""

import json
import random
import shutil
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from spark.graphs import GraphHarness
from spark.pipelines import Message, PipelineHarness, committed, untick
from trioka.pipeline.changes.merge_rule import Change, current_rows, history
from trioka.pipeline.errors import InvalidPipeline, PipelineFailed

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def graph(workshop: PipelineHarness) -> GraphHarness:
    return GraphHarness(topics=workshop)


def order(id: int, customer: int = 0, amount: float = 1.0) -> dict[str, Any]:
    return {"id": id, "customer": customer, "amount": amount}


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


SHOP = """
@dp.temporary_view
def large_orders():
    return spark.readStream.table("orders").where("amount > 5")

@dp.table
@expect("has a customer", "customer IS NOT NULL")
@expect_or_drop("an amount is above zero", "amount > 0")
@dead_letters("refused")
def orders():
    return read_topic("{topic}", schema="id BIGINT NOT NULL, customer BIGINT, amount DOUBLE", bootstrap=BROKERS)

dp.create_streaming_table("refused")
dp.create_streaming_table("notable", schema="id BIGINT, why STRING")

@dp.append_flow(target="notable")
def large():
    return spark.readStream.table("large_orders").select("id", F.lit("large").alias("why"))

@dp.append_flow(target="notable")
def of_customer_1():
    return spark.readStream.table("orders").where("customer = 1").selectExpr("id", "'one' AS why")
"""
SHOP_SQL = """
CREATE MATERIALIZED VIEW totals AS
  SELECT customer, sum(amount) AS total FROM orders GROUP BY customer; -- a comment; with a semicolon

CREATE STREAMING TABLE ids COMMENT 'only ids';
CREATE FLOW into_ids AS INSERT INTO ids BY NAME SELECT id FROM STREAM(orders);
"""


def test_tables_views_and_flows_of_python_and_sql_are_filled_in_the_order_of_what_they_read(
    graph: GraphHarness, topic: str
) -> None:
    records: list[Message] = [
        *(order(id, customer=id % 3, amount=id) for id in range(1, 13)),
        order(20, amount=-1),
        b"{",
    ]
    graph.topics.topic(topic, [*records, {"id": 21, "amount": 2.0}])
    pipeline = graph.run(SHOP.format(topic=topic), sql=SHOP_SQL)
    assert ids(graph.rows("orders")) == [*range(1, 13), 21]
    assert Counter(row["why"] for row in graph.rows("notable")) == {"large": 7, "one": 4}
    assert {row["customer"]: row["total"] for row in graph.rows("totals")} == {0: 30, 1: 22, 2: 26, None: 2}
    assert ids(graph.rows("ids")) == ids(graph.rows("orders"))
    refused = {row["reason"]: row for row in graph.rows("refused")}
    assert set(refused) == {"it breaks the rule 'an amount is above zero'", "the value is not JSON of the schema"}
    assert refused["the value is not JSON of the schema"]["kafka_value"] == b"{"
    assert graph.said("shop.orders: batch 0: 15 records")[0].endswith("lag 0, late 0, refused 2")
    events = [json.loads(line) for line in (graph.folder / "checkpoints/shop/events.jsonl").read_text().splitlines()]
    (batch,) = [one for one in events if one["event"] == "batch" and one["flow"] == "orders"]
    broken = {"the record is decoded": 1, "has a customer": 1, "an amount is above zero": 1}
    assert (batch["refused"], batch["expectations"]) == (2, broken)

    # A second run reads what came since, and a batch without dead letters writes nothing to their table.
    graph.topics.send(topic, [order(30, amount=9)])
    before = len(list((graph.folder / "warehouse/shop/refused/metadata").glob("*.metadata.json")))
    pipeline.run(once=True)
    assert ids(graph.rows("orders")) == [*range(1, 13), 21, 30]
    assert Counter(row["why"] for row in graph.rows("notable")) == {"large": 8, "one": 4}
    assert len(list((graph.folder / "warehouse/shop/refused/metadata").glob("*.metadata.json"))) == before

    drawn = pipeline.drawing()
    lines = [" ".join(line.split()) for line in drawn.text().splitlines()]
    assert f"streaming table orders ← topic {topic}" in lines
    assert "temporary view large_orders ← orders" in lines
    assert "materialized view totals ← orders" in lines
    assert drawn.svg().startswith("<svg") and drawn.svg().count("<rect") == len(drawn.nodes)


@pytest.mark.nightly
def test_a_lost_checkpoint_of_a_flow_is_made_anew_from_its_table(
    graph: GraphHarness, spark: SparkSession, topic: str
) -> None:
    graph.topics.topic(topic, [order(id, amount=id) for id in range(10)])
    pipeline = graph.run(SHOP.format(topic=topic))
    pipeline.maintain(keep=timedelta(days=7), say=graph.topics.said.append)
    assert graph.said(f"{graph.catalog}.shop.orders: 0 files became 0, 0 old data files and 0 orphan files removed")
    shutil.rmtree(graph.folder / "checkpoints")
    graph.topics.send(topic, [order(id, amount=id) for id in range(10, 15)])
    pipeline.run(once=True)
    assert ids(graph.rows("orders")) == list(range(1, 15))
    assert Counter(row["why"] for row in graph.rows("notable")) == {"large": 9}
    assert [row["reason"] for row in graph.rows("refused")] == ["it breaks the rule 'an amount is above zero'"]

    # A topic that is created again counts its records anew.
    admin = KafkaAdminClient(bootstrap_servers=graph.topics.bootstrap)
    admin.delete_topics([topic])
    admin.close()
    graph.topics.topic(topic, [order(id) for id in range(100, 104)])
    checkpoint = graph.folder / "checkpoints/shop/flows/orders"
    with pytest.raises(InvalidPipeline, match=f"created again .* remove the checkpoint {checkpoint} and run"):
        pipeline.run(once=True)
    shutil.rmtree(checkpoint)
    pipeline.run(once=True)
    assert ids(graph.rows("orders")) == [*range(1, 15), *range(100, 104)]


def test_a_check_says_all_mistakes_at_once_and_writes_nothing(graph: GraphHarness, topic: str) -> None:
    graph.topics.topic(topic, [order(1)])
    pipeline = graph.write(
        f"""
        @dp.table
        @expect_or_drop("no such column", "nothing > 0")
        def orders():
            return read_topic("{topic}", schema="id BIGINT NOT NULL", bootstrap=BROKERS)

        @dp.table
        def hidden():
            return read_topic("{topic}", schema="id BIGINT", bootstrap=BROKERS).select("id")

        @dp.table
        def batch():
            return spark.range(3)

        @dp.materialized_view
        def wrong():
            return spark.range(1).select("idd")
        """
    )
    with pytest.raises(InvalidPipeline) as raised:
        pipeline.drawing()
    text = str(raised.value)
    assert len(raised.value.problems) == 4
    assert "definitions.py:12: the flow 'hidden' leaves out the column kafka_refused" in text
    assert "the expectation 'no such column': " in text
    assert "the flow 'batch' reads no stream" in text
    assert "the flow 'wrong'" in text and "`idd` cannot be resolved" in text
    assert not (graph.folder / "checkpoints").exists()
    pipeline = graph.write(SHOP.format(topic=f"{topic}s"))
    with pytest.raises(InvalidPipeline, match=f"the flow 'orders': topic '{topic}s' .* did you mean {topic}"):
        pipeline.drawing(asked=True)
    assert not list((graph.folder / "warehouse").glob("shop*"))


def test_a_flow_that_fails_is_named_and_the_rest_goes_on_if_the_policy_says_so(graph: GraphHarness, topic: str) -> None:
    graph.topics.topic(topic, [order(id, amount=id) for id in range(4)])
    definitions = f"""
    def source():
        return read_topic("{topic}", schema="id BIGINT NOT NULL, amount DOUBLE", bootstrap=BROKERS)

    @dp.table
    @expect_or_fail("amounts are small", "amount < 3")
    def strict():
        return source()

    @dp.table
    def after_strict():
        return spark.readStream.table("strict")

    @dp.table
    def lenient():
        return source()
    """
    with pytest.raises(PipelineFailed) as raised:
        graph.run(definitions, top='on_failure = "continue"')
    assert "The flow strict failed: The expectation 'amounts are small' of the flow strict fails for 1 of 4 rows" in (
        str(raised.value)
    )
    assert raised.value.exit_code == 1
    assert ids(graph.rows("lenient")) == [0, 1, 2, 3]
    assert graph.said("after_strict: not started, because what it reads has failed")
    # Both read the topic once, until one of them failed: it left with a copy of the checkpoint.
    checkpoint = graph.folder / "checkpoints" / "shop"
    assert json.loads((checkpoint / "reads" / "strict" / "flows.json").read_text()) == {"flows": ["lenient"]}
    assert (checkpoint / "flows" / "strict" / "records" / "offsets" / "0").exists()
    with pytest.raises(PipelineFailed, match="of the flow strict fails for 1 of 4 rows"):
        graph.run(definitions)
    graph.topics.send(topic, [order(4, amount=1)])
    graph.run(definitions.replace("amount < 3", "amount < 9"))
    assert [ids(graph.rows(name)) for name in ("strict", "after_strict", "lenient")] == [[0, 1, 2, 3, 4]] * 3


def test_flows_that_read_one_topic_share_one_read_and_each_batch_is_in_each_target_once(
    graph: GraphHarness, topic: str
) -> None:
    graph.topics.topic(topic, [order(id, amount=id) for id in range(20)])
    definitions = f"""
    @dp.temporary_view
    def source():
        options = {{"maxOffsetsPerTrigger": "10"}}
        return read_topic("{topic}", schema="id BIGINT NOT NULL, amount DOUBLE", bootstrap=BROKERS, options=options)

    dp.create_streaming_table("small")

    @dp.table
    @expect_or_drop("large", "amount >= 12")
    @dead_letters("refused")
    def large():
        return spark.readStream.table("source")

    @dp.append_flow(target="small")
    def below():
        return spark.readStream.table("source").where("kafka_refused IS NULL AND amount < 6").select("id")

    @dp.append_flow(target="small")
    @expect_or_drop("small", "amount < 12")
    @dead_letters("refused")
    def middle():
        rows = spark.readStream.table("source").where("amount BETWEEN 6 AND 14")
        return rows.select("id", "amount", "kafka_refused")

    dp.create_streaming_table("refused")
    """
    pipeline = graph.run(definitions)
    read = graph.folder / "checkpoints/shop/reads/large"
    assert json.loads((read / "flows.json").read_text()) == {"flows": ["large", "below", "middle"]}
    assert sum(one.name.isdigit() for one in (read / "records" / "offsets").iterdir()) == 2

    def counted() -> list[list[int]]:
        refused = [json.loads(row["row"]) for row in graph.rows("refused")]
        return [ids(graph.rows("large")), ids(graph.rows("small")), ids(refused)]

    expected = [list(range(12, 20)), list(range(12)), sorted([*range(12), 12, 13, 14])]
    assert counted() == expected
    # As if the driver had died before Spark noted the last batch.
    untick(read / "records")
    pipeline.run(once=True, say=graph.topics.said.append)
    assert counted() == expected
    assert len(graph.said("was there already")) == 3
    # Without the checkpoint each flow goes on by itself, from the progress in its table.
    shutil.rmtree(graph.folder / "checkpoints")
    graph.topics.send(topic, [order(20, amount=20), order(21, amount=1)])
    pipeline.run(once=True)
    assert counted() == [[*range(12, 21)], [*range(12), 21], [*range(15), 21]]
    assert not (graph.folder / "checkpoints/shop/reads").exists()


@pytest.mark.nightly
def test_a_continuous_run_joins_streams_and_tables_until_it_is_stopped(
    graph: GraphHarness, topic: str, tmp_path: Path
) -> None:
    graph.topics.topic(topic, [order(id, customer=id % 2) for id in range(4)])
    graph.topics.topic(f"{topic}-names", [{"customer": 0, "name": "Ann"}, {"customer": 1, "name": "Bob"}])
    pipeline = graph.write(
        f"""
        @dp.table
        def names():
            return read_topic("{topic}-names", schema="customer BIGINT NOT NULL, name STRING", bootstrap=BROKERS)

        @dp.table
        def orders():
            return read_topic("{topic}", schema="id BIGINT NOT NULL, customer BIGINT", bootstrap=BROKERS)

        @dp.table
        def named_orders():
            placed = spark.readStream.table("orders").withWatermark("kafka_timestamp", "1 minute").alias("o")
            known = spark.readStream.table("names").withWatermark("kafka_timestamp", "1 minute").alias("n")
            return placed.join(known, F.expr("o.customer = n.customer")).selectExpr("id", "name")

        @dp.materialized_view
        def orders_by_name():
            return spark.read.table("named_orders").groupBy("name").count()
        """
    )
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            pipeline.run(stop=stop, say=graph.topics.said.append)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: failed or counts(graph) == {"Ann": 2, "Bob": 2})
        graph.topics.send(topic, [order(id, customer=0) for id in range(4, 7)])
        wait_for(lambda: failed or counts(graph) == {"Ann": 5, "Bob": 2})
    finally:
        stop.set()
        thread.join()
    assert not failed


COPY = """
@dp.temporary_view
def source():
    options = {{"maxOffsetsPerTrigger": "40"}}
    return read_topic("{topic}", schema="id BIGINT NOT NULL", bootstrap=BROKERS, options=options)

@F.udf("int", useArrow=False)
def place(id):  # one part of the first try fails, and the others may be written
    import os
    if id == 33 and not os.path.exists("{flag}"):
        open("{flag}", "w").close()
        return 99
    return None

dp.create_sink("copy", "kafka", {{"kafka.bootstrap.servers": BROKERS, "topic": "{topic}-copy"}})

@dp.append_flow(target="copy")
def copied():
    rows = spark.readStream.table("source").where("kafka_refused IS NULL")
    text = F.col("id").cast("string")
    return rows.select(text.alias("key"), text.alias("value"), place("id").alias("partition"))
"""


def test_each_row_is_in_a_topic_once_for_readers_of_committed_records(graph: GraphHarness, topic: str) -> None:
    graph.topics.topic(topic, [{"id": id} for id in range(60)])
    graph.topics.topic(f"{topic}-copy", partitions=3)
    definitions = COPY.format(topic=topic, flag=graph.folder / "flag")
    with pytest.raises(PipelineFailed, match="copied"):
        graph.run(definitions)
    pipeline = graph.run(definitions)
    assert committed(graph.topics.bootstrap, f"{topic}-copy") == list(range(60))
    # A batch whose driver died before Spark noted it comes again, and writes nothing.
    untick(graph.folder / "checkpoints/shop/flows/copied/records")
    pipeline.run(once=True, say=graph.topics.said.append)
    assert committed(graph.topics.bootstrap, f"{topic}-copy") == list(range(60))
    assert graph.said("was there already")
    # Without its checkpoint the flow would write all of it again.
    shutil.rmtree(graph.folder / "checkpoints")
    with pytest.raises(InvalidPipeline, match=r"another checkpoint, which is gone.*trioka.ledger = 'restart'"):
        pipeline.run(once=True)
    assert len(committed(graph.topics.bootstrap, f"{topic}-copy")) == 60


@pytest.mark.nightly
def test_the_short_form_writes_a_topic_by_transactions_too(graph: GraphHarness, topic: str) -> None:
    graph.topics.topic(topic, [{"id": id} for id in range(60)])
    graph.topics.topic(f"{topic}-copy", partitions=3)
    values = {
        "name": topic,
        "source": {"topics": [topic], "max_records_per_batch": 40},
        "decode": {"format": "json", "schema": "id BIGINT NOT NULL"},
        "sink": {"kind": "topic", "topic": f"{topic}-copy", "value": "cast(id AS STRING)", "delivery": "exactly_once"},
        "dead_letters": {"kind": "discard"},
    }
    graph.topics.run(**values)
    untick(graph.folder / "checkpoints" / topic / "records")
    graph.topics.run(**values)
    assert committed(graph.topics.bootstrap, f"{topic}-copy") == list(range(60))
    assert graph.said("was there already")


@pytest.mark.nightly
def test_dead_letters_of_a_flow_may_go_to_a_topic_as_the_records_that_they_were(
    graph: GraphHarness, topic: str
) -> None:
    graph.topics.topic(topic, [b"{", {"id": 1}, {"id": -1}])
    graph.topics.topic(f"{topic}-dead")
    graph.run(
        f"""
        dp.create_sink("dead", "kafka", {{"kafka.bootstrap.servers": BROKERS, "topic": "{topic}-dead"}})

        @dp.table
        @expect_or_drop("positive", "id > 0")
        @dead_letters("dead")
        def orders():
            return read_topic("{topic}", schema="id BIGINT NOT NULL", bootstrap=BROKERS)
        """
    )
    found = {one.value: dict(one.headers)["trioka.reason"] for one in graph.topics.messages(f"{topic}-dead")}
    assert found == {b"{": b"the value is not JSON of the schema", b'{"id": -1}': b"it breaks the rule 'positive'"}


def counts(graph: GraphHarness) -> dict[str, int]:
    try:
        return {row["name"]: row["count"] for row in graph.rows("orders_by_name")}
    except Exception:  # the catalog, the table or its first rows are not there yet
        return {}


def wait_for(happened: Any, seconds: float = 120) -> None:
    done = threading.Event()
    for _ in range(int(seconds / 0.2)):
        if happened():
            return
        done.wait(0.2)
    raise AssertionError("it never happened")


# -- changes -----------------------------------------------------------------------------------------------------------

CUSTOMERS = """
@dp.temporary_view
def changes():
    schema = "id BIGINT NOT NULL, name STRING, city STRING, seq BIGINT, op STRING"
    options = {{"maxOffsetsPerTrigger": "{batch}"}}
    return read_topic("{topic}", schema=schema, bootstrap=BROKERS, options=options)

for number in (1, 2):
    dp.create_streaming_table(f"type{{number}}")
    create_auto_cdc_flow(
        target=f"type{{number}}",
        source="changes",
        keys=["id"],
        sequence_by="seq",
        apply_as_deletes="op = 'd'",
        except_column_list=["op", "seq"],
        stored_as_scd_type=number,
    )
"""


def some_changes(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Changes of few keys and few sequences, so that many of them meet."""
    return [
        {
            "id": chance.randrange(6),
            "name": chance.choice(["Ann", "Bob", None]),
            "city": chance.choice(["Rome", "Oslo"]),
            "seq": chance.randrange(12),
            "op": "d" if chance.random() < 0.3 else "u",
        }
        for _ in range(count)
    ]


def as_change(event: dict[str, Any]) -> Change:
    columns = {"name": event["name"], "city": event["city"]}
    text = json.dumps({"city": event["city"], "name": event["name"]}, separators=(",", ":"))
    is_deleted = event["op"] == "d"
    return Change(key=(event["id"],), sequence=event["seq"], columns=None if is_deleted else columns, text=text)


def tables(graph: GraphHarness, spark: SparkSession) -> tuple[dict[Any, Any], list[Any]]:
    one = spark.table(f"{graph.catalog}.shop.type1").collect()
    two = spark.table(f"{graph.catalog}.shop.type2").collect()
    return (
        {(row["id"],): {"name": row["name"], "city": row["city"]} for row in one},
        sorted((row["id"], row["__START_AT"], row["__END_AT"], row["name"], row["city"]) for row in two),
    )


def expected(events: list[dict[str, Any]]) -> tuple[dict[Any, Any], list[Any]]:
    changes = [as_change(one) for one in events]
    rows = [(*row.key, row.start, row.end, row.columns["name"], row.columns["city"]) for row in history(changes)]
    return dict(current_rows(changes)), sorted(rows, key=lambda row: row[:2])


@pytest.mark.parametrize("batch", [1000, pytest.param(20, marks=pytest.mark.nightly)])
def test_shuffled_and_repeated_changes_in_any_batches_give_the_tables_of_the_rule(
    graph: GraphHarness, spark: SparkSession, topic: str, batch: int
) -> None:
    chance = random.Random(20261116)
    events = some_changes(chance, 60)
    sent = [*events, *chance.choices(events, k=15)]
    chance.shuffle(sent)
    graph.topics.topic(topic, sent)
    pipeline = graph.run(CUSTOMERS.format(topic=topic, batch=batch))
    assert tables(graph, spark) == expected(events)

    # The checkpoint is lost, so all changes are read once more, with some that are older than the rest.
    late = some_changes(chance, 10)
    graph.topics.send(topic, late)
    (graph.folder / "checkpoints").rename(graph.folder / "lost")
    pipeline.run(once=True)
    assert tables(graph, spark) == expected([*events, *late])


def test_events_of_debezium_become_rows_with_or_without_their_schema(
    graph: GraphHarness, spark: SparkSession, topic: str
) -> None:
    def event(op: str, lsn: int, before: Any, after: Any) -> dict[str, Any]:
        return {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"lsn": lsn}}

    ann, bob, eve = ({"id": id, "name": name} for id, name in ((1, "Ann"), (2, "Bob"), (3, "Eve")))
    events: list[Any] = [event("r", 1, None, ann), event("c", 2, None, bob), event("d", 5, bob, None), None]
    events += [{"schema": {}, "payload": event("c", 3, None, eve)}, event("u", 4, ann, {**ann, "name": "Anna"})]
    graph.topics.topic(topic, [*events, b"{", {"op": "c"}], partitions=1)
    graph.run(
        f"""
        @dp.temporary_view
        def changes():
            return debezium(read_topic("{topic}", bootstrap=BROKERS), schema="id BIGINT NOT NULL, name STRING")

        dp.create_streaming_table("customers")
        create_auto_cdc_flow(target="customers", source="changes", keys=["id"], sequence_by="__lsn",
                             apply_as_deletes="__op = 'd'")
        """
    )
    rows = spark.table(f"{graph.catalog}.shop.customers").collect()
    assert sorted((row["id"], row["name"], row["__SEQUENCE"]) for row in rows) == [(1, "Anna", 4), (3, "Eve", 3)]
    assert graph.said("refused 2")
