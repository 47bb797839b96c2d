"""Finds anomalies in a history: those of Jepsen's Kafka workload, and a few more.

    inconsistent-offsets   two values at one offset            G1a                a value of an aborted transaction
    duplicate              one value at two offsets            G1b                a part of a transaction, not the rest
    lost-write             behind it was read, it was not      precommitted-read  its own value before it committed
    unseen                 acknowledged, and never read        G1c, -process,     it cannot have happened in any order
    corrupted              a value that no client sent           -realtime
    int-poll-skip, int-nonmonotonic-poll      within one operation, offsets are left out, or go back
    poll-skip, nonmonotonic-poll              the same between two operations, of keys that the process has kept
    int-nonmonotonic-send, nonmonotonic-send  the values of a process are in another order than they were sent
    lost-commit, commit-regression            a group gets an older offset than was acknowledged, or commits one

Gaps between the sends of one operation are no anomaly, nor are records that a subscriber reads again or skips when its
group is rebalanced, nor a cycle that needs the order of writes: Kafka promises none of these.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from history.cycles import cycles, joined, process_edges, realtime_edges, wr_edges
from history.operations import (
    Assign,
    Commit,
    Committed,
    History,
    Key,
    Operation,
    Outcome,
    Read,
    Seek,
    Send,
    Subscribe,
    Value,
)
from history.order import Order


class Anomaly(NamedTuple):
    kind: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    anomalies: list[Anomaly]
    worst_lag: float  # the age of a value when a poll did not show it
    read_twice: dict[str, int]  # by process: values that it read more than once

    @property
    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in self.anomalies}

    def __str__(self) -> str:
        return "\n".join(f"{anomaly.kind}: {anomaly.what}" for anomaly in self.anomalies) or "nothing wrong"


def check(history: History, *, is_complete: bool = True) -> Report:
    """`is_complete`: the history ends with polls of everything, so that a value that is not read by then is lost."""
    order = Order(history)
    found = [
        *_values_and_offsets(order),
        *_lost_writes(history, order),
        *(_unseen(history, order) if is_complete else ()),
        *_reads_of_transactions(history, order),
        *_parts_of_transactions(history, order),
        *_within_operations(history, order),
        *_between_operations(history, order),
        *_order_of_sends(history, order),
        *_cycles(history, order),
        *_commits(history),
    ]
    return Report(anomalies=found, worst_lag=_worst_lag(history), read_twice=_read_twice(history))


def _values_and_offsets(order: Order) -> list[Anomaly]:
    found = []
    for key in order.offsets:
        for offset, values in order.values[key].items():
            if len(values) > 1:
                found.append(Anomaly("inconsistent-offsets", f"{key} {offset}: {sorted(values)}"))
    for (key, value), readers in order.readers.items():
        if len(order.indexes(key, value)) > 1:
            found.append(Anomaly("duplicate", f"{key}: {value!r} stands at {_places(order, key, value)}"))
        if (key, value) not in order.writers:
            found.append(Anomaly("corrupted", f"{key}: {value!r}, read by {readers[0]}, was never sent"))
    return found


def _places(order: Order, key: Key, value: Value) -> list[int]:
    return [order.offsets[key][index] for index in order.indexes(key, value)]


def _lost_writes(history: History, order: Order) -> list[Anomaly]:
    bounds: dict[Key, int] = {}
    for key, value in order.readers:
        bounds[key] = max(bounds.get(key, -1), order.indexes(key, value)[0])
    return [
        Anomaly("lost-write", f"{send.key}: {send.value!r} of {operation} was passed over")
        for operation in history.operations
        if order.has_happened(operation)
        for send in operation.sends
        if not order.was_read(send)
        and (places := order.indexes(send.key, send.value))
        and places[-1] <= bounds.get(send.key, -1)
    ]


def _unseen(history: History, order: Order) -> list[Anomaly]:
    return [
        Anomaly("unseen", f"{send.key}: {send.value!r} of {operation}")
        for operation in history.operations
        if operation.outcome is Outcome.OK
        for send in operation.sends
        if not order.was_read(send)
    ]


def _reads_of_transactions(history: History, order: Order) -> list[Anomaly]:
    found = []
    for reader in history.operations:
        if reader.outcome is not Outcome.OK:
            continue
        for read in reader.reads:
            writer = order.writers.get((read.key, read.value))
            if writer is reader:
                found.append(Anomaly("precommitted-read", f"{reader} reads its own {read.value!r}"))
            elif writer is not None and writer.outcome is Outcome.FAIL:
                found.append(Anomaly("G1a", f"{reader} reads {read.value!r} of {writer}"))
    return found


def _parts_of_transactions(history: History, order: Order) -> list[Anomaly]:
    """Of a transaction, a process that has read one value has read all which lie within what it has read."""
    seen: dict[str, dict[Key, set[int]]] = defaultdict(lambda: defaultdict(set))
    for operation in history.operations:
        if operation.outcome is Outcome.OK:
            for read in operation.reads:
                seen[operation.process][read.key].add(order.index(read.key, read.offset))
    bounds = {
        (process, key): range(min(indexes), max(indexes) + 1)
        for process, keys in seen.items()
        for key, indexes in keys.items()
    }
    found = []
    for writer in history.operations:
        places = [(send, order.indexes(send.key, send.value)) for send in writer.sends]
        known = [(send, indexes[0]) for send, indexes in places if indexes]
        if len(known) < 2:
            continue
        for process, keys in seen.items():
            has = [send for send, index in known if index in keys.get(send.key, ())]
            missing = [
                send
                for send, index in known
                if index not in keys.get(send.key, ()) and index in bounds.get((process, send.key), ())
            ]
            if has and missing:
                found.append(
                    Anomaly("G1b", f"{process} has {has[0].value!r} of {writer}, and not {missing[0].value!r}")
                )
    return found


def _within_operations(history: History, order: Order) -> list[Anomaly]:
    found = []
    for operation in history.operations:
        last: dict[Key, int] = {}
        for read in operation.reads:
            index = order.index(read.key, read.offset)
            if read.key in last:
                found += _step("int-poll-skip", "int-nonmonotonic-poll", operation, read, index - last[read.key])
            last[read.key] = index
    return found


def _step(skip: str, back: str, operation: Operation, read: Read, step: int) -> list[Anomaly]:
    if step == 1:
        return []
    where = f"{operation} comes to {read.key} {read.offset}"
    return (
        [Anomaly(skip, f"{where}, {step - 1} left out")] if step > 1 else [Anomaly(back, f"{where}, {1 - step} back")]
    )


def _between_operations(history: History, order: Order) -> list[Anomaly]:
    found = []
    last: dict[str, dict[Key, int]] = defaultdict(dict)
    is_subscribed: dict[str, bool] = {}
    for operation in history.operations:
        positions = last[operation.process]
        first_here: set[Key] = set()
        for step in operation.steps:
            if isinstance(step, Assign):
                is_subscribed[operation.process] = False
                for key in set(positions) - step.keys:
                    del positions[key]
            elif isinstance(step, Subscribe):
                is_subscribed[operation.process] = True
                positions.clear()
            elif isinstance(step, Seek):
                positions.pop(step.key, None)
            elif isinstance(step, Read) and operation.outcome is Outcome.OK:
                index = order.index(step.key, step.offset)
                continues = step.key in positions and step.key not in first_here
                if continues and not is_subscribed.get(operation.process):
                    found += _step("poll-skip", "nonmonotonic-poll", operation, step, index - positions[step.key])
                first_here.add(step.key)
                positions[step.key] = index
    return found


def _order_of_sends(history: History, order: Order) -> list[Anomaly]:
    found = []
    last: dict[tuple[str, Key], tuple[int, Operation]] = {}
    for operation in history.operations:
        if operation.outcome is Outcome.FAIL:
            continue
        for send in operation.sends:
            indexes = order.indexes(send.key, send.value)
            if not indexes:
                continue
            before, whose = last.get((operation.process, send.key), (-1, operation))
            if indexes[0] <= before:
                kind = "int-nonmonotonic-send" if whose is operation else "nonmonotonic-send"
                found.append(
                    Anomaly(kind, f"{send.key}: {send.value!r} of {operation} stands before what {whose} sent")
                )
            last[operation.process, send.key] = (indexes[0], operation)
    return found


def _cycles(history: History, order: Order) -> list[Anomaly]:
    wr = wr_edges(history, order)
    found: list[Anomaly] = []
    for kind, edges in (
        ("G1c", wr),
        ("G1c-process", joined(wr, process_edges(history))),
        ("G1c-realtime", joined(wr, realtime_edges(history))),
    ):
        known = {anomaly.what for anomaly in found}
        for cycle in cycles(edges):
            what = " → ".join(str(history.operations[index]) for index in cycle)
            if what not in known:
                found.append(Anomaly(kind, what))
    return found


def _commits(history: History) -> list[Anomaly]:
    """A group gets at least the offset that was acknowledged to it before its request, unless it has gone back by
    itself; within one process, commits do not go back."""
    found = []
    commits: dict[tuple[str, Key], list[tuple[Operation, int]]] = defaultdict(list)
    for operation in history.operations:
        if operation.outcome is not Outcome.FAIL:
            for step in operation.steps:
                if isinstance(step, Commit):
                    commits[step.group, step.key].append((operation, step.offset))
    last: dict[tuple[str, str, Key], int] = {}
    for operation in history.operations:
        if operation.outcome is Outcome.FAIL:
            continue
        for step in operation.steps:
            if isinstance(step, Commit):
                mine = (operation.process, step.group, step.key)
                if step.offset < last.get(mine, -1):
                    found.append(Anomaly("commit-regression", f"{operation}: {step.key} {step.offset} < {last[mine]}"))
                last[mine] = step.offset
            elif isinstance(step, Committed) and operation.outcome is Outcome.OK:
                found += _wrong_commit(operation, step, commits[step.group, step.key])
            elif isinstance(step, Seek | Subscribe | Assign):
                for mine in [mine for mine in last if mine[0] == operation.process]:
                    del last[mine]
    return found


def _wrong_commit(operation: Operation, step: Committed, commits: list[tuple[Operation, int]]) -> list[Anomaly]:
    began = [
        commit.began
        for commit, _ in commits
        if commit.ended < operation.began and commit.outcome is Outcome.OK  # the results of the others are unknown
    ]
    if not began:
        return []
    # Any commit that overlapped with the newest one, or came later, may be the one that holds; also a commit without a
    # known end at the time of this request.
    newest_began = max(began)
    allowed = {offset for commit, offset in commits if commit.ended >= newest_began and commit.began <= operation.ended}
    if step.offset in allowed:
        return []
    return [Anomaly("lost-commit", f"{operation}: {step.group} got {step.offset} of {step.key}, not {sorted(allowed)}")]


def _worst_lag(history: History) -> float:
    """The longest time for which a value was known to exist when a poll at its position did not return it."""
    known: dict[Key, dict[int, float]] = defaultdict(dict)
    for operation in history.operations:
        if operation.outcome is Outcome.OK:
            for step in operation.steps:
                if isinstance(step, Send | Read) and step.offset is not None:
                    known[step.key].setdefault(step.offset, operation.ended)
    offsets = {key: sorted(times) for key, times in known.items()}
    earliest: dict[Key, list[float]] = {}  # when an offset, or one behind it, was first known
    for key, places in offsets.items():
        times = [known[key][offset] for offset in places]
        earliest[key] = list(accumulate(reversed(times), min))[::-1]
    worst = 0.0
    for operation in history.operations:
        if operation.outcome is Outcome.OK:
            for key, at in {read.key: read.offset for read in operation.reads}.items():
                behind = bisect_right(offsets[key], at)
                if behind < len(offsets[key]):
                    worst = max(worst, operation.began - earliest[key][behind])
    return worst


def _read_twice(history: History) -> dict[str, int]:
    counts: dict[str, Counter[tuple[Key, Value]]] = defaultdict(Counter)
    for operation in history.operations:
        if operation.outcome is Outcome.OK:
            counts[operation.process].update((read.key, read.value) for read in operation.reads)
    return {
        process: sum(count - 1 for count in values.values())
        for process, values in counts.items()
        if any(count > 1 for count in values.values())
    }
