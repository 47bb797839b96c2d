"""A member of a consumer group (KIP-848): it reads its assigned partitions, and commits its positions."""

from math import inf
from typing import TYPE_CHECKING, Any

import trio
from history.operations import Commit, Committed, Outcome, Subscribe
from simulation.client import GROUP_KIND, PASSES, Place, SimClient, key_of

from trioka.protocol import errors
from trioka.protocol.errors import NONE
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from simulation.brokers_world import BrokersWorld
    from simulation.clients import Clients

GROUP = "g"
HEARTBEAT_VERSION, COMMIT_VERSION, FETCH_VERSION, READ_VERSION = 1, 9, 9, 12
JOINS, LEAVES = 0, -1

FORGOTTEN = frozenset(
    error.code for error in (errors.UnknownMemberId, errors.FencedMemberEpoch, errors.StaleMemberEpoch)
)


class Member(SimClient):
    def __init__(self, clients: "Clients", world: "BrokersWorld", name: str, topic: str) -> None:
        super().__init__(world, name)
        self._clients = clients
        self._topic = topic
        self._id = f"{name}-{self.random.getrandbits(32):08x}"
        self._epoch = JOINS
        self._positions: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}

    async def run(self) -> None:
        while True:
            await self._heartbeat()
            if self._epoch > 0:
                for _ in range(self.random.randint(1, 4)):
                    await self._poll()
                await self._commit()
            await self.pause(0.3)

    # -- what it has ---------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        owned = sorted(place[1] for place in self._positions)
        topic_id = self.topic_ids.get(self._topic)
        if topic_id is None:
            await self.refresh()
            return
        TopicPartition = ConsumerGroupHeartbeatRequest.TopicPartition
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=3000,
            subscribed_topic_names=[self._topic],
            topic_partitions=[TopicPartition(topic_id=topic_id, partitions=owned)] if owned else [],
        )
        result = await self.ask_coordinator(GROUP_KIND, GROUP, request, HEARTBEAT_VERSION)
        if result is None:
            return
        if result.error_code in FORGOTTEN:
            self._rejoin()
        elif result.error_code != NONE:
            self._wait_out("heartbeat", result.error_code)
        else:
            if self._epoch == JOINS:
                self.world.history.ok(
                    self.name, Subscribe(frozenset({self._topic})), began=self.now(), ended=self.now()
                )
            self._epoch = result.member_epoch
            if result.assignment is not None:
                await self._take_up(
                    {(self._topic, i) for t in result.assignment.topic_partitions for i in t.partitions}
                )

    def _rejoin(self) -> None:
        self._epoch = JOINS
        self._positions, self._committed = {}, {}

    def _wait_out(self, what: str, code: int) -> None:
        if code not in PASSES:
            self.surprise(what, code)
        self.forget_coordinator(GROUP_KIND, GROUP)

    async def _take_up(self, wanted: set[Place]) -> None:
        if self._positions.keys() - wanted:
            await self._commit()
            self._positions = {place: at for place, at in self._positions.items() if place in wanted}
        for place in sorted(wanted - self._positions.keys()):
            at = await self._where(place)
            if at is None:
                self._rejoin()  # it leaves it to the next heartbeat
                return
            self._positions[place] = self._committed[place] = at
            self.world.history.ok(self.name, Subscribe(frozenset({self._topic})), began=self.now(), ended=self.now())

    async def _where(self, place: Place) -> int | None:
        """The committed offset; None if it gets no answer."""
        for _ in range(20):
            began = self.now()
            Group = OffsetFetchRequest.Group
            requested = Group(
                group_id=GROUP,
                member_id=self._id,
                member_epoch=self._epoch,
                topics=[Group.Topic(name=place[0], partition_indexes=[place[1]])],
            )
            result = await self.ask_coordinator(
                GROUP_KIND, GROUP, OffsetFetchRequest(groups=[requested], require_stable=True), FETCH_VERSION
            )
            if result is not None:
                code = result.groups[0].error_code
                if code == NONE:
                    (found,) = result.groups[0].topics[0].partitions
                    code = found.error_code
                if code == NONE:
                    at = None if found.committed_offset < 0 else int(found.committed_offset)
                    self.world.history.ok(self.name, Committed(GROUP, key_of(place), at), began=began, ended=self.now())
                    self.world.note(f"{self.name} is at {key_of(place)} {at}")
                    return at or 0
                if code in FORGOTTEN:
                    return None
                self._wait_out("OffsetFetch", code)
            await self.pause()
        return None

    # -- what it does with it ------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        if self._positions:
            began = self.now()
            reads = await self.fetch(
                list(self._positions), self._positions, is_committed=True, wait_ms=100, version=READ_VERSION
            )
            if reads:
                self.world.history.ok(self.name, reads, began=began, ended=self.now())
        else:
            await trio.sleep(0.05)

    async def _commit(self) -> None:
        moved = {place: at for place, at in self._positions.items() if at != self._committed.get(place)}
        if not moved:
            return
        requested = OffsetCommitRequest.Topic.Partition
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=[
                OffsetCommitRequest.Topic(
                    name=self._topic,
                    partitions=[
                        requested(partition_index=index, committed_offset=at, committed_metadata="")
                        for (_, index), at in moved.items()
                    ],
                )
            ],
        )
        began = self.now()
        result = await self.ask_coordinator(GROUP_KIND, GROUP, request, COMMIT_VERSION)
        codes: dict[int, int] = (
            {} if result is None else {each.partition_index: each.error_code for each in result.topics[0].partitions}
        )
        for place, at in moved.items():
            self._note_commit(place, at, codes.get(place[1]), began)
        if FORGOTTEN.intersection(codes.values()):
            self._rejoin()

    def _note_commit(self, place: Place, at: int, code: Any, began: float) -> None:
        """An unanswered commit may take effect at any time, and so may one that a former coordinator wrote; a commit
        that was refused for being late will not."""
        if code == NONE:
            outcome, ended = Outcome.OK, self.now()
            self._committed[place] = at
        elif code in FORGOTTEN or code == errors.CoordinatorLoadInProgress.code:
            outcome, ended = Outcome.FAIL, self.now()
        else:
            outcome, ended = Outcome.INFO, inf
            if code is not None and code not in PASSES:
                self.surprise(f"commit of {key_of(place)}", code)
        if code is not None and code not in (NONE, *FORGOTTEN):
            self.forget_coordinator(GROUP_KIND, GROUP)
        self.world.history.add(self.name, outcome, Commit(GROUP, key_of(place), at), began=began, ended=ended)
        self.world.note(f"{self.name} commits {key_of(place)} {at} {outcome.value}")
