"""Which leader wrote which offsets: the leader-epoch cache of one log (KIP-101, KIP-279).

    epochs   0 ............ 3 ........ 7 ....         the list: (0, 0), (3, 17), (7, 30)
    offsets  0 ........... 17 ....... 30 .... 42      log end 42

A follower that comes back asks "where does epoch e end in your log?" and cuts its own log there (I8). The answer is
the largest epoch ≤ e that this log knows, and the offset at which the next one starts. So two logs that agree on an
(epoch, end) pair agree on every record before it, and no other truncation is ever needed, never one to the high
watermark.

The list is derivable from the log (each batch carries its leader's epoch), except that a leader notes its epoch
*before* it writes (I10); a checkpoint that is missing or damaged is rebuilt while the log is scanned. Epochs rise and
start offsets rise with them (I9). Changes go to disk first and into memory then: a failed write leaves the cache as it
was. Bounded: at most one entry for each change of leader since the log's start.

A write takes two syncs. Where many logs begin an epoch at a time, their future leaders let other threads write
the new lists (`prepared`, `write_ahead`), and use them when that is done (`take`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from threading import Lock
from typing import Final, NamedTuple

from .checkpoint import EpochEntry, read_epochs, write_epochs
from .disk import Disk

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochUpdate(NamedTuple):
    """A list as it is, and as it will be when another epoch has begun."""

    cache: "LeaderEpochCache"
    before: list[EpochEntry]
    after: list[EpochEntry]


class LeaderEpochCache:
    """The epochs of one log, in memory and in `leader-epoch-checkpoint`."""

    __slots__ = ("_disk", "_epochs", "_starts", "_writing", "latest_epoch", "path")

    def __init__(self, disk: Disk, path: str, entries: Iterable[EpochEntry] = ()) -> None:
        """Starts with these entries and does not write them: `load` reads them, a rebuilding caller calls `write`."""
        self._disk = disk
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        self._writing = Lock()  # one after the other: they go through one temporary file
        for entry in entries:
            assert not self._epochs or (entry.epoch > self._epochs[-1] and entry.start_offset > self._starts[-1])
            self._epochs.append(entry.epoch)
            self._starts.append(entry.start_offset)
            self.latest_epoch = entry.epoch

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochCache":
        """From the checkpoint; no file means no epochs. Raises CorruptFile."""
        return cls(disk, path, read_epochs(disk, path))

    def write(self) -> None:
        self._write(self.entries)

    def _write(self, entries: Iterable[EpochEntry]) -> None:
        with self._writing:
            write_epochs(self._disk, self.path, entries)

    # Questions -------------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> list[EpochEntry]:
        return list(map(EpochEntry, self._epochs, self._starts))

    @property
    def earliest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._starts[0]) if self._epochs else None

    def start_offset_of(self, epoch: int) -> int:
        """Where that very epoch starts, UNDEFINED_OFFSET if it wrote nothing here."""
        at = bisect_left(self._epochs, epoch)
        return self._starts[at] if at < len(self._epochs) and self._epochs[at] == epoch else UNDEFINED_OFFSET

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote this offset; UNDEFINED_EPOCH below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch ≤ `epoch`, and the offset at which it ends (exclusive).

        An epoch older than all entries is answered with itself and the first entry's start: its records are gone from
        this log, and the follower continues from there. An epoch newer than all is undefined: this log cannot know.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end
        after = bisect_right(self._epochs, epoch)
        if after == 0:
            return epoch, self._starts[0]
        return self._epochs[after - 1], self._starts[after]

    # Changes ---------------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> bool:
        """The leader of `epoch` writes from `start_offset` on. True if the entry is new (and is on disk now).

        Called for every batch, so the common case, more of the latest epoch, is two comparisons. An entry that does
        not rise beyond the known ones removes those that it contradicts: the log was truncated and written again, or
        an epoch that had begun here wrote nothing. A scan that rebuilds the list passes `write=False` and calls `write`
        at its end.
        """
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        assert epoch >= 0, f"epoch {epoch} at offset {start_offset}"
        assert start_offset >= 0, f"epoch {epoch} at offset {start_offset}"
        self._become(self._with(epoch, start_offset), write=write)
        return True

    def _with(self, epoch: int, start_offset: int) -> list[EpochEntry]:
        epochs, starts = self._epochs, self._starts
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        return [*self.entries[:keep], EpochEntry(epoch, start_offset)]

    def prepared(self, epoch: int, start_offset: int) -> EpochUpdate:
        """The list that `assign` would make."""
        return EpochUpdate(self, self.entries, self._with(epoch, start_offset))

    def write_ahead(self, prepared: EpochUpdate) -> None:
        """Puts it on disk. In any thread, as long as nothing is appended to the log."""
        self._write(prepared.after)

    def take(self, prepared: EpochUpdate, log_end_offset: int) -> None:
        """Uses a list that was written ahead, unless the list, the log or its end has changed since."""
        is_the_same = prepared.cache is self and prepared.before == self.entries
        if is_the_same and prepared.after[-1].start_offset == log_end_offset:
            self._become(prepared.after, write=False)

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that start there or later are forgotten."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            self._become(self.entries[:keep])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now. The epoch that covers it stays, and starts there."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return
        entries = self.entries
        self._become([EpochEntry(entries[covering].epoch, start_offset), *entries[covering + 1 :]])

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """These are the epochs of the log now."""
        self._become(list(entries))

    def clear(self) -> None:
        """Removes all entries, on disk too: the log is empty."""
        self._become([])

    def _become(self, entries: list[EpochEntry], *, write: bool = True) -> None:
        if write:
            self._write(entries)
        self._epochs = [entry.epoch for entry in entries]
        self._starts = [entry.start_offset for entry in entries]
        self.latest_epoch = self._epochs[-1] if entries else UNDEFINED_EPOCH
