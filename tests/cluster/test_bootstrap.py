"""The first records of a cluster, and what a new leader does with a transaction that another has left open."""

from random import Random

from support.small_cluster import CLUSTER_ID, SmallCluster

from trioka.cluster.configs import ALL_BROKERS
from trioka.cluster.controller import Controller
from trioka.cluster.features import FRESH_LEVELS
from trioka.cluster.metadata import Metadata
from trioka.cluster.settings import ControllerSettings
from trioka.protocol.internal_records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def controller_of(metadata: Metadata) -> Controller:
    return Controller(metadata, ControllerSettings(node_id=1, cluster_id=CLUSTER_ID), Random(0))


def test_a_fresh_cluster_begins_with_kafkas_records_in_kafkas_order_for_what_is_served() -> None:
    first, *records, last = controller_of(Metadata()).bootstrap()
    assert first == BeginTransactionRecord(name="Bootstrap records") and last == EndTransactionRecord()
    *features, config = records
    assert [(f.name, f.feature_level) for f in features if isinstance(f, FeatureLevelRecord)] == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("transaction.version", 2),
    ]
    assert config == ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")


def test_a_cluster_has_its_first_records_once_they_are_replayed() -> None:
    cluster = SmallCluster(brokers=0, min_insync_replicas=2)
    assert cluster.metadata.features.levels == FRESH_LEVELS and cluster.metadata.features.metadata_version == 30
    assert cluster.metadata.configs.get(ALL_BROKERS) == {"min.insync.replicas": "2"}
    assert cluster.controller.bootstrap() == ()


def test_what_was_asked_for_at_formatting_counts_instead() -> None:
    wanted = [FeatureLevelRecord(name="metadata.version", feature_level=21)]
    records = controller_of(Metadata()).bootstrap(wanted)
    assert records == (BeginTransactionRecord(name="Bootstrap records"), *wanted, EndTransactionRecord())


def test_a_transaction_that_was_left_open_is_given_up_and_restarted() -> None:
    metadata = Metadata()
    metadata.replay(BeginTransactionRecord(name="Bootstrap records"), 0, 1)
    metadata.replay(FeatureLevelRecord(name="metadata.version", feature_level=30), 1, 1)
    first, second, *_ = records = controller_of(metadata).bootstrap()
    assert isinstance(first, AbortTransactionRecord) and isinstance(second, BeginTransactionRecord)
    for offset, record in enumerate(records, start=2):
        metadata.replay(record, offset, 2)
    assert metadata.features.levels == FRESH_LEVELS and not metadata.in_transaction


def test_in_a_cluster_that_lives_only_the_open_transaction_is_given_up() -> None:
    cluster = SmallCluster()
    cluster.append([BeginTransactionRecord()])
    (record,) = cluster.controller.bootstrap()
    assert isinstance(record, AbortTransactionRecord)
