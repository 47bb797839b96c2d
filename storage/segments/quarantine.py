"""Records damaged ranges of a partition that are not a torn tail.

After a power cut the end of a log may be torn: bytes that were never synced, and so never promised. That is cut off.
Damage *below the recovery point* is different: those bytes were durable, perhaps acknowledged, and other replicas have
them. Kafka cuts there too, and deletes all later segments with it. trioka does not (S6): it records the damaged range
in the partition's directory, everything else stays readable, the log continues at its end, and replication replaces the
range by a good copy of another replica (segment_repair.py, docs/decisions/0020).

    damaged-ranges      0\\n                                version
                        1\\n                                number of entries
                        17 42 0 8192 12288 fails its CRC\\n  first offset, end offset, segment, position, end, why

Kafka ignores files of this name. An entry means: the offsets from the first up to the end offset (exclusive) cannot be
read; they belong in the segment with that base offset, between those positions. If the file itself is damaged, the
whole log is scanned.
"""

import re
from collections.abc import Iterable
from typing import Final

from trioka.protocol.errors import CorruptMessage
from trioka.protocol.lazy_dataclass import frozen

from ..files.disk import Disk
from ..files.layout import MAX_OFFSET, CorruptFile

FILE_NAME: Final = "damaged-ranges"
VERSION: Final = "0"
MAX_RANGES: Final = 1000
"""The limit of ranges in one log. With more damage than this the rest of the log is one range."""

_LINE: Final = re.compile(r"([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,10}) ([0-9]{1,10}) ([^\n]*)")


@frozen
class Damage:
    """Offsets [first_offset, end_offset) cannot be read."""

    first_offset: int
    end_offset: int
    base_offset: int  # of the segment
    position: int
    end_position: int  # equal to `position` if the bytes are missing altogether
    reason: str

    def holds(self, offset: int) -> bool:
        return self.first_offset <= offset < self.end_offset

    def __str__(self) -> str:
        return (
            f"offsets {self.first_offset} to {self.end_offset - 1} of segment {self.base_offset} "
            f"(bytes {self.position} to {self.end_position}): {self.reason}"
        )


def read_damages(disk: Disk, directory: str) -> tuple[Damage, ...]:
    """Reads the recorded damage. Raises CorruptFile if the file is damaged itself."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return ()
    text = disk.read(path).decode("utf-8", "replace")
    lines = text.split("\n")
    if len(lines) < 3 or lines.pop() or lines[0] != VERSION or lines[1] != str(len(lines) - 2):
        raise CorruptFile(path, "is not a list of damaged ranges")
    damages = []
    for number, line in enumerate(lines[2:], start=3):
        match = _LINE.fullmatch(line)
        if match is None:
            raise CorruptFile(path, "is not a damaged range", line=number)
        first, end, base, position, end_position = map(int, match.groups()[:5])
        if not first <= end <= MAX_OFFSET or position > end_position:
            raise CorruptFile(path, "is not a damaged range", line=number)
        damages.append(
            Damage(
                first_offset=first,
                end_offset=end,
                base_offset=base,
                position=position,
                end_position=end_position,
                reason=match[6],
            )
        )
    return tuple(damages)


def write_damages(disk: Disk, directory: str, damages: Iterable[Damage]) -> None:
    """Records these ranges, or none. Durable when it returns."""
    path = f"{directory}/{FILE_NAME}"
    lines = [
        f"{damage.first_offset} {damage.end_offset} {damage.base_offset} "
        f"{damage.position} {damage.end_position} {' '.join(damage.reason.split())}"
        for damage in damages
    ]
    if lines:
        disk.replace(path, "".join(f"{line}\n" for line in (VERSION, str(len(lines)), *lines)).encode())
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)


def merge(damages: Iterable[Damage]) -> tuple[Damage, ...]:
    """Sorts the ranges, joins adjacent ones of a segment, and returns at most `MAX_RANGES`."""
    merged: list[Damage] = []
    for damage in sorted(damages, key=lambda damage: (damage.first_offset, damage.end_offset)):
        last = merged[-1] if merged else None
        full = len(merged) == MAX_RANGES
        if last is not None and (
            full or (damage.base_offset == last.base_offset and damage.first_offset <= last.end_offset)
        ):
            merged[-1] = Damage(
                first_offset=last.first_offset,
                end_offset=max(last.end_offset, damage.end_offset),
                base_offset=last.base_offset,
                position=min(last.position, damage.position)
                if damage.base_offset == last.base_offset
                else last.position,
                end_position=max(last.end_position, damage.end_position)
                if damage.base_offset == last.base_offset
                else last.end_position,
                reason=last.reason,
            )
        else:
            merged.append(damage)
    return tuple(merged)


class Quarantine:
    """The damage of one log. While it is not empty, reads outside of it succeed and reads in it are refused."""

    __slots__ = ("_disk", "damages", "directory")

    def __init__(self, disk: Disk, directory: str, damages: tuple[Damage, ...]) -> None:
        self._disk = disk
        self.directory = directory
        self.damages = damages

    def __bool__(self) -> bool:
        return bool(self.damages)

    def add(self, found: Iterable[Damage]) -> None:
        """Durable when it returns."""
        self._become(merge((*self.damages, *found)))

    def _become(self, damages: tuple[Damage, ...]) -> None:
        if damages != self.damages:
            self.damages = damages
            write_damages(self._disk, self.directory, damages)

    def replace(self, former: Iterable[Damage], left: Iterable[Damage]) -> None:
        """Of these ranges only that is left. Durable when it returns."""
        gone = set(former)
        self._become(merge((*(damage for damage in self.damages if damage not in gone), *left)))

    def cut(self, start: int, end: int) -> None:
        """The log is [start, end) now: damage outside of it is removed."""
        self._become(
            tuple(damage for damage in self.damages if damage.first_offset < end and damage.end_offset > start)
        )

    def limit(self, base_offset: int, offset: int, upto: int) -> tuple[int, int | None]:
        """The end of a read of the segment: an offset and a position, if damage comes before `upto`. Raises
        CorruptMessage if the read would begin in damage."""
        for damage in self.damages:
            if damage.holds(offset):
                raise CorruptMessage(str(damage))
            if offset < damage.first_offset <= upto:
                return damage.first_offset, damage.position if damage.base_offset == base_offset else None
        return upto, None
