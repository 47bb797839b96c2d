"""The plan says in words what the declaration says in keys."""

from typing import Any

from trioka.pipeline import Pipeline

RIGHT: dict[str, Any] = {
    "name": "revenue",
    "source": {"topics": ["orders"], "bootstrap": "there:9092", "start": "latest", "max_records_per_batch": 500},
    "decode": {"format": "json", "schema": "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP"},
    "validate": {"positive": "amount > 0"},
    "transform": {"sql": "SELECT *\n  FROM records"},
    "watermark": {"column": "at", "delay": "10 minutes"},
    "deduplicate": {"keys": ["id"]},
    "aggregate": {"window": "1 minute", "columns": {"revenue": "sum(amount)"}, "emit": "updates"},
    "sink": {"kind": "iceberg", "table": "shop.revenue", "warehouse": "/tables"},
    "dead_letters": {"kind": "topic", "topic": "orders-dead"},
}

PLAN = """\
pipeline revenue
  source        orders on there:9092, from latest, at most 500 records in a batch
  decode        JSON: id BIGINT, amount DOUBLE, at TIMESTAMP; needed: id
  validate      positive: amount > 0
  transform     SELECT * FROM records
  watermark     at, up to 10 minutes late
  deduplicate   the first of each id within the watermark
  aggregate     windows of 1 minute: revenue = sum(amount)
                a window is written again with each change
  sink          Iceberg table trioka.shop.revenue, each row once
  dead letters  topic orders-dead, each row at least once
  checkpoint    /there/checkpoints/revenue, a batch every 10 seconds
  progress      committed to the group revenue: trioka lag --group revenue"""


def test_every_step_has_its_line() -> None:
    assert Pipeline(RIGHT, folder="/there").plan() == PLAN


def test_records_that_stay_bytes_cannot_be_refused() -> None:
    raw = {
        **RIGHT,
        "decode": {"format": "raw"},
        "validate": {},
        "watermark": {"column": "kafka_timestamp", "delay": "1 day"},
    }
    text = Pipeline(raw).plan()
    assert "decode        none, the value stays bytes" in text
    assert "dead letters  none: every record is taken as it is" in text
