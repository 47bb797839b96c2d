"""What is reported of a batch: the line, the event, the series."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from trioka.pipeline.expectations.rules import Counts
from trioka.pipeline.flows import events
from trioka.pipeline.flows.events import EventLog, completed, report_of
from trioka.pipeline.flows.metrics import Metrics

PROGRESS = {
    "batchId": 3,
    "numInputRows": 1200,
    "durationMs": {"triggerExecution": 400},
    "sources": [{"metrics": {"maxOffsetsBehindLatest": "7"}}, {"metrics": None}, {}],
    "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}],
}
COUNTS = Counts(records=1200, refused=5, broken={"positive": 5})


def test_a_batch_is_one_line() -> None:
    report = completed(report_of(PROGRESS, "orders"), COUNTS, is_new=False)
    assert report.line() == ("orders: batch 3: 1200 records in 0.4 s, lag 7, late 3, refused 5, was there already")
    assert "lag" not in report_of({"batchId": 0}, "orders").line()


def test_the_log_has_a_line_of_json_for_each_event_and_is_kept_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_LOG_BYTES", 200)
    file = tmp_path / "folder" / "events.jsonl"
    with EventLog(file, now=lambda: datetime(2026, 11, 16, tzinfo=UTC)) as log:
        for number in range(6):
            log.write({"event": "batch", "batch": number})
    files = (file.with_name("events.jsonl.1"), file)
    lines = [json.loads(line) for one in files for line in one.read_text().splitlines()]
    assert lines[-1] == {"at": "2026-11-16T00:00:00+00:00", "event": "batch", "batch": 5}
    assert [line["batch"] for line in lines] == sorted(line["batch"] for line in lines)


def test_the_series_count_records_refused_rows_and_broken_rules() -> None:
    with Metrics("shop") as metrics:
        for _ in range(2):
            metrics.count(completed(report_of(PROGRESS, "orders"), COUNTS, is_new=True))
        metrics.failed("orders")
        text = generate_latest(metrics.registry).decode()
    labels = 'flow="orders",pipeline="shop"'
    assert f"trioka_pipeline_records_total{{{labels}}} 2400.0" in text
    assert f"trioka_pipeline_refused_rows_total{{{labels}}} 10.0" in text
    assert f"trioka_pipeline_lag_records{{{labels}}} 7.0" in text
    assert f'trioka_pipeline_expectation_failures_total{{expectation="positive",{labels}}} 10.0' in text
    assert f"trioka_pipeline_flow_failed{{{labels}}} 1.0" in text
