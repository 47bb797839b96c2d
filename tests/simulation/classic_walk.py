"""A random walk of many clients through one classic group: they join, share out, commit, leave, fall silent and come
back, some of them static, some with old versions; time passes; writing fails or takes its time; the coordinator
crashes. All from a seed.

Every step checks that the answers to the clients are consistent:

    G1   a commit is accepted only from a member of the group's generation, and only when it is written
    G2   in one generation a partition has one owner, before and after a crash
    …    one leader assigns the partitions of each generation; every request is answered once
    …    every wait has an end: a member that the group waits for has a deadline
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from support.classic_steps import GROUP, Decide
from support.coordinator_runtime import CoordinatorDriver
from support.known_topics import KnownTopics

from trioka.coordinator.classic_group import ClassicGroup
from trioka.coordinator.classic_states import Phase
from trioka.coordinator.client import Client
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.decision import RequestId
from trioka.coordinator.groups import GroupCoordinator
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, CoordinatorContext, OffsetSettings
from trioka.protocol.errors import NONE, CoordinatorNotAvailable, KafkaError, MemberIdRequired, NotCoordinator
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.schema import Response

PARTITIONS = 60
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"))
HEALING_MS = 200_000


class Walker:
    """A client, and its view of the group."""

    def __init__(self, number: int, random: Random) -> None:
        self.name = f"c{number}"
        self.instance_id = f"i{number}" if number % 5 == 0 else None
        self.version = random.choice((9, 9, 8, 5)) if self.instance_id else random.choice((9, 9, 6, 9, 3))
        self.session_ms = random.choice((6000, 10_000))
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []  # the members that it leads
        self.is_synced = False
        self.pending: RequestId | None = None


class Walk:
    def __init__(self, seed: int, clients: int = 50, coordinator: type[GroupCoordinator] = GroupCoordinator) -> None:
        self.random = Random(seed)
        self.settings = ClassicSettings(initial_rebalance_delay_ms=500)
        self.walkers = [Walker(number, self.random) for number in range(clients)]
        self._coordinator = coordinator
        self._deadlines: Deadlines[tuple[str, ...]] = Deadlines()
        self.shell = CoordinatorDriver(self._new, GROUPS)
        self._asked: dict[RequestId, tuple[Walker, Callable[[Walker, Response], None]]] = {}
        self._instances: dict[str, str] = {}  # of member ids
        self._incarnation = 0
        self._announced = -1  # the highest generation in any answer of this coordinator
        self._owners: dict[tuple[int, int], str] = {}  # (generation, partition) → the client that received it
        self._leaders: dict[tuple[int, int], str] = {}  # (incarnation, generation) → the client that was the leader
        self._offset = 0
        self.accepted: set[int] = set()  # committed offsets; each is unlike all others
        self.generations: set[int] = set()

    def _new(self) -> GroupCoordinator:
        self._deadlines = Deadlines()
        context = CoordinatorContext(
            classic=lambda: self.settings,
            consumer=lambda group: ConsumerSettings(),
            offsets=lambda: OffsetSettings(check_interval_ms=2**40),
            topics=KnownTopics(t=PARTITIONS),
            deadlines=self._deadlines,
            random=self.random,
        )
        return self._coordinator(context)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()
        self.heal()

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.20:
            self.shell.pass_time(self.random.choice((1, 100, 500, 1000)))
            for walker in self.walkers:
                if walker.is_synced and walker.pending not in self.shell.waiting and self.random.random() < 0.6:
                    self._heartbeat(walker)
        elif chance < 0.203:
            self._crash()
        elif chance < 0.204:
            self.shell.failure = self.random.choice((None, CoordinatorNotAvailable(), NotCoordinator()))
        elif chance < 0.24:
            self.shell.failure = None
            if self.random.random() < 0.2:
                self.shell.holds_back = True
            else:
                self.shell.commit(CoordinatorNotAvailable() if self.random.random() < 0.1 else None)
        elif chance < 0.241:
            self.settings = replace(self.settings, max_size=self.random.choice((30, 49, 2**31 - 1)))
        else:
            for _ in range(5):
                self._act(self._any_walker())
                self._deliver_responses()
                self.check()
        self._deliver_responses()

    def _any_walker(self) -> Walker:
        """Mostly a client with a pending action."""
        if self.random.random() < 0.8:
            busy = [w for w in self.walkers if not w.is_synced and w.pending not in self.shell.waiting]
            if busy:
                return self.random.choice(busy)
        return self.random.choice(self.walkers)

    def _act(self, walker: Walker) -> None:
        chance = self.random.random()
        if chance < 0.002:
            walker.forget()
        elif chance < 0.004:
            self._leave(walker)
        elif walker.pending in self.shell.waiting and chance < (
            0.5 if walker.others else 0.99 if walker.member_id else 1
        ):
            return  # most are patient; leaders are less so, and a client without an id would become another member
        elif walker.generation < 0 or chance < 0.008:
            self._join(walker)
        elif not walker.is_synced or chance < 0.08:
            self._sync(walker)
        elif chance < 0.5:
            self._heartbeat(walker)
        else:
            self._commit(walker)

    def _crash(self) -> None:
        self.shell.crash(loses_uncommitted=self.random.random() < 0.5)
        self._incarnation += 1
        self._announced = -1

    def heal(self) -> None:
        """Without faults, and with correct clients, the group becomes stable with all of them."""
        self.shell.failure = None
        self.shell.commit()
        self.settings = ClassicSettings(initial_rebalance_delay_ms=500)
        for _ in range(HEALING_MS // 500):
            for walker in self.walkers:
                if walker.pending in self.shell.waiting:
                    continue
                if walker.generation < 0:
                    self._join(walker)
                elif not walker.is_synced:
                    self._sync(walker)
                else:
                    self._heartbeat(walker)
                self._deliver_responses()
            self.shell.pass_time(500)
            self._deliver_responses()
            self.check()
        group = self.group()
        assert group is not None and group.state == Phase.STABLE.value and len(group.members) == len(self.walkers)
        assert not self.shell.waiting
        found = {
            kept.value.offset
            for written in self.shell.log
            if (kept := GROUPS.decode(written.key, written.value)) is not None and isinstance(kept.key, OffsetCommitKey)
            if isinstance(kept.value, OffsetCommitValue)
        }
        assert self.accepted <= found, "G1: a commit that was accepted is not in the log"

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(self, walker: Walker, decide: Decide, hear: Callable[[Walker, Response], None]) -> None:
        walker.pending = self.shell.ask(decide)
        self._asked[walker.pending] = (walker, hear)

    def _deliver_responses(self) -> None:
        result, self.shell.delivered = self.shell.delivered, []
        for request_id, response in result:
            walker, hear = self._asked.pop(request_id)
            if isinstance(response, KafkaError):
                walker.generation, walker.is_synced = -1, False
            elif request_id == walker.pending or isinstance(response, OffsetCommitResponse):
                hear(walker, response)

    def _join(self, walker: Walker) -> None:
        names = self.random.choice(PROTOCOLS)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=walker.session_ms,
            rebalance_timeout_ms=5000,
            member_id=walker.member_id,
            group_instance_id=walker.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=b"") for name in names],
        )
        client = Client(walker.name, "/127.0.0.1", walker.version)
        walker.generation, walker.is_synced, walker.others = -1, False, []
        self._ask(
            walker, lambda c, request_id, now: c.join_group(request_id, request, client, now), self._on_join_response
        )

    def _on_join_response(self, walker: Walker, response: Response) -> None:
        assert isinstance(response, JoinGroupResponse)
        if response.error_code == MemberIdRequired.code:
            walker.member_id = response.member_id
        elif response.error_code != NONE:
            walker.member_id = ""
        else:
            walker.member_id = response.member_id
            walker.generation = response.generation_id
            self._announced = max(self._announced, response.generation_id)
            if walker.instance_id is not None:
                self._instances[response.member_id] = walker.instance_id
            if response.members and not response.skip_assignment:
                walker.others = [member.member_id for member in response.members]
                self._instances |= {m.member_id: m.group_instance_id for m in response.members if m.group_instance_id}
                leader = self._leaders.setdefault(
                    (self._incarnation, walker.generation), self._member_key(walker.member_id)
                )
                assert leader == self._member_key(walker.member_id), f"generation {walker.generation} has two leaders"

    def _sync(self, walker: Walker) -> None:
        partitions = list(range(PARTITIONS))
        self.random.shuffle(partitions)
        shares = {member_id: partitions[n :: len(walker.others)] for n, member_id in enumerate(walker.others)}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=walker.generation,
            member_id=walker.member_id,
            group_instance_id=walker.instance_id,
            assignments=[
                SyncGroupRequest.Assignment(member_id=member_id, assignment=bytes(share))
                for member_id, share in shares.items()
            ],
        )
        client = Client(walker.name, "/127.0.0.1", 5)
        generation = walker.generation
        self._ask(
            walker,
            lambda c, request_id, now: c.sync_group(request_id, request, client, now),
            lambda walker, response: self._on_sync_response(walker, generation, response),
        )

    def _on_sync_response(self, walker: Walker, generation: int, response: Response) -> None:
        assert isinstance(response, SyncGroupResponse)
        if response.error_code != NONE:
            walker.generation = -1
            return
        walker.is_synced = True
        self.generations.add(generation)
        for partition in response.assignment:
            member = self._member_key(walker.member_id)
            owner = self._owners.setdefault((generation, partition), member)
            assert owner == member, f"G2: partition {partition} is {owner}'s and {member}'s in generation {generation}"

    def _member_key(self, member_id: str) -> str:
        """A static member is the same under all its ids."""
        return self._instances.get(member_id, member_id)

    def _heartbeat(self, walker: Walker) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=walker.generation,
            member_id=walker.member_id,
            group_instance_id=walker.instance_id,
        )
        client = Client(walker.name, "/127.0.0.1", 4)
        self._ask(
            walker,
            lambda c, request_id, now: c.heartbeat(request_id, request, client, now),
            self._on_heartbeat_response,
        )

    def _on_heartbeat_response(self, walker: Walker, response: Response) -> None:
        assert isinstance(response, HeartbeatResponse)
        if response.error_code != NONE:
            walker.generation, walker.is_synced = -1, False

    def _commit(self, walker: Walker) -> None:
        """Now and then with a generation that is over."""
        generation = walker.generation - self.random.choice((0, 0, 0, 1))
        self._offset += 1
        offset = self._offset
        partition = OffsetCommitRequest.Topic.Partition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=walker.member_id,
            group_instance_id=walker.instance_id,
            topics=[OffsetCommitRequest.Topic(name="t", partitions=[partition])],
        )
        client = Client(walker.name, "/127.0.0.1", 9)
        # Accepted requests are decided now, although the answer may come later.
        is_late = generation < self._announced
        before = len(self.shell.log)

        def heard(walker: Walker, response: Response) -> None:
            assert isinstance(response, OffsetCommitResponse)
            if response.topics[0].partitions[0].error_code == NONE:
                assert not is_late, (
                    f"G1: a commit of generation {generation} is accepted, and {self._announced} is here"
                )
                self.accepted.add(offset)

        self._ask(walker, lambda c, request_id, now: c.commit_offsets(request_id, request, client, now), heard)
        assert len(self.shell.log) == before or not is_late, f"G1: a commit of generation {generation} is written"

    def _leave(self, walker: Walker) -> None:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[LeaveGroupRequest.Member(member_id=walker.member_id, group_instance_id=walker.instance_id)],
        )
        client = Client(walker.name, "/127.0.0.1", 5)
        walker.forget()
        self._ask(walker, lambda c, request_id, now: c.leave_group(request_id, request, client, now), lambda w, r: None)

    # -- what must hold in between -------------------------------------------------------------------------------------

    def group(self) -> ClassicGroup | None:
        group = self.shell.coordinator.groups.get(GROUP)
        assert group is None or hasattr(group, "sync")
        return group  # type: ignore[return-value]

    def check(self) -> None:
        group = self.group()
        if group is None:
            return
        rebalance = group._rebalance
        roster, phase = rebalance.roster, rebalance.phase
        joined = [member.join_request_id for member in roster if member.join_request_id is not None]
        synced = [member.sync_request_id for member in roster if member.sync_request_id is not None]
        assert roster.joined == len(joined), "those who wait are miscounted"
        assert (roster.leader in roster) == (len(roster) > 0), "no leader"
        assert roster.unsynced <= {member.id for member in roster}, "a share is kept for a departed member"
        assert not roster.pending & {member.id for member in roster}, "a present member is expected"
        assert phase is not Phase.EMPTY or not len(roster), "an empty group has a member"
        assert phase is Phase.COMPLETING or not synced, "a member waits for an assignment that will not come"
        if self.shell.is_up_to_date:
            assert self.shell.waiting == {*joined, *synced}, "no response to a waiting member"
        for member in roster:
            assert member.is_excused or self._is_due("session", member.id), f"no deadline of {member.id}"
        for member_id in roster.pending:
            assert self._is_due("session", member_id), f"no deadline of {member_id}, who is expected"
        assert phase is not Phase.PREPARING or self._is_due("join"), "the others are waited for without end"
        assert not roster.unsynced or self._is_due("sync"), "members may sync whenever they like"

    def _is_due(self, *key: str) -> bool:
        return self._deadlines.get((GROUP, *key)) is not None
