"""Whether reads of the end of a log were linearizable: a history of acknowledged writes and of reads, judged by time.

write ├───────┤ offset 7                 acknowledged at its end
read              ├──────┤ end 8         must be above 7, since it began behind the end of the write
read                       ├────┤ end 8  and no later read may be below an earlier one
"""

from collections.abc import Iterable
from typing import NamedTuple


class Write(NamedTuple):
    """An acknowledged one."""

    began: float
    ended: float
    offset: int


class EndRead(NamedTuple):
    began: float
    ended: float
    end: int  # the offset behind the last record that it shows
    node: int


def stale_reads(writes: Iterable[Write], reads: Iterable[EndRead]) -> list[str]:
    """A sentence for each read that shows less than what was acknowledged, or read, before it began."""
    reads = list(reads)
    known = [(each.ended, each.offset + 1, "acknowledged") for each in writes]
    known += [(each.ended, each.end, f"read from node {each.node}") for each in reads]
    known.sort()
    found = []
    least, what, at = 0, "", 0
    for read in sorted(reads, key=lambda each: each.began):
        while at < len(known) and known[at][0] < read.began:
            if known[at][1] > least:
                _, least, what = known[at]
            at += 1
        if read.end < least:
            found.append(
                f"node {read.node} showed the end {read.end} in a read from {read.began:.3f} to {read.ended:.3f}, and "
                f"{least} was {what} before it began"
            )
    return found
