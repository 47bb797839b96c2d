"""Every crash there can be: run some storage code, lose power after each of its disk operations, look at the rest.

A test gives four functions. `prepare` brings a disk into the state before (all of it durable). `protocol` is the code
under test; it calls `promise(x)` at the moment when it would tell the outside world "x is safe". `recover` opens a
disk that was found after a crash and returns what it read. `check` gets that, and the promises up to that point,
and asserts.

    report = crash_everywhere(append_two, recover=read_log, check=no_promise_is_broken, prepare=empty_log)
    assert report.states > 100

The disk of `protocol` is watched: before each operation, at each promise and at the end, every outcome of a power
loss at that moment is built (`testing/disks/crash_models.py`: three models, every choice among the pending operations).
Two outcomes with the same files and the same promises are one state. A state that does not recover, or whose check
fails, ends the run with a `CrashFound` that prints the operations, what became of each pending one, and the error.

`fail_each_operation` runs the same protocol with its first, its second, … disk operation failing instead, and looks at
the disk as a restarted process finds it, and as a rebooted machine does.
"""

import contextlib
import errno
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trioka.testing.disks.crash_models import (
    ALL,
    CrashModel,
    Link,
    Pending,
    Survival,
    Truncate,
    Write,
    describe,
    every,
    surviving_content,
    surviving_names,
)
from trioka.testing.disks.disk_faults import DiskOperation, Effect, Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk, walk

Found = TypeVar("Found")
Promise = Callable[[Any], None]
Protocol = Callable[[MemoryDisk, Promise], object]
Prepare = Callable[[MemoryDisk], object]
Recover = Callable[[MemoryDisk], Found]
Check = Callable[[Found, Sequence[Any]], object]

PENDING_LIMIT = 12
"""So many pending operations are tried in every combination; 12 writes of several sectors are some 100,000 outcomes.
Where more are pending, the older ones arrived."""

SHOWN_OPERATIONS = 40

READS = frozenset({Kind.OPEN, Kind.READ, Kind.MAP, Kind.LIST})


class CrashFound(AssertionError):
    """A state in which the promise does not hold. The message is the whole story."""


@dataclass
class Report:
    """What was tried. `clipped` moments had more pending operations than the limit."""

    states: int = 0
    outcomes: int = 0
    moments: int = 0
    clipped: int = 0
    most_pending: int = 0
    by_model: dict[CrashModel, int] = field(default_factory=dict)
    failed_operations: int = 0

    def __str__(self) -> str:
        models = ", ".join(f"{count} {model.value}" for model, count in self.by_model.items())
        return (
            f"{self.states} states ({models}) of {self.outcomes} outcomes at {self.moments} moments, "
            f"at most {self.most_pending} pending, {self.clipped} moments clipped, "
            f"{self.failed_operations} operations failed"
        )


def crash_everywhere(
    protocol: Protocol,
    *,
    recover: Recover[Found],
    check: Check[Found],
    prepare: Prepare | None = None,
    models: Sequence[CrashModel] = tuple(CrashModel),
    pending_limit: int = PENDING_LIMIT,
) -> Report:
    disk = _prepared(prepare)
    search = Search(disk, recover, check, models, pending_limit)
    disk.before = search.before
    protocol(disk, search.promise)
    disk.before = None
    search.look()
    return search.report


def fail_each_operation(
    protocol: Protocol,
    *,
    recover: Recover[Found],
    check: Check[Found],
    prepare: Prepare | None = None,
    refusals: tuple[type[Exception], ...] = (OSError,),
    error: int = errno.EIO,
    times: int = 1,
    models: Sequence[CrashModel] = tuple(CrashModel),
    pending_limit: int = 8,
) -> Report:
    """Let the k-th operation fail, for every k, cleanly and messily; then check what a restart and what a reboot finds.

    The protocol either raises one of `refusals` or copes; in both cases what it promised must hold. `times` is how
    many operations fail from the k-th on; with `disk_faults.ALWAYS` the disk works again only after the restart.
    """
    total = Report()
    for effect in (Effect.FAILS, Effect.HALF, Effect.DROPS):
        nth = 0
        while True:
            nth += 1
            disk = _prepared(prepare)
            fault = Fault(nth=nth, kinds=_KINDS[effect], effect=effect, error=error, times=times)
            disk.faults.add(fault)
            search = Search(disk, recover, check, models, pending_limit)
            with contextlib.suppress(*refusals):
                protocol(disk, search.note)
            if not disk.faults.fired:
                break
            disk.faults.clear()
            search.story = [f"the {nth}. operation of {_names(fault)} failed: {effect.value}"]
            search.restart()
            search.look()
            total.failed_operations += 1
            _add(total, search.report)
    return total


_KINDS = {
    Effect.FAILS: frozenset(Kind),
    Effect.HALF: frozenset({Kind.WRITE}),
    Effect.DROPS: frozenset({Kind.SYNC}),
}


class Search:
    """Builds the states of a moment, one by one, and remembers which were seen."""

    def __init__(
        self,
        disk: MemoryDisk,
        recover: Callable[[MemoryDisk], Any],
        check: Callable[[Any, Sequence[Any]], object],
        models: Sequence[CrashModel],
        pending_limit: int,
    ) -> None:
        self.disk = disk
        self.recover = recover
        self.check = check
        self.models = models
        self.pending_limit = pending_limit
        self.promises: list[Any] = []
        self.story: list[str] = []
        self.report = Report(by_model=dict.fromkeys(models, 0))
        self._seen: set[tuple[int, bytes]] = set()
        self._begun = disk.operation_count
        self._changed = True

    def note(self, promised: Any) -> None:
        self.promises.append(promised)

    def promise(self, promised: Any) -> None:
        self.note(promised)
        self.look()

    def before(self, operation: DiskOperation) -> None:
        """Look, unless the last operation only read: then nothing is new."""
        if self._changed:
            self.look()
        self._changed = operation.kind not in READS

    def look(self) -> None:
        """Try everything that a power loss at this moment can leave."""
        pending = self.disk.pending()
        self.report.moments += 1
        self.report.most_pending = max(self.report.most_pending, len(pending))
        older = max(0, len(pending) - self.pending_limit)
        self.report.clipped += older > 0
        states = States(self.disk, pending)
        for model in self.models:
            for survivals in every(model, pending[older:]):
                self.report.outcomes += 1
                survivals = [ALL] * older + survivals
                key = (len(self.promises), states.digest(survivals))
                if key not in self._seen:
                    self._seen.add(key)
                    self.report.states += 1
                    self.report.by_model[model] += 1
                    self._try(states.disk(survivals), model.value, pending, survivals)

    def restart(self) -> None:
        """Try the disk as a new process finds it when only the process died: nothing is lost."""
        pending = self.disk.pending()
        survivals = [ALL] * len(pending)
        files = self.disk.files()
        found = MemoryDisk(files)
        for directory in _directories(self.disk):
            found.make_directory(directory)
        found.settle()
        self._try(found, "the process died, the machine did not", pending, survivals)

    def _try(self, found: MemoryDisk, how: str, pending: Sequence[Pending], survivals: Sequence[Survival]) -> None:
        before = found.files()
        try:
            self.check(self.recover(found), tuple(self.promises))
        except Exception as error:
            raise CrashFound(self._tell(how, before, pending, survivals, error)) from error

    def _tell(
        self,
        how: str,
        before: dict[str, bytes],
        pending: Sequence[Pending],
        survivals: Sequence[Survival],
        error: Exception,
    ) -> str:
        fates = dict(zip((change.number for change in pending), zip(pending, survivals, strict=True), strict=True))
        lines = [f"{how}, after these operations:", *self.story]
        done = [operation for operation in self.disk.operations if operation.number > self._begun]
        if len(done) > SHOWN_OPERATIONS:
            lines.append(f"   …  {len(done) - SHOWN_OPERATIONS} earlier ones")
        for operation in done[-SHOWN_OPERATIONS:]:
            fate = fates.get(operation.number)
            lines.append(f"{operation}{f'  ← {describe(*fate)}' if fate else ''}")
        lines.append(f"promised: {', '.join(map(repr, self.promises)) or 'nothing'}")
        lines.append("found on the disk:")
        lines += [f"      {path}: {_brief(content)}" for path, content in before.items()] or ["      nothing"]
        lines.append(f"and then: {type(error).__name__}: {error}")
        return "\n".join(lines)


class States:
    """The states of one moment. Files are hashed and directories built once per choice that concerns them, since
    most outcomes differ in one file only."""

    def __init__(self, disk: MemoryDisk, pending: Sequence[Pending]) -> None:
        self._disk = disk
        self._links = [(index, change) for index, change in enumerate(pending) if isinstance(change, Link)]
        self._changes: dict[int, list[tuple[int, Write | Truncate]]] = {}
        for index, change in enumerate(pending):
            if not isinstance(change, Link):
                self._changes.setdefault(change.inode, []).append((index, change))
        self._digests: dict[tuple[object, ...], bytes] = {}
        self._trees: dict[tuple[Survival, ...], list[tuple[str, int]]] = {}

    def digest(self, survivals: Sequence[Survival]) -> bytes:
        """Equal for two outcomes that leave the same files."""
        state = hashlib.blake2b(digest_size=16)
        for path, inode in self._tree(survivals):
            state.update(path.encode() + b"\0")
            if inode >= 0:
                state.update(self._digest(inode, survivals))
        return state.digest()

    def disk(self, survivals: Sequence[Survival]) -> MemoryDisk:
        contents = {inode: self._content(inode, survivals) for _, inode in self._tree(survivals) if inode >= 0}
        return MemoryDisk.found(self._names(survivals), contents)

    def _tree(self, survivals: Sequence[Survival]) -> list[tuple[str, int]]:
        """Paths and inodes, sorted; an empty directory has inode -1."""
        key = tuple(survivals[index] for index, _ in self._links)
        if key not in self._trees:
            names = self._names(survivals)
            self._trees[key] = sorted([*walk(names), *_empty_directories(names)])
        return self._trees[key]

    def _names(self, survivals: Sequence[Survival]) -> dict[int, dict[str, int]]:
        return surviving_names(
            self._disk.durable_names(), [(change, survivals[index]) for index, change in self._links]
        )

    def _content(self, inode: int, survivals: Sequence[Survival]) -> bytes:
        changes = [(change, survivals[index]) for index, change in self._changes.get(inode, ())]
        return surviving_content(self._disk.durable_content(inode), changes)

    def _digest(self, inode: int, survivals: Sequence[Survival]) -> bytes:
        key = (inode, *[survivals[index] for index, _ in self._changes.get(inode, ())])
        found = self._digests.get(key)
        if found is None:
            content = self._content(inode, survivals)
            found = self._digests[key] = hashlib.blake2b(content, digest_size=16).digest()
        return found


def _prepared(prepare: Prepare | None) -> MemoryDisk:
    disk = MemoryDisk()
    if prepare is not None:
        prepare(disk)
        disk.settle()
    return disk


def _empty_directories(names: dict[int, dict[str, int]]) -> Iterator[tuple[str, int]]:
    waiting = [("", 0)]
    while waiting:
        above, directory = waiting.pop()
        for name, inode in names[directory].items():
            if inode in names:
                waiting.append((f"{above}/{name}", inode))
                if not names[inode]:
                    yield f"{above}/{name}", -1


def _directories(disk: MemoryDisk, above: str = "") -> Iterator[str]:
    for name in disk.list(above):
        path = f"{above}/{name}"
        if disk.is_directory(path):
            yield path
            yield from _directories(disk, path)


def _names(fault: Fault) -> str:
    return "any kind" if fault.kinds == frozenset(Kind) else "kind " + ", ".join(kind.value for kind in fault.kinds)


def _brief(content: bytes) -> str:
    return f"{len(content)} bytes {content[:48]!r}{'…' if len(content) > 48 else ''}"


def _add(total: Report, part: Report) -> None:
    total.states += part.states
    total.outcomes += part.outcomes
    total.moments += part.moments
    total.clipped += part.clipped
    total.most_pending = max(total.most_pending, part.most_pending)
    for model, count in part.by_model.items():
        total.by_model[model] = total.by_model.get(model, 0) + count
