"""Linearizable reads: requests that wait until their leader knows that it still leads (cluster/read_barrier.py).

A request that reaches the end of a partition with trioka.read.consistency=linearizable begins a read there. The parked
fetches of all possible leaders are answered at once; when each of them has fetched again, the read has passed. A
follower whose fetch is on its way is not waited for twice: that fetch is answered when it arrives, whatever it finds.
All reads that begin before a response share the fetch that follows it.

A follower counts by its fetch session: a request of the session's next epoch is sent after the last response was
received, and the session has the leader epoch of each partition that the follower follows. Followers without a session
do not count. If a possible leader does not fetch for CONFIRM_AFTER_S, the leader sends the controller an AlterPartition
that changes nothing; it answers after a record is committed (cluster/isr_changes.py).

A read that does not pass in trioka.linearizable.read.timeout.ms is refused with NOT_LEADER_OR_FOLLOWER.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.leader_state import ANY_BROKER_EPOCH, LeaderState
from trioka.cluster.partition import RecoveryState
from trioka.cluster.purgatory import DelayedOperation
from trioka.cluster.read_barrier import NO_READ
from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from ..config.trioka_keys import LINEARIZABLE_READ_TIMEOUT_MS
from .fetch_session_cache import FetchSession
from .partitions import NO_EPOCH, Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.reads")

CONFIRM_AFTER_S: Final = 0.1  # how long a read waits for followers before the leader sends a request to the controller
CONFIRM_TIMEOUT_S: Final = 2.0  # of that request
MAX_CONFIRMED: Final = 1000  # partitions in one request

PartitionRequest = AlterPartitionRequest.Topic.Partition


class _PendingRange:
    """The reads of one partition that have not passed."""

    __slots__ = ("deadline", "newest", "oldest", "since")

    def __init__(self, read: int, since: float) -> None:
        self.oldest, self.since = read, since  # and when it began
        self.newest, self.deadline = read, since  # and when it is given up


class LinearizableReads:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.begun = NO_READ  # the newest read, of all partitions
        self._waiting: dict[Replica, _PendingRange] = {}
        self._wake = trio.Event()

    @property
    def timeout_s(self) -> float:
        return self._broker.config[LINEARIZABLE_READ_TIMEOUT_MS] / 1000

    def begin(self, replica: Replica) -> int:
        """Begins a read of a partition that this broker leads, and returns its number."""
        self.begun += 1
        read = self.begun
        if not self.has_passed(replica, read):
            now = self._broker.clock.now()
            waiting = self._waiting.setdefault(replica, _PendingRange(read, now))
            waiting.newest, waiting.deadline = read, now + self.timeout_s
            self._wake.set()
            self._answer_followers(replica, read)
        return read

    def has_passed(self, replica: Replica, read: int) -> bool:
        """Whether it may be answered with the present high watermark."""
        leadership = replica.leadership
        if leadership is None:
            return replica.is_unreplicated  # no other replica can lead
        return leadership.may_read(read, replica.log.high_watermark)

    def wait(
        self,
        reads: Mapping[Replica, int],
        then: Callable[[frozenset[Replica]], None],
        fail: Callable[[Exception], None],
    ) -> DelayedOperation:
        """Calls `then` when all of these reads have passed, with the partitions in which a read is refused."""
        operation = _PendingReads(self, reads, then, fail)
        self._broker.park(operation, tuple(reads), self._broker.clock.now() + self.timeout_s)
        return operation

    async def passed(self, reads: Mapping[Replica, int]) -> frozenset[Replica]:
        """The same, for a task. Returns the partitions in which a read is refused."""
        done, refused = trio.Event(), list[frozenset[Replica]]()

        def then(partitions: frozenset[Replica]) -> None:
            refused.append(partitions)
            done.set()

        def fail(mistake: Exception) -> None:
            log.error("internal error: a linearizable read", exc_info=mistake)
            then(frozenset(reads))

        operation = self.wait(reads, then, fail)
        try:
            await done.wait()
        finally:
            self._broker.purgatory.cancel(operation)
        return refused[0]

    # -- followers -----------------------------------------------------------------------------------------------------

    def _answer_followers(self, replica: Replica, read: int) -> None:
        leadership = replica.leadership
        if leadership is not None:
            for broker_id in leadership.read_barrier.missing(read, leadership.possible_leaders):
                for fetch in tuple(self._broker.replication.waiting.get(broker_id, ())):
                    fetch.complete_now()

    def note_fetch(self, broker_id: int, broker_epoch: int, session: FetchSession) -> tuple[bool, list[Replica]]:
        """Records a follower's fetch. Returns whether reads wait for the next fetch of its session, so that this one
        must be answered, and the partitions whose reads may have passed."""
        is_awaited, noted = False, list[Replica]()
        registered = self._broker.metadata.brokers.get(broker_id)
        is_former = registered is not None and ANY_BROKER_EPOCH < broker_epoch < registered.epoch
        if not self._waiting or not session.by_id or is_former:
            return is_awaited, noted
        for replica, waiting in tuple(self._waiting.items()):
            leadership = replica.leadership
            if leadership is None:
                del self._waiting[replica]
                continue
            cached = session.partitions.get((replica.topic_id, replica.index))
            epoch = NO_EPOCH if cached is None else cached.current_leader_epoch
            leadership.read_barrier.note_fetch(broker_id, leader_epoch=epoch, answered=session.answered_read)
            noted.append(replica)
            if self.has_passed(replica, waiting.newest):
                del self._waiting[replica]
                continue
            if self.has_passed(replica, waiting.oldest):  # followers do fetch: no request to the controller is needed
                waiting.oldest, waiting.since = waiting.newest, self._broker.clock.now()
            if epoch == leadership.leader_epoch:
                missing = leadership.read_barrier.missing(waiting.newest, leadership.possible_leaders)
                is_awaited |= broker_id in missing
        return is_awaited, noted

    # -- the controller ------------------------------------------------------------------------------------------------

    async def confirm_epochs(self) -> None:
        """Asks the controller for reads that followers do not confirm. Runs until the broker stops."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._waiting:
                await trio.sleep(CONFIRM_AFTER_S)
                self._forget_expired()
                overdue = self._overdue()
                if overdue:
                    try:
                        await self._confirm(overdue)
                    except KafkaError as error:
                        log.info("the controller does not confirm %d leader epochs: %s", len(overdue), error)
                    except Exception as mistake:  # an internal error; the next attempt may succeed
                        log.error("internal error: confirming %d leader epochs", len(overdue), exc_info=mistake)

    def _forget_expired(self) -> None:
        now = self._broker.clock.now()
        for replica, waiting in tuple(self._waiting.items()):
            if replica.leadership is None or waiting.deadline <= now or self.has_passed(replica, waiting.newest):
                del self._waiting[replica]

    def _overdue(self) -> dict[Replica, LeaderState]:
        latest = self._broker.clock.now() - CONFIRM_AFTER_S
        found = (
            (replica, replica.leadership)
            for replica, waiting in self._waiting.items()
            if waiting.since <= latest and replica.leadership is not None
        )
        return dict(islice(found, MAX_CONFIRMED))

    async def _confirm(self, partitions: Mapping[Replica, LeaderState]) -> None:
        asked, broker = self.begun, self._broker
        response = await broker.controller.send_request(self._request(partitions), timeout_s=CONFIRM_TIMEOUT_S)
        assert isinstance(response, AlterPartitionResponse)
        results = {(t.topic_id, result.partition_index): result for t in response.topics for result in t.partitions}
        now = broker.clock.now()
        for replica, leadership in partitions.items():
            result = results.get((replica.topic_id, replica.index))
            if result is None or result.error_code != NONE or result.leader_id != broker.node_id:
                continue
            leadership.read_barrier.note_confirmed(leader_epoch=result.leader_epoch, requested=asked)
            waiting = self._waiting.get(replica)
            if waiting is not None:
                waiting.oldest, waiting.since = waiting.newest, now  # later reads wait for followers first
            broker.purgatory.notify(replica)

    def _request(self, partitions: Mapping[Replica, LeaderState]) -> AlterPartitionRequest:
        topics: dict[bytes, list[PartitionRequest]] = {}
        for replica, leadership in partitions.items():
            members = [
                PartitionRequest.NewIsrWithEpoch(broker_id=member, broker_epoch=ANY_BROKER_EPOCH)
                for member in leadership.isr
            ]
            topics.setdefault(replica.topic_id, []).append(
                PartitionRequest(
                    partition_index=replica.index,
                    leader_epoch=leadership.leader_epoch,
                    new_isr_with_epochs=members,
                    leader_recovery_state=RecoveryState.RECOVERED,
                    partition_epoch=leadership.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            topics=[AlterPartitionRequest.Topic(topic_id=each, partitions=some) for each, some in topics.items()],
        )


class _PendingReads(DelayedOperation):
    """The reads of one request."""

    __slots__ = ("_fail", "_reads", "_refused", "_then", "_waits_for")

    def __init__(
        self,
        reads: LinearizableReads,
        waits_for: Mapping[Replica, int],
        then: Callable[[frozenset[Replica]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        super().__init__()
        self._reads = reads
        self._waits_for = dict(waits_for)
        self._refused: set[Replica] = set()
        self._then = then
        self._fail = fail

    def try_complete(self, key: Hashable) -> bool:
        assert isinstance(key, Replica)
        read = self._waits_for.get(key)
        if read is not None:
            if not key.leads:
                self._refused.add(key)
            elif not self._reads.has_passed(key, read):
                return False
            del self._waits_for[key]
        if self._waits_for:
            return False
        self._then(frozenset(self._refused))
        return True

    def expire(self) -> None:
        self._then(frozenset(self._refused | self._waits_for.keys()))

    def fail(self, mistake: Exception) -> None:
        self._fail(mistake)
