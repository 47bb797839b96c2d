"""Alert rules for Prometheus, each with its runbook: docs/monitoring/alerts.yml.

A runbook is a heading of docs/OPERATIONS.md. The thresholds suit most clusters as a start; operators copy and change
the file. Series names are taken from their declarations, so that none can be misspelt.
"""

from collections.abc import Iterator
from json import dumps
from typing import Final, NamedTuple

from . import series as s

RUNBOOKS: Final = "docs/OPERATIONS.md"
WARNING: Final = "warning"
CRITICAL: Final = "critical"


class Alert(NamedTuple):
    name: str
    expression: str
    after: str
    severity: str
    summary: str
    runbook: str  # a heading


ALERTS: Final = (
    Alert(
        "TriokaUnderReplicatedPartitions",
        f"{s.UNDER_REPLICATED.name} > 0",
        "5m",
        WARNING,
        "{{ $value }} partitions led by {{ $labels.instance }} have a replica that is not in sync.",
        "under-replicated",
    ),
    Alert(
        "TriokaUnderMinIsr",
        f"{s.UNDER_MIN_ISR.name} > 0",
        "1m",
        CRITICAL,
        "{{ $value }} partitions led by {{ $labels.instance }} refuse writes with acks=all.",
        "under-replicated",
    ),
    Alert(
        "TriokaOfflinePartitions",
        f"sum({s.OFFLINE_PARTITIONS.name}) > 0",
        "1m",
        CRITICAL,
        "{{ $value }} partitions have no leader: they can be neither written nor read.",
        "under-replicated",
    ),
    Alert(
        "TriokaDiskFillsUp",
        f"{s.LOG_DIRECTORY_FREE.name} / {s.LOG_DIRECTORY_TOTAL.name} < 0.1"
        f" or predict_linear({s.LOG_DIRECTORY_FREE.name}[1h], 14400) < 0",
        "10m",
        WARNING,
        "The volume of {{ $labels.directory }} on {{ $labels.instance }} is nearly full, or will be in four hours.",
        "disk-full",
    ),
    Alert(
        "TriokaLagGrows",
        f"min_over_time({s.GROUP_LAG_SUM.name}[15m]) > 1000 and deriv({s.GROUP_LAG_SUM.name}[15m]) > 0",
        "15m",
        WARNING,
        "{{ $labels.consumergroup }} falls behind in {{ $labels.topic }}.",
        "growing-lag",
    ),
    Alert(
        "TriokaGroupLosesData",
        f"{s.SECONDS_TO_DATA_LOSS.name} < 3600",
        "5m",
        CRITICAL,
        "Retention deletes what {{ $labels.consumergroup }} has not read of {{ $labels.topic }} in"
        " {{ $value | humanizeDuration }}.",
        "growing-lag",
    ),
    Alert(
        "TriokaNoActiveController",
        f"sum({s.ACTIVE_CONTROLLER.name}) != 1",
        "1m",
        CRITICAL,
        "The cluster has {{ $value }} active controllers; it should have one.",
        "lost-quorum",
    ),
    Alert(
        "TriokaDamagedPartitions",
        f"{s.UNHEALED_RANGES.name} > 0 or {s.DAMAGED_PARTITIONS.name} > 0",
        "10m",
        CRITICAL,
        "Records on {{ $labels.instance }} are damaged, and other replicas have not healed them.",
        "corrupt-segment",
    ),
    Alert(
        "TriokaLogDirectoryOffline",
        f"{s.LOG_DIRECTORY_OFFLINE.name} > 0",
        "0m",
        CRITICAL,
        "The log directory {{ $labels.directory }} on {{ $labels.instance }} is offline.",
        "offline-directory",
    ),
    Alert(
        "TriokaBusyLoop",
        f"{s.LOOP_LAG.name} > 0.25 or {s.NETWORK_IDLE.name} < 0.1",
        "5m",
        WARNING,
        "The event loop of {{ $labels.instance }} is late or nearly saturated.",
        "busy-loop",
    ),
)


def alert_rules() -> str:
    """The file. JSON strings are also YAML strings."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Written by `make docs` from broker/metrics/alerts.py. Change it there, or copy this file."
    yield "groups:"
    yield "  - name: trioka"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {dumps(alert.expression)}"
        yield f"        for: {alert.after}"
        yield "        labels:"
        yield f"          severity: {alert.severity}"
        yield "        annotations:"
        yield f"          summary: {dumps(alert.summary)}"
        yield f"          runbook_url: {dumps(f'{RUNBOOKS}#{alert.runbook}')}"
