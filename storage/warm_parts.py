"""What was in memory a moment ago, of all files of a pool.

To ask the kernel about a megabyte costs a twentieth of what sending it does, and several who read the same ask the
same: the groups that follow a topic, the followers of a leader, a reader about what it has asked ahead for. So what the
kernel has said of a part of a file is believed for a moment, whoever asked.

A part that is known up to the end of its file is known to its own end: what is appended meanwhile was just written.

The kernel forgets first what was used least recently. While nothing that somebody wants is missing, it has not come to
what was used in the last fifth of a second. When something is, that may be over, and everything is asked about anew.
"""

from typing import Final

PART_BYTES: Final = 8 * 1024 * 1024
BELIEVED_S: Final = 0.2
MOST_PARTS: Final = 4096
"""Of 32 GB; to ask about all of them again costs less than to find out which are the oldest."""

_NOTHING: Final = (0, 0, 0.0)


class WarmParts:
    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], tuple[int, int, float]] = {}  # from where, to where, and until when

    def __len__(self) -> int:
        return len(self._parts)

    def has(self, path: str, start: int, end: int, now: float) -> bool:
        """Whether that is believed to be in memory; it lies in one part."""
        known_start, known_end, until = self._parts.get((path, start // PART_BYTES), _NOTHING)
        return known_start <= start and end <= known_end and now < until

    def note(self, path: str, start: int, end: int, now: float) -> None:
        """The kernel says so. What was known of the part before stays known, if there is nothing between."""
        if len(self._parts) >= MOST_PARTS:
            self._parts.clear()
        key, until = (path, start // PART_BYTES), now + BELIEVED_S
        known_start, known_end, known_until = self._parts.get(key, _NOTHING)
        if now < known_until and start <= known_end and known_start <= end:
            start, end, until = min(start, known_start), max(end, known_end), known_until
        self._parts[key] = start, end, until

    def forget(self) -> None:
        self._parts.clear()
