"""The segments of one log, in order, and how much of them is durable.

Files are created, truncated, renamed and synced here; `log.py` interprets the records. One rule makes crashes harmless:
**the checkpoints are written before anything is truncated or deleted**. They hold the recovery point (everything before
it must be there after a crash) and the log start offset; `Log` writes them first (`Log.keep`).

`sync` runs in a worker thread while the log's own thread appends. It takes the log's lock (log_end.py) twice,
briefly: to read the log end and open files of its own, before they can be renamed, and to note what is durable now.
Code that adds, renames or truncates files takes the lock as well; an append does not need it.

**A closed log creates, renames and truncates no file.** Its topic may be deleted, and another made under its name: then
other files have these paths. Closing takes the lock, so a change of files is complete before, or not begun.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import overload

from trioka.protocol.errors import KafkaStorageError

from ..files.disk import File
from ..files.failstop_disk import must_complete
from ..files.file_pool import FilePool
from ..files.layout import Suffix
from ..log_end import LogEnd
from .deleted_segments import DeletedSegments
from .segment import Segment
from .segment_swap import swap_in, sync_files


class Segments(Sequence[Segment]):
    """Ascending by base offset; the last one is active."""

    __slots__ = (
        "_bases",
        "_closed",
        "_deleted",
        "_lock",
        "_moved",
        "_names_made",
        "_names_synced",
        "_segments",
        "active",
        "directory",
        "files",
    )

    def __init__(self, files: FilePool, directory: str, segments: list[Segment], lock: Lock) -> None:
        assert segments, "a log has a segment"
        self.files = files
        self.directory = directory
        self.active = segments[-1]
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._deleted = DeletedSegments()
        self._lock = lock
        self._closed = False
        self._names_made = 1  # how often a file was made, and how often when the directory was last synced
        self._names_synced = 0
        self._moved = False  # the directory was renamed, and that is not durable yet

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def number_for(self, offset: int) -> int:
        """The segment in which this offset is, or would be."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def holding(self, offset: int) -> Segment:
        """The same; every fetch of older records calls it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def expected_end(self, segment: Segment, log_end: int) -> int:
        """The upper limit of a segment's end: the base offset of the next one."""
        after = bisect_right(self._bases, segment.base_offset)
        return self._bases[after] if after < len(self._bases) else log_end

    # Growing ---------------------------------------------------------------------------------------------------------

    def add(self, base_offset: int, *, now_ms: int, jitter_ms: int) -> Segment:
        """Closes the active segment and creates the next. The next `sync` makes it durable."""
        with self._lock:
            self._must_be_open()
            self.active.close_indexes()
            self.active.synced = False
            return self._begin(base_offset, now_ms, jitter_ms)

    def _begin(self, base_offset: int, now_ms: int, jitter_ms: int = 0) -> Segment:
        segment = Segment.create(self.files, self.directory, base_offset, now_ms=now_ms, jitter_ms=jitter_ms)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self._names_made += 1
        return segment

    def begin_after_gap(self, base_offset: int, *, now_ms: int) -> Segment:
        """The active segment is empty and begins too early: replaces it by a segment at this offset."""
        assert self.active.size == 0
        with self._lock:
            self._must_be_open()
            self.active.rename(Suffix.DELETED)
            self._segments.pop()
            self._bases.pop()
            return self._begin(base_offset, now_ms)

    def on_file_created(self) -> None:
        """A file of a segment was made: its name is not durable yet."""
        self._names_made += 1

    def sync(self, end: LogEnd) -> None:
        """All that is written now becomes durable; then the recovery point moves (S2). Closed, it has nothing to do."""
        disk = self.files.disk
        with self._lock:
            if self._closed:
                return
            point, names, moved = end.sync_point(), self._names_made, self._moved
            closed = self._not_synced()
            paths = [self.active.log_path] if point.end_offset > end.recovery_point or closed else []
            for segment in closed:
                paths += [path for path in segment.paths() if disk.exists(path)]
            files: list[File] = []
            try:
                for path in paths:
                    files.append(disk.open(path))
            except BaseException:
                _close_all(files)
                raise
        try:
            for file in files:
                file.sync()
        finally:
            _close_all(files)
        if names != self._names_synced:
            disk.sync_directory(self.directory)
        if moved:
            disk.sync_directory(self.directory.rpartition("/")[0])
        with self._lock:
            self._names_synced = names
            self._moved = self._moved and not moved
            if end.became_durable(point):
                for segment in closed:
                    segment.synced = True

    def _not_synced(self) -> list[Segment]:
        """The closed segments whose files may not all be durable: the newest ones."""
        first = len(self._segments) - 1
        while first and not self._segments[first - 1].synced:
            first -= 1
        return self._segments[first:-1]

    def settle(self, end: LogEnd) -> None:
        """All of it durable, the indexes of the active segment too: a clean stop."""
        self.active.close_indexes()
        sync_files(self.active)
        self._names_made += 1
        self.sync(end)

    # Shrinking -------------------------------------------------------------------------------------------------------

    def cut(self, offset: int, last: Segment, position: int) -> list[Segment]:
        """Removes everything from `offset` on, which is at `position` in the segment that will be the last one; returns
        the segments that were removed whole. The caller has lowered the recovery point, durably.

        The newest go first, each durably before the next, and the cut is synced before anything new is written
        behind it: otherwise a crash could bring back the end of the log without its middle, or old batches behind new.
        """
        with self._lock, must_complete(self.files.disk):
            self._must_be_open()
            gone = self._segments[self._segments.index(last) + 1 :]
            for segment in reversed(gone):
                segment.rename(Suffix.DELETED)
                self.files.disk.sync_directory(self.directory)
                self._segments.pop()
                self._bases.pop()
                self.active = self._segments[-1]
            last.truncate_to(offset, position)
        return gone

    def restart_at(self, offset: int, *, now_ms: int) -> list[Segment]:
        """Removes every segment, and restarts the log at `offset`. The caller has written the checkpoints."""
        with self._lock, must_complete(self.files.disk):
            self._must_be_open()
            gone = list(self._segments)
            for segment in reversed(gone):
                segment.rename(Suffix.DELETED)
                self.files.disk.sync_directory(self.directory)
            self._segments.clear()
            self._bases.clear()
            self._begin(offset, now_ms)
            self.files.disk.sync_directory(self.directory)
        return gone

    def drop(self, gone: Sequence[Segment]) -> None:
        """Removes the oldest segments. The log's start is already behind them, durably."""
        assert list(gone) == self._segments[: len(gone)], "only the oldest"
        assert len(gone) < len(self._segments), "a log has a segment"
        with self._lock:
            self._must_be_open()
            for segment in gone:
                segment.rename(Suffix.DELETED)
            del self._segments[: len(gone)]
            del self._bases[: len(gone)]

    def replace(self, new: Segment, old: Sequence[Segment], recovery_point: int) -> None:
        """A compacted or repaired segment replaces the adjacent ones that it was made of (segment_swap.py). They are
        durable."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old), "only adjacent segments"
        assert self.active not in old, "the active segment is not replaced"
        assert self._bases[first + len(old)] <= recovery_point, "nothing is replaced before it is durable"
        assert new.base_offset == old[0].base_offset, f"{new} for {old[0]}"
        with self._lock, must_complete(self.files.disk):
            self._must_be_open()
            swap_in(new, old)
            self._segments[first : first + len(old)] = [new]
            self._bases[first : first + len(old)] = [new.base_offset]

    def retire(self, gone: Sequence[Segment], due_ms: int) -> None:
        self._deleted.add(gone, due_ms)

    def sweep(self, now_ms: int) -> int:
        """Removes retired segments after their delay. Returns the number of freed bytes."""
        with self._lock:
            return 0 if self._closed else self._deleted.sweep(now_ms)

    # The end ---------------------------------------------------------------------------------------------------------

    def use(self, files: FilePool) -> None:
        """From now on take files from this pool."""
        self.files = files
        for segment in self._segments:
            segment.use(files)

    def move(self, directory: str) -> None:
        """The directory was renamed. From here on nothing is durable unless its new name is."""
        with self._lock:
            self._moved = True
            self.files.forget_below(self.directory)
            self.directory = directory
            self._deleted.move(directory)
            for segment in self._segments:
                segment.move(directory)

    def close_handles(self) -> None:
        """Hold no file any more, and touch none."""
        with self._lock:
            self._closed = True
            self._deleted.forget()
            for segment in self._segments:
                segment.close_handles()

    def _must_be_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"{self.directory}: the log is closed")


def _close_all(files: Sequence[File]) -> None:
    for file in files:
        file.close()
