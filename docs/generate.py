"""Writes the pages of this folder that come from declarations. `make docs` runs it."""

from pathlib import Path

from trioka.broker.config.reference import reference
from trioka.broker.metrics.alerts import alert_rules
from trioka.broker.metrics.dashboard import dashboard
from trioka.broker.metrics.reference import reference as metrics
from trioka.gateway.reference import page as gateway_page

PAGES = {
    "CONFIG.md": reference,
    "METRICS.md": metrics,
    "monitoring/alerts.yml": alert_rules,
    "monitoring/dashboard.json": dashboard,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        path = Path(__file__).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
    path = Path(__file__).parent / "GATEWAY.md"  # only its tables
    path.write_text(gateway_page(path.read_text(encoding="utf-8")), encoding="utf-8")
    print("docs/GATEWAY.md")
