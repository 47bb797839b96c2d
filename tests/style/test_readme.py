"""The README promises figures that hold in every round, and a comparison without gaps."""

import re
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
FIGURE = re.compile(r"(?m)^\| .+ \| ([\d.]+)× \(([\d.]+)–([\d.]+)\) \| ([≤≥]) ([\d.]+)× \|$")


def section(title: str) -> str:
    _, _, rest = README.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def test_every_round_of_the_six_figures_reached_the_goal() -> None:
    rows = FIGURE.findall(section("Six figures"))
    assert len(rows) == 6
    for median, lowest, highest, sign, goal in rows:
        assert float(lowest) <= float(median) <= float(highest)
        assert float(highest) <= float(goal) if sign == "≤" else float(lowest) >= float(goal)


def test_every_cell_of_the_comparison_is_filled() -> None:
    rows = [line.split("|")[1:-1] for line in section("Beside the alternatives").splitlines() if line.startswith("|")]
    first, _, *others = rows
    assert all(cell.strip() for cell in first[1:])
    assert len(others) > 5 and all(cell.strip() for row in others for cell in row)
    assert {len(row) for row in others} == {len(first)}
