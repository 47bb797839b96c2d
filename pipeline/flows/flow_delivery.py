"""What becomes of a batch for one flow: judged, dead letters, rows and progress.

    read → judge → rows, unseen → dead letters → rows and progress, seen → Spark marks the batch as finished

If the driver dies before that mark, the batch comes again with the same offsets, and each target recognises what it
has. Dead letters are written before the rows can be seen: a batch whose rows are in the table is never asked for its
dead letters again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from pyspark.sql import DataFrame

from trioka.protocol.lazy_dataclass import frozen

from ..expectations.judge import Judge, Verdict, beyond, letters_of
from ..expectations.rules import Counts
from ..graph.elements import Flow
from ..runner.state import state_of
from ..sources.offsets import Commit, Ends
from .batch_plan import over_batch, source_of
from .targets import Target

Confirm = Callable[[], object]


def same(rows: DataFrame) -> DataFrame:
    """The rows of a flow whose rules are about the rows that it writes."""
    return rows


@frozen
class FlowPlan:
    """One flow as a run sees it. `rows` are its analysed stream, `id` names its commits, and `group` is the consumer
    group that shows its progress. `then` makes the target's rows of accepted ones, `letters` dead letters of refused
    ones. `written` is how far the dead letters of an earlier checkpoint got.
    """

    flow: Flow
    rows: DataFrame
    id: str
    group: str
    target: Target
    dead_letters: Target | None = None
    then: Callable[[DataFrame], DataFrame] = same
    letters: Callable[[DataFrame, str], DataFrame] = letters_of
    may_refuse: bool = True
    is_lean: bool = False
    written: Ends = field(default_factory=dict)


@frozen
class Batch:
    """What is known of a delivered batch before Spark reports its progress. Spark counts the records of each read."""

    number: int
    is_new: bool
    seconds: float
    counts: Counts | None = field(default=None)
    reads: int = 1


class FlowDelivery:
    """Delivers the batches of one flow. `source` are the options of the records that its batches are made of; None if
    a batch is the rows of the flow, because Spark keeps state for them.
    """

    def __init__(self, plan: FlowPlan) -> None:
        self.plan = plan
        self.batches: dict[int, Batch] = {}
        self.source: Mapping[str, str] | None = source_of(plan.rows)
        self.is_stateful = state_of(plan.rows).is_kept
        self.written: Ends = plan.written
        self._judge = Judge(plan.flow.rules, plan.flow.name, may_refuse=plan.may_refuse, is_lean=plan.is_lean)

    def deliver(self, batch: DataFrame, commit: Commit, confirm: Confirm) -> None:
        begun = time.monotonic()
        commit = replace(commit, pipeline=self.plan.id)
        is_new = not self.plan.target.holds(commit)
        verdict = Verdict()
        if is_new:
            rows = batch if self.source is None else over_batch(self.plan.rows, batch)
            verdict = self._write(rows, commit, confirm)
        elif self.is_stateful:  # computing the rows advances Spark's state to the next version
            batch.write.format("noop").mode("overwrite").save()
        self.batches[commit.batch] = Batch(
            number=commit.batch,
            is_new=is_new,
            seconds=time.monotonic() - begun,
            counts=verdict.counts,
            reads=verdict.reads,
        )

    def _write(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> Verdict:
        plan = self.plan
        done: list[Any] = []

        def ready() -> None:
            """The rows were computed, and are not seen yet. A merge that is made again gets here again."""
            refused = found.verdict().refused
            dead_letters = plan.dead_letters if refused is not None and not done else None
            if refused is not None and dead_letters is not None and not dead_letters.holds(commit):
                letters = plan.letters(beyond(refused, self.written), plan.flow.name)
                dead_letters.deliver(letters, commit, confirm)
                done.append(commit)
            confirm()

        with self._judge.judged(rows, is_seen_later=plan.target.is_seen_later) as found:
            plan.target.deliver(plan.then(found.accepted), commit, ready)
            verdict = found.verdict()
            return verdict if verdict.is_cached else replace(verdict, reads=verdict.reads + len(done))
