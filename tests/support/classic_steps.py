"""Steps for scenarios about classic groups, and their world: one coordinator, one group, many clients.

Clients have short names. A member's id is shown as the name of its client, and as `a'`, `a''` for the second and third
id of the client. A client keeps its last answers: its id, its generation, and how it joined last.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from support.coordinator_runtime import CoordinatorDriver, DeliveredResponse, Written
from support.known_topics import KnownTopics
from support.scenarios import Line, Steps

from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.decision import Decision, Now, RequestId
from trioka.coordinator.groups import GroupCoordinator
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, CoordinatorContext, OffsetSettings
from trioka.protocol.errors import NONE, KafkaError, MemberIdRequired, error_class
from trioka.protocol.internal_records.classic_groups import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from trioka.protocol.messages.delete_groups import DeleteGroupsResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"
JOIN_VERSION = 9
Decide = Callable[[GroupCoordinator, RequestId, Now], Decision]


class Asker:
    """A client, and its own state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: list[str] = []
        self.member_id = ""
        self.generation = -1
        self.join = Line(name, [], {})

    def meet(self, member_id: str) -> None:
        if member_id not in self.ids:
            self.ids.append(member_id)

    def show(self, member_id: str) -> str:
        return self.name + "'" * self.ids.index(member_id)


class ClassicWorld:
    def __init__(self, coordinator: type[GroupCoordinator] = GroupCoordinator) -> None:
        self.settings = ClassicSettings()
        self.topics = KnownTopics(t=4, u=4)
        self._coordinator = coordinator
        self._random = Random(345)
        self._askers: dict[str, Asker] = {}
        self._asked: dict[RequestId, tuple[Asker, str]] = {}
        self.shell = CoordinatorDriver(self._new, GROUPS)
        self._shown = 0  # how many of the log's records have been mentioned
        self.notes: list[str] = []

    def _new(self) -> GroupCoordinator:
        context = CoordinatorContext(
            classic=lambda: self.settings,
            consumer=lambda group: ConsumerSettings(),
            offsets=OffsetSettings,
            topics=self.topics,
            deadlines=Deadlines(),
            random=self._random,
        )
        return self._coordinator(context)

    def asker(self, name: str) -> Asker:
        return self._askers.setdefault(name, Asker(name))

    def ask(self, asker: Asker, what: str, decide: Decide) -> None:
        request_id = self.shell.ask(
            lambda c, request_id, now: self._noted(asker, what, request_id, decide(c, request_id, now))
        )
        self._asked.setdefault(request_id, (asker, what))

    def _noted(self, asker: Asker, what: str, request_id: RequestId, decision: Decision) -> Decision:
        self._asked[request_id] = (asker, what)
        return decision

    def id_of(self, line: Line, asker: Asker) -> str:
        """`id=b` is the id of another client, `id=a'` an earlier or later id of its own, `id=` none."""
        text = line.options.get("id")
        if not text:
            return asker.member_id if text is None else ""
        self._meet()
        other = self._askers.get(text.rstrip("'"))
        return text if other is None else other.ids[text.count("'")]

    def show(self, member_id: str | None) -> str:
        if not member_id:
            return "nobody"
        known = next((asker for asker in self._askers.values() if member_id in asker.ids), None)
        return member_id if known is None else known.show(member_id)

    def _meet(self) -> None:
        """Names for the ids of members that have not received them yet."""
        for member in self.shell.coordinator.describe_group(GROUP, 5).members:
            self._askers[member.client_id].meet(member.member_id)

    # -- what followed -------------------------------------------------------------------------------------------------

    def happened(self) -> list[str]:
        self._meet()
        result, self.shell.delivered = self.shell.delivered, []
        for one in result:
            self._learn(one)
        written, self._shown = self.shell.log[self._shown :], len(self.shell.log)
        notes, self.notes = self.notes, []
        return [self._show_record(w) for w in written] + [self._show_answer(one) for one in result] + notes

    def _learn(self, result: DeliveredResponse) -> None:
        asker, _ = self._asked[result.request_id]
        if isinstance(result.response, JoinGroupResponse):
            if result.response.error_code in (NONE, MemberIdRequired.code):
                asker.member_id = result.response.member_id
                asker.meet(asker.member_id)
            if result.response.error_code == NONE:
                asker.generation = result.response.generation_id

    def _show_answer(self, result: DeliveredResponse) -> str:
        asker, what = self._asked[result.request_id]
        response = result.response
        code = response.code if isinstance(response, KafkaError) else _code_of(response)
        if code != NONE:
            of_whom = response.member_id if isinstance(response, JoinGroupResponse) else ""
            also = f" as {self.show(of_whom)}" if of_whom else ""
            return f"{asker.name}: {what} {error_class(code).name}{also}"
        if isinstance(response, JoinGroupResponse):
            leads = response.members != []
            others = " ".join(f"{self.show(m.member_id)}={m.metadata.decode()}" for m in response.members)
            skips = ", assignment stays" if response.skip_assignment else ""
            role = f"leads {others}" if leads else f"follows {self.show(response.leader)}"
            who = self.show(response.member_id)
            return f"{asker.name}: {what} {response.generation_id} {response.protocol_name} as {who}, {role}{skips}"
        if isinstance(response, SyncGroupResponse):
            return f"{asker.name}: {what} {response.protocol_name} {response.assignment.decode()!r}"
        if isinstance(response, LeaveGroupResponse) and response.members:
            members = (f"{self.show(m.member_id)} {m.group_instance_id or ''}".rstrip() for m in response.members)
            codes = (error_class(m.error_code).name if m.error_code else "ok" for m in response.members)
            return f"{asker.name}: {what} " + ", ".join(f"{m}: {c}" for m, c in zip(members, codes, strict=True))
        return f"{asker.name}: {what} ok"

    def _show_record(self, written: Written) -> str:
        kept = GROUPS.decode(written.key, written.value)
        assert kept is not None
        if isinstance(kept.key, OffsetCommitKey):
            return f"kept: offset of {kept.key.topic}-{kept.key.partition}"
        assert isinstance(kept.key, GroupMetadataKey)
        if kept.value is None:
            return "kept: no group"
        assert isinstance(kept.value, GroupMetadataValue)
        members = "".join(f" {self.show(m.member_id)}={m.assignment.decode()!r}" for m in kept.value.members)
        return f"kept: {kept.value.generation} {kept.value.protocol} led by {self.show(kept.value.leader)}:{members}"


def _code_of(response: object) -> int:
    if isinstance(response, OffsetCommitResponse):
        return response.topics[0].partitions[0].error_code
    if isinstance(response, DeleteGroupsResponse):
        return response.results[0].error_code
    assert isinstance(response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse)
    return response.error_code


# -- the steps ---------------------------------------------------------------------------------------------------------


def joins(world: ClassicWorld, line: Line) -> None:
    """`a joins session=10000 rebalance=60000 protocols=range,sticky topics=t instance=i v=9 type=consumer`; omitted
    values are those of the last time. `a joins anew` is a join without its earlier id."""
    asker = world.asker(line.who)
    if "anew" in line.words:
        asker.member_id = ""
    asker.join = text = line._replace(options={**asker.join.options, **line.options})
    version = text.number("v", JOIN_VERSION)
    names = text.options.get("protocols", "range")
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=text.number("session", 10_000),
        rebalance_timeout_ms=text.number("rebalance", 60_000),
        member_id=world.id_of(line, asker),
        group_instance_id=text.options.get("instance"),
        protocol_type=text.options.get("type", "consumer"),
        protocols=[
            JoinGroupRequest.Protocol(name=name, metadata=text.options.get("says", name[0]).encode())
            for name in names.split(",")
            if name
        ],
    )
    client = Client(asker.name, "/127.0.0.1", version)
    asker.join.options.pop("id", None)
    world.ask(asker, "join", lambda c, request_id, now: c.join_group(request_id, request, client, now))


def syncs(world: ClassicWorld, line: Line) -> None:
    """`a syncs a=0,1 b=2`: the leader sends the assignment."""
    asker = world.asker(line.who)
    shares = {name: share for name, share in line.options.items() if name not in ("id", "generation", "instance")}
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=line.number("generation", asker.generation),
        member_id=world.id_of(line, asker),
        group_instance_id=line.options.get("instance", asker.join.options.get("instance")),
        protocol_name=line.words[0] if line.words else None,
        assignments=[
            SyncGroupRequest.Assignment(
                member_id=world.id_of(Line(name, [], {"id": name}), asker), assignment=share.encode()
            )
            for name, share in shares.items()
        ],
    )
    client = Client(asker.name, "/127.0.0.1", 5)
    world.ask(asker, "sync", lambda c, request_id, now: c.sync_group(request_id, request, client, now))


def heartbeats(world: ClassicWorld, line: Line) -> None:
    asker = world.asker(line.who)
    request = HeartbeatRequest(
        group_id=GROUP,
        generation_id=line.number("generation", asker.generation),
        member_id=world.id_of(line, asker),
        group_instance_id=line.options.get("instance", asker.join.options.get("instance")),
    )
    client = Client(asker.name, "/127.0.0.1", 4)
    world.ask(asker, "heartbeat", lambda c, request_id, now: c.heartbeat(request_id, request, client, now))


def leaves(world: ClassicWorld, line: Line) -> None:
    """`a leaves`; `admin leaves b c i=instance`: others are sent away, by id or by instance."""
    asker = world.asker(line.who)
    version = line.number("v", 5)
    ids = [world.id_of(Line(name, [], {"id": name}), asker) for name in line.words] or [world.id_of(line, asker)]
    instances = [instance for name, instance in line.options.items() if name.startswith("i")]
    members = [LeaveGroupRequest.Member(member_id=member_id) for member_id in ids if member_id or not instances]
    members += [LeaveGroupRequest.Member(member_id="", group_instance_id=instance) for instance in instances]
    request = LeaveGroupRequest(group_id=GROUP, member_id=ids[0], members=members if version >= 3 else [])
    client = Client(asker.name, "/127.0.0.1", version)
    world.ask(asker, "leave", lambda c, request_id, now: c.leave_group(request_id, request, client, now))


def commits(world: ClassicWorld, line: Line) -> None:
    """`a commits t-0`; `admin commits t-0` has no generation, and commits from outside."""
    asker = world.asker(line.who)
    topic, _, partition = line.words[0].partition("-")
    where = OffsetCommitRequest.Topic.Partition(
        partition_index=int(partition), committed_offset=1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=line.number("generation", asker.generation),
        member_id=world.id_of(line, asker),
        group_instance_id=line.options.get("instance", asker.join.options.get("instance")),
        topics=[OffsetCommitRequest.Topic(name=topic, partitions=[where])],
    )
    client = Client(asker.name, "/127.0.0.1", 9)
    world.ask(asker, "commit", lambda c, request_id, now: c.commit_offsets(request_id, request, client, now))


def delete(world: ClassicWorld, line: Line) -> None:
    world.ask(world.asker("admin"), "delete", lambda c, request_id, now: c.delete_group(request_id, GROUP, now))


def time(world: ClassicWorld, line: Line) -> None:
    world.shell.pass_time(int(line.words[0]))


def crash(world: ClassicWorld, line: Line) -> None:
    """The coordinator starts again from its log; `crash losing` without the uncommitted records."""
    world.shell.crash(loses_uncommitted="losing" in line.words)
    world._shown = min(world._shown, len(world.shell.log))


def settings(world: ClassicWorld, line: Line) -> None:
    world.settings = replace(world.settings, **{name: int(value) for name, value in line.options.items()})


def writing(world: ClassicWorld, line: Line) -> None:
    """`writing waits`, `writing succeeds`, `writing fails NOT_ENOUGH_REPLICAS`: then nothing is appended until it
    succeeds again; `writing expires …`: waiting records were appended, and may or may not stay."""
    world.shell.write_as(*line.words)


def describe(world: ClassicWorld, line: Line) -> None:
    group = world.shell.coordinator.describe_group(GROUP, 5)
    members = "".join(
        f" {world.show(m.member_id)}={m.member_metadata.decode()}/{m.member_assignment.decode()}" for m in group.members
    )
    kind = f"{group.protocol_type} {group.protocol_data}".strip()
    world.notes.append(f"{group.group_state} ({kind}):{members}")
    world.notes.append(f"{len(world.shell.waiting)} wait")


STEPS: Steps[ClassicWorld] = {
    step.__name__: step
    for step in (joins, syncs, heartbeats, leaves, commits, delete, time, crash, settings, writing, describe)
}
