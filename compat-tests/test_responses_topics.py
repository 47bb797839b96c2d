"""Topics and partitions: Apache Kafka and trioka, asked the same. Where they differ, and why, stands with the test."""

from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from judged import same_soon
from side_by_side import Order, Side, SideBySide, side_by_side

from trioka.protocol.errors import InvalidRequest, InvalidTopic, UnknownServerError, UnknownTopicOrPartition
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from trioka.protocol.primitives import NULL_UUID

NOBODYS_ID = b"x" * 16
ENOUGH_MS = 60_000  # what a controller is given, and never needs, however slow the machine
ODD_NAMES = ["", ".", "..", "a b", "a/b", "ä", "a\0b", "x" * 249, "x" * 250]
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")

# Apache Kafka shuffles its answers, or has them in the order of a hash table.
ANY_ORDER: Order = {
    "topics": "name",
    "responses": lambda each: (str(each["name"]), str(each.get("topic_id"))),
    "results": "name",
    "replica_election_results": "topic",
}
# One broker can hold the brokers' own topics when they want one replica.
SETTINGS = {
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "share_coordinator_state_topic_num_partitions": 1,
    "share_coordinator_state_topic_replication_factor": 1,
    "share_coordinator_state_topic_min_isr": 1,
}

_numbers = count(1)


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side(**SETTINGS) as sides:
        sides.create_topic("m", 5)
        sides.create_topic("b", 2)
        sides.create_topic("z", 1)
        yield sides


def new_name() -> str:
    return f"new-{next(_numbers)}"


# -- CreateTopics ------------------------------------------------------------------------------------------------------

Assignments = Sequence[tuple[int, list[int]]]
Configs = Sequence[tuple[str, str | None]]


def topic(
    name: str, partitions: int = 1, replicas: int = 1, assignments: Assignments = (), configs: Configs = ()
) -> CreateTopicsRequest.Topic:
    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in configs],
    )


def created(
    sides: SideBySide,
    *topics: CreateTopicsRequest.Topic,
    version: int = 7,
    validate_only: bool = False,
    timeout_ms: int = ENOUGH_MS,
) -> None:
    requested = CreateTopicsRequest(topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms)
    sides.same(requested, version, order=ANY_ORDER)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created(sides: SideBySide, version: int) -> None:
    name, configs = new_name(), (("retention.ms", "5000"), ("cleanup.policy", "compact,delete"))
    created(sides, topic(name, 2, configs=configs), version=version, validate_only=True)
    created(sides, topic(name, 2, configs=configs), version=version)
    created(sides, topic(name, 2), version=version)
    created(sides, topic(new_name(), -1, -1), version=version)
    created(sides, topic(new_name(), -1, -1, assignments=[(0, [1]), (1, [1])]), version=version)
    created(sides, version=version)


@pytest.mark.parametrize("name", [*ODD_NAMES, "__cluster_metadata"])
def test_topics_have_names_of_a_certain_kind(sides: SideBySide, name: str) -> None:
    created(sides, topic(name), validate_only=True)


def test_topics_have_different_names(sides: SideBySide) -> None:
    name = new_name()
    created(sides, topic(name), topic(name), topic(new_name()))
    created(sides, topic(f"{name}.a"))
    created(sides, topic(f"{name}_a"))


@pytest.mark.parametrize("partitions", [0, -1, -2, 10_001, 1_000_000])
def test_topics_have_a_sensible_number_of_partitions(sides: SideBySide, partitions: int) -> None:
    created(sides, topic(new_name(), partitions), validate_only=True)


@pytest.mark.parametrize("replicas", [0, -2, 2, 32_767])
def test_topics_have_no_more_replicas_than_there_are_brokers(sides: SideBySide, replicas: int) -> None:
    created(sides, topic(new_name(), 1, replicas))


@pytest.mark.parametrize(
    ("partitions", "replicas", "assignments"),
    [
        (1, -1, [(0, [1])]),
        (-1, 1, [(0, [1])]),
        (2, 1, [(0, [1])]),
        (-1, -1, [(0, [2])]),
        (-1, -1, [(0, [1, 1])]),
        (-1, -1, [(1, [1])]),
        (-1, -1, [(0, [])]),
        (-1, -1, [(0, [1]), (0, [1])]),
        (-1, -1, [(-1, [1])]),
        (-1, -1, [(0, [-1])]),
    ],
)
def test_an_assignment_makes_sense(sides: SideBySide, partitions: int, replicas: int, assignments: Assignments) -> None:
    created(sides, topic(new_name(), partitions, replicas, assignments))


@pytest.mark.parametrize(
    "configs",
    [
        [("nope", "1")],
        [("retention.ms", "x")],
        [("retention.ms", None)],
        [("retention.ms", "-2")],
        [("", "x")],
        [("cleanup.policy", "")],
        [("cleanup.policy", "nope")],
        [("compression.type", "gzip"), ("min.insync.replicas", "5"), ("max.message.bytes", "0")],
        [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
        [("segment.bytes", "10")],
        [("remote.storage.enable", "true")],
        [("retention.ms", "1"), ("retention.ms", "2")],
    ],
)
def test_a_configuration_makes_sense(sides: SideBySide, configs: Configs) -> None:
    created(sides, topic(new_name(), configs=configs))


@pytest.mark.parametrize("timeout_ms", [0, -1, ENOUGH_MS])
def test_a_job_without_a_waiter_is_not_begun(sides: SideBySide, timeout_ms: int) -> None:
    created(sides, topic(new_name()), timeout_ms=timeout_ms)
    sides.same(more("m", 6, timeout_ms=min(timeout_ms, 0)), 3)
    for version in range(1, 7):
        sides.same(deleting("b", version=version, timeout_ms=min(timeout_ms, 0)), version)


# -- CreatePartitions --------------------------------------------------------------------------------------------------


def more(
    name: str, partitions: int, assignments: Sequence[list[int]] | None = None, timeout_ms: int = ENOUGH_MS
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[growing(name, partitions, assignments)], timeout_ms=timeout_ms, validate_only=False
    )


def growing(
    name: str, partitions: int, assignments: Sequence[list[int]] | None = None
) -> CreatePartitionsRequest.Topic:
    assigned = None
    if assignments is not None:
        assigned = [CreatePartitionsRequest.Topic.Assignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsRequest.Topic(name=name, count=partitions, assignments=assigned)


@pytest.mark.parametrize("version", range(4))
def test_topics_grow_and_never_shrink(sides: SideBySide, version: int) -> None:
    name = new_name()
    sides.create_topic(name, 2)
    for partitions in (3, 3, 1, 0, -1, 5):
        sides.same(more(name, partitions), version)
    assigned: list[list[list[int]]] = [[[1]], [[1], [1]], [[2]], [[1, 1]], [[]], []]
    for assignments in assigned:
        sides.same(more(name, 6, assignments), version)
    for other in ("nobody", "a b", "", "__cluster_metadata"):
        sides.same(more(other, 3), version)
    sides.same(CreatePartitionsRequest(topics=[], timeout_ms=ENOUGH_MS, validate_only=False), version)
    several = [growing(name, 20), growing("nobody", 2), growing(name, 21)]
    for only in (True, False):
        request = CreatePartitionsRequest(topics=several, timeout_ms=ENOUGH_MS, validate_only=only)
        sides.same(request, version, order=ANY_ORDER)


def test_too_many_partitions_are_refused_with_a_reason(sides: SideBySide) -> None:
    """Apache Kafka says UNKNOWN_SERVER_ERROR. (If it is asked to do it and not only whether it could, its controller
    gives up its office for a while.)"""
    requested = CreatePartitionsRequest(topics=[growing("m", 1_000_000)], timeout_ms=ENOUGH_MS, validate_only=True)
    kafka, trioka = sides.both(requested, 3)
    assert kafka.results[0].error_code == UnknownServerError.code
    assert "too many" in trioka.results[0].error_message


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


def deleting(*names: str, version: int, timeout_ms: int = ENOUGH_MS) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    topics = [DeleteTopicsRequest.Topic(name=name, topic_id=NULL_UUID) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name(sides: SideBySide, version: int) -> None:
    name, other = new_name(), new_name()
    sides.create_topic(name)
    sides.create_topic(other)
    for names in ([name, name], [name, "nobody"], [name], [other, "nobody", "nobody"], ["a b"], [""], []):
        sides.same(deleting(*names, version=version), version, order=ANY_ORDER)
    sides.same(deleting("__cluster_metadata", version=version), version)


def test_topics_are_deleted_by_id(sides: SideBySide) -> None:
    first, second, third = new_name(), new_name(), new_name()
    for name in (first, second, third):
        sides.create_topic(name)

    def by_id(side: Side, *topics: tuple[str | None, str | bytes]) -> DeleteTopicsRequest:
        requested = [
            DeleteTopicsRequest.Topic(name=name, topic_id=side.topic_id(id) if isinstance(id, str) else id)
            for name, id in topics
        ]
        return DeleteTopicsRequest(topics=requested, timeout_ms=ENOUGH_MS)

    cases: list[list[tuple[str | None, str | bytes]]] = [
        [(None, NULL_UUID)],
        [(None, NULL_UUID), (None, NULL_UUID)],
        [(first, first)],
        [(None, NOBODYS_ID)],
        [(None, NOBODYS_ID), (None, NOBODYS_ID)],
        [(None, first), (None, first)],
        [(None, first), (second, NULL_UUID), ("nobody", NULL_UUID)],
        [(None, third)],
        [(None, third)],
    ]
    for case in cases:
        sides.same(lambda side, case=case: by_id(side, *case), 6, order=ANY_ORDER)  # type: ignore[misc]


# -- Metadata ----------------------------------------------------------------------------------------------------------


def metadata(
    names: Sequence[str] | None, version: int, *, create: bool = False, operations: bool = False
) -> MetadataRequest:
    """Before v4 a client cannot say that nothing shall be created."""
    return MetadataRequest(
        topics=None if names is None else [MetadataRequest.Topic(name=name) for name in names],
        allow_auto_topic_creation=create or version < 4,
        include_topic_authorized_operations=operations and version >= 8,
        include_cluster_authorized_operations=operations and 8 <= version <= 10,
    )


@pytest.mark.parametrize("version", range(14))
def test_metadata_tells_of_topics(sides: SideBySide, version: int) -> None:
    cases: list[Sequence[str] | None] = [[], ["m"], ["m", "b", "m"], [name for name in ODD_NAMES if len(name) != 249]]
    if version >= 1:
        cases.append(None)
    if version >= 4:
        cases += [["nobody"], ["nobody", "m", "__cluster_metadata"]]
    for names in cases:
        for operations in (False, True):
            requested = metadata(names, version, operations=operations)
            same_soon(sides, requested, version, order=ANY_ORDER)
    sides.same(metadata(["a b"], version, create=True), version)


@pytest.mark.parametrize("version", range(10, 14))
def test_metadata_tells_of_topics_by_id(sides: SideBySide, version: int) -> None:
    cases: list[list[tuple[str | None, str | bytes]]] = [
        [("m", NULL_UUID)],
        [(None, "m")],
        [("m", "m")],
        [(None, NOBODYS_ID)],
        [("nobody", NOBODYS_ID)],
        [(None, "m"), ("b", NULL_UUID)],
        [(None, "m"), (None, "m"), (None, NOBODYS_ID), (None, NULL_UUID)],
    ]
    if version < 12:
        cases.append([(None, NULL_UUID)])

    def by_id(side: Side, case: list[tuple[str | None, str | bytes]]) -> MetadataRequest:
        topics = [
            MetadataRequest.Topic(name=name, topic_id=side.topic_id(id) if isinstance(id, str) else id)
            for name, id in case
        ]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    for case in cases:
        sides.same(lambda side, case=case: by_id(side, case), version, order=ANY_ORDER)  # type: ignore[misc]


def test_a_topic_without_name_and_id_is_an_invalid_request(sides: SideBySide) -> None:
    """Apache Kafka trips over it and says UNKNOWN_SERVER_ERROR."""
    kafka, trioka = sides.both(MetadataRequest(topics=[MetadataRequest.Topic(name=None)]), 13)
    assert kafka.topics[0].error_code == kafka.error_code == UnknownServerError.code
    assert trioka.topics[0].error_code == trioka.error_code == InvalidRequest.code


def test_topics_are_created_when_somebody_asks_for_them(sides: SideBySide) -> None:
    """Apache Kafka says that it does not know the topic, and creates it meanwhile; trioka's first answer has it."""
    for name in (new_name(), *INTERNAL):
        kafka, trioka = sides.both(metadata([name], 12, create=True), 12)
        assert kafka.topics[0].error_code == UnknownTopicOrPartition.code
        assert trioka.topics[0].error_code == 0 and trioka.topics[0].partitions[0].leader_id == 1
        same_soon(sides, metadata([name], 12), 12)
        resource = DescribeConfigsRequest.Resource(resource_type=2, resource_name=name, configuration_keys=None)
        same_soon(sides, DescribeConfigsRequest(resources=[resource]), 4, order={"results.configs": "name"})


# -- DescribeTopicPartitions -------------------------------------------------------------------------------------------


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    start = None
    if cursor is not None:
        start = DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=start,
    )


def test_topics_are_described(sides: SideBySide) -> None:
    cases = [[], ["m"], ["z", "b", "m"], ["m", "m"], ["nobody"], ["nobody", "m", "a b"], ["__consumer_offsets"]]
    for names in cases:
        same_soon(sides, describe(*names), 0)


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100_000])
def test_topics_are_described_in_portions(sides: SideBySide, limit: int) -> None:
    sides.same(describe(limit=limit), 0)
    for names in (["z", "nobody", "m", "b"], ["b", "m"], ["b", "nobody"], ["b", "c", "nobody"]):
        sides.same(describe(*names, limit=limit), 0)
    for cursor in (("m", 1), ("m", 3), ("m", 5), ("m", 7), ("nobody", 0), ("nobody", 4), ("zz", 0), ("", 3)):
        sides.same(describe(limit=limit, cursor=cursor), 0)
    for cursor in (("m", 1), ("nobody", 4)):
        sides.same(describe("nobody", "m", "z", limit=limit, cursor=cursor), 0)


def test_a_cursor_makes_sense(sides: SideBySide) -> None:
    for names in ([], ["m"], ["b", "m"]):
        sides.same(describe(*names, cursor=("m", -1)), 0)
    for cursor in (("b", 0), ("nobody", 0)):
        sides.same(describe("m", "z", cursor=cursor), 0)


def test_an_empty_name_is_described_as_impossible(sides: SideBySide) -> None:
    """Apache Kafka asks its authorizer about the empty name, which fails: UNKNOWN_SERVER_ERROR."""
    kafka, trioka = sides.both(describe(""), 0)
    assert kafka.topics[0].error_code == UnknownServerError.code
    assert trioka.topics[0].error_code == InvalidTopic.code


# -- the cluster -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(sides: SideBySide, version: int) -> None:
    for endpoint_type in (1,) if version == 0 else (1, 0, 2, 3, -1):
        for fenced in (False,) if version < 2 else (False, True):
            for operations in (False, True):
                requested = DescribeClusterRequest(
                    include_cluster_authorized_operations=operations,
                    endpoint_type=endpoint_type,
                    include_fenced_brokers=fenced,
                )
                sides.same(requested, version)


@pytest.mark.parametrize("broker_id", [0, 2, -1])
def test_a_broker_that_nobody_knows_cannot_be_forgotten(sides: SideBySide, broker_id: int) -> None:
    sides.same(UnregisterBrokerRequest(broker_id=broker_id), 0)


# -- leaders and replicas ----------------------------------------------------------------------------------------------

Partitions = Sequence[tuple[str, list[int]]]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("election_type", [0, 1, 2, -1])
def test_leaders_are_elected(sides: SideBySide, election_type: int, version: int) -> None:
    cases: list[Partitions | None] = [
        None,
        [],
        [("m", [0])],
        [("m", [0, 1]), ("nobody", [0])],
        [("m", [9])],
        [("m", [])],
        [("m", [0, 0])],
        [("m", [0]), ("m", [1])],
        [("", [0])],
    ]
    for case in cases:
        for timeout_ms in (60_000, 0):
            topics = None
            if case is not None:
                topics = [ElectLeadersRequest.TopicPartition(topic=name, partitions=indexes) for name, indexes in case]
            requested = ElectLeadersRequest(
                election_type=election_type if version else 0, topic_partitions=topics, timeout_ms=timeout_ms
            )
            sides.same(requested, version, order=ANY_ORDER)


@pytest.mark.parametrize("version", range(2))
def test_replicas_are_moved_as_far_as_one_broker_goes(sides: SideBySide, version: int) -> None:
    cases: list[list[tuple[str, list[tuple[int, list[int] | None]]]]] = [
        [],
        [("m", [])],
        [("m", [(0, [1])])],
        [("m", [(0, None)])],
        [("m", [(0, [2])])],
        [("m", [(0, [])])],
        [("m", [(0, [1, 1])])],
        [("m", [(0, [1, 2])])],
        [("m", [(9, [1])])],
        [("m", [(9, None)])],
        [("nobody", [(0, [1])]), ("m", [(1, [1]), (0, None)])],
        [("m", [(0, [1]), (0, [1])])],
        [("m", [(0, [-1])])],
        [("__cluster_metadata", [(0, [1])])],
    ]
    asking = AlterPartitionReassignmentsRequest
    for case in cases:
        topics = [
            asking.Topic(
                name=name, partitions=[asking.Topic.Partition(partition_index=i, replicas=r) for i, r in moves]
            )
            for name, moves in case
        ]
        for allowed in (True,) if version == 0 else (True, False):
            for timeout_ms in (60_000, 0):
                requested = asking(topics=topics, allow_replication_factor_change=allowed, timeout_ms=timeout_ms)
                sides.same(requested, version, order=ANY_ORDER)


def test_no_replica_is_on_its_way(sides: SideBySide) -> None:
    cases: list[Partitions | None] = [None, [], [("m", [0])], [("nobody", [0])], [("m", [9])], [("m", [])]]
    for case in cases:
        topics = None
        if case is not None:
            topics = [ListPartitionReassignmentsRequest.Topic(name=n, partition_indexes=i) for n, i in case]
        for timeout_ms in (60_000, 0):
            sides.same(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms), 0)
