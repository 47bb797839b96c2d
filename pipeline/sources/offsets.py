"""Positions in topics, in Spark's format, and the commit that stores them in a table.

A commit is one batch of one run: its writer, and its start and end offsets. Tables store it together with the rows, in
one atomic step, so a table itself records which batches it has. `Commit.name` identifies a repeated batch: after a
crash Spark runs the batch again with the same number and the same offsets.

Offsets are valid only within one topic: a topic that is deleted and created again starts at 0, with other records. So a
commit has the ids of its topics, too. A commit of an older version has no ids.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from trioka.protocol.lazy_dataclass import frozen

from ..declaration.model import Positions
from ..errors import InvalidPipeline

Ends = dict[str, dict[int, int]]
BACKFILL = "backfill-"


def to_json(positions: Positions) -> str:
    return json.dumps({topic: {str(one): at for one, at in ones.items()} for topic, ones in positions.items()})


def from_json(text: str) -> Ends:
    return {topic: {int(one): at for one, at in ones.items()} for topic, ones in json.loads(text).items()}


def positions_of_log(logged: str) -> Ends:
    """The offsets in an entry of Spark's log of offsets: a version, the batch's metadata, and a line for each source.

    SQL that uses the records more than once (a self-join) makes several sources of one, each with its own offsets; all
    of them have read up to the smallest. A dash stands for a source that has not begun. A source that is not a topic
    has a line of another form.
    """
    return nearest(from_json(line) for line in logged.splitlines()[2:] if _is_of_topics(line))


def _is_of_topics(line: str) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and all(
        isinstance(ones, dict) and all(one.isdigit() and isinstance(at, int) for one, at in ones.items())
        for ones in found.values()
    )


def farthest(many: Iterable[Positions]) -> Ends:
    """The largest offset of each partition."""
    return _chosen(many, max)


def nearest(many: Iterable[Positions]) -> Ends:
    """The smallest offset of each partition."""
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
    """`run` is the id that Spark gave the query when its checkpoint was new; a backfill has its own name. `log` is the
    batch's entry in Spark's log of offsets, with which a lost checkpoint of a flow is made anew.
    """

    pipeline: str
    run: str
    batch: int
    start: Positions
    end: Positions
    topics: Mapping[str, str] = field(default_factory=dict)
    log: str = ""

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
                "topics": dict(self.topics),
                **({"log": self.log} if self.log else {}),
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
            topics=found.get("topics", {}),
            log=found.get("log", ""),
        )

    def ranges(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        """The offsets of the commit, by partition: start (inclusive) and end (exclusive)."""
        return {
            (topic, one): (self.start.get(topic, {}).get(one, 0), end)
            for topic, ones in self.end.items()
            for one, end in ones.items()
        }


def is_another_topic(known: Mapping[str, str], now: Mapping[str, str], topic: str) -> bool:
    """Whether a topic was deleted and created again between the two. False if an id is missing."""
    return topic in known and topic in now and known[topic] != now[topic]


def overlaps(wanted: Commit, there: Iterable[Commit]) -> list[str]:
    """The partitions of which a table already has a part of the requested range: one clause each."""
    found = []
    for (topic, one), (start, end) in wanted.ranges().items():
        for commit in there:
            known_start, known_end = commit.ranges().get((topic, one), (0, 0))
            if is_another_topic(commit.topics, wanted.topics, topic):
                continue
            if max(start, known_start) < min(end, known_end):
                found.append(f"{topic}-{one} from {max(start, known_start)} to {min(end, known_end)}")
    return found


def joined(commits: Sequence[Commit]) -> Commit:
    """All commits of one run as one: from the start of the first to the end of the last."""
    last = max(commits, key=lambda one: one.batch)
    start: Ends = {}
    end: Ends = {}
    topics: dict[str, str] = {}
    for commit in sorted(commits, key=lambda one: one.batch):
        topics |= commit.topics
        for (topic, one), (since, until) in commit.ranges().items():
            known = start.setdefault(topic, {})
            known[one] = min(since, known.get(one, since))
            end.setdefault(topic, {})[one] = until
    return Commit(
        pipeline=last.pipeline, run=last.run, batch=last.batch, start=start, end=end, topics=topics, log=last.log
    )


def is_held(there: Iterable[Commit], commit: Commit) -> bool:
    """Whether the rows of a batch are in a table with these commits.

    `InvalidPipeline` if the table has only a part of them. Spark repeats a batch with the offsets in its checkpoint, so
    this happens only if the checkpoint is older than the table, for example restored from a backup.
    """
    # The flows of a shared read have one run.
    of_run = [one for one in there if (one.pipeline, one.run) == (commit.pipeline, commit.run)]
    if not of_run:
        return False
    known = joined(of_run)
    is_held = known.batch >= commit.batch
    for (topic, one), (start, end) in commit.ranges().items():
        known_end = known.end.get(topic, {}).get(one, 0)
        if (end > known_end) if is_held else (start < known_end):
            raise InvalidPipeline(
                f"The checkpoint is older than the table: batch {commit.batch} is {topic}-{one} from {start} to {end}, "
                f"but the table holds batch {known.batch}, up to {known_end}. Bring back the newest checkpoint, or "
                "remove it: then it is made anew from the table."
            )
    return is_held
