"""The shape of what is read: a series and its samples, one after the other."""

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
"""Readings, and among them `PAUSE`, where whoever takes them should look after others; in the end, a result."""

PAUSE: Final = None
NO_LABELS: Final[Mapping[str, str]] = {}


def one(series: Series, value: float, **labels: str) -> Reading:
    return series, (Sample(labels, value),)
