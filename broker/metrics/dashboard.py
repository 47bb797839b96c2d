"""A dashboard for Grafana: docs/monitoring/dashboard.json. First the state, then traffic, latencies and groups."""

from json import dumps
from typing import Any, Final, NamedTuple

from . import series as s

WIDTH: Final = 24  # of Grafana's grid
TALL, SHORT = 8, 4
RATE: Final = "$__rate_interval"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    title: str
    queries: tuple[tuple[str, str], ...]  # expression and legend
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    alarm: float | None = None  # red from here on


def _number(title: str, expression: str, alarm: float | None = None, unit: str = "short") -> Panel:
    return Panel(title, ((expression, ""),), unit, 4, "stat", alarm)


def _rate(series: s.Series, by: str, matching: str = "") -> str:
    return f"sum by ({by}) (rate({series.name}{matching}[{RATE}]))"


def _p99(by: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, {by}) (rate({s.REQUEST_DURATION.name}_bucket[{RATE}])))"


OF_TOPICS: Final = '{topic!=""}'
PANELS: Final = (
    _number("Active controllers", f"sum({s.ACTIVE_CONTROLLER.name})"),
    _number("Brokers", f"max({s.BROKERS.name})"),
    _number("Offline partitions", f"sum({s.OFFLINE_PARTITIONS.name})", 1),
    _number("Under-replicated", f"sum({s.UNDER_REPLICATED.name})", 1),
    _number("Offline log directories", f"sum({s.OFFLINE_DIRECTORIES.name})", 1),
    _number("Damaged partitions", f"sum({s.DAMAGED_PARTITIONS.name})", 1),
    Panel("Bytes in", ((_rate(s.BYTES_IN, "topic", OF_TOPICS), "{{topic}}"),), "Bps"),
    Panel("Bytes out", ((_rate(s.BYTES_OUT, "topic", OF_TOPICS), "{{topic}}"),), "Bps"),
    Panel("Records in", ((_rate(s.MESSAGES_IN, "topic", OF_TOPICS), "{{topic}}"),), "ops"),
    Panel("Requests", ((_rate(s.REQUESTS, "request"), "{{request}}"),), "reqps"),
    Panel("Request time, 99th percentile", ((_p99("api"), "{{api}}"),), "s"),
    Panel(
        "Refused",
        (
            (f"sum(rate({s.FAILED_PRODUCE_REQUESTS.name}{OF_TOPICS}[{RATE}]))", "produce"),
            (f"sum(rate({s.FAILED_FETCH_REQUESTS.name}{OF_TOPICS}[{RATE}]))", "fetch"),
        ),
        "reqps",
    ),
    Panel("Lag", ((f"sum by (consumergroup, topic) ({s.GROUP_LAG_SUM.name})", "{{consumergroup}} {{topic}}"),)),
    Panel(
        "Until a group loses data",
        ((f"min by (consumergroup, topic) ({s.SECONDS_TO_DATA_LOSS.name})", "{{consumergroup}} {{topic}}"),),
        "s",
    ),
    Panel("Members", ((f"sum by (consumergroup) ({s.GROUP_MEMBERS.name})", "{{consumergroup}}"),)),
    Panel("Event loop: lag", ((s.LOOP_LAG.name, "{{instance}}"),), "s", alarm=0.25),
    Panel("Event loop: idle", ((s.NETWORK_IDLE.name, "{{instance}}"),), "percentunit"),
    Panel("CPU", ((f"rate({s.PROCESS_CPU.name}[{RATE}])", "{{instance}}"),), "percentunit"),
    Panel("Memory", ((s.PROCESS_RESIDENT.name, "{{instance}}"),), "bytes"),
    Panel("Connections", ((f"sum by (listener) ({s.CONNECTIONS.name})", "{{listener}}"),)),
    Panel(
        "Disk, free",
        ((f"{s.LOG_DIRECTORY_FREE.name} / {s.LOG_DIRECTORY_TOTAL.name}", "{{instance}} {{directory}}"),),
        "percentunit",
    ),
    Panel("Log size", ((f"sum by (topic) ({s.LOG_SIZE.name})", "{{topic}}"),), "bytes"),
    Panel("Metadata commits, ms", ((s.COMMIT_LATENCY_AVERAGE.name, "{{instance}}"),), "ms"),
    Panel("Quorum epoch", ((f"max({s.CURRENT_EPOCH.name})", ""),)),
)


def dashboard() -> str:
    """The file."""
    dashboard = {
        "title": "trioka",
        "uid": "trioka",
        "tags": ["trioka", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": _placed(),
    }
    return dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _placed() -> list[dict[str, Any]]:
    """Places panels from left to right, then in the next row."""
    placed: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(PANELS, start=1):
        height = SHORT if panel.kind == "stat" else TALL
        if x + panel.width > WIDTH:
            x, y = 0, y + placed[-1]["gridPos"]["h"]
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
