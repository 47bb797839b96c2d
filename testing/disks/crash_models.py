"""What is left of the operations that were not synced when the power goes.

A disk after a crash is: what was durable, plus *some* of the pending operations. Which ones, nobody promises.
Three models of it, from the kind to the cruel; correct code survives all of them:

* **ordered prefix**: operations reach the disk in the order they were made, up to some point. The write at that
  point is torn at a sector.
* **any subset**: every operation may or may not have arrived, whatever came after it, and of a write any of its
  512-byte sectors. A write that did not arrive, below one that did, leaves a hole of zeros.
* **metadata first**: names and sizes arrived, in order, but the content of some writes did not. Where a file
  grew there are zeros, or what the device held there before; where it was overwritten, the old bytes.

A rename is one operation and is never half done. A sector is never half written. The models know no more than
this: any subset, for instance, may keep a write and lose an earlier one to the same sector, which real page
caches do not do. It is cheaper to survive too much.

`every` lists what can be left, for tests that try it all; `draw` takes one by chance, for simulations.
"""

import hashlib
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product
from random import Random
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

SECTOR: Final = 512


class Model(Enum):
    ORDERED_PREFIX = "ordered prefix"
    ANY_SUBSET = "any subset"
    METADATA_FIRST = "metadata first"


@frozen
class Write:
    """Bytes put into a file. `number` is that of the operation, `inode` that of the file."""

    number: int
    inode: int
    offset: int
    data: bytes

    @property
    def sectors(self) -> int:
        """How many sectors it touches: they are the file's sectors, so a short write may touch two."""
        return (self.offset + len(self.data) - 1) // SECTOR - self.offset // SECTOR + 1 if self.data else 0


@frozen
class Truncate:
    number: int
    inode: int
    size: int


class Entry(NamedTuple):
    """In `directory`, `name` now stands for `inode`, or for nothing."""

    directory: int
    name: str
    inode: int | None


@frozen
class Link:
    """Names that change together: one for a create or a remove, two for a rename."""

    number: int
    entries: tuple[Entry, ...]


Pending: TypeAlias = Write | Truncate | Link
Names: TypeAlias = dict[int, dict[str, int]]
"""Directory → name → inode."""


class Fill(Enum):
    """What stands in the part of a file that is there only because its size arrived."""

    NOTHING = "lost"  # the size did not arrive either
    ZEROS = "zeros"
    GARBAGE = "garbage"


class Survival(NamedTuple):
    """What is left of one operation. Bit i of `sectors` is the i-th sector of a write; for others 0 is 'nothing'."""

    sectors: int
    fill: Fill = Fill.NOTHING


ALL: Final = Survival(-1)
LOST: Final = Survival(0)
SIZE_ONLY_ZEROS: Final = Survival(0, Fill.ZEROS)
SIZE_ONLY_GARBAGE: Final = Survival(0, Fill.GARBAGE)


def surviving_content(durable: bytes, changes: Sequence[tuple[Write | Truncate, Survival]]) -> bytes:
    """The content of one file when of its pending changes this much arrived."""
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
    """The directories when of their pending changes these arrived."""
    names = {directory: dict(entries) for directory, entries in durable.items()}
    for change, survival in changes:
        if survival.sectors:
            link(names, change)
    return names


def link(names: Names, change: Link) -> None:
    for directory, name, inode in change.entries:
        entries = names.get(directory, {})  # the directory may be gone for good by now
        if inode is None:
            entries.pop(name, None)
        else:
            entries[name] = inode


def every(model: Model, pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    """Everything that may be left under the model, one `Survival` for each pending operation.

    Two things are thinned out. Of the sectors of a write only telling choices are taken: the first, the last, and
    all but one of these. And one write at a time is torn, the others arrived or did not.
    """
    match model:
        case Model.ORDERED_PREFIX:
            yield from _every_prefix(pending)
        case Model.ANY_SUBSET:
            yield from _every_subset(pending)
        case Model.METADATA_FIRST:
            yield from _every_loss_of_content(pending)


def _every_prefix(pending: Sequence[Pending]) -> Iterator[list[Survival]]:
    count = len(pending)
    for kept in range(count + 1):
        yield [ALL] * kept + [LOST] * (count - kept)
        if kept < count:
            for sectors in _telling_sectors(pending[kept]):
                if sectors & 1:  # in order: the beginning arrives first
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
    """How a write may be torn, as sets of sectors: the first, the last, without the last, without the first."""
    count = change.sectors if isinstance(change, Write) else 0
    if count < 2:
        return ()
    first, last, whole = 1, 1 << count - 1, (1 << count) - 1
    return tuple(dict.fromkeys((first, last, whole ^ last, whole ^ first)))


def draw(model: Model, pending: Sequence[Pending], random: Random) -> list[Survival]:
    """One of the things that may be left under the model."""
    match model:
        case Model.ORDERED_PREFIX:
            kept = random.randint(0, len(pending))
            survivals = [ALL] * kept + [LOST] * (len(pending) - kept)
            if kept < len(pending) and isinstance(change := pending[kept], Write) and change.data:
                survivals[kept] = Survival((1 << random.randrange(change.sectors)) - 1)
            return survivals
        case Model.ANY_SUBSET:
            return [_any_of(change, random) for change in pending]
        case Model.METADATA_FIRST:
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
    """In words, for the report of a failing state."""
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
