"""Damaged records, the last scrub of each partition, and bytes that only brokers have, for `trioka doctor`.

Kafka's protocol lacks such a field, so it is read from the metrics page: `trioka.http.listeners` of a broker's
configuration gives the address. Brokers other than trioka's have no such key and are left out.
"""

import re
import time
from collections.abc import Iterable
from http.client import HTTPException
from typing import Final, NamedTuple
from urllib.request import ProxyHandler, build_opener

MAX_METRICS_BYTES: Final = 64 * 1024 * 1024
WOULD_BE_LOST: Final = "trioka_tier_would_be_lost_bytes"
LAST_SCRUB: Final = "trioka_scrub_last_complete_timestamp_seconds"
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class ScrubReport(NamedTuple):
    damaged: int = 0  # ranges of records
    unhealed: int = 0  # damaged ranges without a good copy on any replica
    # time of each partition's last scrub; 0 if not since the broker's start
    scrubbed_s: tuple[tuple[float, str], ...] = ()
    would_be_lost_bytes: int | None = None  # None: neither tiered storage nor memory directories

    def words(self, now_s: float) -> str:
        """The age of the oldest last scrub of all partitions, as text."""
        never = [name for at, name in self.scrubbed_s if at == 0]
        if never:
            return f"{len(never)} of {len(self.scrubbed_s)} partitions not yet scrubbed since its start"
        if not self.scrubbed_s:
            return "no partitions to scrub"
        at, name = self.scrubbed_s[0]
        return f"{len(self.scrubbed_s)} partitions scrubbed, the longest ago {name}: {_ago(now_s - at)}"


def addresses(listeners: str, host: str) -> list[str]:
    """Addresses where the metrics of a broker on this host may be served: `:port` is for its own machine only."""
    found = []
    for listener in filter(None, (each.strip() for each in listeners.split(","))):
        at, _, port = listener.rpartition(":")
        found.append(f"{host if at in ('0.0.0.0', '[::]') else at or '127.0.0.1'}:{port}")
    return found


def fetch(at: Iterable[str], timeout_s: float) -> ScrubReport | None:
    """The report from the first of these addresses that answers; None if none does."""
    opener = build_opener(ProxyHandler({}))
    for address in at:
        try:
            with opener.open(f"http://{address}/metrics", timeout=timeout_s) as answer:
                return parse(answer.read(MAX_METRICS_BYTES).decode(errors="replace"))
        except (OSError, ValueError, HTTPException):
            continue
    return None


def parse(metrics: str) -> ScrubReport:
    numbers = {"trioka_damaged_ranges": 0, "trioka_unhealed_ranges": 0}
    scrubbed: list[tuple[float, str]] = []
    would_be_lost: int | None = None
    for name, labels, value in _SAMPLE.findall(metrics):
        if name in numbers:
            numbers[name] += int(float(value))
        elif name == WOULD_BE_LOST and not labels:
            would_be_lost = int(float(value))
        elif name == LAST_SCRUB:
            result = dict(_LABEL.findall(labels))
            scrubbed.append((float(value), f"{result.get('topic')}-{result.get('partition')}"))
    damaged, unhealed = numbers.values()
    return ScrubReport(damaged, unhealed, tuple(sorted(scrubbed)), would_be_lost)


def now_s() -> float:
    return time.time()


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
