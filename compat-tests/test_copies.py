"""Whoever judges copies finds what is wrong with them: for each rule a small history that keeps it, and one that does
not. No broker is needed."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from clients.client import Record
from clients.copier import CopiedTransaction
from copies import PARTITIONS, TARGET, Copies, Saw, key, must_be_copied
from history.checker import check
from history.operations import Read

EACH = 4


@dataclass
class ScriptedCopier:
    name: str
    copied: list[CopiedTransaction] = field(default_factory=list)


def transaction(number: int, *records: int, **more: Any) -> CopiedTransaction:
    """Of partition 0, with what was read of it."""
    read = [(0, record, f"0-{record}") for record in records]
    more = {"ended": "ok", "ended_ms": 25 + 10 * number, "has_asked": True, **more}
    if more["ended"] != "ok":
        more["ended_ms"] = 0 if more["ended"] == "open" else more["ended_ms"]
    return CopiedTransaction(number=number, began_ms=20 + 10 * number, read=read, **more)


def copies(*copiers: ScriptedCopier, output: list[str], saw: list[str] | None = None, committed: int = EACH) -> Copies:
    """The values of partition 0; the others have none."""
    reads = [Read(key(TARGET, 0), offset, value.encode()) for offset, value in enumerate(output)]
    seen = [Read(key(TARGET, 0), offset, value.encode()) for offset, value in enumerate(saw or output)]
    return Copies(
        began_ms=1,
        written_ms=10,
        committed_ms=100,
        written=[(Record(value=f"0-{number}".encode()), number) for number in range(EACH)],
        copiers=copiers,
        saw=[Saw(began_ms=90, ended_ms=91, reads=seen)],
        committed={0: committed},
        output={0: reads, **{partition: [] for partition in range(1, PARTITIONS)}},
    )


WELL = ["0-0|a|0", "0-1|a|0", "0-2|b|0", "0-3|b|0"]


def test_a_copy_that_was_taken_over_is_without_fault() -> None:
    a, b = (
        ScriptedCopier("a", [transaction(0, 0, 1), transaction(1, 2, 3, ended="open")]),
        ScriptedCopier("b", [transaction(0, 2, 3)]),
    )
    made = copies(a, b, output=WELL)
    a.copied[1].has_asked = False
    assert made.aborted == {b"0-2|a|1", b"0-3|a|1"}
    report = check(made.history())
    assert not report.anomalies, str(report)


def test_a_commit_that_nobody_heard_of_may_have_happened() -> None:
    made = copies(
        ScriptedCopier("a", [transaction(0, 0, 1)]),
        ScriptedCopier("b", [transaction(0, 2, 3, ended="open")]),
        output=WELL,
    )
    assert made.aborted == set()
    report = check(made.history())
    assert not report.anomalies, str(report)


@pytest.mark.parametrize("ended", ["open", "fail"])
def test_what_was_aborted_and_is_read_is_found(ended: str) -> None:
    b = ScriptedCopier("b", [transaction(0, 2, 3, ended=ended, has_asked=False)])
    assert "G1a" in check(copies(ScriptedCopier("a", [transaction(0, 0, 1)]), b, output=WELL).history()).kinds


def test_what_was_committed_and_is_not_read_is_found() -> None:
    a = ScriptedCopier("a", [transaction(0, 0, 1), transaction(1, 2, 3)])
    assert "unseen" in check(copies(a, output=["0-0|a|0", "0-1|a|0"]).history()).kinds


def test_half_a_transaction_is_found() -> None:
    a = ScriptedCopier("a", [transaction(0, 0, 1, offsets=[0, 1]), transaction(1, 2, 3, offsets=[3, 4])])
    made = copies(a, output=["0-0|a|0"])
    made.output[0].append(Read(key(TARGET, 0), 3, b"0-2|a|1"))
    made.output[0].append(Read(key(TARGET, 0), 4, b"0-3|a|1"))
    assert "G1b" in check(made.history()).kinds


def test_a_log_that_changes_under_its_readers_is_found() -> None:
    a = ScriptedCopier("a", [transaction(0, 0, 1), transaction(1, 2, 3)])
    output = ["0-0|a|0", "0-1|a|0", "0-2|a|1", "0-3|a|1"]
    made = copies(a, output=output, saw=[output[1], output[0], *output[2:]])
    assert {"inconsistent-offsets", "duplicate"} <= check(made.history()).kinds


def test_offsets_that_were_committed_and_forgotten_are_found() -> None:
    a = ScriptedCopier("a", [transaction(0, 0, 1), transaction(1, 2, 3)])
    made = copies(a, output=["0-0|a|0", "0-1|a|0", "0-2|a|1", "0-3|a|1"], committed=2)
    assert check(made.history()).kinds == {"lost-commit"}


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(WELL[:3], id="one is missing"),
        pytest.param([*WELL, "0-3|a|1"], id="one was copied twice"),
        pytest.param([WELL[0], WELL[2], WELL[1], WELL[3]], id="two have changed places"),
        pytest.param([*WELL, "0-9|a|1"], id="one was never there"),
    ],
)
def test_a_copy_that_is_not_the_same_is_found(output: list[str]) -> None:
    must_be_copied(all_of(WELL), EACH)
    with pytest.raises(AssertionError, match=f"{TARGET}-0"):
        must_be_copied(all_of(output), EACH)


def all_of(values: list[str]) -> dict[int, list[Read]]:
    whole = {p: [f"{p}-{number}|a|0" for number in range(EACH)] for p in range(PARTITIONS)} | {0: values}
    return {
        p: [Read(key(TARGET, p), offset, value.encode()) for offset, value in enumerate(some)]
        for p, some in whole.items()
    }
