"""Rounds become lines of a table: the best counts, failures keep their reason, goals are judged; and a picture."""

import importlib
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
ratios: Any = importlib.import_module("ratios")
measures: Any = importlib.import_module("measures")
chart: Any = importlib.import_module("chart")
transactions: Any = importlib.import_module("transactions")

PRODUCE = measures.LOADS[0]
START = measures.START


def lines(ours: list[Any], theirs: list[Any], measure: Any = PRODUCE, reasons: Any = None) -> list[Any]:
    rounds = {"trioka": {measure.name: ours}, "Apache Kafka": {measure.name: theirs}}
    return list(ratios.lines_of([measure], rounds, reasons or {}))


def produced(speed: float, cpu: float = 1.0) -> dict[str, float]:
    return {"mb_per_second": speed, "records_per_second": speed * 1000, "cpu_seconds_per_gb": cpu}


def test_the_best_round_of_each_is_compared() -> None:
    speed, _, cpu = lines([produced(300, 1.0), produced(500, 0.8)], [produced(200, 4.0), produced(150, 5.0)])
    assert speed.ratio == 500 / 200
    assert cpu.ratio == 0.8 / 4.0


def test_the_spread_is_of_rounds_that_stood_beside_each_other() -> None:
    speed = lines([produced(300), None, produced(500)], [produced(100), produced(100), produced(250)])[0]
    assert speed.ratios == [3.0, 2.0]


@pytest.mark.parametrize(("ours", "met"), [(500.0, True), (499.0, False)])
def test_a_speed_must_reach_its_goal(ours: float, met: bool) -> None:
    assert lines([produced(ours)], [produced(200)])[0].is_met is met  # the goal is 2.5×


@pytest.mark.parametrize(("ours", "met"), [(0.33, True), (0.34, False)])
def test_a_cost_must_stay_below_its_goal(ours: float, met: bool) -> None:
    assert lines([produced(1, ours)], [produced(1, 1.0)])[2].is_met is met


def test_a_bound_is_judged_beside_the_ratio() -> None:
    slow_but_ahead = {"ready_seconds": 0.6, "rss_mb": 1.0, "idle_cpu_percent": 0.0, "rss_many_mb": 1.0}
    slower_still = {"ready_seconds": 60.0, "rss_mb": 99.0, "idle_cpu_percent": 3.0, "rss_many_mb": 99.0}
    ready, rss, idle, _ = lines([slow_but_ahead], [slower_still], START)
    assert ready.ratio < ready.figure.goal and ready.is_met is False
    assert rss.is_met is True
    assert idle.figure.goal is None and idle.is_met is True


def test_a_figure_without_a_goal_is_not_judged() -> None:
    assert lines([produced(1)], [produced(1)])[1].is_met is None


def test_what_is_missing_says_why() -> None:
    speed = lines([None], [produced(200)], reasons={"trioka": {PRODUCE.name: "not served: Produce v11"}})[0]
    assert speed.ratio is None and speed.is_met is None
    assert "not served: Produce v11" in ratios.table([speed])


def test_a_long_reason_is_shortened_in_the_table_and_whole_in_the_data() -> None:
    reason = "x" * 500
    line = lines([None], [None], reasons={"trioka": {PRODUCE.name: reason}})[0]
    assert len(ratios.table([line])) < 800
    assert ratios.as_data([line])[0]["reasons"] == {"trioka": reason}


def test_the_table_is_markdown_with_equal_columns() -> None:
    rows = ratios.table(lines([produced(1234.5)], [produced(0.05)])).splitlines()
    assert len({len(row) for row in rows}) == 1
    assert {row.count("|") for row in rows} == {8}
    assert "1,234" in rows[2] or "1,235" in rows[2]


def test_figures_come_from_what_was_counted() -> None:
    counted = {"seconds": 2.0, "bytes": 4_000_000_000, "records": 100, "requests": 50}
    figures = measures.figures_of({**counted, "broker_cpu_seconds": 8.0, "load_cpu_seconds": 0.5})
    assert figures["mb_per_second"] == 2000
    assert figures["records_per_second"] == 50
    assert figures["cpu_seconds_per_gb"] == 2
    assert figures["cpu_micros_per_request"] == 160_000
    assert figures["load_busy"] == 0.25


def test_every_figure_of_a_load_is_one_that_is_counted() -> None:
    counted = {"seconds": 1, "bytes": 1, "records": 1, "requests": 1, "broker_cpu_seconds": 1, "load_cpu_seconds": 1}
    latencies = {"micros": {"p50": 1, "p99": 1, "p99.9": 1}, "lateness_micros": {"p99.9": 1}}
    for measure in measures.LOADS:
        known = measures.figures_of(latencies if measure.command == "latency" else counted)
        assert {figure.key for figure in measure.figures} <= known.keys(), measure.name


def test_names_of_measures_are_unique() -> None:
    names = [measure.name for measure in (*measures.LOADS, START)]
    assert len(set(names)) == len(names)


# The picture.


def bars(ours: dict[str, float], theirs: dict[str, float]) -> list[tuple[float, float, str]]:
    """Left, width and colour of each bar."""
    root = ElementTree.fromstring(chart.picture(ratios.as_data(lines([ours], [theirs])), "a note & more"))
    found = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("x")]
    return [(float(rect.get("x", 0)), float(rect.get("width", 0)), str(rect.get("fill"))) for rect in found]


def test_a_bar_goes_right_where_we_are_ahead_and_left_where_not() -> None:
    (speed_left, _, speed), (cpu_left, cpu_width, cpu) = bars(produced(300, 2.0), produced(100, 1.0))
    assert (speed, cpu) == (chart.AHEAD, chart.BEHIND)
    assert cpu_left + cpu_width == pytest.approx(speed_left, abs=0.2)  # both begin where the two are level


def test_half_as_much_cpu_is_as_long_a_bar_as_twice_the_speed() -> None:
    (_, speed, _), (_, cpu, _) = bars(produced(200, 0.5), produced(100, 1.0))
    assert speed == pytest.approx(cpu, abs=0.2)


def test_the_picture_is_drawn_even_if_nothing_can_be_compared() -> None:
    rows = ratios.as_data(lines([None], [None], reasons={"trioka": {PRODUCE.name: "a < b"}}))
    assert "a &lt; b" in chart.picture(rows, "")


def test_nothing_at_all_is_drawn_as_a_number() -> None:
    rows = ratios.as_data(lines([produced(1, 0.0)], [produced(1, 1.0)]))
    assert ">0×<" in chart.picture(rows, "")


def test_idempotence_is_judged_by_the_median_of_its_surcharges_pair_by_pair() -> None:
    costs = [(1.0, 1.05), (2.0, 2.1), (0.0, 9.0), (1.0, 1.04), (1.0, 1.1), (4.0, 4.2)]
    assert transactions.surcharges(costs) == [1.05, 1.05, 1.04, 1.1, 1.05]
    assert transactions.verdict("trioka", costs) == (
        "trioka: idempotent takes 1.05× the CPU of plain, 1.04× at best "
        "(median of 5 pairs; the middle half lies between 1.04 and 1.08); the goal of 1.1× is met"
    )
    assert transactions.verdict("trioka", [(1.0, 1.2)]).endswith("is NOT met")
    assert "goal" not in transactions.verdict("Apache Kafka", [(1.0, 1.2)])


def test_a_noisy_machine_gives_no_verdict() -> None:
    costs = [(1.0, 0.8), (1.0, 1.0), (1.0, 1.0), (1.0, 1.6)]
    assert "too noisy" in transactions.verdict("trioka", costs)
