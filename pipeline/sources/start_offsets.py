"""The start offsets of a pipeline's queries, if their checkpoints are new.

Usually they come from the declaration, resolved once for both queries and stored: `latest` is another offset a moment
later, and a record between the two would be lost. If a checkpoint was lost, the table's commits give the offsets. A
topic that was created again since then starts where the declaration says. A table with rows of unknown origin is not
written to: they may be this pipeline's own rows without their commits, and would be duplicated. Dead letters are
tracked by their own table; if it has no commits, it is filled from the beginning, because a duplicate dead letter is
better than a lost one.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from ..declaration.model import DeadLetters, Declaration, IcebergSink, ParquetSink, Start
from ..errors import InvalidPipeline
from ..runner.archive_history import behind_archive
from ..runner.checkpoint import DEAD_LETTERS, RECORDS, Checkpoint
from ..runner.state import State
from ..tables.delivery import table_of
from .broker_view import AT_EARLIEST, BrokerView
from .offsets import Commit, Ends, farthest, is_another_topic, nearest
from .topics import Topics


class StartOffsets:
    def __init__(
        self, spark: SparkSession, declared: Declaration, checkpoint: Checkpoint, topics: Topics, state: State
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._checkpoint = checkpoint
        self._topics = topics
        self._state = state
        self.is_recovered = False

    def find(self) -> dict[str, Ends]:
        """The start of each query, stored in the checkpoint. New partitions begin at their first record."""
        with BrokerView(self._declared.source.brokers) as view:
            partitions = view.sources(self._declared.source)
            ids = self._topics.confirm(partitions)
            kept = self._checkpoint.starts()
            if not kept:
                resolved = view.resolve(partitions, self._declared.source.start)
                if self._declared.source.archive is not None:
                    resolved = behind_archive(self._declared, resolved, ids, self._commits(self._declared.sink))
                kept = {RECORDS: resolved, DEAD_LETTERS: resolved}
            kept = self._recovered(kept, ids)
            self._checkpoint.keep_starts(kept)
            found = {}
            for query, start in kept.items():
                wanted = {
                    topic: {one: start.get(topic, {}).get(one, AT_EARLIEST) for one in ones}
                    for topic, ones in partitions.items()
                }
                found[query] = view.resolve(partitions, Start(offsets=wanted))
        return found

    def _recovered(self, kept: dict[str, Ends], ids: Mapping[str, str]) -> dict[str, Ends]:
        if not self._checkpoint.is_new(RECORDS):
            return kept
        sink = self._declared.sink
        of_pipeline = self._commits(sink)
        rows = [one for one in of_pipeline if not one.is_backfill]
        if not rows:
            if not of_pipeline:
                self._refuse_unknown_rows()
            return kept
        if not self._state.can_be_made_anew:
            raise InvalidPipeline(
                f"{sink.target} holds rows of this pipeline, but the checkpoint {self._declared.checkpoint} is gone, "
                "and with it the windows, keys and joins that were open: bring it back, or write to another table."
            )
        self.is_recovered = True
        dead = [one for one in self._commits(self._declared.dead_letters) if not one.is_backfill]
        return {
            RECORDS: recovered(rows, ids, kept[RECORDS]),
            DEAD_LETTERS: recovered(dead, ids, kept[DEAD_LETTERS]) if dead else nearest(one.start for one in rows),
        }

    def _refuse_unknown_rows(self) -> None:
        sink = self._declared.sink
        if not isinstance(sink, ParquetSink | IcebergSink) or sink.takes_unknown_rows:
            return
        table = table_of(self._spark, sink)
        if table is not None and table.has_rows():
            raise InvalidPipeline(
                f"{sink.target} holds rows, and neither the checkpoint {self._declared.checkpoint} nor the table says "
                f"whether the pipeline {self._declared.name} wrote them: it might write them a second time. Bring "
                "the checkpoint back; or, if they are not of this pipeline, say sink.on_unknown_rows = 'append'."
            )

    def _commits(self, sink: DeadLetters) -> list[Commit]:
        """A table's commits of this pipeline."""
        table = table_of(self._spark, sink)
        return [one for one in table.commits() if one.pipeline == self._declared.name] if table is not None else []


def recovered(commits: Sequence[Commit], ids: Mapping[str, str], start: Ends) -> Ends:
    """The offsets at which to continue after these commits; `start` for a topic that was created again."""
    ends = [
        {topic: ones for topic, ones in one.end.items() if not is_another_topic(one.topics, ids, topic)}
        for one in commits
    ]
    known = farthest(ends)
    again = {topic for one in commits for topic in one.end if topic not in known and topic in start}
    return known | {topic: start[topic] for topic in again}
