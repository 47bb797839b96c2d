"""Readings as text, in Prometheus' format, a slice at a time.

prometheus_client implements the format: quotes, numbers, headers of series. It would write a whole scrape at once, 8 µs
for each sample, so ten thousand partitions would block the event loop for more than a second. So it gets a hundred
samples at a time (a millisecond), and the header of a series is kept from its first slice only.

Importing it takes a tenth of a second and five megabytes: this module is imported at the first scrape.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from .loop_watch import LoopWatch
from .readings import DiskSpace, readings
from .samples import Reading, Sample
from .series import SERIES, Kind, Series

if TYPE_CHECKING:
    from ..broker import Broker

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_AT_ONCE: Final = 100
SMALL_BYTES: Final = 16 * 1024  # short series are sent together, up to this size


def scrape(broker: "Broker", watch: LoopWatch, disk_space: Mapping[str, DiskSpace]) -> Iterator[bytes]:
    """The text in pieces. The consumer yields to other tasks in between; an empty piece is only a pause."""
    waiting = b""
    made = 0
    for reading in readings(broker, watch, disk_space, platform.python_version()):
        if reading is None:
            made = 0
            yield b""
            continue
        for piece, count in slices(*reading):
            waiting += piece
            made += count
            if made >= SAMPLES_AT_ONCE or len(waiting) >= SMALL_BYTES:
                yield waiting
                waiting, made = b"", 0
    for reading in _process():
        waiting += b"".join(piece for piece, _ in slices(*reading))
    yield waiting


def slices(series: Series, samples: Iterable[Sample]) -> Iterator[tuple[bytes, int]]:
    """A series as text, with the number of samples in each piece. Empty without samples."""
    left = iter(samples)
    is_first = True
    while some := list(islice(left, SAMPLES_AT_ONCE)):
        text = _written(series, some)
        if not is_first:
            text = text.split(b"\n", 2)[2]  # without HELP and TYPE
        is_first = False
        yield text, len(some)


class _SingleMetric(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _written(series: Series, samples: Iterable[Sample]) -> bytes:
    name = series.name.removesuffix("_total") if series.kind is Kind.COUNTER else series.name
    metric = Metric(name, series.doc, series.kind.value)
    for labels, value, suffix in samples:
        metric.add_sample(series.name + suffix, dict(labels), float(value))
    return generate_latest(_SingleMetric(metric))


def _process() -> Iterator[Reading]:
    """CPU and memory of the process, as the library reads them from the system; empty if it cannot."""
    for metric in ProcessCollector(registry=None).collect():
        for sample in metric.samples:
            if sample.name in SERIES:
                yield SERIES[sample.name], (Sample({}, sample.value),)
