"""Quotas, features, the quorum, producers, coordinators and log directories: Apache Kafka and trioka, asked the same.

Where they differ, and why, stands beside the test.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from judged import SETTINGS, same_soon
from side_by_side import Order, Side, SideBySide, side_by_side
from support.requests_by_api import request_for

from trioka.protocol.batch import build
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.record import Record

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side(**SETTINGS) as sides:
        sides.create_topic("a")
        yield sides


# -- quotas ------------------------------------------------------------------------------------------------------------


Entity = list[tuple[str, str | None]]
Quota = tuple[str, float | None]

QUOTAS: list[tuple[Entity, list[Quota]]] = [
    ([("user", "a")], [("producer_byte_rate", 1000.0)]),
    ([("user", "a")], [("producer_byte_rate", 1000.5)]),
    ([("user", "a")], [("producer_byte_rate", 0.0001)]),
    ([("user", "a")], [("producer_byte_rate", -1.0)]),
    ([("user", "a")], [("producer_byte_rate", 1e30)]),
    ([("user", "a")], [("request_percentage", 12.5), ("controller_mutation_rate", 2.5)]),
    ([("user", "a")], [("nope", 1.0)]),
    ([("user", "a")], [("nope", None)]),
    ([("user", "a")], [("connection_creation_rate", 8.0)]),
    ([("user", "a")], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
    ([("user", "a")], []),
    ([("user", None)], [("consumer_byte_rate", 5.0)]),
    ([("client-id", "c"), ("user", "a")], [("consumer_byte_rate", 6.0)]),
    ([("client-id", None)], [("consumer_byte_rate", 7.0)]),
    ([("ip", "127.0.0.1")], [("connection_creation_rate", 7.0)]),
    ([("ip", None)], [("connection_creation_rate", 8.0)]),
    ([("ip", "1.2.3.4")], [("producer_byte_rate", 8.0)]),
    ([("ip", "1.2.3.4"), ("user", "x")], [("connection_creation_rate", 8.0)]),
    ([("ip", "no address")], [("connection_creation_rate", 8.0)]),
    ([("nope", "a")], [("producer_byte_rate", 1.0)]),
    ([("user", "")], [("producer_byte_rate", 1.0)]),
    ([("user", "a"), ("user", "b")], [("producer_byte_rate", 9.0)]),
    ([], [("producer_byte_rate", 1.0)]),
]


def _entity_order(entry: dict[str, Any]) -> list[tuple[str, bool, str]]:
    parts = ((part["entity_type"], part["entity_name"] is None, part["entity_name"] or "") for part in entry["entity"])
    return sorted(parts)


BY_ENTITY: Order = {"entries": _entity_order, "entries.entity": "entity_type", "entries.values": "key"}


def quota(entity: Entity, quotas: list[Quota], *, validate_only: bool = False) -> AlterClientQuotasRequest:
    entry = AlterClientQuotasRequest.Entry
    wanted = entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in quotas],
    )
    return AlterClientQuotasRequest(entries=[wanted], validate_only=validate_only)


def quotas_of(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.Component(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )


def test_quotas_are_set_and_found(sides: SideBySide) -> None:
    exact, default, specified = range(3)
    for entity, quotas in QUOTAS:
        sides.same(quota(entity, quotas, validate_only=True), 1, order=BY_ENTITY)
        for version in (0, 1):
            sides.same(quota(entity, quotas), version, order=BY_ENTITY)
    (twice,) = quota(*QUOTAS[0]).entries
    sides.same(AlterClientQuotasRequest(entries=[twice, twice], validate_only=True), 1)
    sides.same(AlterClientQuotasRequest(entries=[], validate_only=True), 1)
    for filters in (
        quotas_of(),
        quotas_of(strict=True),
        quotas_of(("user", exact, "a")),
        quotas_of(("user", exact, "a"), strict=True),
        quotas_of(("user", default, None)),
        quotas_of(("user", specified, None)),
        quotas_of(("user", specified, None), strict=True),
        quotas_of(("user", specified, None), ("client-id", specified, None)),
        quotas_of(("ip", specified, None)),
        quotas_of(("ip", specified, None), ("user", specified, None)),
        quotas_of(("client-id", exact, "c")),
        quotas_of(("", specified, None)),
        quotas_of(("x", specified, None)),
        quotas_of(("user", specified, None), ("user", specified, None)),
        quotas_of(("user", exact, None)),
        quotas_of(("user", default, "a")),
        quotas_of(("user", specified, "a")),
        quotas_of(("user", 3, None)),
        quotas_of(("user", -1, "a")),
    ):
        for version in (0, 1):
            same_soon(sides, filters, version, order=BY_ENTITY)


# -- features and the quorum -------------------------------------------------------------------------------------------


Update = tuple[str, int, int]


def features(*updates: Update, validate_only: bool = True) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=how)
            for name, level, how in updates
        ],
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "updates",
    [
        [("metadata.version", 30, UPGRADE)],
        [("metadata.version", 31, UPGRADE)],
        [("metadata.version", 29, UPGRADE)],
        [("metadata.version", 29, SAFE_DOWNGRADE)],
        [("metadata.version", 29, UNSAFE_DOWNGRADE)],
        [("metadata.version", 0, UNSAFE_DOWNGRADE)],
        [("metadata.version", -1, UPGRADE)],
        [("kraft.version", 2, UPGRADE)],
        [("nope", 1, UPGRADE)],
        [("nope", 0, UNSAFE_DOWNGRADE)],
        [("group.version", 0, UPGRADE)],
        [("group.version", 0, SAFE_DOWNGRADE)],
        [("group.version", 0, UNSAFE_DOWNGRADE)],
        [("group.version", 1, SAFE_DOWNGRADE)],
        [("group.version", 2, UPGRADE)],
        [("group.version", 1, 0)],
        [("group.version", 1, 9)],
        [("group.version", 1, UPGRADE), ("group.version", 0, SAFE_DOWNGRADE)],
        [("transaction.version", 1, SAFE_DOWNGRADE), ("nope", 1, UPGRADE)],
        [("transaction.version", 1, SAFE_DOWNGRADE), ("group.version", 0, SAFE_DOWNGRADE)],
        [("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE)],
        [],
    ],
)
def test_levels_of_features_are_checked(sides: SideBySide, updates: list[Update], version: int) -> None:
    sides.same(features(*updates), version)


def test_levels_of_features_are_changed(sides: SideBySide) -> None:
    for level, how in ((1, SAFE_DOWNGRADE), (1, UPGRADE), (2, UPGRADE), (0, UNSAFE_DOWNGRADE), (2, UPGRADE)):
        for version in (1, 2):
            sides.same(features(("transaction.version", level, how), validate_only=False), version)
    update = UpdateFeaturesRequest.FeatureUpdate
    for name, level, downgrade in (("group.version", 1, False), ("group.version", 0, True), ("nope", 1, False)):
        old = update(feature=name, max_version_level=level, allow_downgrade=downgrade)
        sides.same(UpdateFeaturesRequest(feature_updates=[old]), 0)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "requested",
    [
        [("__cluster_metadata", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0]), ("a", [0])],
        [("__cluster_metadata", [])],
        [("a", [0])],
        [],
    ],
)
def test_the_quorum_is_described(sides: SideBySide, requested: list[tuple[str, list[int]]], version: int) -> None:
    """Of the voter's directory a quorum whose voters stand in its configuration knows nothing, as ours does here."""
    topic = DescribeQuorumRequest.Topic
    request = DescribeQuorumRequest(
        topics=[
            topic(topic_name=name, partitions=[topic.Partition(partition_index=index) for index in indexes])
            for name, indexes in requested
        ]
    )
    partition, voter = "topics.partitions", "topics.partitions.current_voters"
    differs = {f"{partition}.leader_epoch", f"{partition}.high_watermark", "nodes.listeners.port"}
    differs |= {f"{voter}.{name}" for name in ("log_end_offset", "replica_directory_id")}
    differs |= {f"{voter}.{name}" for name in ("last_fetch_timestamp", "last_caught_up_timestamp")}
    sides.same(request, version, ignoring=differs)


# -- producers and coordinators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_producer_gets_an_id(sides: SideBySide, version: int) -> None:
    """Apache Kafka lets a producer ask again while it waits for a block of ids; here the producer waits."""
    same_soon(
        sides,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        version,
        ignoring={"producer_id"},
    )


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(("transactional_id", "timeout_ms"), [("", 0), ("t", 0), ("t", -1), ("t", 10**9), ("t", 1000)])
def test_nobody_coordinates_transactions(
    sides: SideBySide, transactional_id: str, timeout_ms: int, version: int
) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    sides.same(request, version)


@pytest.mark.parametrize("version", range(3, 6))
def test_an_id_and_an_epoch_belong_together(sides: SideBySide, version: int) -> None:
    for transactional_id in (None, "t"):
        for producer_id, epoch in ((5, -1), (-1, 5), (5, 5)):
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=1000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            sides.same(request, version, ignoring={"producer_id"})


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("kind", [0, 1, 2, 3, -1])
def test_there_is_no_coordinator(sides: SideBySide, kind: int, version: int) -> None:
    if version == 0 and kind:
        pytest.skip("version 0 has groups only")
    uuid = "AAAAAAAAAAAAAAAAAAAAAQ"
    share = [f"g:{uuid}:0", f"g:{uuid}:-1", f"g:{uuid}:+1", f"g:{uuid}: 1", f"g:{uuid}:0:1", f":{uuid}:0", "g:x:0"]
    if version < 4:
        for key in ("g", "", share[0]):
            sides.same(FindCoordinatorRequest(key=key, key_type=kind), version)
    else:
        for keys in ([], ["g"], ["g", "h"], share):
            sides.same(FindCoordinatorRequest(coordinator_keys=keys, key_type=kind), version)


def test_producers_are_described(sides: SideBySide) -> None:
    partition = ProduceRequest.Topic.Partition
    for producer_id, sequence in ((70_000, 0), (70_001, 5)):
        records = build(
            [Record(0, 1000, b"k", b"v")], producer_id=producer_id, producer_epoch=1, base_sequence=sequence
        )
        produced = ProduceRequest.Topic(name="a", partition_data=[partition(index=0, records=bytes(records))])
        sides.same(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[produced]), 9)
    for name, indexes in (
        ("a", [0]),
        ("a", [0, 0]),
        ("a", [5]),
        ("a", [-1]),
        ("a", []),
        ("nobody", [0]),
        ("a b", [0]),
        ("", [0]),
    ):
        topic = DescribeProducersRequest.Topic(name=name, partition_indexes=indexes)
        order: Order = {"topics.partitions.active_producers": "producer_id"}
        sides.same(DescribeProducersRequest(topics=[topic]), 0, order=order)


# -- log directories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize("topics", [None, [], [("a", [0])], [("a", [0, 7])], [("a", [])], [("nobody", [0])]])
def test_log_directories_are_described(
    sides: SideBySide, topics: list[tuple[str, list[int]]] | None, version: int
) -> None:
    """The size of the volume is not known here yet: -1, which clients show as unknown."""
    requested = None
    if topics is not None:
        requested = [DescribeLogDirsRequest.Topic(topic=name, partitions=indexes) for name, indexes in topics]
    sides.same(
        DescribeLogDirsRequest(topics=requested),
        version,
        ignoring={"results.log_dir", "results.total_bytes", "results.usable_bytes"},
        order={"results.topics": "name"},
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("path", ["/nowhere", "", None])
@pytest.mark.parametrize("topic", ["a", "nobody", "a b", "__cluster_metadata", "x" * 249])
def test_replicas_stay_where_they_are(sides: SideBySide, topic: str, path: str | None, version: int) -> None:
    """None is the directory that each of the two has."""

    def request(side: Side) -> AlterReplicaLogDirsRequest:
        there = path if path is not None else side.ask(DescribeLogDirsRequest(topics=[]), 4).results[0].log_dir
        wanted = AlterReplicaLogDirsRequest.Dir
        return AlterReplicaLogDirsRequest(
            dirs=[wanted(path=there, topics=[wanted.Topic(name=topic, partitions=[0, 7])])]
        )

    sides.same(request, version, order={"results.partitions": "partition_index"})


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("key", [29, 30, 31])
def test_without_an_authorizer_there_are_no_access_rules(sides: SideBySide, key: int, version: int) -> None:
    sides.same(request_for(key, version, sides.kafka.topic_id), version)
