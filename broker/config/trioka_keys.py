"""Keys that Kafka does not have: where trioka serves HTTP, how much its metrics may tell, whether the records of a
client are checked one by one, and how logs are scrubbed.

Their names begin with `trioka.`, so that none of them can ever mean something else in Kafka. They are hidden: a client
sees them only where somebody has set them.
"""

from typing import Final

from .addresses import Server, parse_server
from .key import CLUSTER_WIDE, HIGH, LOW, MEDIUM, broker_key
from .values import Boolean, Int, List, Long, String

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
CONTROLLED_SHUTDOWN_TIMEOUT_MS = broker_key("trioka.controlled.shutdown.timeout.ms", Int(min=0), 25_000, MEDIUM,
    hidden=True,
    doc="How long a broker that stops waits for a controller, and for others to lead in its place.")
VALIDATE_RECORDS = broker_key("trioka.validate.records", String(one_of=("full", "header")), "full", MEDIUM, hidden=True,
    doc="What is checked of a batch that a client sends. `full`: every record, as Kafka does. `header`: only its header"
        " and its CRC; then a client can store a batch that stops every reader of its partition.")
SCRUB_ENABLE = broker_key("trioka.scrub.enable", Boolean(), True, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Whether the records of all partitions are read again and compared with their checksums now and then.")
SCRUB_INTERVAL_MS = broker_key("trioka.scrub.interval.ms", Long(min=1), 604_800_000, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="How long after a partition was scrubbed it is scrubbed again. After a start of the broker all of them are.")
SCRUB_BYTES_PER_SECOND = broker_key("trioka.scrub.bytes.per.second", Long(min=1), 16_777_216, MEDIUM, CLUSTER_WIDE,
    hidden=True, doc="How many bytes are scrubbed in a second at most, on this broker.")
