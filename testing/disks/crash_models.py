"""Models of a power loss: which of the unsynced operations survive it.

A disk after a crash is: what was durable, plus *some* of the pending operations. Which ones is undefined.
Three models of it, from the mildest to the harshest; correct code survives all of them:

* **ordered prefix**: operations reach the disk in the order they were made, up to some point. The write at that
  point is torn at a sector.
* **any subset**: every operation may or may not have arrived, whatever came after it, and of a write any of its
  512-byte sectors. A write that did not arrive, below one that did, leaves a hole of zeros.
* **metadata first**: names and sizes arrived, in order, but the content of some writes did not. Where a file
  grew there are zeros, or what the device held there before; where it was overwritten, the old bytes.

A rename is one operation and is never half done. A sector is never half written. The models have no other rules: any
subset, for instance, may keep a write and lose an earlier one to the same sector, which real page caches do not do.
Surviving more than necessary is simpler.

`every` lists all outcomes, for exhaustive tests; `draw` picks one at random, for simulations.
"""

import hashlib
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product
from random import Random
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

SECTOR: Final = 512


class CrashModel(Enum):
    ORDERED_PREFIX = "ordered prefix"
    ANY_SUBSET = "any subset"
    METADATA_FIRST = "metadata first"


@frozen
class Write:
    """Bytes written to a file. `number` is that of the operation, `inode` that of the file."""

    number: int
    inode: int
    offset: int
    data: bytes

    @property
    def sectors(self) -> int:
        """The number of sectors it touches, by the file's sectors: a short write may touch two."""
        return (self.offset + len(self.data) - 1) // SECTOR - self.offset // SECTOR + 1 if self.data else 0


@frozen
class Truncate:
    number: int
    inode: int
    size: int


class Entry(NamedTuple):
    """A directory entry: in `directory`, `name` now refers to `inode`, or to nothing."""

    directory: int
    name: str
    inode: int | None


@frozen
class Link:
    """Entries that change together: one for a create or a remove, two for a rename."""

    number: int
    entries: tuple[Entry, ...]


Pending: TypeAlias = Write | Truncate | Link
Names: TypeAlias = dict[int, dict[str, int]]
"""Directory → name → inode."""


class Fill(Enum):
    """The content of a part of a file that exists only because its size reached the disk."""

    NOTHING = "lost"  # the size did not reach the disk either
    ZEROS = "zeros"
    GARBAGE = "garbage"


class Survival(NamedTuple):
    """The outcome of one operation. Bit i of `sectors` is the i-th sector of a write; for other operations 0 means
    lost.
    """

    sectors: int
    fill: Fill = Fill.NOTHING


ALL: Final = Survival(-1)
LOST: Final = Survival(0)
SIZE_ONLY_ZEROS: Final = Survival(0, Fill.ZEROS)
SIZE_ONLY_GARBAGE: Final = Survival(0, Fill.GARBAGE)


def surviving_content(durable: bytes, changes: Sequence[tuple[Write | Truncate, Survival]]) -> bytes:
    """The content of one file after this part of its pending changes reached the disk."""
    content = bytearray(durable)
    for change, survival in changes:
        if isinstance(change, Truncate):
            if survival.sectors:
                resize(content, change.size)
        elif survival == ALL:
            overwrite(content, change.offset, change.data)
        elif survival != LOST:
            _overwrite_partly(content, change, survival)
    return bytes(content)


def _overwrite_partly(content: bytearray, write: Write, survival: Survival) -> None:
    grown = write.offset + len(write.data) - len(content)
    if survival.fill is Fill.ZEROS and grown > 0:
        content.extend(bytes(grown))
    elif survival.fill is Fill.GARBAGE and grown > 0:
        content.extend(hashlib.shake_128(b"garbage %d" % write.number).digest(grown))
    first = write.offset // SECTOR
    for index in range(write.sectors):
        if survival.sectors >> index & 1:
            begin = max(0, (first + index) * SECTOR - write.offset)
            end = (first + index + 1) * SECTOR - write.offset
            overwrite(content, write.offset + begin, write.data[begin:end])


def overwrite(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    if size > len(content):
        content.extend(bytes(size - len(content)))
    else:
        del content[size:]


def surviving_names(durable: Names, changes: Sequence[tuple[Link, Survival]]) -> Names:
    """The directories after these of their pending changes reached the disk."""
    names = {directory: dict(entries) for directory, entries in durable.items()}
    for change, survival in changes:
        if survival.sectors:
            link(names, change)
    return names


def link(names: Names, change: Link) -> None:
    for directory, name, inode in change.entries:
        entries = names.get(directory, {})  # the directory may have been removed durably
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode


def every(model: CrashModel, pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    """All outcomes under the model, one `Survival` for each pending operation.

    Two dimensions are reduced: of the sectors of a write only significant choices are taken: the first, the last, and
    all but one of these; and only one write at a time is torn, the others survive or are lost as a whole.
    """
    match model:
        case CrashModel.ORDERED_PREFIX:
            yield from _every_prefix(pending)
        case CrashModel.ANY_SUBSET:
            yield from _every_subset(pending)
        case CrashModel.METADATA_FIRST:
            yield from _every_loss_of_content(pending)


def _every_prefix(pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    count = len(pending)
    for kept in range(count + 1):
        yield [ALL] * kept + [LOST] * (count - kept)
        if kept < count:
            for sectors in _telling_sectors(pending[kept]):
                if sectors & 1:  # in order: the beginning reaches the disk first
                    yield [ALL] * kept + [Survival(sectors)] + [LOST] * (count - kept - 1)


def _every_subset(pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    count = len(pending)
    for subset in product((LOST, ALL), repeat=count):
        yield list(subset)
    for index, change in enumerate(pending):
        for sectors in _telling_sectors(change):
            for subset in product((LOST, ALL), repeat=count - 1):
                yield [*subset[:index], Survival(sectors), *subset[index:]]


def _every_loss_of_content(pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    count = len(pending)
    for kept in range(count + 1):
        for fill in (SIZE_ONLY_ZEROS, SIZE_ONLY_GARBAGE):
            choices = [(ALL, fill) if isinstance(change, Write) else (ALL,) for change in pending[:kept]]
            for chosen in product(*choices):
                yield [*chosen, *[LOST] * (count - kept)]


def _telling_sectors(change: Pending) -> tuple[int, ...]:
    """The ways to tear a write, as sets of sectors: the first, the last, without the last, without the first."""
    count = change.sectors if isinstance(change, Write) else 0
    if count < 2:
        return ()
    first, last, whole = 1, 1 << count - 1, (1 << count) - 1
    return tuple(dict.fromkeys((first, last, whole ^ last, whole ^ first)))


def draw(model: CrashModel, pending: Sequence[Pending], random: Random) -> list[Survival]:
    """One random outcome under the model."""
    match model:
        case CrashModel.ORDERED_PREFIX:
            kept = random.randint(0, len(pending))
            survivals = [ALL] * kept + [LOST] * (len(pending) - kept)
            if kept < len(pending) and isinstance(change := pending[kept], Write) and change.data:
                survivals[kept] = Survival((1 << random.randrange(change.sectors)) - 1)
            return survivals
        case CrashModel.ANY_SUBSET:
            return [_any_of(change, random) for change in pending]
        case CrashModel.METADATA_FIRST:
            kept = random.randint(0, len(pending))
            lost = random.choice((SIZE_ONLY_ZEROS, SIZE_ONLY_GARBAGE))
            return [random.choice((ALL, lost)) if isinstance(change, Write) else ALL for change in pending[:kept]] + [
                LOST
            ] * (len(pending) - kept)


def _any_of(change: Pending, random: Random) -> Survival:
    if isinstance(change, Write):
        return Survival(random.getrandbits(change.sectors))
    return random.choice((ALL, LOST))


def describe(change: Pending, survival: Survival) -> str:
    """The outcome as text, for the report of a failing state."""
    if survival == ALL:
        return "arrived"
    if survival == LOST:
        return "lost"
    if not isinstance(change, Write):
        return "arrived" if survival.sectors else "lost"
    kept = [index for index in range(change.sectors) if survival.sectors >> index & 1]
    if not kept:
        return f"size arrived, content is {survival.fill.value}"
    return f"torn, of {change.sectors} sectors arrived {', '.join(map(str, kept))}"
