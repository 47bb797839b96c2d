"""Positions in topics, as Spark writes them, and the commit that carries them into a table.

A commit is one batch of one run: who wrote it, and from which offsets to which. Tables keep it together with the rows,
in one atomic step, so a table by itself tells what it holds. `Commit.name` is what makes a repeated batch recognisable:
after a crash Spark runs the batch again with the same number and the same offsets.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from trioka.protocol.data_class import frozen

from .declaration import Positions

Ends = dict[str, dict[int, int]]
BACKFILL = "backfill-"


def to_json(positions: Positions) -> str:
    return json.dumps({topic: {str(one): at for one, at in ones.items()} for topic, ones in positions.items()})


def from_json(text: str) -> Ends:
    return {topic: {int(one): at for one, at in ones.items()} for topic, ones in json.loads(text).items()}


def farthest(many: Iterable[Positions]) -> Ends:
    """The largest offset of each partition."""
    return _chosen(many, max)


def nearest(many: Iterable[Positions]) -> Ends:
    """The smallest."""
    return _chosen(many, min)


def _chosen(many: Iterable[Positions], choose: Callable[[int, int], int]) -> Ends:
    found: Ends = {}
    for positions in many:
        for topic, ones in positions.items():
            known = found.setdefault(topic, {})
            for one, at in ones.items():
                known[one] = choose(at, known.get(one, at))
    return found


@frozen
class Commit:
    """`run` is the id that Spark gave the query when its checkpoint was new; a backfill has a name of its own."""

    pipeline: str
    run: str
    batch: int
    start: Positions
    end: Positions

    @property
    def name(self) -> str:
        return f"{self.run}-{self.batch:010}"

    @property
    def is_backfill(self) -> bool:
        return self.run.startswith(BACKFILL)

    def to_json(self) -> str:
        return json.dumps(
            {
                "pipeline": self.pipeline,
                "run": self.run,
                "batch": self.batch,
                "start": json.loads(to_json(self.start)),
                "end": json.loads(to_json(self.end)),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Commit":
        found = json.loads(text)
        return cls(
            pipeline=found["pipeline"],
            run=found["run"],
            batch=found["batch"],
            start=from_json(json.dumps(found["start"])),
            end=from_json(json.dumps(found["end"])),
        )

    def ranges(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        """The offsets that it holds, by partition: from the first to before the second."""
        return {
            (topic, one): (self.start.get(topic, {}).get(one, 0), end)
            for topic, ones in self.end.items()
            for one, end in ones.items()
        }


def overlaps(wanted: Commit, there: Iterable[Commit]) -> list[str]:
    """The partitions of which a table holds a part of what is wanted already: one clause each."""
    found = []
    for (topic, one), (start, end) in wanted.ranges().items():
        for commit in there:
            known_start, known_end = commit.ranges().get((topic, one), (0, 0))
            if max(start, known_start) < min(end, known_end):
                found.append(f"{topic}-{one} from {max(start, known_start)} to {min(end, known_end)}")
    return found
