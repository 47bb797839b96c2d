"""The types of readings: a series and its samples."""

from collections.abc import Generator, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from .series import Series


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float
    suffix: str = ""  # of histograms and summaries


T = TypeVar("T")

Reading = tuple[Series, Iterable[Sample]]
Steps = Generator[Reading | None, None, T]
"""Readings, with `PAUSE` where the consumer should yield to other tasks; the generator returns a result."""

PAUSE: Final = None
NO_LABELS: Final[Mapping[str, str]] = {}


def one(series: Series, value: float, **labels: str) -> Reading:
    return series, (Sample(labels, value),)
