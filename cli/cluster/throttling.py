"""The replication throttle of a reassignment, by the keys that `kafka-reassign-partitions.sh --throttle` sets.

    of each broker that sends or gets    leader.replication.throttled.rate, follower.replication.throttled.rate
    of each topic that moves             leader.replication.throttled.replicas    partition:broker, current replicas
                                         follower.replication.throttled.replicas  partition:broker, new replicas

It never delays replicas that are in sync. It is set before the first replica moves and removed when the last has
arrived; a move that no command waits for keeps it, and `reassign --throttle off` removes it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click

from ..client.cluster_client import Kafka
from ..configs import BROKER, OWN_SOURCE, TOPIC, Change, alter_configs, described
from ..terminal.failure import Failure
from .reassignment_plan import Placement

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
OFF: Final = -1
UNITS: Final = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}


class ByteRate(click.ParamType[int]):
    """Bytes per second: 50000000, 50MB, or off."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value.lower() == "off":
            return OFF
        found = re.fullmatch(r"(\d{1,15})\s*([KMG]?B?)(?:/s)?", value, re.IGNORECASE)
        unit = "" if found is None else found[2].upper()
        if found is None or int(found[1]) == 0:
            self.fail(f"'{value}' is no rate; 50MB, 50000000 or off is one.", param, ctx)
        return int(found[1]) * UNITS[unit if unit in UNITS else f"{unit}B"]


class Throttle(NamedTuple):
    """The throttle to set, on which brokers and topics."""

    brokers: frozenset[int]
    topics: Mapping[str, tuple[str, str]]  # by topic: leaders, followers


def throttle_of(placement: Placement, plan: Placement) -> Throttle:
    """The throttle for the moves of a plan: the current replicas send, the new ones receive."""
    brokers: set[int] = set()
    senders: dict[str, set[str]] = {}
    takers: dict[str, set[str]] = {}
    for place, after in plan.items():
        before = placement[place]
        brokers |= {*before, *after}
        senders.setdefault(place.topic, set()).update(f"{place.partition}:{each}" for each in before)
        new = (f"{place.partition}:{each}" for each in after if each not in before)
        takers.setdefault(place.topic, set()).update(new)
    topics = {name: (",".join(sorted(senders[name])), ",".join(sorted(takers[name]))) for name in sorted(senders)}
    return Throttle(frozenset(brokers), topics)


def set_throttle(kafka: Kafka, throttle: Throttle, rate: int) -> None:
    """Set the throttle, or fail before anything moves: a reassignment that cannot be throttled does not begin."""
    for name, replicas in throttle.topics.items():
        changes = [Change(key, value) for key, value in zip(REPLICAS, replicas, strict=True) if value]
        _or_fail(alter_configs(kafka, TOPIC, name, changes))
    for broker in sorted(throttle.brokers & _there(kafka)):
        _or_fail(alter_configs(kafka, BROKER, str(broker), [Change(key, str(rate)) for key in RATES]))


def clear_throttle(kafka: Kafka, brokers: Iterable[int], topics: Iterable[str]) -> list[Failure]:
    """Remove the throttle of these brokers and topics, whichever tool set it, as Kafka's does; return the failures."""
    wanted = [(BROKER, str(each), RATES) for each in sorted(_there(kafka).intersection(brokers))]
    wanted += [(TOPIC, name, REPLICAS) for name in sorted(topics)]
    failures = (
        alter_configs(kafka, kind, name, [Change(key, None) for key in keys])
        for kind, name, keys in wanted
        if _has_any(kafka, kind, name, keys)
    )
    return [failure for failure in failures if failure is not None]


def _there(kafka: Kafka) -> set[int]:
    """Whether a broker is up; one that is down neither sends nor receives."""
    return {broker.node_id for broker in kafka.cluster().brokers}


def _has_any(kafka: Kafka, kind: int, name: str, keys: Iterable[str]) -> bool:
    entries = described(kafka, kind, [name])[name]
    return any(each.name in keys and each.config_source == OWN_SOURCE[kind] for each in entries)


def _or_fail(failure: Failure | None) -> None:
    if failure is not None:
        raise failure
