"""The result of a chaos run: the history checker's findings, a plain count beside it, and the replicas' bytes.

The checker (tests/history/checker.py) finds everything that a history can show. The count verifies three things again,
in a simpler way: every acknowledged record is there, once, and in the order in which it was sent. And three replicas of
a log are one sequence of bytes, in any division into files.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from history.checker import Anomaly, check
from history.operations import Commit, History, Key, Outcome, Read, Value

from trioka.protocol import batch

SHOWN: Final = 20  # of the anomalies of a run: the history has them all
LOST: Final = frozenset({"lost-write", "unseen"})
DUPLICATED: Final = frozenset({"duplicate"})
REORDERED: Final = frozenset({"int-nonmonotonic-send", "nonmonotonic-send"})


@dataclass(slots=True, kw_only=True)
class Verdict:
    acked: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    others: int = 0
    worst_lag_s: float = 0.0
    words: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.others)


def judged(history: History, found: Mapping[Key, Sequence[Read]], groups: Sequence[str]) -> Verdict:
    """`found`: the final content of each partition, in order."""
    report = check(history)
    verdict = count(history, found)
    anomalies = [*report.anomalies, *(each for group in groups for each in ports_in_use(history, found, group))]
    kinds = Counter(anomaly.kind for anomaly in anomalies)
    verdict.lost = max(verdict.lost, sum(kinds[kind] for kind in LOST))
    verdict.duplicated = max(verdict.duplicated, sum(kinds[kind] for kind in DUPLICATED))
    verdict.reordered = max(verdict.reordered, sum(kinds[kind] for kind in REORDERED))
    verdict.others = sum(kinds.values()) - sum(kinds[kind] for kind in LOST | DUPLICATED | REORDERED)
    verdict.worst_lag_s = report.worst_lag
    verdict.words += [f"{anomaly.kind}: {anomaly.what}" for anomaly in anomalies]
    return verdict


def count(history: History, found: Mapping[Key, Sequence[Read]]) -> Verdict:
    places: dict[tuple[Key, Value], list[int]] = defaultdict(list)
    for key, reads in found.items():
        for read in reads:
            places[key, read.value].append(read.offset)
    verdict = Verdict(duplicated=sum(len(offsets) > 1 for offsets in places.values()))
    last: dict[tuple[str, Key], int] = {}
    for operation in history.operations:
        if operation.outcome is not Outcome.OK:
            continue
        for send in operation.sends:
            verdict.acked += 1
            stands = places.get((send.key, send.value))
            if stands is None:
                verdict.lost += 1
                continue
            verdict.reordered += stands[0] <= last.get((operation.process, send.key), -1)
            last[operation.process, send.key] = stands[0]
    return verdict


def ports_in_use(history: History, found: Mapping[Key, Sequence[Read]], group: str) -> list[Anomaly]:
    """A group reads all that lies before what it commits, whichever of its members does."""
    committed: dict[Key, int] = {}
    read: dict[Key, set[int]] = defaultdict(set)
    members = {
        operation.process
        for operation in history.operations
        if any(isinstance(step, Commit) and step.group == group for step in operation.steps)
    }
    for operation in history.operations:
        if operation.process in members:
            for each in operation.reads:
                read[each.key].add(each.offset)
            if operation.outcome is Outcome.OK:
                for step in operation.steps:
                    if isinstance(step, Commit):
                        committed[step.key] = max(committed.get(step.key, 0), step.offset)
    return [
        Anomaly("passed-over", f"{key}: the group has committed {end}, and nobody of it has read {each.offset}")
        for key, end in committed.items()
        for each in found.get(key, ())
        if each.offset < end and each.offset not in read[key]
    ]


# -- replicas ----------------------------------------------------------------------------------------------------------


def log_of(data: Path, key: Key) -> bytes:
    """All segments of a partition, concatenated."""
    return b"".join(path.read_bytes() for path in sorted((data / key).glob("*.log")))


def differences(folders: Mapping[int, Path], keys: Sequence[Key]) -> list[str]:
    """Where the replicas of a partition differ. Records that one has deleted at its start, the others may still
    have."""
    found = []
    for key in keys:
        logs = {node: log_of(folder, key) for node, folder in folders.items()}
        if len(set(logs.values())) > 1:
            found.append(f"{key}: {_parting(logs)}")
    return found


def _parting(logs: Mapping[int, bytes]) -> str:
    batches = {
        node: [(h.base_offset, data[h.position : h.end]) for h in batch.headers(data)] for node, data in logs.items()
    }
    ends = {node: each[-1][0] if each else -1 for node, each in batches.items()}
    for row in zip(*batches.values(), strict=False):
        if len(set(row)) > 1:
            return f"the replicas part at {[offset for offset, _ in row]}; their last batches are at {ends}"
    return f"one is longer than another; their last batches are at {ends}"
