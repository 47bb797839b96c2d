"""Starts and stops the coordinators of groups and transactions, as this broker begins and ends to lead partitions.

Their modules are imported with the first such partition, in a worker thread, because that takes a tenth of a second.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from trioka.cluster.image.image_delta import Change, PartitionChanged, TopicDeleted

from ..controller.topic_creation import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ..broker import Broker


class CoordinatorLeadership:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def begin(self) -> None:
        """After the start: the coordinators that this broker already leads."""
        if self._broker.partitions.of_topic(OFFSETS_TOPIC):
            self._broker.nursery.start_soon(self._coordinate_groups)
        if self._broker.partitions.of_topic(TRANSACTIONS_TOPIC):
            self._broker.nursery.start_soon(self._coordinate_transactions)

    def forget_offsets(self, changes: Sequence[Change]) -> None:
        """Deletes offsets in deleted topics without waiting: they are stored by name, and the name may be used
        again."""
        deleted = [change.name for change in changes if isinstance(change, TopicDeleted)]
        if deleted and OFFSETS_TOPIC not in deleted and self._broker.membership.has_joined and self._has_groups:
            self._broker.groups.notify_all(lambda coordinator, now: coordinator.topics_deleted(deleted, now))

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply a metadata change to the group and transaction coordinators."""
        moved = {c.index for c in changes if isinstance(c, PartitionChanged) and c.name == OFFSETS_TOPIC}
        if moved:
            await self._load_groups()
            for index in moved:
                self._broker.groups.on_leader_change(index)
        if any(isinstance(c, TopicDeleted) and c.name == OFFSETS_TOPIC for c in changes) and self._has_groups:
            self._broker.groups.refresh_leadership()
        if any(isinstance(c, TopicDeleted | PartitionChanged) and c.name == TRANSACTIONS_TOPIC for c in changes):
            await self._coordinate_transactions()

    @property
    def _has_groups(self) -> bool:
        return "groups" in vars(self._broker)

    async def _coordinate_groups(self) -> None:
        await self._load_groups()
        self._broker.groups.refresh_leadership()

    async def _load_groups(self) -> None:
        if not self._has_groups:
            await trio.to_thread.run_sync(import_module, ".groups", __package__)

    async def _coordinate_transactions(self) -> None:
        if "transactions" not in vars(self._broker):
            await trio.to_thread.run_sync(import_module, ".transactions", __package__)
        self._broker.transactions.refresh_leadership()
