"""Watches the queries of a run: reports what they deliver, and notices which have failed."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .events import BatchReport, EventLog, completed, report_of
from .flow_query import FlowQuery, Say
from .metrics import Metrics

POLL_S = 0.5
MAX_BATCHES_KEPT = 1000
Failed = Callable[[FlowQuery, Exception], None]


class Runner:
    """`prefix` stands before the names of flows in the lines for people; `failed` is called once for each failure."""

    def __init__(
        self, *, pipeline: str, prefix: str, say: Say, events: EventLog, failed: Failed, metrics: Metrics | None = None
    ) -> None:
        self.queries: list[FlowQuery] = []
        self._pipeline = pipeline
        self._prefix = prefix
        self._say = say
        self._events = events
        self._failed = failed
        self._metrics = metrics
        self._gone: list[Any] = []

    def watch(
        self, stop: threading.Event, is_going: Callable[[], bool], between: Callable[[], None] = lambda: None
    ) -> None:
        """Report batches and failures, until nothing goes on or a stop is requested."""
        while True:
            goes_on = is_going()
            for query in list(self.queries):
                self.report(query)
                stream = query.query
                if stream not in self._gone and (error := query.error()) is not None:
                    self._gone.append(stream)
                    self._failed(query, error)
                    goes_on = goes_on or query.query is not stream  # it goes on without the flow that has failed
            if not goes_on or stop.wait(POLL_S):
                return
            if not stop.is_set():
                between()

    def report(self, query: FlowQuery) -> None:
        """Report the batches that Spark has finished since the last call."""
        for report in _finished(query):
            self._say(f"{self._prefix}{report.line()}")
            if self._metrics is not None:
                self._metrics.count(report)
            self._events.write({"pipeline": self._pipeline, **report.as_event()})

    def close(self) -> None:
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may have ended, which released everything
            for query in self.queries:
                query.stop()
            for query in self.queries:
                self.report(query)
        for query in self.queries:
            query.close()


def _finished(query: FlowQuery) -> Iterator[BatchReport]:
    for progress in query.query.recentProgress if query.query is not None else []:
        values: dict[str, Any] = json.loads(progress.json)
        for delivery in query.deliveries:
            batch = delivery.batches.pop(int(values["batchId"]), None)
            if batch is not None:  # otherwise no records, or reported before
                report = report_of(values, delivery.plan.flow.name, reads=1 if query.is_shared else batch.reads)
                yield completed(report, batch.counts, is_new=batch.is_new)
    for delivery in query.deliveries:
        while len(delivery.batches) > MAX_BATCHES_KEPT:  # Spark keeps the progress of its last batches only
            delivery.batches.pop(min(delivery.batches))
