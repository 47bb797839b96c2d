"""A whole run is shown in docs/PERFORMANCE.md, rows that are lost included; and real clients say how long they took."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mutants.plant import planted

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
publish: Any = importlib.import_module("publish")
ratios: Any = importlib.import_module("ratios")
measures: Any = importlib.import_module("measures")
real_clients: Any = importlib.import_module("real_clients")
load_generator: Any = importlib.import_module("load_generator")
# compat-tests has a module of the same name.
_spec: Any = importlib.util.spec_from_file_location("bench_side_by_side", ROOT / "bench" / "side_by_side.py")
side_by_side: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(side_by_side)

PRODUCE = measures.LOADS[0]
END_TO_END = next(one for one in measures.LOADS if one.name == "end-to-end")
OVERLOADED = measures.REPLICATED


def data(ours: float = 300.0, cpu: float = 0.2) -> dict[str, Any]:
    def one(speed: float, cost: float) -> dict[str, float]:
        return {"mb_per_second": speed, "records_per_second": speed, "cpu_seconds_per_gb": cost}

    rounds = {"trioka": {PRODUCE.name: [one(ours, cpu)] * 2}, "Apache Kafka": {PRODUCE.name: [one(100, 1.0)] * 2}}
    reasons = {"Apache Kafka": {END_TO_END.name: "the | node did not start"}}
    lines = list(ratios.lines_of([PRODUCE, END_TO_END, OVERLOADED], rounds, reasons))
    return {
        "rows": ratios.as_data(lines),
        "settings": {"rounds": 5, "seconds": 3.0},
        "machine": {"cores": 2},
        "made": "2026-01-02T03:04:05",
    }


def a_row_that_is_lost_is_shown(module: Any) -> None:
    assert "| reached |" in module.section(data())
    lost = module.section(data(ours=200.0))
    assert "2.00× (2.00–2.00) MB/s · 0.20×" in lost and "| **missed** |" in lost
    assert "1 of 2 goals are reached" in lost


def a_row_that_was_not_measured_shows_why(module: Any) -> None:
    (row,) = (line for line in module.section(data()).splitlines() if END_TO_END.work in line)
    assert "the / node did not start" in row and row.count("|") == 5
    assert "≤ 0.75×, ≤ 10" in row


def a_row_that_overloads_the_machine_is_not_published(module: Any) -> None:
    text = module.section(data())
    assert OVERLOADED.work not in text and "2 of 2 goals are reached" in text


def nothing_else_of_the_page_is_touched(module: Any) -> None:
    page = f"before\n{module.BEGIN}\nold\n{module.END}\nafter\n"
    once = module.in_page(page, "new")
    assert once == f"before\n{module.BEGIN}\nnew\n{module.END}\nafter\n"
    assert module.in_page(once, "new") == once
    with pytest.raises(ValueError, match="no place"):
        module.in_page("before\nafter\n", "new")


CHECKS = (
    a_row_that_is_lost_is_shown,
    a_row_that_was_not_measured_shows_why,
    nothing_else_of_the_page_is_touched,
    a_row_that_overloads_the_machine_is_not_published,
)
MISTAKES = [
    ("all(verdicts)", "any(verdicts)", CHECKS[0]),
    ("f\"{row['unit']}: {message.replace('|', '/')}\"", "f\"{row['unit']}: {message}\"", CHECKS[1]),
    ('f"{before}{BEGIN}\\n{section}\\n{END}{after}"', 'f"{before}{BEGIN}\\n{section}\\n{END}"', CHECKS[2]),
    ("if not begin or not end:", "if False:", CHECKS[2]),
    ('published(data["rows"])', 'data["rows"]', CHECKS[3]),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_of_publishing(check: Callable[[Any], None]) -> None:
    check(publish)


@pytest.mark.parametrize(("right", "wrong", "check"), MISTAKES, ids=[wrong or right for right, wrong, _ in MISTAKES])
def test_a_planted_mistake_is_found(right: str, wrong: str, check: Callable[[Any], None]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(planted(publish, right, wrong))


def test_the_page_has_a_place_for_the_table_and_shows_the_last_whole_run() -> None:
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    assert publish.in_page(page, "x") != page
    published = ROOT / "docs" / "bench" / "side_by_side.json"
    if published.exists():
        assert publish.in_page(page, publish.section(json.loads(published.read_text()))) == page


# Which rows there are.


def test_a_run_without_names_takes_every_row_with_a_goal_and_no_other() -> None:
    taken = measures.chosen("")
    assert all(any(figure.goal is not None for figure in one.figures) for one in taken)
    left = [one for one in measures.EVERYTHING if one not in taken]
    assert left and all(figure.goal is None for one in left for figure in one.figures)
    assert measures.chosen("*") == list(measures.EVERYTHING)
    assert [one.name for one in measures.chosen("client-*,start")][-1] == "start"


GOALS = {
    "replicated-16KB": [4.0, 0.25],
    "replicated-64KB": [2.0, 0.5],
    "replicated-1MB": [1.4, 0.65],
    "replicated-single-1x50": [5.0, 0.2],
    "replicated-single-32x1": [1.3, 0.75],
    "replicated-500": [0.9, 1.0, 0.8],
    "produce-1KiB-16KB": [2.5, 0.33],
    "produce-1KiB-64KB": [2.0, 0.4],
    "produce-1KiB-1MB": [1.4, 0.55],
    "produce-100B-16KB-idempotent": [2.2, 0.35],
    "single-1x50": [8],
    "single-1x1": [1.5],
    "single-32x1": [1.3],
    "single-1000x1": [1.3],
    "fetch-64KB": [1.3, 0.9],
    "fetch-1MB": [1.4, 0.9],
    "fetch-8MB": [1.3, 0.9],
    "fetch-1MBx4": [1.1, 0.9],
    "latency": [0.6, 0.6],
    "latency-beside": [0.2],
    "replicated": [0.7],
    "end-to-end": [0.75],
    "produce-1000-partitions": [1],
    "fetch-1000-partitions": [1],
    "start": [0.15, 0.2, 0.25],
    "client-franz-go": [1, 1],
    "client-librdkafka": [1, 1],
    "client-Java": [1, 1],
    "client-confluent-kafka": [1, 1],
}


def test_the_goals_are_those_that_were_set() -> None:
    found = {one.name: [f.goal for f in one.figures if f.goal is not None] for one in measures.chosen("")}
    assert found == GOALS
    bounds = {one.name: [f.bound for f in one.figures if f.bound is not None] for one in measures.chosen("")}
    assert bounds["replicated"] == [20] and bounds["end-to-end"] == [10]


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ([], "docs"),
        (["--rounds", "7"], "docs"),
        (["--rounds", "4"], "build"),
        (["--seconds", "1"], "build"),
        (["--only", "kafka"], "build"),
        (["--calibrate"], "build"),
        (["--measures", "*"], "build"),
    ],
)
def test_only_a_whole_run_is_published(arguments: list[str], folder: str) -> None:
    assert side_by_side.parse(arguments).output == ROOT / folder / "bench"


def test_the_rounds_of_another_program_are_taken_over_figure_by_figure() -> None:
    rows = [
        {"measure": "replicated", "figure": "p50", "trioka_rounds": [1.0, 2.0], "kafka_rounds": []},
        {"measure": "replicated", "figure": "p99", "trioka_rounds": [3.0, 4.0], "kafka_rounds": []},
        {"measure": "kill-leader", "figure": "median", "trioka_rounds": [9.0], "kafka_rounds": [9.0]},
    ]
    assert side_by_side.taken_over(rows, "trioka") == [{"p50": 1.0, "p99": 3.0}, {"p50": 2.0, "p99": 4.0}]
    assert side_by_side.taken_over(rows, "kafka") == []


def test_the_summary_names_missed_rows_and_rows_without_a_verdict() -> None:
    rounds = {"trioka": {PRODUCE.name: [{"mb_per_second": 200.0, "cpu_seconds_per_gb": 0.1}]}}
    rounds["Apache Kafka"] = {PRODUCE.name: [{"mb_per_second": 100.0, "cpu_seconds_per_gb": 1.0}]}
    lines = list(ratios.lines_of([PRODUCE, OVERLOADED], rounds, {}))
    assert ratios.summary(lines) == f"1 of 3 goals are met; MISSED: {PRODUCE.name}; not judged: replicated"


# What Kafka's tools say.


def test_the_producers_tool_is_read_by_its_last_line() -> None:
    text = (
        "5 records sent, 1.0 records/sec (0.00 MB/sec), …\n3000 records sent, 1500.0 records/sec (1.43 MB/sec), 1 ms\n"
    )
    assert real_clients.produced_in(text, 3000) == 2.0
    with pytest.raises(load_generator.LoadFailed, match="did not send 4000"):
        real_clients.produced_in(text, 4000)
    with pytest.raises(load_generator.LoadFailed):
        real_clients.produced_in("nonsense", 1)


def test_the_consumers_tool_is_read_without_the_time_of_its_rebalance() -> None:
    head = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    head += "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    row = "2026-01-01 00:00:00:000, 2026-01-01 00:00:05:000, 2.9, 0.5, 3000, 600.0, 3000, 2000, 1.4, 1500.0"
    assert real_clients.consumed_in(f"{head}\n{row}\n", 3000) == 2.0
    with pytest.raises(load_generator.LoadFailed, match="did not read 3001"):
        real_clients.consumed_in(f"{head}\n{row}\n", 3001)


def test_a_client_that_cannot_be_built_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_clients.shutil, "which", lambda *_, **__: None)
    real_clients.franz.cache_clear()
    try:
        with pytest.raises(load_generator.LoadFailed, match=r"^go is not on the PATH\.$"):
            real_clients.RealClients().seconds("franz-go", "produce", "127.0.0.1:1", "t", 1, 1)
    finally:
        real_clients.franz.cache_clear()
