"""FetcherManager: replicates the partitions that this broker follows from their leaders.

For each leader there are num.replica.fetchers fetchers: tasks that fetch all partitions followed there, in one request
and one session, over a connection of their own. Batches are appended unchanged, with their offsets and epochs; the
leader's high watermark and log start offset apply up to the follower's log end offset. The next request acknowledges
the appended records to the leader, so records that must be durable first (flush.messages) are flushed before.

Where the logs diverge, the leader returns the diverging epoch, and the follower truncates its log by epochs
(cluster/leader_state.py) until they agree. A replica whose end is before the leader's log start offset restarts there
with an empty log.

Records that the leader has only in the object store are not copied: the replica begins behind them
(remote_beginning.py), in a task of its own, and is fetched from then on.

A damaged log (storage/quarantine.py) is appended to as usual while it is healed (healing.py). Only if the damage is not
committed yet (cluster/healing.py), fetches start at the damage. The leader's records then replace the damaged ones; if
the leader has no records there, the log is truncated as soon as this replica is out of the ISR (S6).

A leader may have thousands of partitions, few of which get records, and every record causes a fetch. So the request is
kept between rounds, and a round looks only at partitions with new records or a changed state. All partitions are
checked from time to time, because a log start offset moves without a notification.

A partition with an error must not delay the others: it is left out with a growing backoff, up to
replica.fetch.backoff.ms. Between two requests the metadata may change (another leader, another epoch): a response for a
partition that is no longer followed in that epoch is dropped.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.brokers import NOT_REGISTERED
from trioka.cluster.brokers import Broker as Registration
from trioka.cluster.healing import RepairAction, first_uncommitted_damage, known_committed, repair_action
from trioka.cluster.leader_state import truncation_point
from trioka.protocol.errors import (
    NONE,
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    UnknownServerError,
    error_class,
)
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.storage.append_validation import UnexpectedAppendOffset
from trioka.storage.failstop_disk import OutOfDescriptors
from trioka.storage.leader_epochs import UNDEFINED_EPOCH
from trioka.storage.quarantine import Damage
from trioka.storage.tiered_log import lacks_remote_history

from ..config.layers import Config
from ..config.replication_keys import (
    NUM_REPLICA_FETCHERS,
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_SOCKET_RECEIVE_BUFFER_BYTES,
    REPLICA_SOCKET_TIMEOUT_MS,
)
from ..config.tier_keys import FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE
from .fetch_session_client import VERSION, FetchSessionClient, Key, Limits, Position
from .partitions import Replica
from .remote_beginning import RemoteBeginning

if TYPE_CHECKING:
    from ..broker import Broker
    from ..peers.peer import Peer

log = logging.getLogger("trioka.followers")

FIRST_BACKOFF_S: Final = 0.02
THROTTLED_S: Final = 0.1  # how long a throttled replica is left out before it is checked again
LIST_OFFSETS_VERSION: Final = 9
EARLIEST: Final = -2
LATEST: Final = -1
FULL_SCAN_S: Final = 1.0
BEGINNING: Final = "beginning of replicas"  # a connection of their own, because fetches wait at the leader
BEGIN_ATTEMPTS: Final = 20  # of an empty replica to begin behind the last tiered offset
MAX_PARTITIONS_PER_TURN: Final = 16  # then other tasks run

Result = FetchResponse.Topic.Partition


class FollowedPartition:
    """A replica that follows, and the time of its next fetch."""

    __slots__ = ("backoff_s", "has_failed", "is_beginning", "is_behind", "last_error", "not_before", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.not_before = 0.0
        self.backoff_s = 0.0
        self.has_failed = False  # its disk has failed: it is left out until the metadata changes
        self.last_error = ""
        self.is_behind = True  # as of the last response
        self.is_beginning = False  # a task looks where it begins

    @property
    def key(self) -> Key:
        return self.replica.topic_id, self.replica.index

    @property
    def position(self) -> Position:
        its_log, leader_epoch = self.replica.log, self.replica.leader_epoch
        end, epoch, start = its_log.log_end_offset, its_log.epochs.latest_epoch, its_log.log_start_offset
        if not its_log.quarantine.damages:
            return Position(end, epoch, start, leader_epoch)
        damage = first_uncommitted_damage(its_log.quarantine.damages, its_log.high_watermark)
        if damage is not None:
            end = max(damage.first_offset, its_log.local_log_start_offset)
            epoch = its_log.epochs.epoch_for_offset(end - 1) if end > start else UNDEFINED_EPOCH
        return Position(end, epoch, start, leader_epoch)

    @property
    def fetch_offset(self) -> int:
        """The offset to fetch from."""
        its_log = self.replica.log
        return self.position.offset if its_log.quarantine.damages else its_log.log_end_offset


class FetcherManager:
    """All partitions that this broker follows."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._fetchers_by_replica: dict[Replica, ReplicaFetcher] = {}

    @property
    def is_following(self) -> bool:
        return bool(self._fetchers_by_replica)

    def follow(self, replica: Replica) -> None:
        """Start fetching from the replica's current leader."""
        number = (int.from_bytes(replica.topic_id[-4:]) + replica.index) % self._broker.config[NUM_REPLICA_FETCHERS]
        fetcher = self._fetchers.get((replica.leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[replica.leader_id, number] = ReplicaFetcher(
                self._broker, replica.leader_id, number
            )
            self._broker.nursery.start_soon(fetcher.run)
        if self._fetchers_by_replica.get(replica) is not fetcher:
            self.leave(replica)
        self._fetchers_by_replica[replica] = fetcher
        fetcher.add(replica)

    def leave(self, replica: Replica) -> None:
        """Stop fetching: this replica leads, has no leader, or was removed."""
        fetcher = self._fetchers_by_replica.pop(replica, None)
        if fetcher is not None:
            fetcher.drop(replica)


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(self, broker: "Broker", leader_id: int, number: int) -> None:
        self._broker = broker
        self._leader_id = leader_id
        self._purpose = f"replica fetcher {number}"
        self._followed: dict[Key, FollowedPartition] = {}
        self._session = FetchSessionClient(broker.node_id)
        self._wake = trio.Event()
        self._address: tuple[str, int] | None = None
        self._registration: Registration | None = None  # the leader's, which is fetched from
        self._known_peer: Peer | None = None
        self._asked: dict[Key, Position] = {}
        self._backed_off: dict[Key, FollowedPartition] = {}  # left out until their backoff ends
        self._changed: dict[Key, None] = {}  # to be checked, in the order of the request
        self._unsent: dict[Key, None] = {}  # appended to since the last request
        self._scanned_at = -FULL_SCAN_S  # when all partitions were last checked
        self._config: Config | None = None  # from which these values were read:
        self._limits: Limits
        self._timeout_s: float

    def add(self, replica: Replica) -> None:
        followed = FollowedPartition(replica)
        its_log, config = replica.log, self._broker.config
        try:
            if lacks_remote_history(its_log):
                its_log.truncate_fully_and_start_at(its_log.log_start_offset, now_ms=self._broker.clock.now_ms())
        except KafkaError as error:
            self._fail(followed, error)
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        if its_log.config.remote_storage and not its_log.log_end_offset:
            followed.is_beginning = config[FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE]
            if followed.is_beginning:
                self._broker.nursery.start_soon(self._begin_behind_last_tiered, followed)
        self._wake.set()

    def drop(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.index)
        self._followed.pop(key, None)
        self._changed[key] = None

    async def run(self) -> None:
        while True:
            try:
                await self._fetch_once()
            except KafkaError as error:
                log.info("cannot fetch from broker %d: %s", self._leader_id, error)
                self._session.reset()
                await self._wait_for_work(self._max_backoff_s)
            except Exception as mistake:  # an internal error; the next round may succeed
                log.error("internal error: fetching from broker %d", self._leader_id, exc_info=mistake)
                self._session.reset()
                await self._wait_for_work(self._max_backoff_s)

    @property
    def _max_backoff_s(self) -> float:
        return self._broker.config[REPLICA_FETCH_BACKOFF_MS] / 1000

    async def _wait_for_work(self, seconds: float) -> None:
        """Waits, with a limit, until there are partitions to follow."""
        self._wake = trio.Event()
        with trio.move_on_after(seconds):
            await self._wake.wait()

    async def _fetch_once(self) -> None:
        if self._broker.broker_epoch == NOT_REGISTERED:
            # Before, the leader could not distinguish this incarnation from an earlier one with more records (KIP-903).
            await self._wait_for_work(FIRST_BACKOFF_S)
            return
        now = self._broker.clock.now()
        self._select_partitions(now)
        if not self._asked:
            pause_s = min((one.not_before - now for one in self._backed_off.values()), default=float("inf"))
            await self._wait_for_work(pause_s)
            return
        peer = await self._peer()
        if peer is None:
            await self._wait_for_work(self._max_backoff_s)
            return
        if self._config is not self._broker.config:
            self._configure(self._broker.config)
        await self._make_durable()
        if not self._asked:
            return
        unsaid, self._unsent = self._unsent, {}
        request = self._session.request(self._asked, self._broker.broker_epoch, self._limits, unsaid)
        response = await peer.send_request(request, VERSION, timeout_s=self._timeout_s)
        if self._session.handle_response(response):
            await self._process_response(peer, response)
        else:
            log.info("broker %d: %s", self._leader_id, error_class(response.error_code).name)
            await self._wait_for_work(FIRST_BACKOFF_S)

    async def _make_durable(self) -> None:
        """flush.messages: flushes before the next fetch, which acknowledges all records before its offset, including
        records from before the last restart."""
        for key in self._unsent:
            one = self._followed.get(key)
            if one is not None and one.replica.wants_flush:
                try:
                    await self._broker.commit.flush(one.replica.log)
                except KafkaError as error:
                    self._fail(one, error)
                    self._asked.pop(key, None)
                    self._changed[key] = None

    def _configure(self, config: Config) -> None:
        self._config = config
        self._timeout_s = config[REPLICA_SOCKET_TIMEOUT_MS] / 1000
        self._limits = Limits(
            config[REPLICA_FETCH_WAIT_MAX_MS],
            config[REPLICA_FETCH_MIN_BYTES],
            config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[REPLICA_FETCH_MAX_BYTES],
        )

    def _select_partitions(self, now: float) -> None:
        """Select the partitions of the next request."""
        if now - self._scanned_at >= FULL_SCAN_S:
            self._scanned_at = now
            self._changed.update(dict.fromkeys(self._followed))
        self._changed.update({key: None for key, one in self._backed_off.items() if one.not_before <= now})
        for key in self._changed:
            one = self._followed.get(key)
            self._backed_off.pop(key, None)
            self._asked.pop(key, None)
            if one is None or one.has_failed or one.is_beginning:
                continue
            if one.not_before <= now and one.is_behind and self._broker.replication.fetched.is_throttling(one.replica):
                one.not_before = now + THROTTLED_S
            if one.not_before <= now:
                self._asked[key] = one.position
            else:
                self._backed_off[key] = one
        self._unsent |= self._changed
        self._changed = {}

    async def _peer(self) -> "Peer | None":
        """The leader's current registration in the metadata; None if unknown."""
        broker = self._broker.metadata.brokers.get(self._leader_id)
        if broker is not None and broker is self._registration and self._config is self._broker.config:
            return self._known_peer
        self._registration = broker
        listener = None if broker is None else broker.listener(self._broker.node.inter_broker)
        address = None if listener is None else (listener.host, listener.port)
        if address != self._address:
            if self._address is not None:
                await self._broker.peers.forget(*self._address, self._purpose)
            self._address = address
            self._session.reset()
        self._known_peer = None
        if address is None:
            return None
        peer, config = self._broker.peers.peer(*address, self._purpose), self._broker.config
        if config.is_set(REPLICA_SOCKET_RECEIVE_BUFFER_BYTES):
            peer.receive_buffer_bytes = config[REPLICA_SOCKET_RECEIVE_BUFFER_BYTES]
        self._known_peer = peer
        return peer

    # -- responses -----------------------------------------------------------------------------------------------------

    async def _process_response(self, peer: "Peer", response: FetchResponse) -> None:
        out_of_range = []
        taken = 0
        for topic in response.responses:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition_index)
                self._changed[key] = None
                followed = self._followed.get(key)
                if followed is None or not _is_still_requested(followed, self._asked):
                    continue
                if result.error_code == OffsetOutOfRange.code:
                    out_of_range.append(followed)
                elif result.error_code == OffsetMovedToTieredStorage.code:
                    followed.is_beginning = True
                    self._broker.nursery.start_soon(self._begin, followed)
                elif result.error_code != NONE:
                    if result.error_code == CorruptMessage.code:
                        self._unclaimed_damage(followed.replica, result)  # others may need its records behind that
                    self._back_off(followed, error_class(result.error_code)())
                else:
                    self._process_partition(followed, result)
                taken += 1
                if taken % MAX_PARTITIONS_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()
        if out_of_range:
            await self._handle_out_of_range(peer, out_of_range)

    def _process_partition(self, followed: FollowedPartition, result: Result) -> None:
        try:
            if result.diverging_epoch.epoch >= 0 or result.diverging_epoch.end_offset >= 0:
                self._truncate(followed.replica, result.diverging_epoch)
            elif followed.fetch_offset < followed.replica.log.log_end_offset:
                self._truncate_damage(followed, result)
            else:
                self._append(followed.replica, result)
                followed.is_behind = followed.replica.log.log_end_offset < result.high_watermark
        except (KafkaError, UnexpectedAppendOffset) as error:
            self._fail(followed, error)
        else:
            followed.backoff_s, followed.last_error = 0.0, ""

    def _truncate(self, replica: Replica, diverging: Result.DivergingEpoch) -> None:
        its_log = replica.log
        own_epoch, own_end = its_log.end_offset_for_epoch(diverging.epoch)
        cut = truncation_point(diverging.epoch, diverging.end_offset, own_epoch, own_end, its_log.log_end_offset)
        log.info("%r: log truncated from %d to %d", replica, its_log.log_end_offset, cut.offset)
        its_log.truncate_to(cut.offset, now_ms=self._broker.clock.now_ms())

    def _truncate_damage(self, followed: FollowedPartition, result: Result) -> None:
        """Truncates the log at damage that was not committed as of this response. The log is not truncated while this
        replica is in the ISR, and intact records are never removed."""
        replica, its_log = followed.replica, followed.replica.log
        damage = self._unclaimed_damage(replica, result)
        if damage is None:
            return  # the damage is committed: the next fetch starts at the log end offset
        followed.not_before = self._broker.clock.now() + self._max_backoff_s
        cure = repair_action(
            damage, leads=False, high_watermark=its_log.high_watermark, log_end_offset=its_log.log_end_offset
        )
        if cure is RepairAction.FETCH_AGAIN:
            assert isinstance(result.records, memoryview | bytes | None)
            self._broker.replication.healing.offer(replica, bytes(result.records or b""))
        elif not self._counts_as_in_sync(replica):
            log.warning("%r: refetching the damaged log from offset %d", replica, damage.first_offset)
            its_log.truncate_to(damage.first_offset, now_ms=self._broker.clock.now_ms())
            followed.not_before = 0.0

    def _unclaimed_damage(self, replica: Replica, result: Result) -> Damage | None:
        """The damage behind the high watermark, as far as the leader reports it."""
        its_log = replica.log
        damage = first_uncommitted_damage(its_log.quarantine.damages, its_log.high_watermark)
        if damage is None:
            return None
        high_watermark = known_committed(
            result.high_watermark,
            damage,
            latest_epoch=its_log.epochs.latest_epoch,
            leader_epoch=replica.leader_epoch,
            end=its_log.log_end_offset,
        )
        if its_log.advance_high_watermark(high_watermark):
            self._broker.purgatory.notify(replica)
        return first_uncommitted_damage(its_log.quarantine.damages, its_log.high_watermark)

    def _counts_as_in_sync(self, replica: Replica) -> bool:
        topic = self._broker.metadata.topics.by_id(replica.topic_id)
        return topic is None or self._broker.node_id in topic.partitions[replica.index].isr

    def _append(self, replica: Replica, result: Result) -> None:
        its_log, now_ms = replica.log, self._broker.clock.now_ms()
        records = result.records
        if records:
            assert isinstance(records, memoryview | bytes)
            self._broker.replication.fetched.note(replica, len(records))
            try:
                its_log.append_as_follower(records, now_ms=now_ms)
            except UnexpectedAppendOffset as error:
                # A log that was just restarted may begin in the middle of a batch, as the leader's log does.
                if (
                    its_log.local_log_start_offset < its_log.log_end_offset
                    or error.last_offset < its_log.log_end_offset
                ):
                    raise
                its_log.truncate_fully_and_start_at(error.first_offset, now_ms=now_ms)
                its_log.append_as_follower(records, now_ms=now_ms)
        has_moved = its_log.advance_high_watermark(result.high_watermark)
        if result.log_start_offset > its_log.log_start_offset:
            its_log.delete_records_before(min(result.log_start_offset, its_log.high_watermark))
        if has_moved:
            self._broker.purgatory.notify(replica)  # for consumers that read from this follower

    def _fail(self, followed: FollowedPartition, error: Exception) -> None:
        """Records that this broker cannot append: permanently if its disk has failed."""
        followed.has_failed = isinstance(error, KafkaStorageError) and not isinstance(error, OutOfDescriptors)
        self._back_off(followed, error)

    def _back_off(self, followed: FollowedPartition, error: Exception) -> None:
        """Leaves the partition out for a while."""
        followed.backoff_s = min(max(2 * followed.backoff_s, FIRST_BACKOFF_S), self._max_backoff_s)
        followed.not_before = self._broker.clock.now() + followed.backoff_s
        if followed.last_error != str(error):
            followed.last_error = str(error)
            is_usual = isinstance(error, KafkaError) and error.retriable and not followed.has_failed
            log.log(logging.INFO if is_usual else logging.WARNING, "%r: %s", followed.replica, error)

    async def _handle_out_of_range(self, peer: "Peer", lost: Iterable[FollowedPartition]) -> None:
        """The fetch offsets are beyond the leader's log. If that is because its log start offset is higher, these logs
        restart there. If the leader's log were shorter, the diverging epoch would have shown it: then nothing is
        truncated."""
        requested = {followed.key: followed.position for followed in lost}
        starts = await self._offsets(peer, lost, EARLIEST)
        ends = await self._offsets(peer, lost, LATEST)
        for followed in lost:
            replica, name = followed.replica, (followed.replica.topic, followed.replica.index)
            if not _is_still_requested(followed, requested) or self._followed.get(followed.key) is not followed:
                continue
            end = replica.log.log_end_offset
            start, leader_end = starts.get(name, -1), ends.get(name, -1)
            if start > end:
                log.warning("%r: log restarted at %d, the leader's log start offset", replica, start)
                replica.log.truncate_fully_and_start_at(start, now_ms=self._broker.clock.now_ms())
            elif leader_end < end:
                self._back_off(followed, OffsetOutOfRange(f"it ends at {end}, and its leader's log at {leader_end}"))

    async def _begin(self, followed: FollowedPartition) -> None:
        """Lets a replica begin behind what is in the object store. The next fetch repeats what fails."""
        try:
            if not await self._try_to_begin(followed):
                self._back_off(followed, OffsetMovedToTieredStorage("and there is nothing to begin behind"))
        except KafkaError as error:
            self._back_off(followed, error)
        except Exception as mistake:
            log.error("internal error: %r cannot begin", followed.replica, exc_info=mistake)
            self._back_off(followed, UnknownServerError())
        finally:
            self._has_begun(followed)

    async def _begin_behind_last_tiered(self, followed: FollowedPartition) -> None:
        """The same for an empty replica, which could be fetched from its leader too: so failures are repeated here,
        because the remote log metadata is loaded meanwhile; but not forever."""
        try:
            for _ in range(BEGIN_ATTEMPTS):
                try:
                    await self._try_to_begin(followed, behind_last_tiered=True)
                    break
                except KafkaError as error:
                    self._back_off(followed, error)
                await trio.sleep(max(followed.not_before - self._broker.clock.now(), FIRST_BACKOFF_S))
                if self._followed.get(followed.key) is not followed:
                    break
        except Exception as mistake:
            log.error("internal error: %r cannot begin", followed.replica, exc_info=mistake)
        finally:
            self._has_begun(followed)

    async def _try_to_begin(self, followed: FollowedPartition, *, behind_last_tiered: bool = False) -> bool:
        replica = followed.replica
        if await self._peer() is None or self._address is None:
            raise KafkaStorageError(f"{replica!r}: the address of its leader is not known")
        peer = self._broker.peers.peer(*self._address, BEGINNING)
        has_begun = await RemoteBeginning(self._broker, peer, replica).run(behind_last_tiered=behind_last_tiered)
        if has_begun:
            log.info("%r: begins at %d, behind the object store", replica, replica.log.log_end_offset)
        return has_begun

    def _has_begun(self, followed: FollowedPartition) -> None:
        followed.is_beginning = False
        if self._followed.get(followed.key) is followed:
            self._changed[followed.key] = None
            self._wake.set()

    async def _offsets(self, peer: "Peer", lost: Iterable[FollowedPartition], which: int) -> dict[tuple[str, int], int]:
        topics: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
        for followed in lost:
            replica = followed.replica
            topics.setdefault(replica.topic, []).append(
                ListOffsetsRequest.Topic.Partition(
                    partition_index=replica.index, current_leader_epoch=replica.leader_epoch, timestamp=which
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            isolation_level=0,
            topics=[ListOffsetsRequest.Topic(name=name, partitions=requested) for name, requested in topics.items()],
        )
        timeout_s = self._broker.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000
        response = await peer.send_request(request, LIST_OFFSETS_VERSION, timeout_s=timeout_s)
        return {
            (topic.name, reply.partition_index): reply.offset
            for topic in response.topics
            for reply in topic.partitions
            if reply.error_code == NONE
        }


def _is_still_requested(followed: FollowedPartition, requested: dict[Key, Position]) -> bool:
    """Whether the response is still valid: the leader may have changed or the log may have been truncated since the
    request."""
    at, replica = requested.get(followed.key), followed.replica
    return (
        at is not None
        and not replica.leads
        and followed.fetch_offset == at.offset
        and replica.leader_epoch == at.leader_epoch
    )
