"""Costs become exponents, and what grows faster than its work is flagged and drawn. Nothing is measured here."""

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from mutants.plant import planted

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
curves: Any = importlib.import_module("curves")
growth_chart: Any = importlib.import_module("growth_chart")
growth: Any = importlib.import_module("growth")
sparse_log: Any = importlib.import_module("sparse_log")

SIZES = (1, 10, 100, 1000, 10_000)
ONE = curves.Curve(name="partitions-one", of="partitions", what="a record to one of them", exponent=0)
ALL = curves.Curve(name="partitions-all", of="partitions", what="a record to each of them", exponent=1)


def costs(of: Callable[[float], float]) -> list[tuple[float, float]]:
    return [(size, of(size)) for size in SIZES]


def a_power_has_its_exponent(module: Any) -> None:
    for power in (-0.5, 0.0, 1.0, 2.0):
        assert module.slope(costs(lambda size, p=power: 7 * size**p)) == pytest.approx(power)  # type: ignore[misc]


def fixed_costs_do_not_hide_growth(module: Any) -> None:
    """Of 1,000 µs and a little for each partition, most of the curve is flat; its end is not."""
    found = module.exponent(costs(lambda size: 1000 + size * 5))
    assert found > 0.5
    assert module.slope(costs(lambda size: 1000 + size * 5)) < 0.5


def what_grows_faster_than_its_work_is_flagged(module: Any) -> None:
    assert module.verdict(ONE, costs(lambda _: 20.0)) == "hardly"
    assert module.verdict(ONE, costs(lambda size: 20 * size**0.3)) == module.FASTER
    assert module.verdict(ALL, costs(lambda size: 5.0 * size)) == "as its work"
    assert module.verdict(ALL, costs(lambda size: 5.0 * size * math.sqrt(size))) == module.FASTER


def one_size_says_nothing(module: Any) -> None:
    assert module.exponent([(10, 5.0)]) is None and module.verdict(ONE, [(10, 5.0)]) == ""
    assert module.exponent([(10, 5.0), (100, 0.0)]) is None  # less than the clock can tell is no cost


CHECKS = (
    a_power_has_its_exponent,
    fixed_costs_do_not_hide_growth,
    what_grows_faster_than_its_work_is_flagged,
    one_size_says_nothing,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_of_curves(check: Callable[[Any], None]) -> None:
    check(curves)


MISTAKES = [
    ("math.log(cost)", "cost", a_power_has_its_exponent),
    ("(x - middle_x) * (y - middle_y)", "(x - middle_x) * y * 2", a_power_has_its_exponent),
    (
        "[(size, cost) for size, cost in sorted(points) if cost > 0][-LAST_POINTS:]",
        "[(size, cost) for size, cost in sorted(points) if cost > 0][:]",
        fixed_costs_do_not_hide_growth,
    ),
    ("found > curve.exponent + TOLERANCE", "found > 1 + TOLERANCE", what_grows_faster_than_its_work_is_flagged),
    (
        "[(size, cost) for size, cost in sorted(points) if cost > 0]",
        "[(size, cost) for size, cost in sorted(points)]",
        one_size_says_nothing,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "check"), MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_planted_mistake_is_found(right: str, wrong: str, check: Callable[[Any], None]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check(planted(curves, right, wrong))


FOUND = {
    "trioka": {"partitions-one": costs(lambda _: 20.0), "partitions-all": costs(lambda size: 5.0 * size**1.5)},
    "Apache Kafka": {"partitions-all": costs(lambda size: 15.0 * size)},
}


def test_the_table_has_a_line_for_each_curve_and_contestant_and_says_why_one_is_missing() -> None:
    text = curves.table([ONE, ALL], FOUND, {"Apache Kafka": {"partitions-one": "not served: Produce v11"}})
    rows = text.splitlines()
    assert len(rows) == 2 + 4 and len({len(row) for row in rows}) == 1
    assert "not served: Produce v11" in rows[3]
    assert curves.FASTER in rows[4] and "size^1.50" in rows[4]
    assert "10,000: 150,000" in rows[5] and curves.FASTER not in rows[5]


def test_every_curve_has_sizes_and_its_own_name() -> None:
    assert {curve.of for curve in growth.CURVES} == growth.SIZES.keys()
    assert len({curve.name for curve in growth.CURVES}) == len(growth.CURVES)
    for of, sizes in growth.SIZES.items():
        assert len(sizes) >= curves.LAST_POINTS and list(sizes) == sorted(sizes), of
    assert growth.SIZES["connections"][-1] == growth.SIZES["groups"][-1] == 1000
    assert growth.SIZES["partitions"][-1] == growth.MOST_PARTITIONS["trioka"] == 10_000
    blocks_of_a_batch = growth.BATCH_BYTES // sparse_log.BLOCK_BYTES
    assert sum(growth.SIZES["bytes of log"]) / blocks_of_a_batch < growth.DISK_LIMIT_BYTES


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [([], "docs"), (["--only", "trioka"], "build"), (["--rounds", "1"], "build"), (["--most", "10"], "build")],
)
def test_only_a_whole_run_is_published(arguments: list[str], folder: str) -> None:
    assert growth.parse(arguments).output == ROOT / folder / "bench"


def drawn() -> Iterator[tuple[str, ElementTree.Element]]:
    data = {
        "rows": curves.as_data([ONE, ALL], FOUND, {}),
        "settings": {"rounds": 2, "seconds": 1.0},
        "machine": {"cores": 2},
        "made": "2026-01-01T00:00:00",
    }
    for name, svg in growth_chart.pictures(data).items():
        yield name, ElementTree.fromstring(svg)


def test_there_is_a_picture_for_each_thing_that_grows_with_a_line_for_each_curve() -> None:
    ((name, root),) = drawn()
    assert name == "growth-partitions.svg"
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 3  # what was not measured has none
    assert [line.get("stroke-dasharray") is not None for line in lines] == [False, False, True]


def test_a_straight_power_is_a_straight_line() -> None:
    ((_, root),) = drawn()
    flat, steep, _ = root.iter("{http://www.w3.org/2000/svg}polyline")

    def places(line: ElementTree.Element) -> list[tuple[float, ...]]:
        return [tuple(map(float, point.split(","))) for point in str(line.get("points")).split()]

    assert len({y for _, y in places(flat)}) == 1
    steps = [b[1] - a[1] for a, b in zip(places(steep), places(steep)[1:], strict=False)]
    assert all(step == pytest.approx(steps[0], abs=0.2) and step < 0 for step in steps)


def test_an_axis_of_one_size_is_still_drawn() -> None:
    row = curves.as_data([ONE], {"trioka": {"partitions-one": [(10, 10.0)]}}, {})
    assert ElementTree.fromstring(growth_chart.picture("partitions", row, "a < b")) is not None
