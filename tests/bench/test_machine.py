"""Memory that is kept warm between two measures: as much as is asked for, and never what others need."""

import importlib
import sys
import time
from collections.abc import Callable
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
    monkeypatch.setattr(machine, "AHEAD", 2 * PORTION)


def _until(held: Callable[[], int], wanted: int) -> None:
    end = time.monotonic() + 5
    while held() != wanted:
        assert time.monotonic() < end, f"{held()} bytes are held, {wanted} are wanted"
        time.sleep(0.001)


def test_so_much_is_held_given_as_it_is_used_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 100 * PORTION
    memory: Any = machine.WarmMemory(10 * PORTION)
    monkeypatch.setattr(machine, "_free_bytes", lambda: free - memory.held)
    with memory:
        assert memory.held == 10 * PORTION
        memory.give(5 * PORTION)
        _until(lambda: memory.held, 8 * PORTION)  # two portions lie ready
        free -= PORTION
        _until(lambda: memory.held, 7 * PORTION)
        free -= 10 * PORTION
        _until(lambda: memory.held, 5 * PORTION)  # and that is all
        memory.take()
        assert memory.held == 10 * PORTION
    assert memory.held == 0


def test_what_is_not_held_cannot_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "AHEAD", 1 << 50)
    with machine.WarmMemory(PORTION) as memory:
        for _ in range(2):
            memory.give(1 << 40)
            _until(lambda: memory.held, 0)


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
