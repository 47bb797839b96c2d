"""How a cost grows with a size, as the exponent of a power law. This module runs nothing.

A cost that is the same for any size grows with an exponent of 0, one that doubles with the size with 1. The exponent is
the slope of the last points on logarithmic axes (least squares), because fixed costs hide the growth at small sizes.
Each curve states the growth of the work itself, which is a lower bound: a check of a thousand partitions is a thousand
checks. A cost that grows faster than the work is flagged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The last two decades of sizes.
LAST_POINTS = 3
# Tolerance for noise: a factor of two in cost over two decades.
TOLERANCE = 0.15
FASTER = "GROWS FASTER THAN ITS WORK"

Points = Sequence[tuple[float, float]]  # size and cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`exponent` is that of the work. `of` names the unit of the sizes."""

    name: str
    of: str
    what: str
    exponent: float


def slope(points: Points) -> float:
    """The slope of the least-squares line through the logarithms."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(cost) for _, cost in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((x - middle_x) ** 2 for x in xs)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / across


def exponent(points: Points) -> float | None:
    """The exponent at the large sizes; None if there are too few sizes."""
    last = [(size, cost) for size, cost in sorted(points) if cost > 0][-LAST_POINTS:]
    return slope(last) if len({size for size, _ in last}) > 1 else None


def verdict(curve: Curve, points: Points) -> str:
    found = exponent(points)
    if found is None:
        return ""
    return FASTER if found > curve.exponent + TOLERANCE else "as its work" if found > 0.5 else "hardly"


def size_text(size: float) -> str:
    """`10,000`, or `3.5 G` where it has many digits."""
    for unit, name in ((1e9, " G"), (1e6, " M")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:,.0f}"


def cost_text(micros: float) -> str:
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.1f}"


CurveResults = Mapping[str, Mapping[str, Points]]  # by broker, then by curve


def table(curves: Sequence[Curve], found: CurveResults, reasons: Mapping[str, Mapping[str, str]]) -> str:
    """One line per curve and broker: all costs, the exponent beside that of the work, and the verdict."""
    rows = [("cost in CPU-µs of the broker", "", "by size", "grows with", "its work", "")]
    for curve in curves:
        for name, costs in found.items():
            points = costs.get(curve.name, ())
            power = exponent(points)
            listed = " · ".join(f"{size_text(size)}: {cost_text(cost)}" for size, cost in points)
            text = reasons.get(name, {}).get(curve.name, "")
            rows.append(
                (
                    f"{curve.what}, by {curve.of}",
                    name,
                    "; ".join(part for part in (listed, text) if part) or "–",
                    "–" if power is None else f"size^{power:.2f}",
                    f"size^{curve.exponent:g}",
                    verdict(curve, points),
                )
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * max(3, width) for width in widths))
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)


def as_data(
    curves: Sequence[Curve], found: CurveResults, reasons: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    return [
        {
            "curve": curve.name,
            "of": curve.of,
            "what": curve.what,
            "work_exponent": curve.exponent,
            "contestant": name,
            "points": [list(point) for point in costs.get(curve.name, ())],
            "exponent": exponent(costs.get(curve.name, ())),
            "verdict": verdict(curve, costs.get(curve.name, ())),
            "reason": reasons.get(name, {}).get(curve.name, ""),
        }
        for curve in curves
        for name, costs in found.items()
    ]
