"""Counters of events that no other state contains: rejections, connections, elections, and traffic of removed replicas.

Everything here is off the hot path. The hot path counts in place: the log counts appended bytes and batches, the
replica fetched ones (partitions.py), and counters/latency.py requests.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trioka.cluster.image.image_delta import Change, PartitionChanged

if TYPE_CHECKING:
    from ..replication.partitions import Replica


class Traffic:
    """Traffic of a partition, a topic or a broker."""

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "fetches", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = self.messages_in = self.batches_in = self.bytes_out = self.fetches = 0

    def copy(self) -> "Traffic":
        copied = Traffic()
        for name in Traffic.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def add(self, replica: "Replica") -> None:
        self.bytes_in += replica.log.appended_bytes
        self.messages_in += replica.log.appended_messages
        self.batches_in += replica.log.appended_batches
        self.bytes_out += replica.bytes_out
        self.fetches += replica.fetches


class BrokerCounters:
    def __init__(self) -> None:
        self.failed_produces: dict[str, int] = {}  # by topic; "" for topics that do not exist
        self.failed_fetches: dict[str, int] = {}
        self.unclean_elections = 0
        self.scrubbed_bytes = self.damage_found = self.damage_healed = 0
        self.isr_shrinks = self.isr_expansions = self.isr_refusals = 0

    def failed_produce(self, topic: str) -> None:
        self.failed_produces[topic] = self.failed_produces.get(topic, 0) + 1

    def failed_fetch(self, topic: str) -> None:
        self.failed_fetches[topic] = self.failed_fetches.get(topic, 0) + 1

    def note(self, changes: Iterable[Change], node_id: int) -> None:
        """Counts unclean elections, whose leader was neither in the ISR nor an eligible leader replica, and the ISR
        changes of partitions that this node leads and has led before."""
        for change in changes:
            if isinstance(change, PartitionChanged) and change.before is not None and change.after.has_leader:
                before, leader = change.before, change.after.leader
                is_new = leader != before.leader
                self.unclean_elections += is_new and leader not in (*before.isr, *before.eligible_leader_replicas)
                if leader == node_id and not is_new:
                    self.isr_shrinks += len(change.after.isr) < len(before.isr)
                    self.isr_expansions += len(change.after.isr) > len(before.isr)

    def forget(self, topic: str) -> None:
        """A topic was deleted: its failures remain in the broker's counts."""
        for counted in (self.failed_produces, self.failed_fetches):
            gone = counted.pop(topic, 0)
            if gone:
                counted[""] = counted.get("", 0) + gone
