"""The image: it changes by replay, the same everywhere, and tells what has changed."""

from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster, directory

from trioka.cluster import metadata as image
from trioka.cluster import partition, topics
from trioka.cluster.configs import ConfigResource, ConfigResourceType, topic_resource
from trioka.cluster.image_delta import (
    AccessRuleChanged,
    BrokerChanged,
    ConfigChanged,
    FeatureChanged,
    PartitionChanged,
    ProducerIdsChanged,
    QuotaChanged,
    ScramChanged,
    TokenChanged,
    TopicCreated,
    TopicDeleted,
)
from trioka.cluster.metadata import Metadata
from trioka.cluster.metadata_log import RECORDS, MetadataRecord
from trioka.cluster.replay_error import ReplayError
from trioka.protocol.internal_records import metadata as ledger

ORDERS = b"orders----------"
EVENTS = b"events----------"


@pytest.fixture
def module() -> ModuleType:
    return image


def partition_record(index: int = 0, topic_id: bytes = ORDERS, **said: Any) -> ledger.PartitionRecord:
    fields: dict[str, Any] = {
        "replicas": [1, 2],
        "isr": [1, 2],
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [directory(1), directory(2)],
        **said,
    }
    return ledger.PartitionRecord(partition_id=index, topic_id=topic_id, **fields)


def change_record(**said: Any) -> ledger.PartitionChangeRecord:
    return ledger.PartitionChangeRecord(partition_id=0, topic_id=ORDERS, **said)


def config(name: str, value: str | None, key: str = "retention.ms") -> ledger.ConfigRecord:
    return ledger.ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)


def broker_record(broker_id: int = 1, epoch: int = 5, **said: Any) -> ledger.RegisterBrokerRecord:
    fields: dict[str, Any] = {
        "end_points": [],
        "features": [],
        "rack": None,
        "log_dirs": [directory(broker_id)],
        **said,
    }
    return ledger.RegisterBrokerRecord(broker_id=broker_id, incarnation_id=bytes(16), broker_epoch=epoch, **fields)


def replayed(*records: MetadataRecord, into: Metadata | None = None, module: ModuleType = image) -> Metadata:
    metadata: Metadata = module.Metadata() if into is None else into
    for record in records:
        metadata.replay(record, metadata.offset + 1, 0)
    return metadata


def rebuilt(metadata: Metadata) -> Metadata:
    other = Metadata()
    other.load(metadata.records(), metadata.offset, metadata.epoch)
    return other


def test_a_topic_is_found_by_name_and_by_id() -> None:
    metadata = replayed(ledger.TopicRecord(name="orders", topic_id=ORDERS), partition_record())
    topic = metadata.topics.by_name("orders")
    assert topic is not None and topic is metadata.topics.by_id(ORDERS)
    assert metadata.topics.partition(ORDERS, 0) is topic.partitions[0]
    assert metadata.topics.by_name("other") is None and metadata.topics.partition(ORDERS, 1) is None


def test_a_deleted_topic_takes_its_partitions_and_its_configuration_along(module: ModuleType) -> None:
    metadata = replayed(
        ledger.TopicRecord(name="orders", topic_id=ORDERS),
        config("orders", "1"),
        partition_record(),
        module=module,
    )
    before = metadata.topics.partition(ORDERS, 0)
    changes = metadata.replay(ledger.RemoveTopicRecord(topic_id=ORDERS), 10, 0)
    assert changes == [TopicDeleted(topic_id=ORDERS, name="orders", partitions=(before,))]  # type: ignore[arg-type]
    assert metadata == Metadata()
    replayed(ledger.TopicRecord(name="orders", topic_id=EVENTS), into=metadata)
    assert metadata.configs.get(topic_resource("orders")) == {}


SCRAM = ledger.UserScramCredentialRecord(
    name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
TOKEN = ledger.DelegationTokenRecord(
    owner="ann",
    requester="ann",
    renewers=[],
    issue_timestamp=1,
    max_timestamp=9,
    expiration_timestamp=5,
    token_id="t",
)
RULE = ledger.AccessControlEntryRecord(
    id=b"r" * 16,
    resource_type=2,
    resource_name="orders",
    pattern_type=3,
    principal="User:ann",
    host="*",
    operation=3,
    permission_type=3,
)
QUOTA = ledger.ClientQuotaRecord(
    entity=[ledger.ClientQuotaRecord.Entity(entity_type="user", entity_name="ann")],
    key="producer_byte_rate",
    value=5.0,
    remove=False,
)


def test_every_record_says_what_it_has_changed() -> None:
    metadata = Metadata()
    result = [
        [type(change) for change in metadata.replay(record, offset, 0)]
        for offset, record in enumerate(
            [
                ledger.TopicRecord(name="orders", topic_id=ORDERS),
                partition_record(),
                change_record(leader=2),
                config("orders", "5"),
                broker_record(),
                ledger.FeatureLevelRecord(name="group.version", feature_level=1),
                QUOTA,
                ledger.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
                RULE,
                SCRAM,
                TOKEN,
                ledger.NoOpRecord(),
            ]
        )
    ]
    assert result == [
        [TopicCreated],
        [PartitionChanged],
        [PartitionChanged],
        [ConfigChanged],
        [BrokerChanged],
        [FeatureChanged],
        [QuotaChanged],
        [ProducerIdsChanged],
        [AccessRuleChanged],
        [ScramChanged],
        [TokenChanged],
        [],
    ]
    assert rebuilt(metadata) == metadata


def test_every_record_that_is_declared_can_be_replayed(module: ModuleType) -> None:
    ends: set[type[MetadataRecord]] = {
        ledger.BeginTransactionRecord,
        ledger.EndTransactionRecord,
        ledger.AbortTransactionRecord,
    }
    assert set(RECORDS.values()) - ends == set(module._APPLY)


def test_a_snapshot_has_no_owner_of_the_last_producer_ids(module: ModuleType) -> None:
    """Kafka's does not either: only where the next block begins counts."""
    metadata = replayed(ledger.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000), module=module)
    unassigned = ledger.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=1000)
    assert list(metadata.records()) == [unassigned]
    assert metadata == replayed(unassigned, module=module)
    assert list(module.Metadata().records()) == []


def test_what_a_change_does_not_say_stays_as_it_was() -> None:
    metadata = replayed(ledger.TopicRecord(name="orders", topic_id=ORDERS), partition_record(), change_record(isr=[1]))
    after = metadata.topics.partition(ORDERS, 0)
    assert after is not None
    assert (after.isr, after.leader, after.replicas) == ((1,), 1, (1, 2))
    assert (after.leader_epoch, after.partition_epoch) == (0, 1)


def test_naming_a_leader_even_the_same_makes_a_new_leader_epoch() -> None:
    metadata = replayed(ledger.TopicRecord(name="orders", topic_id=ORDERS), partition_record())
    (change,) = metadata.replay(change_record(leader=1), 5, 0)
    assert isinstance(change, PartitionChanged) and change.before is not None
    assert (change.before.leader_epoch, change.after.leader_epoch) == (0, 1)
    assert (change.before.partition_epoch, change.after.partition_epoch) == (0, 1)


def test_records_of_a_transaction_count_together_at_its_end(module: ModuleType) -> None:
    metadata = replayed(config("a", "1"), module=module)
    assert metadata.replay(ledger.BeginTransactionRecord(name="x"), 1, 0) == []
    assert metadata.replay(config("b", "2"), 2, 0) == []
    assert metadata.replay(config("c", "3"), 3, 0) == []
    assert metadata.in_transaction and metadata.configs.get(topic_resource("b")) == {}
    assert metadata.offset == 0  # a snapshot that is taken now stands before the transaction
    changes = metadata.replay(ledger.EndTransactionRecord(), 4, 0)
    assert [change.resource.name for change in changes if isinstance(change, ConfigChanged)] == ["b", "c"]
    assert metadata.offset == 4 and not metadata.in_transaction


def test_records_of_an_aborted_transaction_never_count(module: ModuleType) -> None:
    metadata = module.Metadata()
    for offset, record in enumerate(
        [ledger.BeginTransactionRecord(), config("b", "2"), ledger.AbortTransactionRecord()]
    ):
        assert metadata.replay(record, offset, 0) == []
    assert metadata == Metadata() and metadata.offset == 2


def test_a_transaction_that_is_open_is_not_in_a_snapshot() -> None:
    metadata = Metadata()
    for offset, record in enumerate([config("a", "1"), ledger.BeginTransactionRecord(), config("b", "2")]):
        metadata.replay(record, offset, 0)
    assert list(metadata.records()) == [config("a", "1")]


CONTRADICTIONS: list[tuple[str, list[MetadataRecord]]] = [
    ("a topic of the same name", [ledger.TopicRecord(name="orders", topic_id=EVENTS)]),
    ("a topic of the same id", [ledger.TopicRecord(name="events", topic_id=ORDERS)]),
    ("an unknown topic removed", [ledger.RemoveTopicRecord(topic_id=EVENTS)]),
    ("a partition of an unknown topic", [partition_record(topic_id=EVENTS)]),
    ("an unknown partition changed", [ledger.PartitionChangeRecord(partition_id=7, topic_id=ORDERS, leader=1)]),
    ("more replicas than directories", [partition_record(directories=[directory(1)])]),
    ("no replicas", [partition_record(replicas=[], directories=[])]),
    ("an unknown recovery state", [partition_record(leader_recovery_state=2)]),
    ("eligible leaders of an unknown topic", [ledger.ClearElrRecord(topic_name="events")]),
    ("an unknown broker", [ledger.UnregisterBrokerRecord(broker_id=9, broker_epoch=5)]),
    ("an earlier life of a broker", [ledger.UnregisterBrokerRecord(broker_id=1, broker_epoch=4)]),
    ("an earlier life fenced", [ledger.FenceBrokerRecord(id=1, epoch=4)]),
    ("an impossible change", [ledger.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=2)]),
    ("producer ids a second time", [ledger.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000)] * 2),
    ("an unknown rule", [ledger.RemoveAccessControlEntryRecord(id=bytes(16))]),
    ("an unknown credential", [ledger.RemoveUserScramCredentialRecord(name="ann", mechanism=1)]),
    ("the end of no transaction", [ledger.EndTransactionRecord()]),
    ("a transaction in a transaction", [ledger.BeginTransactionRecord(), ledger.BeginTransactionRecord()]),
]


@pytest.mark.parametrize(("what", "records"), CONTRADICTIONS, ids=[what for what, _ in CONTRADICTIONS])
def test_a_log_that_contradicts_itself_stops_the_replay(what: str, records: list[MetadataRecord]) -> None:
    metadata = replayed(ledger.TopicRecord(name="orders", topic_id=ORDERS), partition_record(), broker_record())
    *sound, last = records
    for offset, record in enumerate(sound, start=10):
        metadata.replay(record, offset, 0)
    with pytest.raises(ReplayError):
        metadata.replay(last, 20, 0)


def test_a_broker_is_fenced_by_old_records_and_by_new_ones() -> None:
    metadata = replayed(broker_record(), ledger.UnfenceBrokerRecord(id=1, epoch=5))
    assert metadata.brokers.is_active(1)
    replayed(ledger.FenceBrokerRecord(id=1, epoch=5), into=metadata)
    assert not metadata.brokers.is_active(1)
    replayed(
        ledger.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
        ledger.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1),
        into=metadata,
    )
    broker = metadata.brokers.get(1)
    assert broker is not None and not broker.fenced and broker.in_controlled_shutdown and not broker.is_active


def test_two_images_of_another_order_are_equal() -> None:
    """Partitions of a snapshot, brokers, configurations: what does not depend on order is written in one order."""
    records = [
        ledger.TopicRecord(name="orders", topic_id=ORDERS),
        ledger.TopicRecord(name="events", topic_id=EVENTS),
        *(broker_record(broker_id) for broker_id in (3, 1, 2)),
        *(config(name, "1", key) for name in ("orders", "events") for key in ("b", "a")),
        ledger.FeatureLevelRecord(name="metadata.version", feature_level=30),
        ledger.FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    partitions = [partition_record(index, topic_id) for index in (2, 0, 1) for topic_id in (ORDERS, EVENTS)]
    first = replayed(*records, *partitions)
    for seed in range(10):
        Random(seed).shuffle(records)
        Random(seed).shuffle(partitions)
        again = replayed(*records, *partitions)
        assert again == first and list(again.records()) == list(first.records())
    assert [topic.name for topic in first.topics] == ["events", "orders"]
    assert [broker.broker_id for broker in first.brokers] == [1, 2, 3]


def test_a_copy_lives_its_own_life() -> None:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", partitions=2)
    copy = cluster.metadata.copy()
    assert copy == cluster.metadata and copy.offset == cluster.metadata.offset
    cluster.create("events")
    cluster.fence(1)
    assert copy.topics.by_name("events") is None and copy.brokers.is_active(1)
    assert copy != cluster.metadata


def test_a_configuration_that_was_removed_leaves_no_trace() -> None:
    metadata = replayed(config("orders", "1"), config("orders", None), config("other", None))
    assert list(metadata.configs) == [] and metadata == Metadata()


def test_the_eligible_leaders_of_one_topic_or_of_all_are_forgotten(module: ModuleType) -> None:
    eligible: dict[str, Any] = {"isr": [1], "eligible_leader_replicas": [2], "last_known_elr": [1]}
    metadata = replayed(
        ledger.TopicRecord(name="orders", topic_id=ORDERS),
        ledger.TopicRecord(name="events", topic_id=EVENTS),
        partition_record(**eligible),
        partition_record(topic_id=EVENTS, **eligible),
        module=module,
    )
    (change,) = metadata.replay(ledger.ClearElrRecord(topic_name="orders"), 10, 0)
    assert isinstance(change, PartitionChanged) and change.name == "orders"
    assert change.after.eligible_leader_replicas == () and change.after.partition_epoch == 1
    (change,) = metadata.replay(ledger.ClearElrRecord(topic_name=""), 11, 0)
    assert isinstance(change, PartitionChanged) and change.name == "events"


def test_internal_topics_are_those_of_kafka() -> None:
    def is_internal(name: str) -> bool:
        return topics.Topic(name=name, topic_id=ORDERS).is_internal

    assert is_internal("__consumer_offsets") and is_internal("__transaction_state")
    assert not is_internal("__mine") and not is_internal("orders")


def test_directories_below_a_hundred_mean_something_else() -> None:
    assert partition.is_reserved_directory(bytes(15) + b"\x63")
    assert not partition.is_reserved_directory(bytes(15) + b"\x64")
    assert ConfigResource(ConfigResourceType.TOPIC, "a") == topic_resource("a")


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "if self.next_producer_id > 0:",
        "if True:",
        test_a_snapshot_has_no_owner_of_the_last_producer_ids,
    ),
    (
        "return (*parts, self.next_producer_id, self._held_back)",
        "return (*parts, object(), self._held_back)",
        test_a_snapshot_has_no_owner_of_the_last_producer_ids,
    ),
    (
        "        self.configs.replay_topic_removal(topic.name)\n",
        "",
        test_a_deleted_topic_takes_its_partitions_and_its_configuration_along,
    ),
    (
        "            held_back.append(record)",
        "            return self._apply(record)",
        test_records_of_a_transaction_count_together_at_its_end,
    ),
    (
        "if self._held_back is None:",
        "if True:",
        test_records_of_a_transaction_count_together_at_its_end,
    ),
    (
        "if isinstance(record, ledger.AbortTransactionRecord):\n"
        "    self._held_back = None\n"
        "elif isinstance(record, ledger.EndTransactionRecord):\n"
        "    self._held_back = None\n"
        "    return [change for each in held_back for change in self._apply(each)]\n"
        "elif isinstance(record, ledger.BeginTransactionRecord) or len(held_back) >= "
        "MAX_TRANSACTION_RECORDS:\n"
        '    raise ReplayError(f"a transaction of {len(held_back)} records is open, and '
        '{type(record).__name__} follows")\n'
        "else:\n"
        "    held_back.append(record)",
        "if isinstance(record, ledger.AbortTransactionRecord):\n"
        "    self._held_back = None\n"
        "    return [change for each in held_back for change in self._apply(each)]\n"
        "elif isinstance(record, ledger.EndTransactionRecord):\n"
        "    self._held_back = None\n"
        "    return [change for each in held_back for change in self._apply(each)]\n"
        "elif isinstance(record, ledger.BeginTransactionRecord) or len(held_back) >= "
        "MAX_TRANSACTION_RECORDS:\n"
        '    raise ReplayError(f"a transaction of {len(held_back)} records is open, and '
        '{type(record).__name__} follows")\n'
        "else:\n"
        "    held_back.append(record)",
        test_records_of_an_aborted_transaction_never_count,
    ),
    ("    ledger.ClearElrRecord: Metadata._cleared_elr,\n", "", test_every_record_that_is_declared_can_be_replayed),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(image, right, wrong, rule)
