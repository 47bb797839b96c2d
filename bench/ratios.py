"""Converts the rounds of two brokers to lines of a table: best, spread, ratio, goal. This module runs nothing.

The best round of each is compared, because disturbance only makes a round worse. The spread of the ratio is over the
rounds themselves, each of which measured both brokers in turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measures import Figure, Measure

OURS, THEIRS = "trioka", "Apache Kafka"
# The length of an error in a cell of the table; the JSON file has the whole error.
REASON_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of one measure. A broker without any round has a reason instead."""

    measure: Measure
    figure: Figure
    ours: Sequence[float]
    theirs: Sequence[float]
    ratios: Sequence[float]
    reasons: Mapping[str, str]

    @property
    def ratio(self) -> float | None:
        ours, theirs = best(self.figure, self.ours), best(self.figure, self.theirs)
        return ours / theirs if ours is not None and theirs else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached; None if there is no goal, or no figure."""
        figure, value, ratio = self.figure, best(self.figure, self.ours), self.ratio
        verdicts = []
        if figure.goal is not None and ratio is not None:
            verdicts.append(ratio >= figure.goal if figure.more_is_better else ratio <= figure.goal)
        if figure.bound is not None and value is not None:
            verdicts.append(value >= figure.bound if figure.more_is_better else value <= figure.bound)
        return all(verdicts) if verdicts else None


# By broker, then by measure, the figures of each round; None where a round failed.
Rounds = Mapping[str, Mapping[str, Sequence[Mapping[str, float] | None]]]
Reasons = Mapping[str, Mapping[str, str]]


def lines_of(measures: Iterable[Measure], rounds: Rounds, reasons: Reasons) -> Iterator[Line]:
    for measure in measures:
        ours = rounds.get(OURS, {}).get(measure.name, ())
        theirs = rounds.get(THEIRS, {}).get(measure.name, ())
        for figure in measure.figures:
            mine, other = _values(figure, ours), _values(figure, theirs)
            pairs = zip(mine, other, strict=False)
            yield Line(
                measure=measure,
                figure=figure,
                ours=[value for value in mine if value is not None],
                theirs=[value for value in other if value is not None],
                ratios=[a / b for a, b in pairs if a is not None and b],
                reasons={name: text[measure.name] for name, text in reasons.items() if measure.name in text},
            )


def _values(figure: Figure, rounds: Sequence[Mapping[str, float] | None]) -> list[float | None]:
    return [None if one is None else one.get(figure.key) for one in rounds]


def best(figure: Figure, values: Sequence[float]) -> float | None:
    if not values:
        return None
    return max(values) if figure.more_is_better else min(values)


def goal_text(figure: Figure) -> str:
    sign = "≥" if figure.more_is_better else "≤"
    parts = [] if figure.goal is None else [f"{sign} {figure.goal:g}×"]
    parts += [] if figure.bound is None else [f"{sign} {figure.bound:g}"]
    return ", ".join(parts)


def number(value: float) -> str:
    """Three significant digits; large numbers with commas."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def contestant_text(line: Line, name: str) -> str:
    """`512 (480–512)`: the best round and the spread; or the reason why there is none."""
    values = line.ours if name == OURS else line.theirs
    chosen = best(line.figure, values)
    if chosen is None:
        return _shortened(line.reasons.get(name, "–"))
    return number(chosen) + (f" ({number(min(values))}–{number(max(values))})" if len(values) > 1 else "")


def _shortened(reason: str) -> str:
    return reason if len(reason) <= REASON_CHARS else reason[: REASON_CHARS - 1] + "…"


def ratio_text(line: Line) -> str:
    if line.ratio is None:
        return "–"
    spread = f" ({min(line.ratios):.2f}–{max(line.ratios):.2f})" if len(line.ratios) > 1 else ""
    return f"{line.ratio:.2f}×{spread}"


def table(lines: Sequence[Line]) -> str:
    """The table as Markdown that is readable as text. A line's work is shown only beside its first figure."""
    head = ("work", "figure", OURS, THEIRS, "ratio", "goal", "")
    rows: list[tuple[str, ...]] = [head]
    before = None
    for line in lines:
        mark = {True: "met", False: "MISSED", None: ""}[line.is_met]
        work = "" if line.measure is before else line.measure.work
        before = line.measure
        contestants = (contestant_text(line, OURS), contestant_text(line, THEIRS))
        rows.append((work, line.figure.unit, *contestants, ratio_text(line), goal_text(line.figure), mark))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * max(3, width) for width in widths))
    written = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"| {row} |" for row in written)


def summary(lines: Sequence[Line]) -> str:
    """The number of goals that are met, and the names of the rows that miss one."""
    judged = [line for line in lines if line.is_met is not None]
    missed = dict.fromkeys(line.measure.name for line in judged if not line.is_met)
    unknown = [
        line
        for line in lines
        if line.is_met is None and (line.figure.goal is not None or line.figure.bound is not None)
    ]
    text = f"{sum(bool(line.is_met) for line in judged)} of {len(judged) + len(unknown)} goals are met"
    text += f"; MISSED: {', '.join(missed)}" if missed else ""
    return text + (f"; not judged: {', '.join(dict.fromkeys(one.measure.name for one in unknown))}" if unknown else "")


# Rows of the whole run that are not published: three nodes of each broker and their load exceed two cores, so the
# ratio compares two queues.
OVERLOADED = frozenset({"replicated"})
# Its ratio is that of MB/s, because the batches are the same.
SAME_RATIO = frozenset({"records_per_second"})


def published(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, as data, that the page and the picture show."""
    return [row for row in rows if row["measure"] not in OVERLOADED and row["figure"] not in SAME_RATIO]


def as_data(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """The same as plain data, for the JSON file."""
    return [
        {
            "measure": line.measure.name,
            "work": line.measure.work,
            "figure": line.figure.key,
            "unit": line.figure.unit,
            "more_is_better": line.figure.more_is_better,
            "goal_ratio": line.figure.goal,
            "goal_bound": line.figure.bound,
            "trioka_rounds": list(line.ours),
            "kafka_rounds": list(line.theirs),
            "trioka_best": best(line.figure, line.ours),
            "kafka_best": best(line.figure, line.theirs),
            "ratio": line.ratio,
            "round_ratios": list(line.ratios),
            "is_met": line.is_met,
            "reasons": dict(line.reasons),
        }
        for line in lines
    ]
