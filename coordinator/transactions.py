"""The transaction coordinator of one partition of `__transaction_state`.

The end of a transaction is written in three parts (T4): the decision here (PREPARE), then a marker to every partition
of the transaction, then the end here (COMPLETE). The client gets its response when the decision is committed, since it
is final then; a coordinator that loads a decision without its end sends the markers again.

The runtime writes the markers: a decision carries a `TxnMarkerRequest`, and `marked` is called for each partition that
has its marker. The runtime also allocates producer ids: a request that needs one raises `NeedsProducerId`, and is
repeated with one.

While a decision for an id is not committed, and from the decision to the end, the next request for that id gets
CONCURRENT_TRANSACTIONS, so that no decision depends on records that may still be lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from trioka.protocol.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from trioka.protocol.internal_records.transactions import TransactionLogKey, TransactionLogValue
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.end_txn import EndTxnResponse
from trioka.protocol.messages.init_producer_id import InitProducerIdResponse
from trioka.protocol.schema import Response

from .deadlines import Deadlines
from .decision import NOTHING, Decision, Now, Producer, Reply, RequestId, StoredRecord, TxnMarkerRequest, reply
from .transaction import (
    EPOCHS_PER_END,
    IDLE_PHASES,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Phase,
    TopicPartition,
    Transaction,
    check_transaction_timeout,
    check_transactional_id,
    is_exhausted,
)

TIMEOUT: Final = "timeout"  # of an open transaction
RETRY: Final = "retry"  # of markers, or an end, that could not be written
CLEAN_UP: Final = ("", "clean up")

RETRY_MS: Final = 100
MAX_EXPIRED_AT_ONCE: Final = 1000  # a decision must fit into one batch


class NeedsProducerId(Exception):
    """The request must be repeated with a new producer id."""


@frozen
class TransactionSettings:
    max_timeout_ms: int = 900_000
    expiration_ms: int = 7 * 86_400_000
    clean_up_interval_ms: int = 3_600_000
    version: int = EPOCHS_PER_END  # the finalized transaction version of the cluster


@frozen
class ListFilter:
    """The filters of a ListTransactions request; an empty filter matches all."""

    phases: frozenset[Phase] | None = None
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1  # age of the transaction; an id without an open one counts as infinitely old
    matches: Callable[[str], bool] | None = None

    def has(self, name: str, found: Transaction, now_ms: int) -> bool:
        return (
            (not self.producer_ids or found.producer_id in self.producer_ids)
            and (self.phases is None or found.phase in self.phases)
            and not 0 <= self.longer_than_ms >= now_ms - found.started_ms
            and (self.matches is None or self.matches(name))
        )


class TransactionCoordinator:
    def __init__(self, epoch: int, settings: Callable[[], TransactionSettings]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._epoch = epoch  # of this partition's leader; markers with an older one are rejected (T3)
        self._settings = settings
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        self._pending: dict[str, Transaction] = {}  # decided and not committed yet
        self._unmarked: dict[str, set[TopicPartition]] = {}  # partitions whose markers are not written yet

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, kept: StoredRecord, offset: int, producer: Producer | None) -> None:
        assert isinstance(kept.key, TransactionLogKey)
        name = kept.key.transactional_id
        if kept.value is None:
            self.transactions.pop(name, None)
            return
        assert isinstance(kept.value, TransactionLogValue)
        read, decided = Transaction.from_value(kept.value), self._pending.get(name)
        self.transactions[name] = decided if decided == read else read

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        """This topic has no transactional records."""

    def begin(self, now: Now) -> list[Decision]:
        self._deadlines.set(CLEAN_UP, now.steady_ms + self._settings().clean_up_interval_ms)
        return [self._next_step(name, now) for name in list(self.transactions)]

    # -- InitProducerId ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        request_id: RequestId,
        name: str,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: int | None,
        now: Now,
    ) -> Decision:
        """`expected` is the client's current producer, if it continues after an error (KIP-360)."""
        check_transactional_id(name)
        check_transaction_timeout(timeout_ms, self._settings().max_timeout_ms)
        self._require_no_pending(name)
        found = self.transactions.get(name)
        if found is None:
            found = Transaction(
                producer_id=_require_producer_id(new_producer_id), timeout_ms=timeout_ms, updated_ms=now.wall_ms
            )
        if expected is not None and not _may_go_on(found, expected):
            raise ProducerFenced(f"producer {expected.id} instead of {found.producer_id}")
        if found.phase is Phase.ONGOING:
            fenced = found.fenced(self._settings().version, now.wall_ms)
            return self._write(name, fenced, Reply(request_id, ConcurrentTransactions()))
        expected_epoch = None if expected is None else expected.epoch
        if found.is_exhausted and _is_current(found, expected_epoch):
            then = found.with_new_producer_id(
                _require_producer_id(new_producer_id), timeout_ms, expected_epoch, now.wall_ms
            )
        else:
            then = found.initialised(timeout_ms, expected_epoch, now.wall_ms)
        given = InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=then.producer_id, producer_epoch=then.epoch
        )
        return self._write(name, then, Reply(request_id, given))

    # -- adding partitions ---------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        request_id: RequestId,
        name: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int,
        response: Response,
        now: Now,
    ) -> Decision:
        """For AddPartitionsToTxn and AddOffsetsToTxn, which have different responses: `response` is sent when the
        partitions are added."""
        check_transactional_id(name)
        self._require_no_pending(name)
        found = self._find(name, producer)
        requested = frozenset(partitions)
        if found.phase is Phase.ONGOING and requested <= found.partitions:
            return reply(request_id, response)
        return self._write(name, found.joined(requested, client_version, now.wall_ms), Reply(request_id, response))

    def verify_partitions(
        self, name: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Whether the partitions are part of the transaction. A leader verifies a client's first write this way
        (T6)."""
        check_transactional_id(name)
        found = self._find(name, producer)
        if found.phase in PREPARED:
            raise ConcurrentTransactions()
        return {
            partition: None if partition in found.partitions else TransactionAbortable() for partition in partitions
        }

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(
        self,
        request_id: RequestId,
        name: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now: Now,
    ) -> Decision:
        check_transactional_id(name)
        if client_version < EPOCHS_PER_END:
            return self._end_with_its_epoch(request_id, name, producer, is_commit, now)
        return self._end_with_a_new_epoch(request_id, name, producer, is_commit, client_version, new_producer_id, now)

    def _end_with_its_epoch(
        self, request_id: RequestId, name: str, producer: Producer, is_commit: bool, now: Now
    ) -> Decision:
        found = self._find(name, producer)
        self._require_no_pending(name)
        if found.phase is Phase.ONGOING:
            then = found.prepared(is_commit, 0, NO_PRODUCER_ID, now.wall_ms)
            return self._write(name, then, Reply(request_id, _end_response(then)))
        if found.phase is _complete(is_commit):
            return reply(request_id, _end_response(found))
        raise _cannot_end(found, is_commit)

    def _end_with_a_new_epoch(
        self,
        request_id: RequestId,
        name: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now: Now,
    ) -> Decision:
        """The present epoch refers to the next transaction, which may be aborted before its first write; a repeated
        request has the previous epoch (T5). A client that repeats an abort of another producer, with the last epoch,
        does not get that epoch: where Kafka returns it, the next commit fails."""
        self._require_no_pending(name)
        found = self.transactions.get(name)
        if found is None:
            raise InvalidProducerIdMapping(f"unknown transactional id {name!r}")
        has_overflowed = _has_overflowed(found, producer)
        if found.producer_id != producer.id and not has_overflowed:
            raise InvalidProducerIdMapping(f"producer {producer.id} instead of {found.producer_id}")
        if has_overflowed or found.epoch == producer.epoch + 1:
            if found.phase in (Phase.EMPTY, Phase.ONGOING) or found.epoch == MAX_EPOCH:
                raise _is_fenced(found, producer)
            if found.phase is not _complete(is_commit):
                raise _cannot_end(found, is_commit)
            return reply(request_id, _end_response(found))
        if found.epoch != producer.epoch or found.epoch == MAX_EPOCH:
            raise _is_fenced(found, producer)
        if found.phase is not Phase.ONGOING and is_commit:
            raise _cannot_end(found, is_commit)
        next_producer_id = _require_producer_id(new_producer_id) if found.is_exhausted else NO_PRODUCER_ID
        then = found.prepared(is_commit, client_version, next_producer_id, now.wall_ms)
        return self._write(name, then, Reply(request_id, _end_response(then.completed(now.wall_ms))))

    def _mark(self, name: str, found: Transaction, now: Now) -> Decision:
        """The decision after PREPARE is committed: the markers to write."""
        unmarked = self._unmarked.setdefault(name, set(found.partitions))
        if not unmarked:
            return self._write(name, found.completed(now.wall_ms))
        order = TxnMarkerRequest(
            transactional_id=name,
            producer=found.producer,
            is_commit=found.phase is Phase.PREPARE_COMMIT,
            coordinator_epoch=self._epoch,
            partitions=tuple(sorted(unmarked)),
            transaction_version=found.client_version,
        )

        def ordered(error: KafkaError | None, now: Now) -> Decision:
            if error is not None:  # the decision may not be committed yet
                self._deadlines.set((name, RETRY), now.steady_ms + RETRY_MS)
            return NOTHING

        return Decision(marker_requests=(order,), on_committed=ordered)

    def marked(self, order: TxnMarkerRequest, partitions: Sequence[TopicPartition], now: Now) -> Decision:
        """These partitions have their marker, or were deleted and need none."""
        name = order.transactional_id
        found, unmarked = self.transactions.get(name), self._unmarked.get(name)
        if (
            found is None
            or unmarked is None
            or found.phase not in PREPARED
            or found.producer != order.producer
            or order.coordinator_epoch != self._epoch
            or name in self._pending
        ):
            return NOTHING
        unmarked.difference_update(partitions)
        return NOTHING if unmarked else self._mark(name, found, now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def expire(self, now: Now) -> Iterator[Decision]:
        for key in self._deadlines.due(now.steady_ms):
            name, kind = key
            if key == CLEAN_UP:
                self._deadlines.set(CLEAN_UP, now.steady_ms + self._settings().clean_up_interval_ms)
                yield self._clean_up(now)
            elif name in self._pending:
                self._deadlines.set(key, now.steady_ms + RETRY_MS)
            elif (found := self.transactions.get(name)) is None:
                continue
            elif kind == TIMEOUT and found.phase is Phase.ONGOING:
                yield self._write(name, found.fenced(self._settings().version, now.wall_ms))
            elif kind == RETRY and found.phase in PREPARED:
                yield self._mark(name, found, now)

    def _clean_up(self, now: Now) -> Decision:
        """Expire transactional ids that were not used for long."""
        latest = now.wall_ms - self._settings().expiration_ms
        expired = [
            name
            for name, found in self.transactions.items()
            if found.phase in IDLE_PHASES and found.updated_ms <= latest and name not in self._pending
        ]

        def continue_clean_up(error: KafkaError | None, now: Now) -> Decision:
            return NOTHING if error is not None else self._clean_up(now)

        return Decision(
            records=tuple(
                StoredRecord(TransactionLogKey(transactional_id=name), None) for name in expired[:MAX_EXPIRED_AT_ONCE]
            ),
            on_committed=continue_clean_up if len(expired) > MAX_EXPIRED_AT_ONCE else None,
        )

    # -- queries -------------------------------------------------------------------------------------------------------

    def list_transactions(self, requested: ListFilter, now: Now) -> list[tuple[str, Transaction]]:
        return [(name, found) for name, found in self.transactions.items() if requested.has(name, found, now.wall_ms)]

    def describe(self, name: str) -> Transaction:
        """The transaction with its partitions; after PREPARE, those without their marker."""
        check_transactional_id(name)
        found = self.transactions.get(name)
        if found is None:
            raise TransactionalIdNotFound(f"unknown transactional id {name!r}")
        unmarked = self._unmarked.get(name)
        return found if unmarked is None else replace(found, partitions=frozenset(unmarked))

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _find(self, name: str, producer: Producer) -> Transaction:
        found = self.transactions.get(name)
        if found is None or found.producer_id != producer.id:
            raise InvalidProducerIdMapping(f"producer {producer.id} is not {name!r}")
        if producer.epoch != found.epoch or found.epoch == MAX_EPOCH:
            raise _is_fenced(found, producer)
        return found

    def _require_no_pending(self, name: str) -> None:
        found = self.transactions.get(name)
        if name in self._pending or (found is not None and found.phase in PREPARED):
            raise ConcurrentTransactions()

    def _write(self, name: str, then: Transaction, *replies: Reply) -> Decision:
        def written(error: KafkaError | None, now: Now) -> Decision:
            del self._pending[name]
            return self._next_step(name, now, error)

        self._pending[name] = then
        return Decision(records=(_transaction_record(name, then),), replies=replies, on_committed=written)

    def _next_step(self, name: str, now: Now, error: KafkaError | None = None) -> Decision:
        """The next step of a transaction, open or prepared: its timeout, or its markers. After a failed write of its
        last step the next one is delayed."""
        pause_ms = 0 if error is None else RETRY_MS
        found = self.transactions.get(name)
        if found is None or found.phase not in PREPARED:
            self._unmarked.pop(name, None)
        if found is None or found.phase is not Phase.ONGOING:
            self._deadlines.cancel((name, TIMEOUT))
        elif self._deadlines.get((name, TIMEOUT)) is None:
            left_ms = min(found.started_ms + found.timeout_ms - now.wall_ms, found.timeout_ms)
            self._deadlines.set((name, TIMEOUT), now.steady_ms + max(left_ms, pause_ms))
        if found is None or found.phase not in PREPARED:
            return NOTHING
        if error is None:
            return self._mark(name, found, now)
        self._deadlines.set((name, RETRY), now.steady_ms + pause_ms)
        return NOTHING


def _transaction_record(name: str, then: Transaction) -> StoredRecord:
    return StoredRecord(TransactionLogKey(transactional_id=name), then.value())


def _require_producer_id(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerId()
    return producer_id


def _may_go_on(found: Transaction, expected: Producer) -> bool:
    """Whether this is the producer: the id has none yet, or this is its present one, or the one before its epochs ran
    out."""
    return (
        found.epoch == NO_EPOCH
        or expected.id == found.producer_id
        or (expected.id == found.previous_producer_id and is_exhausted(expected.epoch))
    )


def _is_current(found: Transaction, expected_epoch: int | None) -> bool:
    """Whether the producer is current. The last epoch is never given to a client, so the one before it is current."""
    return expected_epoch in (None, found.epoch) or (found.epoch == MAX_EPOCH and expected_epoch == found.last_epoch)


def _complete(is_commit: bool) -> Phase:
    return Phase.COMPLETE_COMMIT if is_commit else Phase.COMPLETE_ABORT


def _has_overflowed(found: Transaction, producer: Producer) -> bool:
    """Whether the repeated end gave the producer another id."""
    return found.previous_producer_id == producer.id and producer.epoch == MAX_EPOCH - 1 and found.epoch == 0


def _is_fenced(found: Transaction, producer: Producer) -> ProducerFenced:
    return ProducerFenced(f"epoch {producer.epoch} instead of {found.epoch}")


def _cannot_end(found: Transaction, is_commit: bool) -> InvalidTxnState:
    return InvalidTxnState(f"{found.phase.text} cannot be {'committed' if is_commit else 'aborted'}")


def _end_response(then: Transaction) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=then.producer_id, producer_epoch=then.epoch)
