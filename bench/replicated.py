"""Produce requests with acks=all to a topic of three replicas: rows of `side_by_side.py`, with the CPU of all three
nodes.

The topic of a throughput row is led by one node, to which all connections go; the other two follow. Records at a fixed
rate go to a leader on each node. A topic exists for one measure, and at most `TOPIC_LIMIT_BYTES` are written to it. The
acknowledged records are counted in the log afterwards (load/produce.go).
"""

import argparse
import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cluster_nodes import NUMBERS, KafkaNodes, ThreeNodes, TriokaNodes
from load_generator import LoadFailed, on_time, run_load
from measures import Measure, figures_of
from ratios import OURS, THEIRS

TOPIC_LIMIT_BYTES: Final = 1_000_000_000  # three times this on the disk
WARM_UP_SECONDS: Final = 1.0
LATENCY_WARM_UP_SECONDS: Final = 3.0
LATENCY_LENGTHS: Final = 4

Clusters = dict[str, Callable[[], ThreeNodes]]


def clusters_of(folder: Path, options: argparse.Namespace) -> Clusters:
    """How to start three nodes of each broker."""
    tree = options.against.resolve() if options.against else None
    found: Clusters = {
        OURS: functools.partial(TriokaNodes, folder, shlex.split(options.trioka)),
        THEIRS: functools.partial(TriokaNodes, folder, tree=tree) if tree else functools.partial(KafkaNodes, folder),
    }
    if options.calibrate:
        found[OURS] = functools.partial(KafkaNodes, folder)
    if options.only:
        found.pop(THEIRS if options.only == "trioka" else OURS)
    return found


class ReplicatedLoad:
    """The loads of one cluster."""

    def __init__(self, nodes: ThreeNodes) -> None:
        self._nodes = nodes
        self._topics = 0

    def warm_up(self, loads: Sequence[Measure], seconds: float, measure_seconds: float) -> None:
        """Run every load once, and repeat until the time is over."""
        until = time.monotonic() + seconds
        while True:
            for measure in loads:
                with contextlib.suppress(LoadFailed):
                    self.figures(measure, min(measure_seconds, WARM_UP_SECONDS))
            if time.monotonic() >= until:
                return

    def figures(self, measure: Measure, seconds: float) -> dict[str, float]:
        """The figures of one load."""
        nodes, options = self._nodes, dict(measure.options)
        self._topics += 1
        topic = f"bench-{self._topics}"
        at_a_rate = measure.command == "replicate"
        partitions = len(NUMBERS) if at_a_rate else int(str(options.get("partitions", 1)))
        leaders = [NUMBERS[index] if at_a_rate else NUMBERS[0] for index in range(partitions)]
        nodes.create(topic, assignments=[[leader, *(each for each in NUMBERS if each != leader)] for leader in leaders])
        options |= {"topic": topic, "pid": ",".join(map(str, nodes.pids)), "existing": True}
        if at_a_rate:
            options |= {"leaders": ",".join(map(nodes.address, leaders)), "warmup": LATENCY_WARM_UP_SECONDS}
            seconds *= LATENCY_LENGTHS
        else:
            options |= {"address": nodes.address(NUMBERS[0]), "max-bytes": TOPIC_LIMIT_BYTES, "warmup": seconds / 3}
        options["seconds"] = seconds
        try:
            if at_a_rate:
                return figures_of(on_time(lambda: run_load(measure.command, options, seconds=seconds)))
            return figures_of(run_load(measure.command, options, seconds=seconds))
        finally:
            nodes.delete(topic)
            nodes.reclaim(topic)
