"""What a consumer group answers, where a scenario would not show it; and what it makes of logs of other brokers."""

from dataclasses import replace
from typing import Any

import pytest
from mutants.consumer_groups import beating
from mutants.plant import planted, within
from support.consumer_groups import GROUP, Consumer, ConsumerGroups, as_reported, as_set, settle
from support.known_topics import KnownTopics

from trioka.coordinator import consumer_heartbeat
from trioka.coordinator.client import Client
from trioka.coordinator.consumer_group import ConsumerGroup
from trioka.coordinator.consumer_member import ConsumerMember, Phase
from trioka.coordinator.decision import StoredRecord
from trioka.protocol.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
)
from trioka.protocol.internal_records import consumer_groups as ledger
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

TOPIC = (1).to_bytes(16, "big")  # the id of the first of KnownTopics


def replay(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.replay(StoredRecord(key, value))


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_client_of_the_first_version_is_given_an_id() -> None:
    groups = ConsumerGroups()
    given = {groups.join("", "orders", version=0).member_id or "" for _ in range(200)}
    assert len(given) == 200
    assert all(len(member_id) == 22 and not member_id.startswith("-") for member_id in given)
    assert given == groups.group.members.keys()


JOINING: dict[str, Any] = {"rebalance_timeout_ms": 1, "topic_partitions": [], "subscribed_topic_names": []}


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "said"),
    [
        ("", 0, 1, JOINING),
        (" ", 0, 1, JOINING),
        ("", 1, 0, {}),
        ("", -1, 0, {}),
        ("a", 0, 1, {**JOINING, "instance_id": ""}),
        ("a", 0, 1, {**JOINING, "rack_id": ""}),
        ("a", 0, 1, {**JOINING, "rebalance_timeout_ms": -1}),
        ("a", 0, 1, {**JOINING, "topic_partitions": None}),
        ("a", 0, 1, {**JOINING, "topic_partitions": as_reported({(TOPIC, 0)})}),
        ("a", 0, 1, {**JOINING, "subscribed_topic_names": None}),
        ("a", -2, 1, {}),
        ("a", -3, 1, {"instance_id": "i"}),
    ],
)
def test_a_request_that_says_nonsense_is_refused(
    member_id: str, epoch: int, version: int, said: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        ConsumerGroups().heartbeat(member_id, epoch, version=version, **said)


def test_a_group_must_be_named() -> None:
    with pytest.raises(InvalidRequest):
        ConsumerGroups().join("a", group_id="")


def test_an_assignor_must_be_one_that_the_broker_has() -> None:
    with pytest.raises(UnsupportedAssignor, match="Supported assignors: uniform, range"):
        ConsumerGroups().join("a", server_assignor="best")


def test_only_a_join_creates_a_group() -> None:
    groups = ConsumerGroups()
    for epoch in (-1, 1):
        with pytest.raises(GroupIdNotFound):
            groups.heartbeat("a", epoch)
    assert not groups.at_work.coordinator.groups


def test_members_get_the_heartbeat_interval() -> None:
    groups = ConsumerGroups(heartbeat_interval_ms=1234)
    assert groups.join("a").heartbeat_interval_ms == 1234
    groups.settings = replace(groups.settings, heartbeat_interval_ms=4321)  # of this group, while it lives
    assert groups.heartbeat("a", 2 if groups.group.epoch == 2 else 1).heartbeat_interval_ms == 4321


def test_a_full_heartbeat_gets_a_full_response() -> None:
    groups = ConsumerGroups()
    has = as_set(groups.join("a", "orders"))
    assert groups.heartbeat("a", 2).assignment is None
    assert groups.heartbeat("a", 2, topic_partitions=as_reported(has)).assignment is None
    whole = groups.heartbeat(
        "a", 2, topic_partitions=as_reported(has), rebalance_timeout_ms=30_000, subscribed_topic_names=["orders"]
    )
    assert as_set(whole) == has


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    assert groups.written(lambda: groups.heartbeat("a", 2)) == []


def test_a_member_that_moves_to_another_host_is_written_down_but_not_reassigned() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    (kept,) = groups.written(lambda: groups.heartbeat("a", 2, rack_id="r2"))
    assert isinstance(kept.value, ledger.ConsumerGroupMemberMetadataValue) and kept.value.rack_id == "r2"
    assert groups.group.epoch == 2


# What a heartbeat may change of the member or of its client; and the line that must not overlook it.
NEWS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"subscribed_topic_names": ["others"]}, {}, "request.subscribed_topic_names is None"),
    ({"subscribed_topic_regex": "o.*"}, {}, "request.subscribed_topic_regex is None"),
    ({"rack_id": "r2"}, {}, "request.rack_id is None"),
    ({"server_assignor": "range"}, {}, "request.server_assignor is None"),
    ({"rebalance_timeout_ms": 7}, {}, "request.rebalance_timeout_ms == -1"),
    ({}, {"id": "another"}, "client.id == member.client_id"),
    ({}, {"host": "/another"}, "client.host == member.client_host"),
]


def what_news_write(said: dict[str, Any], of_client: dict[str, str]) -> list[StoredRecord]:
    groups = ConsumerGroups(KnownTopics(orders=6, others=1))
    groups.join("a", "orders")
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=2, **said)
    client = Client(**{"id": "client-a", "host": "/127.0.0.1", "version": 1, **of_client})  # type: ignore[arg-type]
    written = groups.written(lambda: groups.ask(request, client))
    return [kept for kept in written if isinstance(kept.value, ledger.ConsumerGroupMemberMetadataValue)]


@pytest.mark.parametrize(("said", "of_client", "clause"), NEWS)
def test_a_heartbeat_with_something_new_writes_it_down(
    said: dict[str, Any], of_client: dict[str, str], clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(what_news_write(said, of_client)) == 1
    beating(monkeypatch, planted(consumer_heartbeat, within("Heartbeat._is_unchanged", clause), "True"))
    assert what_news_write(said, of_client) == [], "a planted mistake overlooks it"


def test_most_members_decide_on_the_assignor_and_the_first_in_the_list_if_as_many_want_each() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders", server_assignor="range")
    assert groups.group.describe().assignor_name == "range"
    groups.join("b", "orders", server_assignor="uniform")
    assert groups.group.describe().assignor_name == "uniform"
    groups.heartbeat("b", groups.group.members["b"].epoch, server_assignor="range")
    assert groups.group.describe().assignor_name == "range"


def test_the_target_is_the_assignors() -> None:
    groups = ConsumerGroups(KnownTopics(orders=3, clicks=3))
    a, b = Consumer(groups, "a", topics=["orders", "clicks"]), Consumer(groups, "b", topics=["orders", "clicks"])
    groups.join("a", "orders", "clicks", server_assignor="range")
    settle(a, b)
    assert sorted(number for _, number in a.has) == [0, 0, 1, 1]
    assert sorted(number for _, number in b.has) == [2, 2]


# -- looking at it -----------------------------------------------------------------------------------------------------


def test_a_group_is_described_with_what_members_still_have_to_give_up() -> None:
    groups = ConsumerGroups(KnownTopics(orders=4))
    has = as_set(groups.join("a", "orders", rack_id="r1", instance_id="i"))
    groups.join("b", "orders")
    groups.heartbeat("a", 2, instance_id="i", topic_partitions=as_reported(has))
    result = groups.group.describe()
    a = result.members[0]
    assert (result.group_state, result.group_epoch, result.assignment_epoch) == ("Reconciling", 3, 3)
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("a", "i", "r1", 2, 1)
    assert (a.client_id, a.client_host, a.subscribed_topic_names) == ("client-a", "/127.0.0.1", ["orders"])
    assert [topic.partitions for topic in a.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [topic.partitions for topic in a.target_assignment.topic_partitions] == [[0, 1]]
    groups.topics.remove("orders")
    assert groups.group.describe().members[0].assignment.topic_partitions == []


def test_a_group_is_listed_with_its_kind() -> None:
    groups = ConsumerGroups()
    groups.join("a")
    listed = groups.group.list()
    assert (listed.group_id, listed.protocol_type, listed.group_type) == (GROUP, "consumer", "consumer")


def test_a_group_with_members_is_not_deleted_and_an_empty_one_leaves_nothing() -> None:
    groups = ConsumerGroups()
    groups.join("a", subscribed_topic_regex="o.*")
    groups.pass_time(0)
    with pytest.raises(NonEmptyGroup):
        groups.group.validate_delete()
    groups.heartbeat("a", -1)
    groups.group.validate_delete()
    kept = groups.written(
        lambda: groups.at_work.ask(
            lambda coordinator, request_id, now: coordinator.delete_group(request_id, GROUP, now)
        )
    )
    assert [type(record.key).__name__.removeprefix("ConsumerGroup") for record in kept] == [
        "TargetAssignmentMetadataKey",
        "PartitionMetadataKey",
        "MetadataKey",
    ]
    assert not groups.at_work.coordinator.groups
    assert groups.at_work.coordinator.next_deadline() is None or groups.written(lambda: groups.pass_time(60_000)) == []


def test_a_group_is_subscribed_to_topics_by_name_and_by_pattern() -> None:
    groups = ConsumerGroups(KnownTopics(orders=1, clicks=1, visits=1))
    groups.join("a", "orders")
    groups.join("b", subscribed_topic_regex="cl.*")
    groups.pass_time(0)
    assert [groups.group.is_subscribed_to(name) for name in ("orders", "clicks", "visits")] == [True, True, False]
    groups.heartbeat("b", -1)
    assert not groups.group.is_subscribed_to("clicks")


def test_a_pattern_matches_nothing_that_its_asker_may_not_know_of() -> None:
    groups = ConsumerGroups(KnownTopics(orders=1, others=1))
    groups.hidden.add(("client-a", "others"))
    groups.join("a", subscribed_topic_regex="o.*")
    groups.pass_time(0)
    assert [groups.group.is_subscribed_to(name) for name in ("orders", "others")] == [True, False]
    groups.pass_time(30_000)
    groups.join("b", subscribed_topic_regex="oth.*")  # the group's patterns are resolved again, for b
    groups.pass_time(0)
    assert groups.group.is_subscribed_to("others")
    groups.heartbeat("a", -1)
    groups.heartbeat("b", -1)
    groups.at_work.ask(lambda coordinator, request_id, now: coordinator.delete_group(request_id, GROUP, now))
    assert not groups.at_work.coordinator.groups


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_offsets_are_shown_to_members_in_their_epoch_and_to_non_members() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    group = groups.group
    group.validate_offset_fetch(None, -1)
    group.validate_offset_fetch("a", 2)
    for epoch in (1, 3):
        with pytest.raises(StaleMemberEpoch):
            group.validate_offset_fetch("a", epoch)
    for member_id in ("b", ""):
        with pytest.raises(UnknownMemberId):
            group.validate_offset_fetch(member_id, 2)


def test_a_transaction_may_commit_without_saying_for_whom() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    group = groups.group
    assert group.validate_offset_commit("", -1, None, is_transactional=True, version=3) is None
    assert group.validate_offset_commit("a", 2, None, is_transactional=True, version=3) is None
    with pytest.raises(UnknownMemberId):
        group.validate_offset_commit("", -1, "i", is_transactional=True, version=3)


def test_a_member_of_the_classic_protocol_gets_generations() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    value = groups.group.members["a"].metadata_value()
    protocols = ledger.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=1, supported_protocols=[]
    )
    classic = replace(groups.group.members["a"].with_metadata(value), classic=protocols).metadata_value()
    replay(groups.group, ledger.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"), classic)
    with pytest.raises(IllegalGeneration):
        groups.group.validate_offset_commit("a", 3, None, is_transactional=False, version=8)
    check = groups.group.validate_offset_commit("a", 1, None, is_transactional=False, version=8)
    assert check is not None
    with pytest.raises(IllegalGeneration):
        check("orders", TOPIC, 0)
    with pytest.raises(IllegalGeneration):
        groups.group.validate_offset_fetch("a", 1)


# -- logs of other brokers ---------------------------------------------------------------------------------------------


def place(**said: Any) -> ledger.ConsumerGroupCurrentMemberAssignmentValue:
    defaults: dict[str, Any] = {"previous_member_epoch": 4, "state": 0, "partitions_pending_revocation": []}
    return ledger.ConsumerGroupCurrentMemberAssignmentValue(**{**defaults, **said})


def place_key(member_id: str = "a") -> ledger.ConsumerGroupCurrentMemberAssignmentKey:
    return ledger.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id)


@pytest.mark.parametrize(("epoch", "since"), [(5, 5), (-2, 0)])
def test_partitions_without_epochs_are_the_members_since_its_own(epoch: int, since: int) -> None:
    group = ConsumerGroups()._new()
    written = [ledger.TopicPartitions(topic_id=TOPIC, partitions=[0, 1])]
    group.replay(StoredRecord(place_key(), place(member_epoch=epoch, assigned_partitions=written)), 0, None)
    found = group.groups[GROUP]
    assert isinstance(found, ConsumerGroup)
    assert found.members["a"].assigned == {TOPIC: {0: since, 1: since}}


def test_the_partitions_of_topics_that_older_brokers_kept_are_forgotten_with_the_next_heartbeat() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    key = ledger.ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    replay(groups.group, key, ledger.ConsumerGroupPartitionMetadataValue(topics=[]))
    assert groups.written(lambda: groups.heartbeat("a", 2)) == [StoredRecord(key, None)]
    assert groups.written(lambda: groups.heartbeat("a", 2)) == []


def test_a_group_without_a_hash_gets_one_with_the_next_heartbeat() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    key = ledger.ConsumerGroupMetadataKey(group_id=GROUP)
    replay(groups.group, key, ledger.ConsumerGroupMetadataValue(epoch=2))
    written = groups.written(lambda: groups.heartbeat("a", 2))
    assert written[0].key == key
    assert groups.group.epoch == 3 and groups.group.metadata_hash != 0


def test_a_member_in_a_phase_of_the_future_must_restart() -> None:
    groups = ConsumerGroups()
    has = as_set(groups.join("a", "orders"))
    written = [ledger.TopicPartitions(topic_id=TOPIC, partitions=[0])]
    replay(groups.group, place_key(), place(member_epoch=2, state=9, assigned_partitions=written))
    assert groups.group.members["a"].phase is Phase.UNKNOWN
    for reported in (None, as_reported(has)):
        with pytest.raises(FencedMemberEpoch):
            groups.heartbeat("a", 2, topic_partitions=reported)
    assert as_set(groups.join("a", "orders")) == has


def test_what_a_member_has_may_be_read_before_what_it_is() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    log = groups.at_work.log
    before = groups.group.members
    log.reverse()
    groups.at_work.crash()
    assert groups.group.members == before


def test_a_member_whose_tombstone_comes_alone_leaves_its_partitions() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    replay(groups.group, ledger.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"), None)
    assert groups.group.is_empty
    assert not groups.group.is_taken(TOPIC, 0)
    assert not groups.group.is_subscribed_to("orders")


def test_tombstones_of_what_was_never_there_change_nothing() -> None:
    groups = ConsumerGroups()
    groups.join("a", "orders")
    before = groups.group.describe()
    for key in (
        ledger.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="x"),
        ledger.ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="x"),
        ledger.ConsumerGroupRegularExpressionKey(group_id=GROUP, regular_expression="x"),
        ledger.ConsumerGroupPartitionMetadataKey(group_id=GROUP),
        place_key("x"),
    ):
        replay(groups.group, key, None)
    assert groups.group.describe() == before


def test_a_member_and_its_records_say_the_same() -> None:
    member = ConsumerMember(
        id="a",
        epoch=7,
        previous_epoch=6,
        phase=Phase.REVOKING,
        instance_id="i",
        rack="r",
        rebalance_timeout_ms=5,
        client_id="c",
        client_host="/h",
        topics=frozenset({"x", "y"}),
        pattern="z.*",
        assignor="range",
        assigned={TOPIC: {3: 7, 1: 5}},
        revoking={TOPIC: {2: 4}},
    )
    fresh = ConsumerMember(id="a").with_metadata(member.metadata_value()).placed(member.assignment_value())
    assert fresh == member


def test_an_answer_waits_until_the_group_is_sure_of_what_it_says() -> None:
    groups = ConsumerGroups()
    at_work = groups.at_work
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=0, **JOINING)
    client = Client(id="c", host="/h", version=1)
    at_work.holds_back = True
    at_work.ask(
        lambda coordinator, request_id, now: coordinator.consumer_group_heartbeat(request_id, request, client, now)
    )
    assert groups.group.members.keys() == {"a"} and at_work.delivered == []
    at_work.commit()
    assert len(at_work.delivered) == 1


def test_a_group_that_could_not_be_written_is_not_there() -> None:
    groups = ConsumerGroups()
    groups.at_work.failure = GroupIdNotFound()
    with pytest.raises(KafkaError):
        groups.join("a", "orders")
    assert not groups.at_work.coordinator.groups
    groups.at_work.failure = None
    groups.pass_time(60_000)  # its member's session ends, and nothing comes of it
    assert groups.join("a", "orders").member_epoch == 2
