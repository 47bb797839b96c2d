"""What a run reports of each batch: a line for people, a line of JSON, and Prometheus series.

    shop.orders: batch 3: 1200 records in 0.4 s, lag 0, late 0, refused 3

The JSON log (`events.jsonl` in a checkpoint on this machine, or `--events FILE`) has the same, and starts and ends of
flows:

    {"at": "2026-11-16T08:00:00+00:00", "event": "batch", "flow": "orders", "batch": 3, "records": 1200, …}
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trioka.protocol.lazy_dataclass import frozen

from ..expectations.rules import Counts

EVENTS_FILE = "events.jsonl"
# The log is kept and one older one beside it; whoever needs more sends the lines elsewhere.
MAX_LOG_BYTES = 64 << 20


@frozen
class BatchReport:
    """`lag` is the number of records behind the end of the topics; None if no source tells it."""

    flow: str
    batch: int
    records: int
    seconds: float
    lag: int | None
    late: int
    refused: int
    broken: Mapping[str, int] = field(default_factory=dict)
    is_new: bool = True

    def line(self) -> str:
        known = [f"lag {self.lag}"] if self.lag is not None else []
        known += [f"late {self.late}", f"refused {self.refused}"]
        ending = "" if self.is_new else ", was there already"
        return (
            f"{self.flow}: batch {self.batch}: {self.records} records in {self.seconds:.1f} s, "
            f"{', '.join(known)}{ending}"
        )

    def as_event(self) -> dict[str, Any]:
        return {
            "event": "batch",
            "flow": self.flow,
            "batch": self.batch,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "lag": self.lag,
            "late": self.late,
            "refused": self.refused,
            "expectations": dict(self.broken),
            "repeated": not self.is_new,
        }


def report_of(progress: Mapping[str, Any], flow: str, *, reads: int = 1) -> BatchReport:
    """What Spark's progress of a batch says (`StreamingQueryProgress`, as JSON), of a source that was read so often."""
    behind = [
        int(float(source["metrics"]["maxOffsetsBehindLatest"]))
        for source in progress.get("sources", [])
        if "maxOffsetsBehindLatest" in (source.get("metrics") or {})
    ]
    return BatchReport(
        flow=flow,
        batch=int(progress["batchId"]),
        records=int(progress.get("numInputRows", 0)) // reads,
        seconds=progress.get("durationMs", {}).get("triggerExecution", 0) / 1000,
        lag=max(behind) if behind else None,
        late=sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in progress.get("stateOperators", [])),
        refused=0,
    )


def completed(report: BatchReport, counts: Counts | None, *, is_new: bool) -> BatchReport:
    """The report with what was counted by the rules."""
    if counts is None:
        return replace(report, is_new=is_new)
    return replace(report, refused=counts.refused, broken=counts.broken, is_new=is_new)


class EventLog:
    """Appends events to a file; without a file, nothing happens. Use it in a `with`."""

    def __init__(self, path: Path | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._file: IO[str] | None = None

    def __enter__(self) -> "EventLog":
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, event: Mapping[str, Any]) -> None:
        if self._file is None or self._path is None:
            return
        if self._file.tell() > MAX_LOG_BYTES:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._path.open("a")
        self._file.write(json.dumps({"at": self._now().isoformat(), **event}) + "\n")
        self._file.flush()
