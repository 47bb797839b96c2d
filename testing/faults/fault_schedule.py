"""A storm: random faults of every kind, determined by a seed.

Each request draws one random number, in the order of arrival. With one client that sends one request at a time the same
seed therefore makes the same storm; with several clients the order of arrival varies, and only the mixture is the same.

A storm contains only faults that clients must expect from a healthy cluster that moves its leaders: retriable errors,
late responses, lost connections, before or after the request was executed. It ends by itself after `most` faults.
"""

from collections.abc import Collection, Mapping
from random import Random
from typing import Final

from .faults import APIS, Effect, Fault

SHORTEST_S, LONGEST_S = 0.001, 0.05
LOG_LINES: Final = 1000

# Errors that clients of an API get from Kafka as well, and retry.
RETRIABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"),
    "Fetch": ("NOT_LEADER_OR_FOLLOWER",),
    "ListOffsets": ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE",),
    "OffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "OffsetFetch": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "JoinGroup": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
    "SyncGroup": ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    "Heartbeat": ("NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS",),
    "Metadata": (),
}
# Some clients try only once to get the metadata of a cluster when they start (aiokafka): these APIs are excluded.
ONLY_LATE: Final = frozenset({"Metadata"})

_NAMES: Final = {key: name for name, key in APIS.items()}


def fault_schedule_of(seed: int, rate: float, most: int, apis: Collection[str], topic: str | None) -> "FaultSchedule":
    return FaultSchedule(Random(seed), rate=rate, most=most, keys={APIS[name] for name in apis}, topic=topic)


class FaultSchedule:
    """One storm. `log` lists its faults."""

    def __init__(self, dice: Random, *, rate: float, most: int, keys: Collection[int], topic: str | None) -> None:
        self.keys = frozenset(keys)
        self.topic = topic
        self.is_over = False
        self.log: list[str] = []
        self._dice = dice
        self._rate = rate
        self._most = most
        self._faults = 0

    def meet(self, key: int) -> Fault | None:
        """The fault for a request of this API. Always draws the same number of random values, whatever the result."""
        dice = self._dice
        is_struck, which, how_long = dice.random() < self._rate, dice.random(), dice.random()
        if self.is_over or not is_struck:
            return None
        self._faults += 1
        self.is_over = self._faults >= self._most
        fault = self._choose(_NAMES[key], which, how_long)
        if len(self.log) < LOG_LINES:
            self.log.append(str(fault))
        return fault

    def _choose(self, api: str, which: float, how_long: float) -> Fault:
        delay_s = SHORTEST_S + how_long * (LONGEST_S - SHORTEST_S)
        choices = [Fault(api=api, effect=Effect.DELAY, topic=self.topic, delay_s=round(delay_s, 4))]
        if api not in ONLY_LATE:
            choices += [Fault(api=api, effect=Effect.DROP, topic=self.topic, is_done=done) for done in (False, True)]
        choices += [Fault(api=api, effect=Effect.FAIL, topic=self.topic, error=error) for error in RETRIABLE[api]]
        return choices[int(which * len(choices))]
