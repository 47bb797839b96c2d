"""The progress of pipelines in an Iceberg table, stored in the table's properties.

    trioka.progress.<pipeline>.<run>    all commits of that run, merged into one

A property changes in the same step of the table as the rows (see sinks.py), and maintenance keeps properties. Snapshots
are unsuitable, because `expire_snapshots` removes them with their summaries. Tables of older versions have their
commits only in the summaries (`trioka.commit`); these are read too, and become properties with the next batch.

A summary counts only if its snapshot was never staged (`wap.id`): a staged one may never have been published, and if it
was, the property records it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ..errors import InvalidPipeline
from ..sources.offsets import Commit, is_another_topic, joined

PROGRESS = "trioka.progress."
COMMIT_PROPERTY = "trioka.commit"
STAGED = "wap.id"
# A table's properties are read and written with each batch. Many runs exist only if checkpoints were lost many times.
MAX_RUNS = 100
MAX_BACKFILLS = 1000


def commits_of(metadata: Mapping[str, Any], target: str) -> list[Commit]:
    """One commit for each run of each pipeline, by Iceberg's table metadata."""
    texts = [(key, text) for key, text in metadata.get("properties", {}).items() if key.startswith(PROGRESS)]
    for snapshot in metadata.get("snapshots", []):
        summary = snapshot.get("summary", {})
        if STAGED not in summary and COMMIT_PROPERTY in summary:
            texts.append((COMMIT_PROPERTY, summary[COMMIT_PROPERTY]))
    found = []
    for key, text in texts:
        try:
            found.append(Commit.from_json(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidPipeline(
                f"The property {key} of {target} is not as trioka wrote it, so it is not known which rows are in "
                f"the table: restore it. It reads {text[:80]!r}."
            ) from None
    return by_run(found)


def by_run(commits: Sequence[Commit]) -> list[Commit]:
    ordered = sorted(commits, key=_run)
    return [joined(list(ones)) for _, ones in groupby(ordered, key=_run)]


def _run(commit: Commit) -> tuple[str, str]:
    return commit.pipeline, commit.run


def properties_with(there: Sequence[Commit], commit: Commit, target: str) -> dict[str, str | None]:
    """The changed properties of a table with these commits that gets one more; None for a removed property.

    Each property has one writer, because Iceberg repeats a change unmodified if another writer came first: a backfill
    writes its own, and the stream writes its own and those of its earlier runs, which may exist only in summaries. If
    there are too many runs, the oldest is merged into the new one: both are the same stream.
    """
    own = {one.run: one for one in by_run([*there, commit]) if one.pipeline == commit.pipeline}
    if sum(one.is_backfill for one in own.values()) > MAX_BACKFILLS:
        raise InvalidPipeline(
            f"{target} has had {MAX_BACKFILLS} backfills of {commit.pipeline}, which is as many as it can remember: "
            "replay into another table with --into."
        )
    if commit.is_backfill:
        return {_key(commit): commit.to_json()}
    changed: dict[str, str | None] = {_key(one): one.to_json() for one in own.values()}
    runs = [one for one in own.values() if not one.is_backfill and one.run != commit.run]
    if len(runs) >= MAX_RUNS:
        oldest = min(runs, key=lambda one: sum(end for _, end in one.ranges().values()))
        changed |= {_key(oldest): None, _key(commit): _begun_by(oldest, own[commit.run]).to_json()}
    return changed


def _begun_by(oldest: Commit, newest: Commit) -> Commit:
    """The newest run with the offsets that an older one wrote before it; nothing of a topic that was created again
    since.
    """
    same = [topic for topic in oldest.end if not is_another_topic(oldest.topics, newest.topics, topic)]
    before = replace(
        oldest,
        run=newest.run,
        batch=-1,
        start={topic: oldest.start[topic] for topic in same if topic in oldest.start},
        end={topic: oldest.end[topic] for topic in same},
        topics={},
    )
    return joined([before, newest])


def _key(commit: Commit) -> str:
    return f"{PROGRESS}{commit.pipeline}.{commit.run}"


def has_rows(metadata: Mapping[str, Any]) -> bool:
    """Whether the table has rows; a table without a row count in its metadata counts as one with rows."""
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", []):
        if snapshot["snapshot-id"] == current:
            return bool(snapshot.get("summary", {}).get("total-records") != "0")
    return False
