"""Memory that is kept warm between two measures: as much as is asked for, and never what others need."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
machine: Any = importlib.import_module("machine")
PORTION = 1 << 21
SMAPS = Path("/proc/self/smaps")


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PORTION", PORTION)


def test_so_much_is_held_given_and_taken_back() -> None:
    with machine.WarmMemory(3 * PORTION) as memory:
        assert memory.held == 3 * PORTION
        memory.give(PORTION + 1)
        assert memory.held == PORTION
        memory.take()
        assert memory.held == 3 * PORTION
    assert memory.held == 0


def test_what_is_not_held_cannot_be_given() -> None:
    with machine.WarmMemory(PORTION) as memory:
        memory.give(1 << 40)
        memory.give(1)
        assert memory.held == 0


def test_what_is_not_free_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_free_bytes", lambda: 2 * PORTION - 1)
    with machine.WarmMemory(1 << 40) as memory:
        assert memory.held == 0


@pytest.mark.skipif(not SMAPS.exists(), reason="only Linux says what a mapping is")
def test_memory_is_private_and_in_large_pages() -> None:
    """As a written log is: small pages, and shared ones, would be warmed in other places."""
    before = _large_and_private()
    with machine.WarmMemory(PORTION):
        assert _large_and_private() == before + 1


def _large_and_private() -> int:
    flags = [line.split()[1:] for line in SMAPS.read_text().splitlines() if line.startswith("VmFlags:")]
    return sum("hg" in one and "sh" not in one for one in flags)
