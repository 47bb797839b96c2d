"""Diagnosis of a hanging test: the state of a broker, in a few lines for the report of a failure.

open requests   Fetch v17 of 'billing' (127.0.0.1:41034), for 0.4 s …
groups          billing: PreparingRebalance, 2 members (classic)
faults          Produce fails with NOT_LEADER_OR_FOLLOWER: struck 3 times
topics          orders: 3 partitions, 17 records
log             the broker's last lines
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .client import HELPER_CLIENT_ID

if TYPE_CHECKING:
    from trioka.coordinator.groups import GroupCoordinator

    from .node import Node

MAX_SHOWN: Final = 50  # lines per section; more would not help the reader
LOG_LINES: Final = 30


def describe(node: "Node") -> str:
    sections = {
        "open requests": _requests(node),
        "groups": _groups(node),
        "faults": _faults(node),
        "topics": _topics(node),
        "log": iter(list(node.journal.lines)[-LOG_LINES:]),
    }
    lines = []
    for name, found in sections.items():
        shown = list(found)
        lines += [f"{name}:" if shown else f"{name}: none", *(f"  {line}" for line in shown[:MAX_SHOWN])]
        if len(shown) > MAX_SHOWN:
            lines.append(f"  … and {len(shown) - MAX_SHOWN} more")
    return "\n".join(lines)


def _requests(node: "Node") -> Iterator[str]:
    broker = node.broker
    now = node.clock.now()
    if broker.network.refuses_connections:
        yield "the network is cut: kafka.heal() mends it"
    for connection in broker.network.connections:
        for call in connection.unanswered:
            if call.client_id != HELPER_CLIENT_ID:
                waited = f"for {now - call.began:.1f} s"
                yield f"{call.route.api} v{call.version} of '{call.client_id}' ({connection.peer}), {waited}"


def _groups(node: "Node") -> Iterator[str]:
    if "groups" not in vars(node.broker):  # no group was used, so the coordinator is not loaded
        return
    for coordinator in node.broker.groups.loaded:
        for listed in (group.list() for group in coordinator.groups.values()):
            members = _members(coordinator, listed.group_id, listed.group_type)
            yield f"{listed.group_id}: {listed.group_state}, {members} ({listed.group_type})"


def _members(coordinator: "GroupCoordinator", group_id: str, kind: str) -> str:
    if kind == "classic":
        clients = [each.client_id for each in coordinator.describe_group(group_id, 0).members]
    else:
        clients = [each.client_id for each in coordinator.describe_consumer_group(group_id).members]
    return "no members" if not clients else f"{len(clients)} members: {', '.join(sorted(clients)[:MAX_SHOWN])}"


def _faults(node: "Node") -> Iterator[str]:
    for fault, strikes in node.faults.armed:
        yield f"{fault}: struck {strikes} times"
    for path in node.offline():
        yield f"the log directory {path} is offline: a disk failed, and stays failed until the broker starts again"
    if node.schedule is not None:
        when = "that is over" if node.schedule.is_over else "that goes on"
        yield f"a storm {when}: {'; '.join(node.schedule.log) or 'no fault yet'}"


def _topics(node: "Node") -> Iterator[str]:
    records: dict[str, list[int]] = {}
    for replica in node.broker.partitions:
        log = replica.log
        records.setdefault(replica.topic, []).append(log.log_end_offset - log.log_start_offset)
    for name, counts in sorted(records.items()):
        yield f"{name}: {len(counts)} partitions, {sum(counts)} records"
