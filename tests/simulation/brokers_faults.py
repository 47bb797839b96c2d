"""The parts of a world of whole brokers, and its faults, as data that a seed chooses.

The list of faults is drawn before the run, so that a smaller list can be tried with the same seed.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from simulation.network import Quality

from trioka.testing.disks.crash_models import CrashModel

CHAOS_S = 12.0


class ScheduledFault(NamedTuple):
    at: float
    kind: str
    node: int
    seconds: float  # until it is over
    other: int = 0
    detail: float = 0.0

    def __str__(self) -> str:
        other = f" {self.other}" if self.other else ""
        return f"{self.at:6.2f} s  {self.kind} {self.node}{other} for {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    brokers: int = 3
    controllers: int = 0  # of their own, on other machines; none: every broker is one
    partitions: int = 2
    guarded: bool = False  # by an authorizer, with a client that is denied something
    flushes: bool = False  # flush.messages=1: then any number may lose power
    segment_bytes: int = 1 << 20
    quality: Quality = field(default_factory=Quality)
    thread_s: tuple[float, float] = (0.0002, 0.002)
    skew_ms: int = 0  # how far calendars are apart, at most
    model: CrashModel = CrashModel.ORDERED_PREFIX
    troubles: tuple[ScheduledFault, ...] = ()
    chaos_s: float = CHAOS_S

    @property
    def replicas(self) -> int:
        return min(self.brokers, 3)

    @property
    def min_in_sync(self) -> int:
        return 2 if self.brokers >= 3 else 1

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather of brokers {seed}")
        brokers, controllers = random.choice([(3, 0), (3, 0), (3, 0), (3, 0), (3, 1), (3, 3), (1, 0), (2, 1)])
        profile = cls(
            brokers=brokers,
            controllers=controllers,
            partitions=random.choice([1, 2, 3]),
            guarded=seed % 4 == 3,
            flushes=random.random() < 0.3,
            segment_bytes=random.choice([2048, 16 * 1024, 1 << 20]),
            quality=Quality(
                latency_s=random.choice([(0.0001, 0.001), (0.0005, 0.02), (0.001, 0.1)]),
                stall=random.choice([0, 0, 0.01]),
                stall_s=random.choice([0.3, 3.0]),
                reset=random.choice([0, 0, 0.002]),
                split=random.choice([0, 0.1]),
                window_bytes=random.choice([2048, 64 * 1024]),
            ),
            thread_s=random.choice([(0.0002, 0.002), (0.001, 0.03)]),
            skew_ms=random.choice([0, 2000, 3_600_000]),
            model=random.choice(list(CrashModel)),
        )
        return replace(profile, troubles=tuple(profile._draw(random)))

    def _draw(self, random: Random) -> list[ScheduledFault]:
        nodes = list(range(1, self.brokers + self.controllers + 1))
        kinds = ["kill", "kill", "stop", "pause", "cut", "cut", "slow"]
        if self.min_in_sync > 1 or self.flushes:
            kinds += ["power"] * 3
        kinds = random.sample(sorted(set(kinds)), random.randint(1, len(set(kinds)))) + kinds * random.randint(0, 1)
        found = []
        at = random.uniform(0.2, 1.0)
        mean_s = random.choice([0.5, 1.0, 2.0])
        while at < self.chaos_s:
            kind = random.choice(kinds)
            node, other = random.sample([*nodes, 0], 2)  # 0 stands for all clients
            seconds = random.choice([0.05, 0.7, 2.5]) * random.uniform(0.2, 1.5)
            if kind != "cut":
                node, other = node or random.choice(nodes), 0
            found.append(ScheduledFault(at, kind, node, seconds, other, random.random()))
            at += random.uniform(0.1, 2 * mean_s)
        return found


CALM: dict[str, object] = {
    "guarded": False,
    "controllers": 0,
    "partitions": 1,
    "flushes": False,
    "segment_bytes": 1 << 20,
    "quality": Quality(),
    "thread_s": (0.0002, 0.002),
    "skew_ms": 0,
    "model": CrashModel.ORDERED_PREFIX,
}
