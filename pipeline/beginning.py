"""Where the queries of a pipeline begin, if their checkpoints are new.

Usually at what the declaration says, found out once for both of them and kept: `latest` is another offset a moment
later, and between the two a record could fall through. If a checkpoint was lost, the table knows better: up to where it
holds each partition. Dead letters are counted by their own table; one that knows nothing is filled from the beginning,
for a dead letter twice is better than none.
"""

from collections.abc import Iterable

from pyspark.sql import SparkSession

from .broker_view import AT_EARLIEST, BrokerView
from .checkpoint import DEAD_LETTERS, RECORDS, Checkpoint
from .declaration import DeadLetters, Declaration, Start
from .delivery import table_of
from .positions import Commit, Ends, farthest, nearest
from .trouble import WrongPipeline


class Beginning:
    def __init__(self, spark: SparkSession, declared: Declaration, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._declared = declared
        self._checkpoint = checkpoint

    def find(self) -> dict[str, Ends]:
        """The start of each query, kept in the checkpoint. Partitions that came since begin at their first record."""
        with BrokerView(self._declared.source.bootstrap) as view:
            partitions = view.sources(self._declared.source)
            kept = self._checkpoint.starts()
            if not kept:
                resolved = view.resolve(partitions, self._declared.source.start)
                kept = {RECORDS: resolved, DEAD_LETTERS: resolved}
            kept = self._recovered(kept)
            self._checkpoint.keep_starts(kept)
            found = {}
            for query, start in kept.items():
                wanted = {
                    topic: {one: start.get(topic, {}).get(one, AT_EARLIEST) for one in ones}
                    for topic, ones in partitions.items()
                }
                found[query] = view.resolve(partitions, Start(offsets=wanted))
        return found

    def _recovered(self, kept: dict[str, Ends]) -> dict[str, Ends]:
        if not self._checkpoint.is_new(RECORDS):
            return kept
        rows = self._commits(self._declared.sink)
        if not rows:
            return kept
        if self._declared.is_stateful:
            raise WrongPipeline(
                f"{self._declared.sink.target} holds rows of this pipeline, but the checkpoint "
                f"{self._declared.checkpoint} is gone, and with it the windows and keys that were open: bring it back, "
                "or write to another table."
            )
        dead = self._commits(self._declared.dead_letters)
        return {
            RECORDS: farthest(one.end for one in rows),
            DEAD_LETTERS: farthest(one.end for one in dead) if dead else nearest(one.start for one in rows),
        }

    def _commits(self, sink: DeadLetters) -> list[Commit]:
        """What a table holds of this pipeline's streams."""
        table = table_of(self._spark, sink)
        return list(_of_streams(table.commits() if table is not None else [], self._declared.name))


def _of_streams(commits: Iterable[Commit], pipeline: str) -> Iterable[Commit]:
    return (one for one in commits if one.pipeline == pipeline and not one.is_backfill)
