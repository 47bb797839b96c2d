"""Cycles among transactions: which must precede which, and whether all of these orders can hold together.

    wr        a transaction reads what another has written
    process   a process executes one operation after another
    realtime  one had ended before the other began

A cycle of wr edges alone is Adya's G1c. Kafka does not isolate writes from each other, so edges between writes are not
drawn: a cycle through them is allowed.
"""

from collections import defaultdict
from collections.abc import Iterable

from history.operations import History, Operation, Outcome
from history.order import Order

Edges = dict[int, set[int]]


def wr_edges(history: History, order: Order) -> Edges:
    edges: Edges = defaultdict(set)
    for reader in history.operations:
        if reader.outcome is Outcome.OK:
            for read in reader.reads:
                writer = order.writers.get((read.key, read.value))
                if writer is not None and writer is not reader:
                    edges[writer.index].add(reader.index)
    return edges


def process_edges(history: History) -> Edges:
    edges: Edges = defaultdict(set)
    last: dict[str, int] = {}
    for operation in history.operations:
        if operation.outcome is not Outcome.FAIL:
            if operation.process in last:
                edges[last[operation.process]].add(operation.index)
            last[operation.process] = operation.index
    return edges


def realtime_edges(history: History) -> Edges:
    """To each operation from those which had ended before it began, and of those only the last: the others come before
    one of them."""
    edges: Edges = defaultdict(set)
    done = [operation for operation in history.operations if operation.outcome is Outcome.OK]
    ended = sorted(done, key=lambda operation: operation.ended)
    frontier: list[Operation] = []
    passed = 0
    for operation in sorted(done, key=lambda operation: operation.began):
        while passed < len(ended) and ended[passed].ended < operation.began:
            newest = ended[passed]
            frontier = [other for other in frontier if other.ended >= newest.began] + [newest]
            passed += 1
        for other in frontier:
            edges[other.index].add(operation.index)
    return edges


def joined(*parts: Edges) -> Edges:
    edges: Edges = defaultdict(set)
    for part in parts:
        for source, targets in part.items():
            edges[source] |= targets
    return edges


def cycles(edges: Edges) -> list[list[int]]:
    """The strongly connected components of more than one node: Tarjan's algorithm, without recursion."""
    found: list[list[int]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(edges):
        if root in number:
            continue
        work: list[tuple[int, Iterable[int]]] = []

        def enter(node: int, work: list[tuple[int, Iterable[int]]] = work) -> None:
            number[node] = low[node] = len(number)
            stack.append(node)
            on_stack.add(node)
            work.append((node, iter(sorted(edges.get(node, ())))))

        enter(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in number:
                    enter(target)
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(sorted(component))
    return found
