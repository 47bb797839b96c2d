"""Classic groups: what others ask of them, what is loaded, and the fields of their answers."""

from random import Random

import pytest
from support.known_topics import KnownTopics

from trioka.coordinator.classic_group import ClassicGroup
from trioka.coordinator.classic_joining import MAX_PENDING, check_join
from trioka.coordinator.classic_member import ClassicMember, ClassicProtocol
from trioka.coordinator.classic_rebalance import MAX_GENERATION
from trioka.coordinator.classic_responses import leave_unknown_group
from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.decision import Decision, Now
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, CoordinatorContext, OffsetSettings
from trioka.protocol.codec import encode
from trioka.protocol.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from trioka.protocol.internal_records.classic_groups import GroupMetadataValue, MemberMetadata
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

START = Now(0, 1_700_000_000_000)
LATER = Now(5000, 1_700_000_005_000)
NEWEST = Client("app", "/10.0.0.7", 9)


def context(settings: ClassicSettings | None = None) -> CoordinatorContext:
    classic = settings or ClassicSettings(initial_rebalance_delay_ms=0)
    return CoordinatorContext(
        classic=lambda: classic,
        consumer=lambda group: ConsumerSettings(),
        offsets=OffsetSettings,
        topics=KnownTopics(),
        deadlines=Deadlines(),
        random=Random(1),
    )


def subscription(*topics: str, version: int = 1) -> bytes:
    text = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + bytes(encode(text, version))


def joining(
    *,
    member_id: str = "",
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    metadata: bytes | None = None,
    session_ms: int = 10_000,
) -> JoinGroupRequest:
    text = subscription("t") if metadata is None else metadata
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=text)],
    )


def carry_out(group: ClassicGroup, decision: Decision, error: KafkaError | None = None) -> list[object]:
    """The final response."""
    for kept in decision.records if error is None else ():
        assert isinstance(kept.value, GroupMetadataValue)
        group.replay(kept.value)
    text: list[object] = [answer.response for answer in decision.replies]
    if decision.on_committed is not None:
        text += carry_out(group, decision.on_committed(error, LATER), error)
    return text


def due(around: CoordinatorContext) -> None:
    around.deadlines.cancel(("g", "join"))  # as `Deadlines.due` does before it is called


def stable(request: JoinGroupRequest | None = None) -> tuple[ClassicGroup, JoinGroupResponse]:
    around = context()
    group = ClassicGroup("g", around, START)
    carry_out(group, group.join(1, request or joining(), NEWEST._replace(version=3), LATER))
    due(around)
    (result,) = carry_out(group, group.expire(("g", "join"), LATER))
    assert isinstance(result, JoinGroupResponse)
    shared = SyncGroupRequest(
        group_id="g",
        generation_id=result.generation_id,
        member_id=result.member_id,
        group_instance_id=(request or joining()).group_instance_id,
        assignments=[SyncGroupRequest.Assignment(member_id=result.member_id, assignment=b"work")],
    )
    (share,) = carry_out(group, group.sync(2, shared, LATER))
    assert isinstance(share, SyncGroupResponse) and share.assignment == b"work"
    return group, result


# -- ids and answers ---------------------------------------------------------------------------------------------------


def test_an_id_is_made_of_the_client_s_or_the_instance_s_name_and_a_uuid() -> None:
    group = ClassicGroup("g", context(), START)
    (result,) = carry_out(group, group.join(1, joining(), NEWEST, START))
    assert isinstance(result, JoinGroupResponse) and result.error_code == MemberIdRequired.code
    assert result.member_id.startswith("app-") and len(result.member_id) == len("app-") + 36
    assert result.member_id[len("app-") + 14] == "4"
    group.join(2, joining(instance_id="one"), NEWEST, START)
    (member,) = group.members
    assert member.id.startswith("one-") and len(member.id) == len("one-") + 36


def test_a_refusal_leaves_the_protocol_empty_or_null_as_kafka_does() -> None:
    group, _ = stable(joining(instance_id="one"))
    for version, name in ((9, None), (7, None), (6, ""), (5, "")):
        request = joining(member_id="other", instance_id="one")
        (fenced,) = carry_out(group, group.join(3, request, NEWEST._replace(version=version), LATER))
        assert isinstance(fenced, JoinGroupResponse)
        assert (fenced.error_code, fenced.protocol_name) == (FencedInstanceId.code, name)
        assert encode(fenced, version)
        request = joining(protocol_type="connect")
        (refused,) = carry_out(group, group.join(3, request, NEWEST._replace(version=version), LATER))
        assert isinstance(refused, JoinGroupResponse) and refused.protocol_name == ""
        assert encode(refused, version)


def test_the_first_version_of_a_join_has_one_timeout_for_both() -> None:
    group = ClassicGroup("g", context(), START)
    group.join(1, joining(session_ms=7000), NEWEST._replace(version=0), START)
    assert [m.rebalance_timeout_ms for m in group.members] == [7000]


def test_a_session_must_be_within_the_limits() -> None:
    around = context(ClassicSettings(min_session_timeout_ms=10, max_session_timeout_ms=20))
    check_join(joining(session_ms=10), around)
    check_join(joining(session_ms=20), around)
    for wrong in (9, 21, -1):
        with pytest.raises(InvalidSessionTimeout):
            check_join(joining(session_ms=wrong), around)


def test_pending_members_are_limited() -> None:
    group = ClassicGroup("g", context(), START)
    for request_id in range(MAX_PENDING):
        group.join(request_id, joining(), NEWEST, START)
    (result,) = carry_out(group, group.join(MAX_PENDING, joining(), NEWEST, START))
    assert isinstance(result, JoinGroupResponse) and result.error_code == GroupMaxSizeReached.code


def test_no_member_leaves_a_group_that_does_not_exist() -> None:
    members = [LeaveGroupRequest.Member(member_id="m"), LeaveGroupRequest.Member(member_id="", group_instance_id="i")]
    request = LeaveGroupRequest(group_id="g", members=members)
    answered = leave_unknown_group(request, NEWEST._replace(version=5))
    assert answered.error_code == 0
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in answered.members] == [
        ("m", None, UnknownMemberId.code),
        ("", "i", UnknownMemberId.code),
    ]
    old = leave_unknown_group(LeaveGroupRequest(group_id="g", member_id="m"), NEWEST._replace(version=2))
    assert old.error_code == UnknownMemberId.code and old.members == []


# -- what is kept ------------------------------------------------------------------------------------------------------


def kept(*members: MemberMetadata, generation: int = 7, since: int = 5, leader: str | None = "m") -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=leader if members else None,
        current_state_timestamp=since,
        members=list(members),
    )


def kept_member(name: str, rebalance_ms: int = 60_000) -> MemberMetadata:
    return MemberMetadata(
        member_id=name,
        client_id="app",
        client_host="/10.0.0.7",
        rebalance_timeout=rebalance_ms,
        session_timeout=10_000,
        subscription=subscription("t"),
        assignment=name.encode(),
    )


def loaded(value: GroupMetadataValue, around: CoordinatorContext | None = None) -> ClassicGroup:
    group = ClassicGroup("g", around or context())
    group.replay(value)
    assert group.begin(LATER) == Decision()
    return group


def test_a_group_is_loaded_as_its_last_record_has_it() -> None:
    around = context()
    group = ClassicGroup("g", around)
    group.replay(kept(generation=6))
    assert group.state == "Empty"
    group.replay(kept(kept_member("m"), kept_member("n", rebalance_ms=-1)))
    group.begin(LATER)
    assert (group.state, group.generation, group.protocol_name, group.leader) == ("Stable", 7, "range", "m")
    assert [(m.id, m.assignment, m.rebalance_timeout_ms) for m in group.members] == [
        ("m", b"m", 60_000),
        ("n", b"n", 10_000),  # a record of before there were two timeouts
    ]
    assert around.deadlines.due(LATER.steady_ms + 9_999) == []
    assert around.deadlines.due(LATER.steady_ms + 10_000) == [("g", "session", "m"), ("g", "session", "n")]


def test_a_record_written_by_a_group_is_that_of_the_group() -> None:
    group, _ = stable()
    assert group.kept is not None
    again = loaded(group.kept)
    assert again.describe() == group.describe() and again.list() == group.list()
    assert again.record() == group.record()._replace(value=group.kept)
    assert again.state_since_ms == group.state_since_ms == LATER.wall_ms


def test_a_leader_that_is_not_among_the_members_does_no_harm() -> None:
    around = context()
    group = loaded(kept(kept_member("m"), leader="gone"), around)
    group.join(1, joining(member_id="m"), NEWEST, LATER)
    assert group.leader == "m" or group.state == "Stable"
    around.deadlines.cancel(("g", "session", "m"))
    decision = group.expire(("g", "session", "m"), LATER)
    assert [record.value is not None for record in decision.records] == [True] and group.is_empty


def test_an_old_record_does_not_say_since_when() -> None:
    group = loaded(kept(since=-1))
    assert group.state_since_ms is None and group.offsets_expire_since(commit_ms=3) == 3


def test_after_the_last_generation_comes_the_first() -> None:
    group = loaded(kept(generation=MAX_GENERATION))
    around = group._context
    group.join(1, joining(), NEWEST._replace(version=3), LATER)
    due(around)
    (result,) = carry_out(group, group.expire(("g", "join"), LATER))
    assert isinstance(result, JoinGroupResponse) and result.generation_id == 0
    assert encode(result, 9)


def test_another_kind_of_group_becomes_this_one_with_its_work_shared_out() -> None:
    around = context()
    member = ClassicMember(
        id="m",
        instance_id=None,
        client_id="app",
        client_host="/10.0.0.7",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(ClassicProtocol("range", subscription("t")),),
        assignment=b"work",
    )
    group = ClassicGroup.of_members("g", around, 12, [member], LATER)
    assert (group.state, group.generation, group.protocol_name, group.leader) == ("Stable", 12, "range", "m")
    assert group.is_subscribed_to("t") and not group.is_subscribed_to("u")
    value = group.record().value
    assert isinstance(value, GroupMetadataValue)
    assert loaded(value).describe() == group.describe()
    assert around.deadlines.get(("g", "session", "m")) == LATER.steady_ms + 10_000
    assert group.rebalance(LATER) == Decision() and group.state == "PreparingRebalance"


def test_a_forgotten_group_answers_waiting_members_and_has_nothing_due() -> None:
    around = context()
    group = ClassicGroup("g", around, START)
    group.join(1, joining(), NEWEST._replace(version=3), START)
    group.join(2, joining(), NEWEST, START)
    (answer,) = group.forget()
    assert answer.request_id == 1 and isinstance(answer.response, JoinGroupResponse)
    assert answer.response.error_code == RebalanceInProgress.code
    assert len(around.deadlines) == 0
    for validate in (group.validate_delete, group.validate_offset_delete):
        with pytest.raises(GroupIdNotFound):
            validate()


def test_an_assignment_that_is_written_after_the_group_was_forgotten_changes_nothing() -> None:
    group, result = stable()
    (again,) = carry_out(group, group.join(3, joining(member_id=result.member_id), NEWEST, LATER))
    assert isinstance(again, JoinGroupResponse)
    shared = SyncGroupRequest(
        group_id="g", generation_id=again.generation_id, member_id=result.member_id, assignments=[]
    )
    decision = group.sync(4, shared, LATER)
    assert [answer.request_id for answer in group.forget(NotCoordinator)] == [4]
    assert decision.on_committed is not None and decision.on_committed(None, LATER) == Decision()


# -- what others ask ---------------------------------------------------------------------------------------------------


def test_a_group_is_described_with_what_its_members_say_only_while_all_agree() -> None:
    group, _ = stable()
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host) == ("app", "/10.0.0.7")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"work")
    group.join(3, joining(), NEWEST._replace(version=3), LATER)
    described = group.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in described.members] == [b"", b""]
    listed = group.list()
    assert (listed.group_state, listed.group_type) == ("PreparingRebalance", "classic")


def test_only_an_empty_group_may_be_deleted() -> None:
    group, result = stable()
    with pytest.raises(NonEmptyGroup):
        group.validate_delete()
    leaving = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.Member(member_id=result.member_id)])
    carry_out(group, group.leave(3, leaving, NEWEST._replace(version=5), LATER))
    group.validate_delete()
    (tombstone,) = group.tombstones()
    assert tombstone.value is None


def test_offsets_of_a_group_that_is_not_of_consumers_are_not_deleted_while_it_lives() -> None:
    group, _ = stable(joining(protocol_type="connect", metadata=b"what ever"))
    with pytest.raises(NonEmptyGroup):
        group.validate_offset_delete()
    assert not group.is_subscribed_to("t")
    stable()[0].validate_offset_delete()
    ClassicGroup("g", context(), START).validate_offset_delete()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_topics_of_consumers_are_known_whatever_the_version_of_what_they_say(version: int) -> None:
    group, _ = stable(joining(metadata=subscription("t", "u", version=version)))
    assert group.is_subscribed_to("t") and group.is_subscribed_to("u") and not group.is_subscribed_to("v")


@pytest.mark.parametrize(
    "said", [b"", b"\0", b"\0\1\0\0", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\5ab", b"\xff" * 40]
)
def test_consumers_that_cannot_be_understood_may_read_any_topic(said: bytes) -> None:
    group, _ = stable(joining(metadata=said))
    assert group.is_subscribed_to("t")
    assert group.offsets_expire_since(commit_ms=3) is None


def test_offsets_age_while_they_are_unused() -> None:
    simple = ClassicGroup("g", context(), START)
    assert simple.is_simple and simple.offsets_expire_since(commit_ms=3) == 3
    group, _ = stable()
    assert not group.is_simple
    assert group.offsets_expire_since(commit_ms=3) == 3  # of topics without a subscription
    group.join(3, joining(), NEWEST._replace(version=3), LATER)
    assert group.offsets_expire_since(commit_ms=3) is None
    empty = loaded(kept(since=77))
    assert not empty.is_subscribed_to("t") and empty.offsets_expire_since(commit_ms=3) == 77
    connect, _ = stable(joining(protocol_type="connect", metadata=b""))
    assert connect.offsets_expire_since(commit_ms=3) is None


def test_a_transaction_may_commit_without_saying_for_whom() -> None:
    group, result = stable()
    group.validate_offset_commit("", -1, None, is_transactional=True)
    with pytest.raises(UnknownMemberId):
        group.validate_offset_commit("", -1, None, is_transactional=False)
    with pytest.raises(UnknownMemberId):
        group.validate_offset_commit("somebody", result.generation_id, None, is_transactional=True)
    group.join(3, joining(member_id=result.member_id), NEWEST, LATER)
    group.validate_offset_commit(result.member_id, group.generation, None, is_transactional=True)
    with pytest.raises(RebalanceInProgress):
        group.validate_offset_commit(result.member_id, group.generation, None, is_transactional=False)


def test_anyone_may_fetch_offsets() -> None:
    stable()[0].validate_offset_fetch(None, -1)
