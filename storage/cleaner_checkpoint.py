"""Where the last round of compaction ended, for each log of a directory: `cleaner-offset-checkpoint`.

It is written after the compacted segments stand in their places. If a crash comes between, the next round does the same
work again, and finds nothing to do. So a lost or damaged file costs time and nothing else: everything counts as dirty.
"""

from collections.abc import Container

from .checkpoint import read_offsets, write_offsets
from .disk import Disk
from .layout import CLEANER_OFFSETS, DamagedFile, TopicPartition


class CleanerCheckpoint:
    """The offsets of one log directory, in memory and on disk. Every change is durable when it returns; blocks."""

    __slots__ = ("_disk", "_offsets", "damage", "path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{CLEANER_OFFSETS}"
        self.damage: DamagedFile | None = None  # why the file could not be read, for whoever tells people
        self._offsets: dict[TopicPartition, int] = {}
        try:
            self._offsets = read_offsets(disk, self.path)
        except DamagedFile as error:
            self.damage = error

    def get(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def put(self, partition: TopicPartition, first_dirty_offset: int) -> None:
        self._become({**self._offsets, partition: first_dirty_offset})

    def cut(self, partition: TopicPartition, log_end_offset: int) -> None:
        """The log was truncated: what is written there from now on was never cleaned."""
        if self._offsets.get(partition, 0) > log_end_offset:
            self.put(partition, log_end_offset)

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Forget logs that are not in this directory any more."""
        kept = {partition: offset for partition, offset in self._offsets.items() if partition in partitions}
        if len(kept) < len(self._offsets):
            self._become(kept)

    def _become(self, offsets: dict[TopicPartition, int]) -> None:
        write_offsets(self._disk, self.path, offsets)
        self._offsets = offsets
