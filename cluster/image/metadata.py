"""The image of the cluster: the state after all records of its metadata log so far.

    metadata = Metadata()
    for entry in read_batch(buffer, header):
        if entry.record is not None:
            for change in metadata.replay(entry.record, entry.offset, entry.epoch):
                ...                                     # open a log, apply a configuration

State changes here by replay and in no other way, so that a leader, a follower and a node that restarts end with the
same image. A record that contradicts the image raises ReplayError, and the node must stop: see replay_error.py.

Records between BeginTransactionRecord and EndTransactionRecord are held back until the latter, and dropped by
AbortTransactionRecord: a reader sees all of a transaction or nothing. `offset` and `epoch` are those of the last
record that counts, and so the name of a snapshot of this image; while a transaction is open they stand before it.

A broker replays what is committed. A controller that leads must also see its own decisions that are not committed yet,
or two requests could create the same topic: it keeps an image of its own (`copy`) into which it replays each decision
when it is appended, and drops it when it no longer leads.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from trioka.protocol.internal_records import metadata as ledger

from ..quorum.metadata_log import MetadataRecord
from .brokers import Brokers
from .configs import Configs
from .features import Features
from .image_delta import (
    AccessRuleChanged,
    BrokerChanged,
    Change,
    ConfigChanged,
    ControllerChanged,
    FeatureChanged,
    PartitionChanged,
    ProducerIdsChanged,
    QuotaChanged,
    ScramChanged,
    TokenChanged,
    TopicCreated,
    TopicDeleted,
)
from .partition import Partition
from .quotas import Quotas
from .replay_error import ReplayError
from .security_image import SecurityImage
from .topics import Topic, Topics

# A transaction is what one controller writes for one purpose, such as the first records of a cluster. A larger
# transaction than this does not come from a controller.
MAX_TRANSACTION_RECORDS: Final = 1_000_000


class Metadata:
    """The image. Its parts are there to be read: `metadata.topics.by_name("orders")`."""

    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        self.topics = Topics()
        self.brokers = Brokers()
        self.configs = Configs()
        self.features = Features()
        self.quotas = Quotas()
        self.access = SecurityImage()
        self.next_producer_id = 0
        self._held_back: list[MetadataRecord] | None = None

    def __eq__(self, other: object) -> bool:
        """The same state. The offset is where it was reached, and no part of it."""
        if not isinstance(other, Metadata):
            return NotImplemented
        return self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> tuple[object, ...]:
        parts = (self.topics, self.brokers, self.configs, self.features, self.quotas, self.access)
        return (*parts, self.next_producer_id, self._held_back)

    @property
    def in_transaction(self) -> bool:
        return self._held_back is not None

    def copy(self) -> "Metadata":
        """An image of its own with the same state."""
        other = Metadata()
        other.offset, other.epoch = self.offset, self.epoch
        other.topics = self.topics.copy()
        other.brokers = self.brokers.copy()
        other.configs = self.configs.copy()
        other.features = self.features.copy()
        other.quotas = self.quotas.copy()
        other.access = self.access.copy()
        other.next_producer_id = self.next_producer_id
        other._held_back = None if self._held_back is None else list(self._held_back)
        return other

    def replay(self, record: MetadataRecord, offset: int, epoch: int) -> list[Change]:
        """Applies a record of the log; returns its changes."""
        assert offset > self.offset and epoch >= self.epoch, (offset, self.offset, epoch, self.epoch)
        if self._held_back is not None:
            changes = self._replay_in_transaction(self._held_back, record)
        elif isinstance(record, ledger.BeginTransactionRecord):
            self._held_back, changes = [], []
        elif isinstance(record, ledger.EndTransactionRecord | ledger.AbortTransactionRecord):
            raise ReplayError(f"{type(record).__name__} at offset {offset} ends a transaction that has not begun")
        else:
            changes = self._apply(record)
        if self._held_back is None:
            self.offset, self.epoch = offset, epoch
        return changes

    def _replay_in_transaction(self, held_back: list[MetadataRecord], record: MetadataRecord) -> list[Change]:
        if isinstance(record, ledger.AbortTransactionRecord):
            self._held_back = None
        elif isinstance(record, ledger.EndTransactionRecord):
            self._held_back = None
            return [change for each in held_back for change in self._apply(each)]
        elif isinstance(record, ledger.BeginTransactionRecord) or len(held_back) >= MAX_TRANSACTION_RECORDS:
            raise ReplayError(f"a transaction of {len(held_back)} records is open, and {type(record).__name__} follows")
        else:
            held_back.append(record)
        return []

    def load(self, records: Iterable[MetadataRecord], offset: int, epoch: int) -> list[Change]:
        """Fills a new image with the records of a snapshot. Offset and epoch are those of the last log record that the
        snapshot covers; offsets of records inside of a snapshot have no meaning outside of it."""
        assert self.offset == -1, "only a new image can be filled"
        changes = [change for record in records for change in self._apply(record)]
        self.offset, self.epoch = offset, epoch
        return changes

    def records(self) -> Iterator[MetadataRecord]:
        """A snapshot: the records that produce the same image, in Kafka's order."""
        yield from self.features.records()
        yield from self.brokers.records()
        yield from self.topics.records()
        yield from self.configs.records()
        yield from self.quotas.records()
        if self.next_producer_id > 0:
            # Kafka's snapshot does not keep the owners of the last block either.
            yield ledger.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.access.acls.records()
        yield from self.access.scram_records()
        yield from self.access.token_records()

    def _apply(self, record: MetadataRecord) -> list[Change]:
        apply = _APPLY.get(type(record))
        if apply is None:
            raise ReplayError(f"{type(record).__name__} is not a metadata record")
        return apply(self, record)

    # --- one function for each record, or for a family of them

    def _topic(self, record: ledger.TopicRecord) -> list[Change]:
        self.topics.replay_topic(record)
        return [TopicCreated(topic_id=record.topic_id, name=record.name)]

    def _topic_removal(self, record: ledger.RemoveTopicRecord) -> list[Change]:
        topic = self.topics.replay_removal(record)
        self.configs.replay_topic_removal(topic.name)
        partitions = tuple(topic.partitions.values())
        return [TopicDeleted(topic_id=topic.topic_id, name=topic.name, partitions=partitions)]

    def _partition(self, record: ledger.PartitionRecord) -> list[Change]:
        return _partition_changes([self.topics.replay_partition(record)])

    def _partition_change(self, record: ledger.PartitionChangeRecord) -> list[Change]:
        return _partition_changes([self.topics.replay_partition_change(record)])

    def _cleared_elr(self, record: ledger.ClearElrRecord) -> list[Change]:
        return _partition_changes(self.topics.replay_cleared_elr(record))

    def _broker(self, record: ledger.RegisterBrokerRecord) -> list[Change]:
        before, after = self.brokers.replay_registration(record)
        return [BrokerChanged(broker_id=after.broker_id, before=before, after=after)]

    def _broker_removal(self, record: ledger.UnregisterBrokerRecord) -> list[Change]:
        before = self.brokers.replay_removal(record)
        return [BrokerChanged(broker_id=before.broker_id, before=before, after=None)]

    def _broker_fence(self, record: ledger.FenceBrokerRecord | ledger.UnfenceBrokerRecord) -> list[Change]:
        before, after = self.brokers.replay_fence(record)
        return [BrokerChanged(broker_id=after.broker_id, before=before, after=after)]

    def _broker_change(self, record: ledger.BrokerRegistrationChangeRecord) -> list[Change]:
        before, after = self.brokers.replay_change(record)
        return [BrokerChanged(broker_id=after.broker_id, before=before, after=after)]

    def _controller(self, record: ledger.RegisterControllerRecord) -> list[Change]:
        before, after = self.brokers.replay_controller(record)
        return [ControllerChanged(before=before, after=after)]

    def _config(self, record: ledger.ConfigRecord) -> list[Change]:
        resource = self.configs.replay(record)
        return [ConfigChanged(resource=resource, key=record.name, value=record.value)]

    def _feature(self, record: ledger.FeatureLevelRecord) -> list[Change]:
        self.features.replay(record)
        return [FeatureChanged(name=record.name, level=record.feature_level)]

    def _quota(self, record: ledger.ClientQuotaRecord) -> list[Change]:
        entity = self.quotas.replay(record)
        return [QuotaChanged(entity=entity, key=record.key, value=None if record.remove else record.value)]

    def _producer_id_block(self, record: ledger.ProducerIdsRecord) -> list[Change]:
        if record.next_producer_id <= self.next_producer_id:
            raise ReplayError(f"producer ids from {record.next_producer_id} on, after {self.next_producer_id}")
        self.next_producer_id = record.next_producer_id
        return [ProducerIdsChanged(next_producer_id=record.next_producer_id)]

    def _rule(self, record: ledger.AccessControlEntryRecord) -> list[Change]:
        return [AccessRuleChanged(before=None, after=self.access.acls.replay(record))]

    def _rule_removal(self, record: ledger.RemoveAccessControlEntryRecord) -> list[Change]:
        return [AccessRuleChanged(before=self.access.acls.replay_removal(record), after=None)]

    def _scram(self, record: ledger.UserScramCredentialRecord) -> list[Change]:
        return [ScramChanged(name=record.name, mechanism=record.mechanism, after=self.access.replay_scram(record))]

    def _scram_removal(self, record: ledger.RemoveUserScramCredentialRecord) -> list[Change]:
        self.access.replay_scram_removal(record)
        return [ScramChanged(name=record.name, mechanism=record.mechanism, after=None)]

    def _token(self, record: ledger.DelegationTokenRecord) -> list[Change]:
        return [TokenChanged(token_id=record.token_id, after=self.access.replay_token(record))]

    def _token_removal(self, record: ledger.RemoveDelegationTokenRecord) -> list[Change]:
        self.access.replay_token_removal(record)
        return [TokenChanged(token_id=record.token_id, after=None)]

    def _nothing(self, _: MetadataRecord) -> list[Change]:
        return []


def _partition_changes(changed: Iterable[tuple[Topic, Partition | None, Partition]]) -> list[Change]:
    return [
        PartitionChanged(topic_id=topic.topic_id, name=topic.name, index=after.index, before=before, after=after)
        for topic, before, after in changed
    ]


_APPLY: Final[dict[type[MetadataRecord], Callable[[Metadata, Any], list[Change]]]] = {
    ledger.TopicRecord: Metadata._topic,
    ledger.RemoveTopicRecord: Metadata._topic_removal,
    ledger.PartitionRecord: Metadata._partition,
    ledger.PartitionChangeRecord: Metadata._partition_change,
    ledger.ClearElrRecord: Metadata._cleared_elr,
    ledger.RegisterBrokerRecord: Metadata._broker,
    ledger.UnregisterBrokerRecord: Metadata._broker_removal,
    ledger.FenceBrokerRecord: Metadata._broker_fence,
    ledger.UnfenceBrokerRecord: Metadata._broker_fence,
    ledger.BrokerRegistrationChangeRecord: Metadata._broker_change,
    ledger.RegisterControllerRecord: Metadata._controller,
    ledger.ConfigRecord: Metadata._config,
    ledger.FeatureLevelRecord: Metadata._feature,
    ledger.ClientQuotaRecord: Metadata._quota,
    ledger.ProducerIdsRecord: Metadata._producer_id_block,
    ledger.AccessControlEntryRecord: Metadata._rule,
    ledger.RemoveAccessControlEntryRecord: Metadata._rule_removal,
    ledger.UserScramCredentialRecord: Metadata._scram,
    ledger.RemoveUserScramCredentialRecord: Metadata._scram_removal,
    ledger.DelegationTokenRecord: Metadata._token,
    ledger.RemoveDelegationTokenRecord: Metadata._token_removal,
    ledger.NoOpRecord: Metadata._nothing,
    # Written once by clusters that came from ZooKeeper, and by fresh ones of the time in between.
    ledger.ZkMigrationStateRecord: Metadata._nothing,
}
