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

`trioka dev` serves HTTP at the port of Kafka plus 1000 (`--http-port N`, `--http-port off`); `trioka serve` does where
`trioka.http.listeners` says, and nowhere if it says nothing:

```
trioka serve server.properties --override trioka.http.listeners=:10092
curl http://localhost:10092/readyz
```

| path | 200 means | 503 says why not |
|---|---|---|
| `/livez` | the event loop answers, and there is a log directory to work with | until the node has ended |
| `/startupz` | the logs are loaded, and the cluster has let the broker in | yes |
| `/readyz` | clients are served: not fenced, not stopping, no log directory offline | yes |
| `/metrics` | everything below, as Prometheus reads it | never |

Only GET and HEAD are served, and only to those who ask by an address, by `localhost` or by one of `trioka.http.hosts`.

A scrape in Prometheus:

```yaml
scrape_configs:
  - job_name: trioka
    static_configs:
      - targets: ["localhost:10092"]
```

[monitoring/alerts.yml](monitoring/alerts.yml) has alert rules, [monitoring/dashboard.json](monitoring/dashboard.json) a
dashboard for Grafana. Dashboards that were made for Strimzi or for kafka_exporter find the names that they ask for,
but for what is about the JVM, and about things that trioka does not have ([SKIPPED.md](SKIPPED.md)).

Counters count from the start of the process, and go on when a topic is deleted. In a cluster, a partition is told of by
its leader, a topic by the leader of its partition 0, a group by its coordinator, and what concerns the cluster by the
active controller; so a sum over all brokers counts nothing twice.
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
    yield "The series of `kafka_server_brokertopicmetrics_…` are there once for each topic, and once without a label,"
    yield "for all of them together.\n"
    yield "## Alerts\n"
    yield "What to do is said in [OPERATIONS.md](OPERATIONS.md), under the heading in the last column"
    yield f"(`{RUNBOOKS}#…` in the rules).\n"
    yield "| alert | if | for | severity | runbook |"
    yield "|---|---|---|---|---|"
    for alert in ALERTS:
        yield f"| {alert.name} | `{alert.expression}` | {alert.after} | {alert.severity} | {alert.runbook} |"
    yield ""
    yield "## Log events\n"
    yield "Log lines go to standard error: for people on a terminal, one JSON object to a line otherwise"
    yield "(`--log-format`, `--log-level`). A warning that is said again in the same words is written once a minute,"
    yield "with the number of those left out (`repeated`). `event` is one of these, and stays what it is when"
    yield "sentences change; `bug.…` is a mistake in trioka, and worth a report.\n"
    yield "| event | logger | fields |"
    yield "|---|---|---|"
    told = {(event.name, logger, event.fields) for (logger, _), event in EVENTS.items()}
    for name, logger, fields in sorted(told):
        yield f"| `{name}` | `{logger}` | {', '.join(f'`{field}`' for field in fields)} |"
    yield ""
