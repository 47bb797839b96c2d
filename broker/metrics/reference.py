"""docs/METRICS.md, from the declarations: `make docs` writes it, a test compares it."""

from collections.abc import Iterator
from typing import Final

from ..config.key import BROKER_KEYS
from ..logs.formatters import EVENTS
from .alerts import ALERTS, RUNBOOKS
from .series import SERIES, Dialect

_KEYS: Final = ("trioka.http.", "trioka.metrics.")

_OPENING: Final = """\
# Metrics, health and logs

<!-- Written by `make docs` from broker/metrics/ and broker/logs/formatters.py. Change it there. -->

`trioka dev` serves HTTP at Kafka's port plus 1000 (`--http-port N`, `--http-port off`). `trioka serve` serves it at
`trioka.http.listeners`, and not at all if that key is empty:

```
trioka serve server.properties --override trioka.http.listeners=:10092
curl http://localhost:10092/readyz
```

| path | 200 means | 503 with the reason |
|---|---|---|
| `/livez` | the event loop answers, and at least one log directory works | until the node has ended |
| `/startupz` | the logs are loaded, and the controller has unfenced the broker | yes |
| `/readyz` | clients are served: not fenced, not stopping, no log directory offline | yes |
| `/metrics` | the series below, in Prometheus' format | never |

Only GET and HEAD are served, and only if the Host header is an address, `localhost` or one of `trioka.http.hosts`.

A scrape configuration for Prometheus:

```yaml
scrape_configs:
  - job_name: trioka
    static_configs:
      - targets: ["localhost:10092"]
```

[monitoring/alerts.yml](monitoring/alerts.yml) has alert rules, [monitoring/dashboard.json](monitoring/dashboard.json) a
dashboard for Grafana. Dashboards for Strimzi or kafka_exporter find the names that they use, except those of the JVM
and of features that trioka does not have ([SKIPPED.md](SKIPPED.md)).

Counters start with the process, and keep their value when a topic is deleted. In a cluster the leader reports a
partition, the leader of partition 0 a topic, the coordinator a group, and the active controller the cluster. So a sum
over all brokers counts nothing twice.
"""


def reference() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _OPENING
    yield "## Keys\n"
    yield "| key | meaning | default |"
    yield "|---|---|---|"
    for name, key in sorted(BROKER_KEYS.items()):
        if name.startswith(_KEYS):
            yield f"| `{name}` | {key.doc} | {f'`{key.default_text}`' if key.default_text else '*empty*'} |"
    yield ""
    yield "## Series\n"
    for dialect in Dialect:
        yield f"### {dialect.value}\n"
        yield "| series | labels | kind | meaning |"
        yield "|---|---|---|---|"
        for series in sorted(each for each in SERIES.values() if each.dialect is dialect):
            labels = ", ".join(f"`{label}`" for label in series.labels)
            yield f"| `{series.name}` | {labels} | {series.kind.value} | {series.doc} |"
        yield ""
    yield "The series of `kafka_server_brokertopicmetrics_…` exist once for each topic, and once without a label, as"
    yield "the sum of all topics.\n"
    yield "## Alerts\n"
    yield "[OPERATIONS.md](OPERATIONS.md) has the runbooks, under the heading in the last column"
    yield f"(`{RUNBOOKS}#…` in the rules).\n"
    yield "| alert | if | for | severity | runbook |"
    yield "|---|---|---|---|---|"
    for alert in ALERTS:
        yield f"| {alert.name} | `{alert.expression}` | {alert.after} | {alert.severity} | {alert.runbook} |"
    yield ""
    yield "## Log events\n"
    yield "Log lines go to standard error: as text on a terminal, otherwise as one JSON object per line"
    yield "(`--log-format`, `--log-level`). `serve` writes those of `trioka.lifecycle` at the default level, too."
    yield "A repeated warning is written once a minute, with the number of omitted"
    yield "ones (`repeated`). `event` is one of the names below; it stays the same when the text of a message changes."
    yield "`bug.…` is an internal error: please report it.\n"
    yield "| event | logger | fields |"
    yield "|---|---|---|"
    events = {(event.name, logger, event.fields) for (logger, _), event in EVENTS.items()}
    for name, logger, fields in sorted(events):
        yield f"| `{name}` | `{logger}` | {', '.join(f'`{field}`' for field in fields)} |"
    yield ""
