"""Writes the table of a complete run into docs/PERFORMANCE.md, between two invisible marks; the rest is unchanged.

    python bench/publish.py docs/bench/side_by_side.json docs/PERFORMANCE.md

One line for each row of work: the ratios of its figures, trioka : Apache Kafka, with the spread of single rounds; its
goals; and whether they were reached. Rows in which trioka is worse are shown like all others; `ratios.published` leaves
out the rows that do not compare the brokers.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ratios import published

BEGIN, END = "<!-- bench: written by `make bench` -->", "<!-- bench: end -->"
PICTURE = "bench/side_by_side.svg"  # beside the page

Row = Mapping[str, Any]


def publish(page: Path, data: Mapping[str, Any]) -> None:
    page.write_text(in_page(page.read_text(), section(data)))


def in_page(text: str, section: str) -> str:
    """The page with the section between its marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the table: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def section(data: Mapping[str, Any]) -> str:
    """Markdown, derived only from the figures."""
    settings, machine = data["settings"], data["machine"]
    rows = published(data["rows"])
    met = [row["is_met"] for row in rows if row["is_met"] is not None]
    note = (
        f"{data['made'][:10]}, {machine['cores']} cores, the load on the same machine: the best of "
        f"{settings['rounds']} rounds of {settings['seconds']:g} s that took turns; in brackets, "
        f"the ratios of single rounds. {sum(met)} of {len(met)} goals are reached."
    )
    lines = ["| work | trioka : Kafka | goal | |", "|---|---|---|---|", *_lines(rows)]
    return "\n".join([note, "", *lines, "", f"![the same as a picture]({PICTURE})"])


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for work, of_one in groupby(rows, key=lambda row: row["work"]):
        figures = list(of_one)
        goals = [goal(row) for row in figures if goal(row)]
        verdicts = [row["is_met"] for row in figures if row["is_met"] is not None]
        mark = "" if not verdicts else "reached" if all(verdicts) else "**missed**"
        yield f"| {work} | {' · '.join(map(ratio, figures))} | {' · '.join(goals)} | {mark} |"


def ratio(row: Row) -> str:
    if row["ratio"] is None:
        message = "; ".join(f"{name}: {why}" for name, why in row["reasons"].items()) or "not measured"
        return f"{row['unit']}: {message.replace('|', '/')}"
    spread = row["round_ratios"]
    between = f" ({min(spread):.2f}–{max(spread):.2f})" if len(spread) > 1 else ""
    own = f", {row['trioka_best']:.3g}" if row["goal_bound"] is not None else ""
    return f"{row['ratio']:.2f}×{between} {row['unit']}{own}"


def goal(row: Row) -> str:
    sign = "≥" if row["more_is_better"] else "≤"
    parts = [] if row["goal_ratio"] is None else [f"{sign} {row['goal_ratio']:g}×"]
    parts += [] if row["goal_bound"] is None else [f"{sign} {row['goal_bound']:g}"]
    return ", ".join(parts)


if __name__ == "__main__":
    publish(Path(sys.argv[2]), json.loads(Path(sys.argv[1]).read_text()))
