"""Materialized views: tables that are computed again as a whole when a table that they read has changed.

A view that reads no table of the graph is computed each time it is due. The new content replaces the old one in one
step, so readers see either.
"""

import time
from collections.abc import Sequence
from typing import Any

from ..graph.analysis import Analysis
from ..graph.elements import Flow
from .targets import Tables

SECONDS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


class MaterializedViews:
    def __init__(self, analysis: Analysis, tables: Tables) -> None:
        self._analysis = analysis
        self._tables = tables
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._next = 0.0

    @property
    def are_there(self) -> bool:
        return any(one.kind == "materialized view" for one in self._analysis.graph.outputs)

    def is_due(self, every: str) -> bool:
        """Whether the interval has passed since the last time that this was true."""
        now = time.monotonic()
        if not self.are_there or now < self._next:
            return False
        self._next = now + seconds_of(every)
        return True

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """The flows of the materialized views among these outputs, in the order of what they read."""
        graph = self._analysis.graph
        views = {one.name for one in graph.outputs if one.kind == "materialized view"} & set(names)
        ordered = [name for level in self._analysis.levels() for name in level if name in views]
        return [flow for name in ordered for flow in graph.flows_into(name)]

    def refresh(self, flow: Flow, *, is_forced: bool) -> float | None:
        """The seconds that it took; None if nothing has changed."""
        seen = self._inputs(flow)
        if not is_forced and seen and self._seen.get(flow.name) == seen:
            return None
        begun = time.monotonic()
        # A DataFrame reads the snapshots that were current when it was analysed, so it is made anew.
        self._tables.refresh(self._analysis.graph.output(flow.target), flow.query())
        self._seen[flow.name] = seen
        return time.monotonic() - begun

    def _inputs(self, flow: Flow) -> tuple[Any, ...]:
        """The snapshots of all tables of the graph that a flow reads, directly or through views."""
        graph = self._analysis.graph
        reads = self._analysis.reads.get(flow.name, set())
        tables = sorted(one.name for one in graph.outputs if one.is_table and one.name in reads)
        return tuple(self._tables.snapshot(name) for name in tables)


def seconds_of(interval: str) -> float:
    """`10 seconds` as a number; the declaration was checked."""
    count, unit = interval.split()
    return float(int(count) * SECONDS[unit.lower().rstrip("s")])
