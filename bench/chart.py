"""Draws the ratios: one bar per figure, to the right where trioka is better than Apache Kafka, otherwise to the left.

    python bench/chart.py side_by_side.json picture.svg

The axis is logarithmic, so that twice as fast and half as fast are equally long. If less is better, the bar shows the
inverse ratio, and its label the measured one. A tick marks the goal. Rows in which trioka is worse are drawn like all
others. The picture is SVG, written as text: no library, small, and sharp at any size.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ratios import published

WIDTH = 960
ROW = 22
GROUP_GAP = 8
TOP = 76
BOTTOM = 46
AXIS_LEFT, AXIS_RIGHT = 470, 880
GRID = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
AHEAD, BEHIND, INK, FAINT = "#2b7a78", "#b5482e", "#222222", "#d8d8d8"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


def advantage(row: Mapping[str, Any]) -> float | None:
    """The factor by which trioka is better."""
    return _turned(row["ratio"], row["more_is_better"])


def _turned(ratio: float | None, more_is_better: bool) -> float | None:
    if not ratio:
        return None
    return ratio if more_is_better else 1 / ratio


def picture(rows: Sequence[Mapping[str, Any]], note: str) -> str:
    """The whole SVG. Rows without a ratio show the reason in place of the bar."""
    rows = published(rows)
    turned = [_turned(row["goal_ratio"], row["more_is_better"]) for row in rows]
    known = [value for value in [*map(advantage, rows), *turned] if value is not None]
    axis = _Axis([*known, 0.8, 2.5])
    y = TOP
    parts: list[str] = []
    before = None
    for row in rows:
        if before not in (None, row["work"]):
            y += GROUP_GAP
        if before != row["work"]:
            parts.append(label(16, y + 15, row["work"], INK))
        before = row["work"]
        parts += _row(row, y, axis)
        y += ROW
    grid = [line for mark in GRID if axis.holds(mark) for line in _mark(mark, axis, y)]
    height = y + BOTTOM
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' "
            f"{FONT} font-size='13'>",
            f"<rect width='{WIDTH}' height='{height}' fill='white'/>",
            label(16, 28, "trioka beside Apache Kafka", INK, size=18),
            label(
                16, 48, "times better, best round of each; the label is the ratio trioka : Kafka, | the goal", "#666666"
            ),
            *grid,
            *parts,
            label(16, height - 14, note, "#666666", size=11),
            "</svg>\n",
        ]
    )


class _Axis:
    """Maps values to x."""

    def __init__(self, values: Sequence[float]) -> None:
        self._low, self._high = math.log(min(values) / 1.1), math.log(max(values) * 1.1)

    def x(self, value: float) -> float:
        share = (math.log(value) - self._low) / (self._high - self._low)
        return round(AXIS_LEFT + share * (AXIS_RIGHT - AXIS_LEFT), 1)

    def holds(self, value: float) -> bool:
        return self._low <= math.log(value) <= self._high


def _row(row: Mapping[str, Any], y: int, axis: _Axis) -> list[str]:
    parts = [label(AXIS_LEFT - 16, y + 15, row["unit"], "#666666", anchor="end", size=12)]
    value = advantage(row)
    if row["ratio"] == 0:  # a logarithmic axis cannot show zero
        return [*parts, label(axis.x(1) + 6, y + 15, "0×", INK, size=12)]
    if value is None:
        reason = "; ".join(f"{name}: {message}" for name, message in row["reasons"].items()) or "not measured"
        return [*parts, label(axis.x(1) + 6, y + 15, reason, BEHIND, size=11)]
    zero, end = axis.x(1), axis.x(value)
    colour = AHEAD if value >= 1 else BEHIND
    left, width = min(zero, end), max(1.0, round(abs(end - zero), 1))
    parts.append(f"<rect x='{left}' y='{y + 4}' width='{width}' height='{ROW - 8}' fill='{colour}'/>")
    goal = _turned(row["goal_ratio"], row["more_is_better"])
    if goal is not None:
        at = axis.x(goal)
        parts.append(f"<line x1='{at}' x2='{at}' y1='{y + 1}' y2='{y + ROW - 1}' stroke='{INK}' stroke-width='2'/>")
    beyond = max(end, zero, axis.x(goal) if goal is not None else 0)
    parts.append(label(beyond + 6, y + 15, f"{row['ratio']:.2f}×", INK, size=12))
    return parts


def _mark(value: float, axis: _Axis, bottom: int) -> list[str]:
    x = axis.x(value)
    colour = "#888888" if value == 1 else FAINT
    message = "level" if value == 1 else f"{value:g}×"
    return [
        f"<line x1='{x}' x2='{x}' y1='{TOP - 4}' y2='{bottom + 4}' stroke='{colour}'/>",
        label(x, TOP - 8, message, "#666666", anchor="middle", size=11),
    ]


def label(x: float, y: float, text: str, colour: str, *, anchor: str = "start", size: int = 13) -> str:
    return f"<text x='{x}' y='{y}' fill='{colour}' text-anchor='{anchor}' font-size='{size}'>{escape(text)}</text>"


def note_of(data: Mapping[str, Any]) -> str:
    """One line with the origin of the figures."""
    settings, machine = data["settings"], data["machine"]
    return (
        f"best of {settings['rounds']}, {settings['seconds']:g} s each, interleaved · {machine['cores']} cores, "
        f"load generator on the same machine · acks=1, one node · {data['made'][:10]}"
    )


def main(source: str, target: str) -> None:
    data = json.loads(Path(source).read_text())
    Path(target).write_text(picture(data["rows"], note_of(data)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
