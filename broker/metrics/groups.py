"""Committed offsets of groups, their lag, and the time until retention deletes unread records.

A group is reported by its coordinator. Its lag is known for partitions of which this broker has a replica: the log end
offsets of others are unknown here.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.coordinator.groups import GroupCoordinator
from trioka.storage.log import Log

from ..config.trioka_keys import METRICS_MAX_GROUPS
from . import series as s
from .samples import PAUSE, Sample, Steps, one

if TYPE_CHECKING:
    from ..broker import Broker

MAX_GROUP_OFFSETS: Final = 100_000  # of all groups together: each may have commits in every partition


class GroupOffset(NamedTuple):
    """A group's commit in one partition. `lag` and `loss_in_s` are None if unknown."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None
    loss_in_s: float | None


class _Groups:
    def __init__(self) -> None:
        self.count = self.offsets = self.left_out = self.offsets_left_out = 0
        self.members: list[tuple[str, int]] = []
        self.group_offsets: list[GroupOffset] = []


def group_readings(broker: "Broker") -> Steps[dict[str, int]]:
    """Returns how many samples were omitted, and of what."""
    found = yield from _read(broker)
    yield one(s.GROUPS, found.count)
    yield one(s.OFFSETS, found.offsets)
    yield s.GROUP_MEMBERS, (Sample({"consumergroup": group}, count) for group, count in found.members)
    yield s.GROUP_OFFSET, (Sample(_labels(group_offset), group_offset.offset) for group_offset in found.group_offsets)
    yield (
        s.GROUP_LAG,
        (
            Sample(_labels(group_offset), group_offset.lag)
            for group_offset in found.group_offsets
            if group_offset.lag is not None
        ),
    )
    offsets: dict[tuple[str, str], int] = {}
    lags: dict[tuple[str, str], int] = {}
    losses: dict[tuple[str, str], float] = {}
    for number, group_offset in enumerate(found.group_offsets):
        key = (group_offset.group, group_offset.topic)
        offsets[key] = offsets.get(key, 0) + group_offset.offset
        if group_offset.lag is not None:
            lags[key] = lags.get(key, 0) + group_offset.lag
        if group_offset.loss_in_s is not None:
            losses[key] = min(losses.get(key, group_offset.loss_in_s), group_offset.loss_in_s)
        if number % 1000 == 0:
            yield PAUSE
    for series, values in ((s.GROUP_OFFSET_SUM, offsets), (s.GROUP_LAG_SUM, lags), (s.SECONDS_TO_DATA_LOSS, losses)):
        yield series, [Sample({"consumergroup": group, "topic": topic}, v) for (group, topic), v in values.items()]
    return {"groups": found.left_out, "group offsets": found.offsets_left_out}


def _read(broker: "Broker") -> Steps[_Groups]:
    found = _Groups()
    coordinators: Iterable[GroupCoordinator] = broker.groups.loaded if "groups" in vars(broker) else ()
    most = broker.config[METRICS_MAX_GROUPS]
    for coordinator in coordinators:
        found.count += len(coordinator.groups)
        found.offsets += len(coordinator.offsets)
        for name in sorted(coordinator.groups):
            group = coordinator.groups.get(name)
            if group is None:  # it was deleted meanwhile
                continue
            if len(found.members) >= most:
                found.left_out += 1
                continue
            found.members.append((name, len(group.members)))
            _group_offsets(broker, coordinator, name, found)
            yield PAUSE
    return found


def _group_offsets(broker: "Broker", coordinator: GroupCoordinator, group: str, found: _Groups) -> None:
    now_ms = broker.clock.now_ms()
    for topic, partitions in coordinator.offsets.of_group(group):
        for partition, committed in partitions.items():
            if len(found.group_offsets) >= MAX_GROUP_OFFSETS:
                found.offsets_left_out += 1
                continue
            replica = broker.partitions.find(topic, partition)
            lag, loss = None, None
            if replica is not None:
                lag = max(0, replica.log.high_watermark - committed.offset)
                loss = loss_in_s(replica.log, committed.offset, now_ms)
            found.group_offsets.append(GroupOffset(group, topic, partition, committed.offset, lag, loss))


def loss_in_s(log: Log, offset: int, now_ms: int) -> float | None:
    """The time until retention.ms deletes the segment with the next offset to read; None if it will not, or if that is
    only known from a file."""
    config = log.config
    if not config.deletes or config.retention_ms < 0 or offset >= log.high_watermark:
        return None
    if offset < log.log_start_offset:
        return 0.0
    segment = log.segments.holding(offset)
    newest = segment.known_newest
    if newest is None:
        return None
    return max(0, (newest if newest >= 0 else segment.created_ms) + config.retention_ms - now_ms) / 1000


def _labels(group_offset: GroupOffset) -> dict[str, str]:
    return {"consumergroup": group_offset.group, "topic": group_offset.topic, "partition": str(group_offset.partition)}
