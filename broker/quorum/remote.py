"""The requests of a quorum node to other nodes: votes, fetches and snapshots.

A node that is not the leader fetches from the leader continuously. A fetch has this node's log end offset, up to which
its log is durable: it is both request and acknowledgement. The leader holds it until it has new records. When this
node learns of another leader, the pending fetch is cancelled.

A leader's log may begin after the end of this one. Then its snapshot is fetched in pieces, and is used only once it is
written completely.

All voters also refuse a node without the right CLUSTER_ACTION. It logs that and retries, as after any failure: the
right may be granted later.

A node whose directories belong to another cluster is refused by all voters. It stops then, if no voter has ever
accepted it.

Requests of an election are sent to all voters at once, each by a task of its own; a newer request of the same kind
replaces one without a response.
"""

import logging
from typing import Final

import trio

from trioka.cluster.raft import Follower
from trioka.cluster.raft_messages import (
    BeginEpoch,
    EndEpoch,
    EpochAndOffset,
    LoadSnapshot,
    RaftFetchRequest,
    RaftFetchResponse,
    RaftRequest,
    RaftVoteRequest,
    SendRequest,
)
from trioka.cluster.snapshot import Snapshot, SnapshotId, read_snapshot
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import (
    NONE,
    ClusterAuthorizationFailed,
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
from .rpc import fetch_request, node, request_of, to_fetch_response, to_vote_response

log = logging.getLogger("trioka.quorum")

MAX_WAIT_MS: Final = 500  # long poll of the leader, as in Kafka
MAX_SNAPSHOT_BYTES: Final = 1 << 30
FETCH, SNAPSHOT = "quorum fetch", "quorum snapshot"
PURPOSES: Final = (FETCH, SNAPSHOT, *(each.__name__ for each in (RaftVoteRequest, BeginEpoch, EndEpoch)))
"""The purposes of connections between quorum nodes."""
WARN_INTERVAL_S: Final = 60.0
REFUSED_S: Final = 1.0  # before a rejected fetch is repeated: the leader logs each rejection


class QuorumClient:
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
        self._source: tuple[int | None, int] = (None, -1)  # leader and epoch that are fetched from
        self._warned = -WARN_INTERVAL_S
        self._is_refused = False  # the latest fetch was not authorized
        self._foreign: set[Server] = set()  # peers that belong to another cluster
        self._nursery: trio.Nursery

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            self._quorum.send = self.send
            task_status.started()
            self._nursery.start_soon(self._fetch_on)
            self._nursery.start_soon(self._watch_leader)

    async def send_resignation(self) -> None:
        """Whether all requests have a response or have failed."""
        while self._asking:  # noqa: ASYNC110 - many things, and once in a life
            await trio.sleep(0.01)

    # -- elections -----------------------------------------------------------------------------------------------------

    def send(self, ask: SendRequest) -> None:
        purpose = type(ask.question).__name__
        if (earlier := self._asking.get((ask.to.id, purpose))) is not None:
            earlier.cancel()
        scope = self._asking[ask.to.id, purpose] = trio.CancelScope()
        self._nursery.start_soon(self._send, ask.to, ask.question, purpose, scope)

    async def _send(self, voter: ReplicaKey, question: RaftRequest, purpose: str, scope: trio.CancelScope) -> None:
        address = self._quorum.address_of(voter.id)
        try:
            with scope, self._quorum.failing():
                if address is not None:
                    await self._put(voter, question, address, purpose)
        except NetworkException as error:
            log.debug("no response to %s: %s", purpose, error)
            if isinstance(question, RaftVoteRequest):
                quorum = self._quorum
                quorum.step(quorum.raft.on_vote_timeout(question, voter, quorum.now_ms()))
        finally:
            if self._asking.get((voter.id, purpose)) is scope:
                del self._asking[voter.id, purpose]

    async def _put(self, voter: ReplicaKey, question: RaftRequest, address: Server, purpose: str) -> None:
        quorum = self._quorum
        request = request_of(question, voter, quorum.cluster_id, quorum.endpoints)
        peer = self._peers.peer(address.host, address.port, purpose, is_controller=True)
        response = await peer.send_request(request, timeout_s=self._request_timeout_s)
        self._note_refusal(response.error_code, address)
        if isinstance(question, RaftVoteRequest):
            raft_response = to_vote_response(response, voter, question)
            if raft_response is not None:
                quorum.step(quorum.raft.on_vote_response(raft_response, quorum.now_ms()))
        elif response.error_code == NONE and response.topics and response.topics[0].partitions:
            partition = response.topics[0].partitions[0]
            quorum.step(quorum.raft.on_leader_known(partition.leader_epoch, node(partition.leader_id), quorum.now_ms()))

    def _note_refusal(self, error_code: int, address: Server) -> None:
        if error_code == ClusterAuthorizationFailed.code:
            self._warn_once(
                f"the controller at {address} refuses the requests of this node, CLUSTER_AUTHORIZATION_FAILED: "
                "name the principal of this node in super.users of all nodes, or give it CLUSTER_ACTION"
            )
        if error_code != InconsistentClusterId.code:
            self._foreign.discard(address)
            return
        quorum = self._quorum
        self._warn_once(f"the node at {address} belongs to another cluster")
        self._foreign.add(address)
        others = [quorum.address_of(voter.id) for voter in quorum.raft.voters.latest if voter.id != quorum.node_id]
        if self._foreign.issuperset(others or quorum.node.bootstrap_servers):
            quorum.refuse(
                f"the log directories belong to cluster {quorum.cluster_id}, and the nodes at "
                f"{', '.join(map(str, sorted(self._foreign)))} to another one"
            )

    def _warn_once(self, complaint: str) -> None:
        now = trio.current_time()
        if now - self._warned >= WARN_INTERVAL_S:
            self._warned = now
            log.warning("%s", complaint)

    # -- fetching ------------------------------------------------------------------------------------------------------

    async def _watch_leader(self) -> None:
        """Cancel a fetch from a former leader."""
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

    @property
    def pause_s(self) -> float:
        """The pause before the next fetch after a failed one."""
        return REFUSED_S if self._is_refused else self._backoff_s

    async def _fetch_once(self) -> None:
        quorum = self._quorum
        while not quorum.raft.is_leader and not quorum.is_durable:  # it may have been leader meanwhile, and written
            async with quorum.disk:
                await quorum.sync()
        wanted = quorum.raft.fetch()
        if wanted is None:
            await quorum.moved.wait()
            return
        with trio.CancelScope() as self._fetching:
            self._source = (quorum.leader_id, quorum.epoch)
            if not await self._fetch(*wanted):
                await trio.sleep(self.pause_s)

    async def _fetch(self, leader_id: int | None, raft_request: RaftFetchRequest) -> bool:
        """Fetches from the leader. Returns whether to fetch again at once."""
        self._is_refused = False
        address = self._address(leader_id)
        if address is None:
            return False
        quorum = self._quorum
        request = fetch_request(
            raft_request,
            quorum.cluster_id,
            high_watermark=quorum.high_watermark,
            log_start=quorum.log.log_start_offset,
            max_wait_ms=min(MAX_WAIT_MS, quorum.raft_settings.fetch_timeout_ms // 3),
            max_bytes=self._fetch_bytes,
        )
        peer = self._peers.peer(address.host, address.port, FETCH, is_controller=True)
        try:
            response: FetchResponse = await peer.send_request(request, timeout_s=self._request_timeout_s)
        except NetworkException as error:
            log.debug("quorum leader: %s", error)
            return False
        return await self._fetched(response, raft_request, address)

    def _address(self, leader_id: int | None) -> Server | None:
        quorum = self._quorum
        if leader_id is not None:
            return quorum.address_of(leader_id)
        servers = quorum.node.bootstrap_servers
        return quorum.raft.choose(servers) if servers else None

    async def _fetched(self, response: FetchResponse, request: RaftFetchRequest, address: Server) -> bool:
        quorum = self._quorum
        self._note_refusal(response.error_code, address)
        self._is_refused = response.error_code == ClusterAuthorizationFailed.code
        found = to_fetch_response(response)
        if found is None:
            return False
        raft_response, records = found
        for endpoint in response.node_endpoints:
            if endpoint.node_id == raft_response.leader_id:
                quorum.learn(endpoint.node_id, endpoint.host, endpoint.port)
        async with quorum.disk:
            if quorum.files.end != request.end or quorum.epoch > raft_response.epoch:
                return True
            actions = quorum.raft.on_fetch_response(raft_response, request, quorum.now_ms())
            quorum.step(actions)
            is_plain = (
                not raft_response.is_refused and raft_response.diverging is None and raft_response.snapshot is None
            )
            if is_plain and self._is_from_leader(request, raft_response):
                await self._append(raft_response, records)
        for action in actions:
            if isinstance(action, LoadSnapshot):
                return await self._load_snapshot(SnapshotId(action.snapshot.offset, action.snapshot.epoch), address)
        return not raft_response.is_refused or bool(actions)

    def _is_from_leader(self, request: RaftFetchRequest, response: RaftFetchResponse) -> bool:
        role = self._quorum.raft.role
        has_followers = isinstance(role, Follower) and role.leader_id == response.leader_id
        return has_followers and self._quorum.epoch == request.epoch == response.epoch

    async def _append(self, response: RaftFetchResponse, records: memoryview) -> None:
        quorum = self._quorum
        if records:
            try:
                quorum.files.append_fetched(records)
            except KafkaStorageError:
                raise
            except (KafkaError, ProtocolError) as error:
                self._warn_once(f"the quorum leader sent records that cannot be appended: {error}")
                return
            await quorum.sync()
        if response.high_watermark >= 0:  # a new leader does not know it yet
            quorum.on_high_watermark(response.high_watermark)
            quorum.step(quorum.raft.followed(response.high_watermark))

    # -- snapshots -----------------------------------------------------------------------------------------------------

    async def _load_snapshot(self, snapshot: SnapshotId, address: Server) -> bool:
        """Fetches the snapshot and starts with it. Returns whether that succeeded. If the leader has deleted the
        snapshot, its response to the next fetch names another."""
        quorum = self._quorum
        log.info("fetching the metadata snapshot at offset %d from %s", snapshot.offset, address)
        epoch = quorum.epoch
        try:
            data = await self._snapshot_bytes(snapshot, address, epoch)
            content = await trio.to_thread.run_sync(read_snapshot, data)
        except KafkaStorageError:
            raise
        except (KafkaError, ProtocolError) as error:
            self._warn_once(f"the snapshot at offset {snapshot.offset} could not be fetched: {error}")
            return False
        return await self._begin_with(snapshot, data, content, epoch)

    async def _begin_with(self, snapshot: SnapshotId, data: bytearray, content: Snapshot, epoch: int) -> bool:
        """Install the snapshot unless this node leads or has its records by now (K8); checked again after disk
        waits."""
        quorum = self._quorum
        if quorum.epoch != epoch or quorum.raft.is_leader or snapshot.offset <= quorum.high_watermark:
            return False
        async with quorum.disk:
            await trio.to_thread.run_sync(quorum.files.write_snapshot, snapshot, bytes(data))
        if quorum.raft.is_leader or snapshot.offset <= quorum.high_watermark:
            return False
        await quorum.reset_to_snapshot(snapshot, content)
        return True

    async def _snapshot_bytes(self, snapshot: SnapshotId, address: Server, epoch: int) -> bytearray:
        peer = self._peers.peer(address.host, address.port, SNAPSHOT, is_controller=True)
        data, size = bytearray(), 1
        while len(data) < size:
            response: FetchSnapshotResponse = await peer.send_request(
                self._piece(snapshot, len(data), epoch), timeout_s=self._request_timeout_s
            )
            if response.error_code != NONE:
                raise error_class(response.error_code)()
            if not response.topics or not response.topics[0].partitions:
                raise ProtocolError("a response without a snapshot")
            raft_response = response.topics[0].partitions[0]
            if raft_response.error_code != NONE:
                raise error_class(raft_response.error_code)()
            piece, size = raft_response.unaligned_records, raft_response.size
            assert isinstance(piece, bytes | bytearray | memoryview)
            if raft_response.position != len(data) or not len(piece) or size > MAX_SNAPSHOT_BYTES:
                raise ProtocolError(
                    f"{len(piece)} bytes at {raft_response.position} of {size}, where offset {len(data)} was requested"
                )
            data += piece
            # Each piece shows that the leader is alive.
            without_records = RaftFetchResponse(leader_id=self._quorum.leader_id, epoch=epoch)
            request = RaftFetchRequest(replica=self._quorum.raft.me, epoch=epoch, end=EpochAndOffset(0, 0))
            self._quorum.step(self._quorum.raft.on_fetch_response(without_records, request, self._quorum.now_ms()))
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
