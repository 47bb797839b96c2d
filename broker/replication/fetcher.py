"""Followers: what this broker's replicas do to have what their leaders have.

For each leader there is a fetcher (or several: num.replica.fetchers), a task that asks for all partitions which are
followed there, in one request and one session, over a connection of its own. What comes is appended as it is, with its
offsets and epochs; what the leader says of its high watermark and log start is believed as far as the own log reaches.
The next request then tells the leader how far this replica is, so what must be durable first (flush.messages) is.

Where both logs part ways, the leader says so, and the own log is cut by its epochs (cluster/leader_state.py) until they
agree. A replica so far behind that the leader has nothing for it any more begins anew where the leader's log starts.

A log that is damaged (storage/quarantine.py) goes on at its end, and is mended meanwhile (healing.py). Only where the
damage is not committed yet (cluster/healing.py) its fetches say that it holds what lies before. What the leader then
sends is put in the place of the damage; or, if nothing stands behind it, the log is cut there, as soon as this replica
is not in sync (S6).

A leader may have thousands of partitions of which few are written to, and is asked anew with every record. So what is
asked for is kept from round to round, and only those partitions are looked at of which something came, or that others
have changed; all of them once in a while, for a log may start later without anybody saying so.

What one partition cannot do must not hold up the others: it is left out for a while, a longer one each time, up to
replica.fetch.backoff.ms. Between two requests the metadata may have said otherwise (another leader, another epoch): an
answer to what is not asked any more is thrown away.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.brokers import NOT_REGISTERED
from trioka.cluster.healing import Cure, cure_of, known_committed, unclaimed
from trioka.cluster.leader_state import cut_of
from trioka.protocol.errors import NONE, CorruptMessage, KafkaError, KafkaStorageError, OffsetOutOfRange, error_class
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.storage.append_validation import UnexpectedOffset
from trioka.storage.failstop_disk import OutOfDescriptors
from trioka.storage.leader_epochs import UNDEFINED_EPOCH
from trioka.storage.quarantine import Damage

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
from .fetch_session_client import VERSION, Key, Limits, Position, StandingFetch
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..peers.peer import Peer

log = logging.getLogger("trioka.followers")

FIRST_BACKOFF_S: Final = 0.02
HELD_UP_S: Final = 0.1  # so long a replica that is throttled is left out, then it is looked again
LIST_OFFSETS_VERSION: Final = 9
EARLIEST: Final = -2
LATEST: Final = -1
LOOK_AT_ALL_S: Final = 1.0
TAKEN_AT_ONCE: Final = 16  # partitions, before others have their turn

Result = FetchResponse.Topic.Partition


class Followed:
    """A replica that follows, and when it is next asked for."""

    __slots__ = ("backoff_s", "complaint", "has_failed", "is_behind", "not_before", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.not_before = 0.0
        self.backoff_s = 0.0
        self.has_failed = False  # its disk: it is not asked for again, before the metadata says something new
        self.complaint = ""
        self.is_behind = True  # as far as is known

    @property
    def key(self) -> Key:
        return self.replica.topic_id, self.replica.index

    @property
    def position(self) -> Position:
        its_log, leader_epoch = self.replica.log, self.replica.leader_epoch
        end, epoch, start = its_log.log_end_offset, its_log.epochs.latest_epoch, its_log.log_start_offset
        damage = unclaimed(its_log.quarantine.damages, its_log.high_watermark)
        if damage is not None:
            end = max(damage.first_offset, start)
            epoch = its_log.epochs.epoch_for_offset(end - 1) if end > start else UNDEFINED_EPOCH
        return Position(end, epoch, start, leader_epoch)


class Followers:
    """All that this broker follows."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._places: dict[Replica, Fetcher] = {}

    @property
    def is_following(self) -> bool:
        return bool(self._places)

    def follow(self, replica: Replica) -> None:
        """From its leader, as the replica has it now."""
        number = (int.from_bytes(replica.topic_id[-4:]) + replica.index) % self._broker.config[NUM_REPLICA_FETCHERS]
        fetcher = self._fetchers.get((replica.leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[replica.leader_id, number] = Fetcher(self._broker, replica.leader_id, number)
            self._broker.nursery.start_soon(fetcher.run)
        if self._places.get(replica) is not fetcher:
            self.leave(replica)
        self._places[replica] = fetcher
        fetcher.add(replica)

    def leave(self, replica: Replica) -> None:
        """It leads now, or nobody does, or it is gone."""
        fetcher = self._places.pop(replica, None)
        if fetcher is not None:
            fetcher.drop(replica)


class Fetcher:
    """From one leader."""

    def __init__(self, broker: "Broker", leader_id: int, number: int) -> None:
        self._broker = broker
        self._leader_id = leader_id
        self._purpose = f"replica fetcher {number}"
        self._followed: dict[Key, Followed] = {}
        self._session = StandingFetch(broker.node_id)
        self._wake = trio.Event()
        self._address: tuple[str, int] | None = None
        self._asked: dict[Key, Position] = {}
        self._resting: dict[Key, Followed] = {}  # they are left out for a while
        self._changed: dict[Key, None] = {}  # to be looked at; in order, since that is the order of requests
        self._unsaid: dict[Key, None] = {}  # looked at, since the leader was last asked
        self._looked = -LOOK_AT_ALL_S  # at all
        self._config: Config | None = None  # of which these are:
        self._limits: Limits
        self._timeout_s: float

    def add(self, replica: Replica) -> None:
        followed = Followed(replica)
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        self._wake.set()

    def drop(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.index)
        self._followed.pop(key, None)
        self._changed[key] = None

    async def run(self) -> None:
        while True:
            try:
                await self._round()
            except KafkaError as error:
                log.info("broker %d cannot be followed: %s", self._leader_id, error)
                self._session.begin_anew()
                await self._rest(self._longest_backoff_s)
            except Exception as mistake:  # ours; the broker has other things to do, and the next round may go better
                log.error("a mistake of ours: following broker %d", self._leader_id, exc_info=mistake)
                self._session.begin_anew()
                await self._rest(self._longest_backoff_s)

    @property
    def _longest_backoff_s(self) -> float:
        return self._broker.config[REPLICA_FETCH_BACKOFF_MS] / 1000

    async def _rest(self, seconds: float) -> None:
        """Until there is something new to follow, at most so long."""
        self._wake = trio.Event()
        with trio.move_on_after(seconds):
            await self._wake.wait()

    async def _round(self) -> None:
        if self._broker.broker_epoch == NOT_REGISTERED:
            # Until then a leader could not tell this life from the last one, which may have known more (KIP-903).
            await self._rest(FIRST_BACKOFF_S)
            return
        now = self._broker.clock.now()
        self._choose(now)
        if not self._asked:
            pause_s = min((one.not_before - now for one in self._resting.values()), default=float("inf"))
            await self._rest(pause_s)
            return
        peer = await self._peer()
        if peer is None:
            await self._rest(self._longest_backoff_s)
            return
        if self._config is not self._broker.config:
            self._configure(self._broker.config)
        await self._make_durable()
        if not self._asked:
            return
        unsaid, self._unsaid = self._unsaid, {}
        request = self._session.request(self._asked, self._broker.broker_epoch, self._limits, unsaid)
        response = await peer.ask(request, VERSION, timeout_s=self._timeout_s)
        if self._session.answered(response):
            await self._take(peer, response)
        else:
            log.info("broker %d: %s", self._leader_id, error_class(response.error_code).name)
            await self._rest(FIRST_BACKOFF_S)

    async def _make_durable(self) -> None:
        """flush.messages: to ask for what comes next is to say that all before it is there to stay; also what a former
        life of this broker has left."""
        for key in self._unsaid:
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

    def _choose(self, now: float) -> None:
        """What is asked for next."""
        if now - self._looked >= LOOK_AT_ALL_S:
            self._looked = now
            self._changed.update(dict.fromkeys(self._followed))
        self._changed.update({key: None for key, one in self._resting.items() if one.not_before <= now})
        for key in self._changed:
            one = self._followed.get(key)
            self._resting.pop(key, None)
            self._asked.pop(key, None)
            if one is None or one.has_failed:
                continue
            if one.not_before <= now and one.is_behind and self._broker.replication.fetched.holds_up(one.replica):
                one.not_before = now + HELD_UP_S
            if one.not_before <= now:
                self._asked[key] = one.position
            else:
                self._resting[key] = one
        self._unsaid |= self._changed
        self._changed = {}

    async def _peer(self) -> "Peer | None":
        """The leader, where the metadata has it now. None if it is not known."""
        broker = self._broker.metadata.brokers.get(self._leader_id)
        listener = None if broker is None else broker.listener(self._broker.node.inter_broker)
        address = None if listener is None else (listener.host, listener.port)
        if address != self._address:
            if self._address is not None:
                await self._broker.peers.forget(*self._address, self._purpose)
            self._address = address
            self._session.begin_anew()
        if address is None:
            return None
        peer, config = self._broker.peers.peer(*address, self._purpose), self._broker.config
        if config.is_set(REPLICA_SOCKET_RECEIVE_BUFFER_BYTES):
            peer.receive_buffer_bytes = config[REPLICA_SOCKET_RECEIVE_BUFFER_BYTES]
        return peer

    # -- what comes back -----------------------------------------------------------------------------------------------

    async def _take(self, peer: "Peer", response: FetchResponse) -> None:
        out_of_range = []
        taken = 0
        for topic in response.responses:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition_index)
                self._changed[key] = None
                followed = self._followed.get(key)
                if followed is None or not _is_still_asked(followed, self._asked):
                    continue
                if result.error_code == OffsetOutOfRange.code:
                    out_of_range.append(followed)
                elif result.error_code != NONE:
                    if result.error_code == CorruptMessage.code:
                        self._still_unclaimed(followed.replica, result)  # others may ask for what it has behind that
                    self._leave_out(followed, error_class(result.error_code)())
                else:
                    self._take_one(followed, result)
                taken += 1
                if taken % TAKEN_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        if out_of_range:
            await self._begin_anew(peer, out_of_range)

    def _take_one(self, followed: Followed, result: Result) -> None:
        try:
            if result.diverging_epoch.epoch >= 0 or result.diverging_epoch.end_offset >= 0:
                self._cut(followed.replica, result.diverging_epoch)
            elif followed.position.offset < followed.replica.log.log_end_offset:
                self._mend_end(followed, result)
            else:
                self._append(followed.replica, result)
                followed.is_behind = followed.replica.log.log_end_offset < result.high_watermark
        except (KafkaError, UnexpectedOffset) as error:
            self._fail(followed, error)
        else:
            followed.backoff_s, followed.complaint = 0.0, ""

    def _cut(self, replica: Replica, diverging: Result.DivergingEpoch) -> None:
        its_log = replica.log
        own_epoch, own_end = its_log.end_offset_for_epoch(diverging.epoch)
        cut = cut_of(diverging.epoch, diverging.end_offset, own_epoch, own_end, its_log.log_end_offset)
        log.info("%r: its log is cut from %d to %d", replica, its_log.log_end_offset, cut.offset)
        its_log.truncate_to(cut.offset, now_ms=self._broker.clock.now_ms())

    def _mend_end(self, followed: Followed, result: Result) -> None:
        """There is damage that was not committed, as far as this replica knew before this answer. Nothing is cut as
        long as this replica counts as one that has it all, nor ever what is sound."""
        replica, its_log = followed.replica, followed.replica.log
        damage = self._still_unclaimed(replica, result)
        if damage is None:
            return  # it is committed: the next fetch goes on at the end
        followed.not_before = self._broker.clock.now() + self._longest_backoff_s
        cure = cure_of(
            damage, leads=False, high_watermark=its_log.high_watermark, log_end_offset=its_log.log_end_offset
        )
        if cure is Cure.FETCH_AGAIN:
            assert isinstance(result.records, memoryview | bytes | None)
            self._broker.replication.healing.offer(replica, bytes(result.records or b""))
        elif not self._counts_as_in_sync(replica):
            log.warning("%r: what is damaged is fetched anew, from %d on", replica, damage.first_offset)
            its_log.truncate_to(damage.first_offset, now_ms=self._broker.clock.now_ms())
            followed.not_before = 0.0

    def _still_unclaimed(self, replica: Replica, result: Result) -> Damage | None:
        """The damage that is not committed, after what the leader says of its high watermark."""
        its_log = replica.log
        damage = unclaimed(its_log.quarantine.damages, its_log.high_watermark)
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
            self._broker.delayed.touch(replica)
        return unclaimed(its_log.quarantine.damages, its_log.high_watermark)

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
            except UnexpectedOffset as error:
                # A log that has just begun anew begins in the middle of a batch, if its leader's does.
                if its_log.log_start_offset < its_log.log_end_offset or error.last_offset < its_log.log_end_offset:
                    raise
                its_log.truncate_fully_and_start_at(error.first_offset, now_ms=now_ms)
                its_log.append_as_follower(records, now_ms=now_ms)
        has_moved = its_log.advance_high_watermark(result.high_watermark)
        if result.log_start_offset > its_log.log_start_offset:
            its_log.delete_records_before(min(result.log_start_offset, its_log.high_watermark))
        if has_moved:
            self._broker.delayed.touch(replica)  # for consumers that read here

    def _fail(self, followed: Followed, error: Exception) -> None:
        """This broker cannot take its records: for good, if its disk has failed."""
        followed.has_failed = isinstance(error, KafkaStorageError) and not isinstance(error, OutOfDescriptors)
        self._leave_out(followed, error)

    def _leave_out(self, followed: Followed, error: Exception) -> None:
        """For a while."""
        followed.backoff_s = min(max(2 * followed.backoff_s, FIRST_BACKOFF_S), self._longest_backoff_s)
        followed.not_before = self._broker.clock.now() + followed.backoff_s
        if followed.complaint != str(error):
            followed.complaint = str(error)
            is_usual = isinstance(error, KafkaError) and error.retriable and not followed.has_failed
            log.log(logging.INFO if is_usual else logging.WARNING, "%r: %s", followed.replica, error)

    async def _begin_anew(self, peer: "Peer", lost: Iterable[Followed]) -> None:
        """The leader has nothing at the end of these logs. If that is because its own start lies behind, they begin
        there. If the leader's log were the shorter one, their epochs would have told: then nothing is cut."""
        asked = {followed.key: followed.position for followed in lost}
        starts = await self._offsets(peer, lost, EARLIEST)
        ends = await self._offsets(peer, lost, LATEST)
        for followed in lost:
            replica, name = followed.replica, (followed.replica.topic, followed.replica.index)
            if not _is_still_asked(followed, asked) or self._followed.get(followed.key) is not followed:
                continue
            end = replica.log.log_end_offset
            start, leader_end = starts.get(name, -1), ends.get(name, -1)
            if start > end:
                log.warning("%r: begins anew at %d, where its leader's log starts", replica, start)
                replica.log.truncate_fully_and_start_at(start, now_ms=self._broker.clock.now_ms())
            elif leader_end < end:
                self._leave_out(followed, OffsetOutOfRange(f"it ends at {end}, and its leader's log at {leader_end}"))

    async def _offsets(self, peer: "Peer", lost: Iterable[Followed], which: int) -> dict[tuple[str, int], int]:
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
            topics=[ListOffsetsRequest.Topic(name=name, partitions=asked) for name, asked in topics.items()],
        )
        timeout_s = self._broker.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000
        response = await peer.ask(request, LIST_OFFSETS_VERSION, timeout_s=timeout_s)
        return {
            (topic.name, told.partition_index): told.offset
            for topic in response.topics
            for told in topic.partitions
            if told.error_code == NONE
        }


def _is_still_asked(followed: Followed, asked: dict[Key, Position]) -> bool:
    """Since then it may have been given to another leader, or have been cut."""
    at, replica = asked.get(followed.key), followed.replica
    return (
        at is not None
        and not replica.leads
        and (followed.position.offset, replica.leader_epoch) == (at.offset, at.leader_epoch)
    )
