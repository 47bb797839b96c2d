"""Memory that is touched before a measure: as much as is asked for, and never more than the machine can spare."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
machine: Any = importlib.import_module("machine")


def test_so_much_is_touched_and_given_back() -> None:
    assert machine.touch_memory(3 * 4096) == 3 * 4096


def test_what_is_not_free_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_free_bytes", lambda: 10_000)
    assert machine.touch_memory(1 << 40) == 4096
    monkeypatch.setattr(machine, "_free_bytes", lambda: 0)
    assert machine.touch_memory(1 << 40) == 0
