"""What a node of the quorum asks others: for votes, and for what the leader has written.

Whoever does not lead fetches from whoever does, all the time. A fetch says where this node's log ends, and that all of
it is durable: it is both question and acknowledgement. The leader holds it until it has something new. When it is
learnt from elsewhere that another node leads, the fetch that waits is given up.

A leader's log may begin behind the end of this one. Then its snapshot is fetched, piece by piece, and written down as a
whole before it counts.

A node whose directories belong to another cluster is told so by everybody. It gives up then, if it has never been told
anything else: nobody would ever talk to it.

Questions of an election are sent to all voters at once, each by a task of its own; a newer question of the same kind
takes the place of one that was not answered.
"""

import logging
from typing import Final

import trio

from trioka.cluster.raft import Follower
from trioka.cluster.raft_messages import (
    Ask,
    EpochBegun,
    EpochEnded,
    FetchAsked,
    FetchTold,
    LoadSnapshot,
    LogEnd,
    Question,
    VoteAsked,
)
from trioka.cluster.snapshot import Snapshot, SnapshotId, read_snapshot
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import (
    NONE,
    InconsistentClusterId,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    ProtocolError,
    error_class,
)
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

from ..config.addresses import Server
from ..peers.peer import Peers
from .driver import Quorum
from .rpc import fetch_request, fetch_told, node, request_of, vote_told

log = logging.getLogger("trioka.quorum")

MAX_WAIT_MS: Final = 500  # for news of the leader, as Kafka's nodes wait
MAX_SNAPSHOT_BYTES: Final = 1 << 30
FETCH, SNAPSHOT = "quorum fetch", "quorum snapshot"
PURPOSES: Final = (FETCH, SNAPSHOT, *(each.__name__ for each in (VoteAsked, EpochBegun, EpochEnded)))
"""What nodes of the quorum have connections for."""
COMPLAINT_INTERVAL_S: Final = 60.0


class Following:
    def __init__(
        self, quorum: Quorum, peers: Peers, *, request_timeout_s: float, backoff_s: float, fetch_bytes: int
    ) -> None:
        self._quorum = quorum
        self._peers = peers
        self._request_timeout_s = request_timeout_s
        self._backoff_s = backoff_s
        self._fetch_bytes = fetch_bytes
        self._asking: dict[tuple[int, str], trio.CancelScope] = {}
        self._fetching = trio.CancelScope()
        self._source: tuple[int | None, int] = (None, -1)  # the leader and the epoch that are fetched from
        self._complained = -COMPLAINT_INTERVAL_S
        self._foreign: set[Server] = set()  # who belongs to another cluster
        self._nursery: trio.Nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            self._quorum.send = self.send
            task_status.started()
            self._nursery.start_soon(self._fetch_on)
            self._nursery.start_soon(self._mind_leader)

    async def said_goodbye(self) -> None:
        """All questions are answered, or will not be."""
        while self._asking:  # noqa: ASYNC110 - many things, and once in a life
            await trio.sleep(0.01)

    # -- elections -----------------------------------------------------------------------------------------------------

    def send(self, ask: Ask) -> None:
        purpose = type(ask.question).__name__
        if (earlier := self._asking.get((ask.to.id, purpose))) is not None:
            earlier.cancel()
        scope = self._asking[ask.to.id, purpose] = trio.CancelScope()
        self._nursery.start_soon(self._ask, ask.to, ask.question, purpose, scope)

    async def _ask(self, voter: ReplicaKey, question: Question, purpose: str, scope: trio.CancelScope) -> None:
        address = self._quorum.address_of(voter.id)
        try:
            with scope, self._quorum.failing():
                if address is not None:
                    await self._put(voter, question, address, purpose)
        except NetworkException as error:
            log.debug("%s is not answered: %s", purpose, error)
            if isinstance(question, VoteAsked):
                quorum = self._quorum
                quorum.step(quorum.raft.vote_unanswered(question, voter, quorum.now_ms()))
        finally:
            if self._asking.get((voter.id, purpose)) is scope:
                del self._asking[voter.id, purpose]

    async def _put(self, voter: ReplicaKey, question: Question, address: Server, purpose: str) -> None:
        quorum = self._quorum
        request = request_of(question, voter, quorum.cluster_id, quorum.endpoints)
        peer = self._peers.peer(address.host, address.port, purpose)
        response = await peer.ask(request, timeout_s=self._request_timeout_s)
        self._note_cluster(response.error_code, address)
        if isinstance(question, VoteAsked):
            told = vote_told(response, voter, question)
            if told is not None:
                quorum.step(quorum.raft.vote_told(told, quorum.now_ms()))
        elif response.error_code == NONE and response.topics and response.topics[0].partitions:
            said = response.topics[0].partitions[0]
            quorum.step(quorum.raft.heard(said.leader_epoch, node(said.leader_id), quorum.now_ms()))

    def _note_cluster(self, error_code: int, address: Server) -> None:
        if error_code != InconsistentClusterId.code:
            self._foreign.discard(address)
            return
        quorum = self._quorum
        self._complain(f"the node at {address} belongs to another cluster")
        self._foreign.add(address)
        others = [quorum.address_of(voter.id) for voter in quorum.raft.voters.latest if voter.id != quorum.node_id]
        if self._foreign.issuperset(others or quorum.node.bootstrap_servers):
            quorum.refuse(
                f"the log directories belong to cluster {quorum.cluster_id}, and the nodes at "
                f"{', '.join(map(str, sorted(self._foreign)))} to another one"
            )

    def _complain(self, complaint: str) -> None:
        now = trio.current_time()
        if now - self._complained >= COMPLAINT_INTERVAL_S:
            self._complained = now
            log.warning("%s", complaint)

    # -- fetching ------------------------------------------------------------------------------------------------------

    async def _mind_leader(self) -> None:
        """A fetch from somebody who does not lead any more is of no use."""
        quorum = self._quorum
        while True:
            if (quorum.leader_id, quorum.epoch) != self._source:
                self._fetching.cancel()
            await quorum.moved.wait()

    async def _fetch_on(self) -> None:
        quorum = self._quorum
        while not quorum.has_failed:
            with quorum.failing():
                await self._fetch_once()

    async def _fetch_once(self) -> None:
        quorum = self._quorum
        while not quorum.raft.is_leader and not quorum.is_durable:  # it may have led meanwhile, and written
            async with quorum.disk:
                await quorum.sync()
        wanted = quorum.raft.fetch()
        if wanted is None:
            await quorum.moved.wait()
            return
        with trio.CancelScope() as self._fetching:
            self._source = (quorum.leader_id, quorum.epoch)
            if not await self._fetch(*wanted):
                await trio.sleep(self._backoff_s)

    async def _fetch(self, leader_id: int | None, asked: FetchAsked) -> bool:
        """Whether it makes sense to ask again at once."""
        address = self._address(leader_id)
        if address is None:
            return False
        quorum = self._quorum
        request = fetch_request(
            asked,
            quorum.cluster_id,
            high_watermark=quorum.high_watermark,
            log_start=quorum.log.log_start_offset,
            max_wait_ms=min(MAX_WAIT_MS, quorum.raft_settings.fetch_timeout_ms // 3),
            max_bytes=self._fetch_bytes,
        )
        peer = self._peers.peer(address.host, address.port, FETCH)
        try:
            response: FetchResponse = await peer.ask(request, timeout_s=self._request_timeout_s)
        except NetworkException as error:
            log.debug("the metadata's leader: %s", error)
            return False
        return await self._fetched(response, asked, address)

    def _address(self, leader_id: int | None) -> Server | None:
        quorum = self._quorum
        if leader_id is not None:
            return quorum.address_of(leader_id)
        servers = quorum.node.bootstrap_servers
        return quorum.raft.choose(servers) if servers else None

    async def _fetched(self, response: FetchResponse, asked: FetchAsked, address: Server) -> bool:
        quorum = self._quorum
        self._note_cluster(response.error_code, address)
        found = fetch_told(response)
        if found is None:
            return False
        told, records = found
        for endpoint in response.node_endpoints:
            if endpoint.node_id == told.leader_id:
                quorum.learn(endpoint.node_id, endpoint.host, endpoint.port)
        async with quorum.disk:
            if quorum.files.end != asked.end or quorum.epoch > told.epoch:
                return True
            actions = quorum.raft.fetch_told(told, asked, quorum.now_ms())
            quorum.step(actions)
            is_plain = not told.is_refused and told.diverging is None and told.snapshot is None
            if is_plain and self._is_from_leader(asked, told):
                await self._append(told, records)
        for action in actions:
            if isinstance(action, LoadSnapshot):
                return await self._load_snapshot(SnapshotId(action.snapshot.offset, action.snapshot.epoch), address)
        return not told.is_refused or bool(actions)

    def _is_from_leader(self, asked: FetchAsked, told: FetchTold) -> bool:
        role = self._quorum.raft.role
        is_followed = isinstance(role, Follower) and role.leader_id == told.leader_id
        return is_followed and self._quorum.epoch == asked.epoch == told.epoch

    async def _append(self, told: FetchTold, records: memoryview) -> None:
        quorum = self._quorum
        if records:
            try:
                quorum.files.append_fetched(records)
            except KafkaStorageError:
                raise
            except (KafkaError, ProtocolError) as error:
                self._complain(f"the metadata's leader sends what cannot be appended: {error}")
                return
            await quorum.sync()
        if told.high_watermark >= 0:  # a new leader does not know it yet
            quorum.heard(told.high_watermark)
            quorum.step(quorum.raft.followed(told.high_watermark))

    # -- snapshots -----------------------------------------------------------------------------------------------------

    async def _load_snapshot(self, snapshot: SnapshotId, address: Server) -> bool:
        """Whether it stands here now. A leader that has let it go meanwhile names another with the next fetch."""
        quorum = self._quorum
        log.info("fetching the metadata's snapshot at offset %d from %s", snapshot.offset, address)
        epoch = quorum.epoch
        try:
            data = await self._snapshot_bytes(snapshot, address, epoch)
            content = await trio.to_thread.run_sync(read_snapshot, data)
        except KafkaStorageError:
            raise
        except (KafkaError, ProtocolError) as error:
            self._complain(f"the snapshot at offset {snapshot.offset} could not be fetched: {error}")
            return False
        return await self._begin_with(snapshot, data, content, epoch)

    async def _begin_with(self, snapshot: SnapshotId, data: bytearray, content: Snapshot, epoch: int) -> bool:
        """Unless this node leads, or knows as much, by now (K8): also after it has waited for the disk."""
        quorum = self._quorum
        if quorum.epoch != epoch or quorum.raft.is_leader or snapshot.offset <= quorum.high_watermark:
            return False
        async with quorum.disk:
            await trio.to_thread.run_sync(quorum.files.write_snapshot, snapshot, bytes(data))
        if quorum.raft.is_leader or snapshot.offset <= quorum.high_watermark:
            return False
        await quorum.begin_anew(snapshot, content)
        return True

    async def _snapshot_bytes(self, snapshot: SnapshotId, address: Server, epoch: int) -> bytearray:
        peer = self._peers.peer(address.host, address.port, SNAPSHOT)
        data, size = bytearray(), 1
        while len(data) < size:
            response: FetchSnapshotResponse = await peer.ask(
                self._piece(snapshot, len(data), epoch), timeout_s=self._request_timeout_s
            )
            if response.error_code != NONE:
                raise error_class(response.error_code)()
            if not response.topics or not response.topics[0].partitions:
                raise ProtocolError("an answer without a snapshot")
            told = response.topics[0].partitions[0]
            if told.error_code != NONE:
                raise error_class(told.error_code)()
            piece, size = told.unaligned_records, told.size
            assert isinstance(piece, bytes | bytearray | memoryview)
            if told.position != len(data) or not len(piece) or size > MAX_SNAPSHOT_BYTES:
                raise ProtocolError(f"{len(piece)} bytes at {told.position} of {size}, where {len(data)} was asked for")
            data += piece
            # As long as pieces come, the leader is there.
            told_nothing = FetchTold(leader_id=self._quorum.leader_id, epoch=epoch)
            asked = FetchAsked(replica=self._quorum.raft.me, epoch=epoch, end=LogEnd(0, 0))
            self._quorum.step(self._quorum.raft.fetch_told(told_nothing, asked, self._quorum.now_ms()))
        return data

    def _piece(self, snapshot: SnapshotId, position: int, epoch: int) -> FetchSnapshotRequest:
        wanted = FetchSnapshotRequest.Topic.Partition
        return FetchSnapshotRequest(
            cluster_id=self._quorum.cluster_id,
            replica_id=self._quorum.node_id,
            max_bytes=self._fetch_bytes,
            topics=[
                FetchSnapshotRequest.Topic(
                    name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        wanted(
                            partition=0,
                            current_leader_epoch=epoch,
                            snapshot_id=wanted.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
                            position=position,
                            replica_directory_id=self._quorum.raft.me.directory,
                        )
                    ],
                )
            ],
        )
