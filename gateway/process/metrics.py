"""The gateway's metrics, in a registry of their own.

docs/GATEWAY.md has the list. Labels have few values: names of methods, codes and parts, never of topics or users.
"""

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.calls = Counter(
            "trioka_gateway_calls", "Calls that ended, by method and code.", ["method", "code"], registry=self.registry
        )
        self.open_calls = Gauge(
            "trioka_gateway_open_calls", "Calls that are running, by method.", ["method"], registry=self.registry
        )
        self.call_seconds = Histogram(
            "trioka_gateway_call_seconds",
            "Duration of unary calls, by method.",
            ["method"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.records = Counter(
            "trioka_gateway_records",
            "Records, by direction: produced (written to the cluster), consumed (sent to clients).",
            ["direction"],
            registry=self.registry,
        )
        self.record_bytes = Counter(
            "trioka_gateway_record_bytes", "Bytes of records, by direction.", ["direction"], registry=self.registry
        )
        self.duplicates = Counter(
            "trioka_gateway_duplicates", "Requests of named producers that were written before.", registry=self.registry
        )
        self.unwritten_bytes = Gauge(
            "trioka_gateway_unwritten_bytes",
            "Bytes of requests that are not yet written, of all callers.",
            registry=self.registry,
        )
        self.cluster_clients = Gauge(
            "trioka_gateway_cluster_clients", "Users with open clients of the cluster.", registry=self.registry
        )
        self.named_producers = Gauge(
            "trioka_gateway_named_producers",
            "Producer names with an open transactional producer.",
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
