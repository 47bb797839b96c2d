"""Changes applied to Iceberg tables on real Spark: the tables are what the pure rule says, whatever the order."""

import json
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.graphs import GraphHarness
from spark.pipelines import PipelineHarness
from trioka.pipeline.changes.merge_rule import Change, current_rows, history

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

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


@pytest.fixture
def graph(workshop: PipelineHarness) -> GraphHarness:
    return GraphHarness(topics=workshop)


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
