"""Keys that Kafka does not have: where trioka serves HTTP, and how much its metrics may tell.

Their names begin with `trioka.`, so that none of them can ever mean something else in Kafka. They are hidden: a client
sees them only where somebody has set them.
"""

from typing import Final

from .addresses import Server, parse_server
from .key import HIGH, LOW, MEDIUM, broker_key
from .values import Int, List

PREFIX: Final = "trioka."
LOOPBACK: Final = "127.0.0.1"


def http_address(text: str) -> Server:
    """`:10092` is a port of this machine alone."""
    return parse_server(LOOPBACK + text if text.startswith(":") else text)


def _is_address(text: str) -> str | None:
    try:
        http_address(text)
    except ValueError as error:
        return str(error)
    return None


# fmt: off

HTTP_LISTENERS = broker_key("trioka.http.listeners", List(check=_is_address), (), HIGH, hidden=True,
    doc="Where `/metrics`, `/livez`, `/readyz` and `/startupz` are served: the first of these `host:port` that is free;"
        " `:port` is for this machine alone. Empty serves none of them.")
HTTP_HOSTS = broker_key("trioka.http.hosts", List(), (), MEDIUM, hidden=True,
    doc="By which names, besides addresses and localhost, HTTP may be asked; any other is refused, since it may be a"
        " web page that has its name point here. `*` is any.")
METRICS_MAX_PARTITIONS = broker_key("trioka.metrics.max.partitions", Int(min=0), 10_000, LOW, hidden=True,
    doc="Of how many partitions, and of how many topics, metrics tell one by one; sums are always of all.")
METRICS_MAX_GROUPS = broker_key("trioka.metrics.max.groups", Int(min=0), 1000, LOW, hidden=True,
    doc="Of how many groups metrics tell one by one.")
