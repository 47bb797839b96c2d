"""The tables of settings and metrics in docs/GATEWAY.md, from their declarations."""

import re
from typing import Final

from .process.metrics import Metrics
from .settings import DECLARED

SETTINGS_HEAD: Final = "| setting | default | |\n|---|---|---|\n"
METRICS_HEAD: Final = "| metric | |\n|---|---|\n"


def settings_table() -> str:
    rows = [f"| `{each.name}` | {f'`{each.default}`' if each.default else ''} | {each.doc} |\n" for each in DECLARED]
    return SETTINGS_HEAD + "".join(rows)


def metrics_table() -> str:
    found = {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in Metrics().registry.collect()
        if family.name.startswith("trioka_")
    }
    return METRICS_HEAD + "".join(f"| `{name}` | {found[name]} |\n" for name in sorted(found))


def page(text: str) -> str:
    """The page with both tables as they are declared."""
    for head, table in ((SETTINGS_HEAD, settings_table()), (METRICS_HEAD, metrics_table())):
        text = re.sub(re.escape(head) + r"(?:\|.*\n)*", lambda _found, new=table: new, text)  # type: ignore[misc]
    return text
