"""`trioka serve`, as a process of a chaos run, with a disk that can be made slow, or with a mistake planted in it.

    python tests/chaos/node.py [--mistake NAME] serve server.properties

SIGUSR1 makes its disk slow, SIGUSR2 fast again. Everything else is as in `python -m trioka serve`.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import signal
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType
from typing import Final, NamedTuple

SLOWNESS_S: Final = 0.05  # of each write: twenty in a second, as an overloaded disk has them


class Mistake(NamedTuple):
    module: str
    right: str  # occurs there once
    wrong: str
    what: str  # the effect: lost, duplicated, reordered, others
    counts: Mapping[str, int]  # the faults among which it shows


MISTAKES: Final[Mapping[str, Mistake]] = {
    "acks=all is answered before others have it": Mistake(
        "trioka.broker.handlers.produce",
        "waits = acks == ALL_REPLICAS and not replica.is_unreplicated",
        "waits = False",
        "lost",
        {"partition": 5, "kill": 3},
    ),
    "what is sent again is taken for new": Mistake(
        "trioka.storage.producers.producer_state",
        "return self._retry(batch, producer)",
        "return None",
        "duplicated",
        {"kill": 8, "pause": 6, "partition": 6},
    ),
    "responses list no aborted transactions": Mistake(
        "trioka.broker.handlers.fetch",
        'in sorted(found, key=attrgetter("first_offset"))',
        "in ()",
        "others",
        {"kill": 1},
    ),
}


class MutatingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mistake: Mistake) -> None:
        super().__init__(name, path)
        self._mistake = mistake

    def get_code(self, fullname: str) -> CodeType:
        """Never from the bytecode that others have left, and none is left."""
        return compile(planted(self.get_data(self.path).decode(), self._mistake), self.path, "exec")


def planted(source: str, mistake: Mistake) -> str:
    assert source.count(mistake.right) == 1, f"{mistake.right!r} stands {source.count(mistake.right)} times"
    return source.replace(mistake.right, mistake.wrong)


class MutatingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mistake.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None and found.origin is not None
        return importlib.util.spec_from_loader(fullname, MutatingLoader(fullname, found.origin, self._mistake))


def with_slow_disk() -> None:
    from trioka.storage.files import disk
    from trioka.testing.disks.faulty_disk import FaultyDisk

    one = FaultyDisk(disk.OsDisk())

    def set_slowness(number: int, frame: object) -> None:
        one.condition.slowness_s = SLOWNESS_S if number == signal.SIGUSR1 else 0.0

    signal.signal(signal.SIGUSR1, set_slowness)
    signal.signal(signal.SIGUSR2, set_slowness)
    disk.OsDisk = lambda: one  # type: ignore[misc,assignment,return-value]


def main(words: list[str]) -> None:
    if words[:1] == ["--mistake"]:
        sys.meta_path.insert(0, MutatingFinder(MISTAKES[words[1]]))
        words = words[2:]
    with_slow_disk()
    from trioka.__main__ import main as trioka

    sys.argv = ["trioka", *words]
    trioka()


if __name__ == "__main__":
    main(sys.argv[1:])
