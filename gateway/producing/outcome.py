"""What became of a request that was written."""

from collections.abc import Sequence
from typing import NamedTuple


class Outcome(NamedTuple):
    positions: Sequence[tuple[int, int]]  # partition and offset of each record; empty where they are not known
    is_duplicate: bool
