"""Draws growth curves: both axes are logarithmic, so a straight line is a power law and its slope the exponent.

    python bench/growth_chart.py growth.json FOLDER

One picture per kind of size, as SVG written by hand, like `chart.py`'s. trioka's curves are solid, those of Apache
Kafka dashed; a curve's label has its exponent, and that of its work.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from chart import FAINT, FONT, INK, label
from curves import FASTER, size_text

WIDTH, HEIGHT = 960, 470
LEFT, RIGHT, TOP, BOTTOM = 76, 600, 64, 408
LEGEND, LEGEND_ROW = 622, 38
COLOURS = ("#2b7a78", "#b5482e", "#3b5b92", "#8a6d1d", "#6b4c8a")
GREY = "#666666"
OURS = "trioka"

Row = Mapping[str, Any]


class Axes:
    """Maps sizes and costs to coordinates; both axes begin and end with a power of ten."""

    def __init__(self, sizes: Sequence[float], costs: Sequence[float]) -> None:
        self.sizes, self.costs = _decades(sizes), _decades(costs)

    def x(self, size: float) -> float:
        return round(LEFT + _share(size, self.sizes) * (RIGHT - LEFT), 1)

    def y(self, cost: float) -> float:
        return round(BOTTOM - _share(cost, self.costs) * (BOTTOM - TOP), 1)


def _decades(values: Sequence[float]) -> range:
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    return range(low, max(high, low + 1) + 1)


def _share(value: float, decades: range) -> float:
    return (math.log10(value) - decades[0]) / (decades[-1] - decades[0])


def picture(title: str, rows: Sequence[Row], note: str) -> str:
    rows = [row for row in rows if row["points"]]
    points = [point for row in rows for point in row["points"]] or [[1, 1]]
    axes = Axes([size for size, _ in points], [cost for _, cost in points])
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(dict.fromkeys(row["curve"] for row in rows))}
    lines = [part for n, row in enumerate(rows) for part in _curve(row, axes, colours[row["curve"]], n)]
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' "
            f"height='{HEIGHT}' {FONT} font-size='13'>",
            f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
            label(16, 28, f"What a request costs as {title} grow", INK, size=18),
            label(16, 48, "CPU-µs of the broker; solid: trioka, dashed: Apache Kafka", GREY, size=12),
            *_grid(axes, title),
            *lines,
            label(16, HEIGHT - 12, note, GREY, size=11),
            "</svg>\n",
        ]
    )


def _grid(axes: Axes, title: str) -> list[str]:
    parts = []
    for power in axes.sizes:
        x = axes.x(10.0**power)
        parts.append(f"<line x1='{x}' x2='{x}' y1='{TOP}' y2='{BOTTOM}' stroke='{FAINT}'/>")
        parts.append(label(x, BOTTOM + 18, size_text(10.0**power), GREY, anchor="middle", size=11))
    for power in axes.costs:
        y = axes.y(10.0**power)
        parts.append(f"<line x1='{LEFT}' x2='{RIGHT}' y1='{y}' y2='{y}' stroke='{FAINT}'/>")
        parts.append(label(LEFT - 8, y + 4, f"{10.0**power:,g}", GREY, anchor="end", size=11))
    return [*parts, label((LEFT + RIGHT) / 2, BOTTOM + 38, title, GREY, anchor="middle", size=12)]


def _curve(row: Row, axes: Axes, colour: str, number: int) -> list[str]:
    dashes = "" if row["contestant"] == OURS else " stroke-dasharray='5 4'"
    places = [(axes.x(size), axes.y(cost)) for size, cost in row["points"]]
    path = " ".join(f"{x},{y}" for x, y in places)
    y = TOP + 10 + number * LEGEND_ROW
    power = "" if row["exponent"] is None else f"size^{row['exponent']:.2f}, its work size^{row['work_exponent']:g}"
    flag = " – FASTER" if row["verdict"] == FASTER else ""
    return [
        f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dashes}/>",
        *(f"<circle cx='{x}' cy='{place}' r='3' fill='{colour}'/>" for x, place in places),
        f"<line x1='{LEGEND}' x2='{LEGEND + 26}' y1='{y}' y2='{y}' stroke='{colour}' stroke-width='2'{dashes}/>",
        label(LEGEND + 34, y + 4, f"{row['contestant']}: {row['what']}", INK, size=12),
        label(LEGEND + 34, y + 19, power + flag, GREY, size=11),
    ]


def pictures(data: Mapping[str, Any]) -> dict[str, str]:
    """The pictures by file name."""
    settings, cores = data["settings"], data["machine"]["cores"]
    note = f"best of {settings['rounds']}, {settings['seconds']:g} s each · {cores} cores · {data['made'][:10]}"
    rows = sorted(data["rows"], key=lambda row: row["of"])
    return {
        f"growth-{of.replace(' ', '-')}.svg": picture(of, list(some), note)
        for of, some in groupby(rows, key=lambda row: row["of"])
    }


if __name__ == "__main__":
    for name, drawn in pictures(json.loads(Path(sys.argv[1]).read_text())).items():
        Path(sys.argv[2], name).write_text(drawn)
