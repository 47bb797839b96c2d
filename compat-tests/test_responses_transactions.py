"""Transactions: Apache Kafka and trioka, asked the same. Where they differ, and why, stands with the test.

What both have written to `__transaction_state` in the end is compared too: the same records, of each id in the same
order.
"""

from collections.abc import Iterator

import group_sides
import pytest
from side_by_side import SideBySide, side_by_side
from support.transaction_requests import add, add_many, add_offsets, commit_offsets, end, init, markers
from transaction_sides import NO_ID, Pair, records, use_up_epochs, wait_for_coordinator

from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_transactions import ListTransactionsRequest

ADDED = {
    "results_by_transaction": "transactional_id",
    "results_by_transaction.topic_results": "name",
    "results_by_transaction.topic_results.results_by_partition": "partition_index",
    "results_by_topic_v3_and_below": "name",
    "results_by_topic_v3_and_below.results_by_partition": "partition_index",
}


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side(transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1) as sides:
        sides.create_topic("t", 3)
        sides.create_topic("u", 1)
        for side in (sides.kafka, sides.trioka):
            wait_for_coordinator(side)
            group_sides.wait_for_coordinator(side)
        yield sides


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator(sides: SideBySide, version: int) -> None:
    if version < 4:
        sides.same(FindCoordinatorRequest(key="x", key_type=1), version)
        sides.same(FindCoordinatorRequest(key="", key_type=1), version)
    else:
        sides.same(FindCoordinatorRequest(coordinator_keys=["x", "", "y"], key_type=1), version)


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(sides: SideBySide, version: int) -> None:
    for name in ("", None):
        sides.same(init(name, 60_000), version, ignoring=NO_ID)
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        sides.same(init("x", timeout_ms), version)
    pair = Pair(sides)
    pair.init(version, timeout_ms=900_000)
    pair.init(version)
    if version < 3:
        return
    for who in ((5, -1), (-1, 5), (-2, -2)):
        sides.same(init("x", who=who), version)
    sides.same(init(None, who=(5, 5)), version, ignoring=NO_ID)
    sides.same(init("new to both", who=(7, 7)), version, ignoring=NO_ID)
    pair.init(version, again=True)
    pair.init(version, again=True, moved=-1)
    pair.init(version, again=True, moved=-2)
    pair.init(version, again=True, moved=1)
    pair.init(version)
    pair.init(version, again=True, moved=-1)
    sides.same(init(pair.name, who=(2**40, 0)), version)


@pytest.mark.parametrize("generation", [1, 2])
def test_who_begins_fences_who_was_there(sides: SideBySide, generation: int) -> None:
    first, second = Pair(sides, generation=generation), Pair(sides)
    second.name = first.name
    first.init()
    first.add({"t": [0]})
    second.init()
    second.settle()
    first.end(commit=True, version=5 if generation == 2 else 4)
    first.add({"t": [0]})
    first.produce(0, 12 if generation == 2 else 11)
    first.init(again=True)
    second.init()
    first.end(commit=False, version=5 if generation == 2 else 4)
    second.add({"t": [0]})
    second.end(commit=True)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions(sides: SideBySide, version: int) -> None:
    sides.same(add((1, 0), {"t": [0]}, "nobody"), version, order=ADDED)
    sides.same(add((1, 0), {"t": [0]}, ""), version, order=ADDED)
    pair = Pair(sides)
    pair.init()
    pair.add({"t": [0, 1], "nowhere": [0], "u": [7]}, version)
    pair.add({"t": [0], "__consumer_offsets": [0]}, version)
    pair.add({"t": [0, 1]}, version)
    pair.add({"t": [0, 1]}, version)
    pair.add({"u": [0]}, version)
    pair.add({"u": [0]}, version, moved=1)
    pair.add({"u": [0]}, version, moved=-1)
    sides.same(add((2**40, 0), {"t": [0]}, pair.name), version, order=ADDED)
    pair.end(commit=False, version=4)
    pair.add({}, version)
    pair.end(commit=True, version=4)


@pytest.mark.parametrize("version", [4, 5])
def test_add_and_verify_partitions_as_a_broker(sides: SideBySide, version: int) -> None:
    first, second = Pair(sides), Pair(sides)
    first.init()
    second.init()
    for verify_only in (True, False, True):
        sides.same(
            lambda side, verify_only=verify_only: add_many(  # type: ignore[misc]
                (first.name, first.as_of(side), {"t": [0, 2], "u": [0]}, verify_only),
                (second.name, second.as_of(side), {"nowhere": [0], "t": [1]}, verify_only),
                ("nobody", (1, 0), {"t": [0]}, verify_only),
                ("", (1, 0), {"t": [0]}, verify_only),
            ),
            version,
            order=ADDED,
        )
    for moved in (-1, 0, 1):
        sides.same(
            lambda side, moved=moved: add_many(  # type: ignore[misc]
                (first.name, first.as_of(side, moved), {"t": [0, 1]}, True),
                (second.name, first.as_of(side), {"t": [0]}, True),
            ),
            version,
            order=ADDED,
        )
    first.end(commit=True)
    sides.same(lambda side: add_many((first.name, first.as_of(side), {"t": [0, 1]}, True)), version, order=ADDED)


@pytest.mark.parametrize("version", range(5))
def test_the_ends_of_the_first_generation(sides: SideBySide, version: int) -> None:
    for commit in (True, False):
        sides.same(end((1, 0), commit=commit, name=""), version)
        sides.same(end((1, 0), commit=commit, name="nobody"), version)
    pair = Pair(sides, generation=1)
    pair.init()
    for verdict in (None, True, False):
        if verdict is not None:
            pair.add({"t": [0], "u": [0]})
            for moved in (-1, 1):
                pair.end(commit=verdict, version=version, moved=moved)
            pair.end(commit=verdict, version=version)
        for commit in (True, False):
            for moved in (-1, 0, 1):
                pair.end(commit=commit, version=version, moved=moved)
    sides.same(end((2**40, 0), commit=True, name=pair.name), version)


def test_the_ends_of_the_second_generation(sides: SideBySide) -> None:
    for commit in (True, False):
        sides.same(end((1, 0), commit=commit, name=""), 5)
        sides.same(end((1, 0), commit=commit, name="nobody"), 5)
    pair = Pair(sides)
    pair.init()
    for verdict in (None, True, False, True):
        if verdict is not None:
            pair.add({"t": [0]})
            for moved in (-2, -1, 1):
                pair.end(commit=verdict, moved=moved)
            pair.end(commit=verdict)
        for commit in (True, False):
            for moved in (-2, -1, 1):
                pair.end(commit=commit, moved=moved)
        pair.end(commit=True)
    pair.end(commit=False)
    pair.end(commit=False, moved=-1)
    pair.end(commit=True, moved=-1)
    pair.end(commit=False)
    sides.same(end((2**40, 0), commit=True, name=pair.name), 5)


@pytest.mark.parametrize("version", [3, 7, 9, 10, 11, 12])
def test_produce(sides: SideBySide, version: int) -> None:
    pair = Pair(sides, generation=2 if version >= 12 else 1)
    pair.topic = f"produced-{version}"
    sides.create_topic(pair.topic, 3)
    pair.init()
    end_version = 5 if version >= 12 else 4
    pair.produce(0, version, name=None)
    pair.produce(0, version, name="")
    pair.produce(0, version, name="nobody")
    pair.produce(0, version, moved=1)
    pair.produce(0, version, moved=-1)
    pair.produce(1, version)
    if version < 12:
        pair.produce(0, version)
        pair.add({pair.topic: [0, 1]})
    pair.produce(0, version)
    pair.produce(0, version)
    pair.produce(2, version)
    pair.produce(1, version)
    pair.produce(2, version, transactional=False)
    pair.produce(0, version, partitions=[1, 2, 9])
    pair.produce(0, version, topic="nowhere")
    pair.produce(0, version, moved=1)
    pair.end(commit=True, version=end_version)
    pair.produce(2, version)
    pair.produce(1, version)
    pair.produce(0, version, moved=-1)
    pair.end(commit=False, version=end_version)
    pair.produce(0, version, transactional=False, topic="u")
    pair.produce(1, version, transactional=False, topic="u", name=None)
    pair.end(commit=False, version=end_version)


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(sides: SideBySide, version: int) -> None:
    sides.same(add_offsets((1, 0), "g", "nobody"), version)
    sides.same(add_offsets((1, 0), "g", ""), version)
    pair = Pair(sides)
    pair.init()
    pair.add_offsets("g", version)
    pair.add_offsets("", version)
    pair.add_offsets("g", version, moved=1)
    pair.add_offsets("g", version, moved=-1)
    pair.end(commit=True, version=4)


@pytest.mark.parametrize("version", range(6))
def test_txn_offset_commit(sides: SideBySide, version: int) -> None:
    pair = Pair(sides, generation=2 if version >= 5 else 1)
    pair.init()
    end_version = 5 if version >= 5 else 4
    group = f"of {pair.name}"
    sides.same(commit_offsets((1, 0), {"t": {0: 1}}, group, "nobody"), version)
    sides.same(commit_offsets((1, 0), {"t": {0: 1}}, group, ""), version)
    pair.commit_offsets({"t": {0: 1}}, version, group=group)
    pair.commit_offsets({"nowhere": {0: 1}}, version, group=group)
    pair.add_offsets(group)
    pair.commit_offsets({"t": {0: 1, 7: 1}, "nowhere": {0: 1}, "u": {0: -9}}, version, group=group)
    pair.commit_offsets({"t": {0: 1}}, version, group="")
    pair.commit_offsets({"t": {0: 1}}, version, group=group, moved=1)
    pair.commit_offsets({"t": {0: 1}}, version, group=group, moved=-1)
    if version >= 3:
        pair.commit_offsets({"t": {0: 1}}, version, group=group, generation=3, member="m")
        pair.commit_offsets({"t": {0: 1}}, version, group=group, member="m")
        pair.commit_offsets({"t": {0: 1}}, version, group=group, generation=3)
    pair.end(commit=True, version=end_version)
    if version < 5:
        pair.commit_offsets({"t": {0: 1}}, version, group=group)
    pair.commit_offsets({"t": {0: 1}}, version, group=group, moved=-1)
    pair.end(commit=False, version=end_version)


@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers(sides: SideBySide, version: int) -> None:
    order = {"markers.topics": "name", "markers.topics.partitions": "partition_index"}
    pair = Pair(sides)
    pair.init()
    ignoring = {"markers.producer_id"}
    sides.same(markers((1, 0), {}, commit=True), version, order=order)
    for moved, epoch, transaction_version in ((0, 0, 0), (0, 0, 2), (1, 0, 2), (1, 0, 2), (1, -1, 2)):
        if moved == 0:
            pair.produce(0)
        sides.same(
            lambda side, moved=moved, epoch=epoch, v=transaction_version: markers(  # type: ignore[misc]
                pair.as_of(side, moved),
                {"t": [0, 9], "nowhere": [0]},
                commit=True,
                coordinator_epoch=epoch,
                version=v,
            ),
            version,
            order=order,
            ignoring=ignoring,
        )
    pair.end(commit=True)


def test_describe_and_list(sides: SideBySide) -> None:
    topics = "transaction_states.topics"
    open_one, ended, empty = Pair(sides, "listed-open"), Pair(sides, "listed-ended"), Pair(sides, "listed-empty")
    for pair in (open_one, ended, empty):
        pair.init()
    for pair in (open_one, ended):
        pair.produce(0, partitions=[0, 1])
    ended.end(commit=True)
    names = ["listed-open", "listed-ended", "listed-empty", "nobody", ""]
    sides.same(
        DescribeTransactionsRequest(transactional_ids=names),
        0,
        ignoring={"transaction_states.producer_id", "transaction_states.transaction_start_time_ms"},
        order={topics: "topic", f"{topics}.partitions": lambda each: each},
    )
    for name in ("listed-empty", "nobody"):
        sides.same(
            DescribeTransactionsRequest(transactional_ids=[name]), 0, ignoring={"transaction_states.producer_id"}
        )
    everything = {"order": {"transaction_states": "transactional_id"}, "ignoring": {"transaction_states.producer_id"}}
    for version, more in (
        (0, {"state_filters": ["Ongoing"]}),
        (0, {"state_filters": ["Ongoing", "ongoing", "Nonsense", "Dead", "Nonsense"]}),
        (0, {"state_filters": ["Nonsense"]}),
        (0, {"producer_id_filters": [2**40]}),
        (1, {"duration_filter": 0, "state_filters": ["Ongoing"]}),
        (1, {"duration_filter": 10**9}),
        (1, {"duration_filter": -2, "state_filters": ["Ongoing"]}),
        (2, {"transactional_id_pattern": "listed-.*"}),
        (2, {"transactional_id_pattern": "listed"}),
        (2, {"transactional_id_pattern": ""}),
        (2, {"transactional_id_pattern": "("}),
        (2, {"transactional_id_pattern": "(?=l)"}),
    ):
        requested = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **more})  # type: ignore[arg-type]
        sides.same(requested, version, **everything)  # type: ignore[arg-type]
    sides.same(
        lambda side: ListTransactionsRequest(state_filters=[], producer_id_filters=[open_one.as_of(side)[0]]),
        0,
        **everything,  # type: ignore[arg-type]
    )
    open_one.end(commit=False)


def test_describe_producers(sides: SideBySide) -> None:
    sides.create_topic("described", 2)
    pair = Pair(sides)
    pair.topic = "described"
    requested = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.Topic(name="described", partition_indexes=[0, 1]),
            DescribeProducersRequest.Topic(name="nowhere", partition_indexes=[0]),
            DescribeProducersRequest.Topic(name="", partition_indexes=[0]),
        ]
    )
    path = "topics.partitions.active_producers"
    ignoring = {f"{path}.producer_id", f"{path}.last_timestamp"}
    pair.init()
    for sequence in (0, 1):
        pair.produce(sequence)
        sides.same(requested, 0, ignoring=ignoring)
    pair.end(commit=True)
    sides.same(requested, 0, ignoring=ignoring)
    pair.end(commit=False)
    sides.same(requested, 0, ignoring=ignoring)


def test_the_last_epochs(sides: SideBySide) -> None:
    """Takes half a minute: there is no other way to use up the epochs of an id than to use them."""
    pair = Pair(sides, "exhausted")
    use_up_epochs(pair, until=32764)
    for epoch in (32765, 32766):
        pair.add({"t": [0]})
        pair.end(commit=True)
        assert pair.epoch == epoch
    had = dict(pair.who)
    pair.add({"t": [0]})
    pair.end(commit=True)
    assert pair.epoch == 0
    assert all(pair.who[side][0] != had[side][0] for side in had)
    for commit in (True, False):
        pair.same(lambda side, commit=commit: end(had[side.name], commit=commit, name=pair.name), 5)  # type: ignore[misc]
    pair.same(lambda side: init(pair.name, who=had[side.name]), 5)
    pair.add({"t": [0]})
    pair.end(commit=False)
    kafka, trioka = (records(side, [pair.name])[pair.name][-12:] for side in (sides.kafka, sides.trioka))
    assert kafka == trioka


def test_both_have_written_the_same(sides: SideBySide) -> None:
    """The last: it compares what all the others have made them write."""
    names = [f"transactional-{number}" for number in range(1, 200)]
    kafka, trioka = records(sides.kafka, names), records(sides.trioka, names)
    assert sum(map(len, kafka.values())) > 100
    for name in names:
        assert kafka[name] == trioka[name], name
