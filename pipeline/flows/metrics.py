"""Prometheus series of a run, served over HTTP (`--metrics-port`).

trioka_pipeline_records_total{pipeline,flow}              records read
trioka_pipeline_batches_total{pipeline,flow}              batches delivered
trioka_pipeline_batch_seconds{pipeline,flow}              the duration of the last batch
trioka_pipeline_lag_records{pipeline,flow}                records behind the end of the topics
trioka_pipeline_late_rows_total{pipeline,flow}            rows later than the watermark allows
trioka_pipeline_refused_rows_total{pipeline,flow}         rows that are not in the table
trioka_pipeline_expectation_failures_total{pipeline,flow,expectation}
trioka_pipeline_flow_failed{pipeline,flow}                1 after a flow has failed
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from ..errors import InvalidPipeline
from .events import BatchReport

LOOPBACK = "127.0.0.1"


class Metrics:
    """The series of one pipeline. Use it in a `with` to serve them; port 0 serves nothing."""

    def __init__(self, pipeline: str, port: int = 0, host: str = LOOPBACK) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._address = (host, port)
        self._server: Any = None
        labels = ["pipeline", "flow"]
        name = "trioka_pipeline"
        registry = self.registry
        self._records = Counter(f"{name}_records", "Records read", labels, registry=registry)
        self._batches = Counter(f"{name}_batches", "Batches delivered", labels, registry=registry)
        self._seconds = Gauge(f"{name}_batch_seconds", "Duration of the last batch", labels, registry=registry)
        self._lag = Gauge(f"{name}_lag_records", "Records behind the end of the topics", labels, registry=registry)
        self._late = Counter(f"{name}_late_rows", "Rows later than the watermark allows", labels, registry=registry)
        self._refused = Counter(f"{name}_refused_rows", "Rows that are not in the table", labels, registry=registry)
        self._failed = Gauge(f"{name}_flow_failed", "1 after the flow has failed", labels, registry=registry)
        self._broken = Counter(
            f"{name}_expectation_failures", "Rows that break a rule", [*labels, "expectation"], registry=registry
        )

    def __enter__(self) -> "Metrics":
        host, port = self._address
        if port:
            try:
                self._server, _ = start_http_server(port, addr=host, registry=self.registry)
            except OSError as error:
                raise InvalidPipeline(f"Metrics cannot be served on {host}:{port}: {error.strerror}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def count(self, report: BatchReport) -> None:
        labels = (self._pipeline, report.flow)
        self._batches.labels(*labels).inc()
        self._records.labels(*labels).inc(report.records)
        self._seconds.labels(*labels).set(report.seconds)
        self._late.labels(*labels).inc(report.late)
        self._refused.labels(*labels).inc(report.refused)
        if report.lag is not None:
            self._lag.labels(*labels).set(report.lag)
        for rule, count in report.broken.items():
            self._broken.labels(*labels, rule).inc(count)

    def failed(self, flow: str) -> None:
        self._failed.labels(self._pipeline, flow).set(1)
