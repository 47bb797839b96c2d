"""The transaction coordinator of one partition of `__transaction_state`.

The end of a transaction is written in three parts (T4): the verdict here (PREPARE), then a marker to every partition
that takes part, then the end here (COMPLETE). A client is answered once the verdict is committed, since nothing can
change it any more; a coordinator that loads a verdict without its end orders the markers again.

Markers are written by others: a decision carries a `MarkerOrder`, and `marked` is called for each partition that has
its marker. So are producer ids given by others: who needs one raises `NeedsProducerId`, and is asked again with one.

While what was decided for an id is not committed, and from the verdict to the end, the next request for it is told to
come again (CONCURRENT_TRANSACTIONS), so that nobody decides upon what may still be lost.
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
from .decision import NOTHING, Answer, Decision, Kept, MarkerOrder, Moment, Producer, Ticket, answer
from .transaction import (
    AT_REST,
    EPOCHS_PER_END,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Phase,
    TopicPartition,
    Transaction,
    is_exhausted,
    must_be_allowed,
    must_be_named,
)

TIMEOUT: Final = "timeout"  # of a transaction that is open
RETRY: Final = "retry"  # of markers, or an end, that could not be written
CLEAN_UP: Final = ("", "clean up")

RETRY_MS: Final = 100
MAX_EXPIRED_AT_ONCE: Final = 1000  # a decision must fit into one batch


class NeedsProducerId(Exception):
    """Ask again, with an id that no producer has."""


@frozen
class TransactionSettings:
    max_timeout_ms: int = 900_000
    expiration_ms: int = 7 * 86_400_000
    clean_up_interval_ms: int = 3_600_000
    version: int = EPOCHS_PER_END  # of transactions, that the cluster has settled on


@frozen
class Wanted:
    """Which transactions somebody asks for; what is empty leaves nothing out."""

    phases: frozenset[Phase] | None = None
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1  # since it began; one that has not begun has been there for ever
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
        self._epoch = epoch  # of this partition's leader; markers of an older one are refused (T3)
        self._settings = settings
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        self._pending: dict[str, Transaction] = {}  # what was decided, and is not committed yet
        self._unmarked: dict[str, set[TopicPartition]] = {}  # the markers that are still to be written

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, kept: Kept, offset: int, producer: Producer | None) -> None:
        assert isinstance(kept.key, TransactionLogKey)
        name = kept.key.transactional_id
        if kept.value is None:
            self.transactions.pop(name, None)
            return
        assert isinstance(kept.value, TransactionLogValue)
        read, decided = Transaction.from_value(kept.value), self._pending.get(name)
        self.transactions[name] = decided if decided == read else read

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        """Nobody writes to this topic within a transaction."""

    def begin(self, now: Moment) -> list[Decision]:
        self._deadlines.set(CLEAN_UP, now.steady_ms + self._settings().clean_up_interval_ms)
        return [self._follow(name, now) for name in list(self.transactions)]

    # -- a producer begins ---------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        ticket: Ticket,
        name: str,
        timeout_ms: int,
        expected: Producer | None,
        new_producer_id: int | None,
        now: Moment,
    ) -> Decision:
        """`expected` is the producer that the client was, if it goes on after an error (KIP-360)."""
        must_be_named(name)
        must_be_allowed(timeout_ms, self._settings().max_timeout_ms)
        self._must_be_settled(name)
        found = self.transactions.get(name)
        if found is None:
            found = Transaction(producer_id=_given(new_producer_id), timeout_ms=timeout_ms, updated_ms=now.wall_ms)
        if expected is not None and not _may_go_on(found, expected):
            raise ProducerFenced(f"producer {expected.id}, it is {found.producer_id}")
        if found.phase is Phase.ONGOING:
            fenced = found.fenced(self._settings().version, now.wall_ms)
            return self._write(name, fenced, Answer(ticket, ConcurrentTransactions()))
        expected_epoch = None if expected is None else expected.epoch
        if found.is_exhausted and _is_current(found, expected_epoch):
            then = found.given_another_id(_given(new_producer_id), timeout_ms, expected_epoch, now.wall_ms)
        else:
            then = found.initialised(timeout_ms, expected_epoch, now.wall_ms)
        given = InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=then.producer_id, producer_epoch=then.epoch
        )
        return self._write(name, then, Answer(ticket, given))

    # -- partitions take part ------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        ticket: Ticket,
        name: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int,
        said: Response,
        now: Moment,
    ) -> Decision:
        """For AddPartitionsToTxn and AddOffsetsToTxn, which answer differently: `said` is what the client is told when
        the partitions take part."""
        must_be_named(name)
        self._must_be_settled(name)
        found = self._find(name, producer)
        wanted = frozenset(partitions)
        if found.phase is Phase.ONGOING and wanted <= found.partitions:
            return answer(ticket, said)
        return self._write(name, found.joined(wanted, client_version, now.wall_ms), Answer(ticket, said))

    def verify_partitions(
        self, name: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Whether they take part, asked by the leader of a partition before a client's first write to it (T6)."""
        must_be_named(name)
        found = self._find(name, producer)
        if found.phase in PREPARED:
            raise ConcurrentTransactions()
        return {
            partition: None if partition in found.partitions else TransactionAbortable() for partition in partitions
        }

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(
        self,
        ticket: Ticket,
        name: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now: Moment,
    ) -> Decision:
        must_be_named(name)
        if client_version < EPOCHS_PER_END:
            return self._end_with_its_epoch(ticket, name, producer, is_commit, now)
        return self._end_with_a_new_epoch(ticket, name, producer, is_commit, client_version, new_producer_id, now)

    def _end_with_its_epoch(
        self, ticket: Ticket, name: str, producer: Producer, is_commit: bool, now: Moment
    ) -> Decision:
        found = self._find(name, producer)
        self._must_be_settled(name)
        if found.phase is Phase.ONGOING:
            then = found.prepared(is_commit, 0, NO_PRODUCER_ID, now.wall_ms)
            return self._write(name, then, Answer(ticket, _ended(then)))
        if found.phase is _complete(is_commit):
            return answer(ticket, _ended(found))
        raise _cannot_end(found, is_commit)

    def _end_with_a_new_epoch(
        self,
        ticket: Ticket,
        name: str,
        producer: Producer,
        is_commit: bool,
        client_version: int,
        new_producer_id: int | None,
        now: Moment,
    ) -> Decision:
        """The same epoch again is about the next transaction, which may be aborted before anything was written in it; a
        repeated request has the epoch before (T5). Who repeats an abort that somebody else has made, with the last
        epoch, is not given that one: where Kafka gives it, the next commit fails."""
        self._must_be_settled(name)
        found = self.transactions.get(name)
        if found is None:
            raise InvalidProducerIdMapping(f"nobody is {name!r}")
        has_overflowed = _has_overflowed(found, producer)
        if found.producer_id != producer.id and not has_overflowed:
            raise InvalidProducerIdMapping(f"producer {producer.id}, it is {found.producer_id}")
        if has_overflowed or found.epoch == producer.epoch + 1:
            if found.phase in (Phase.EMPTY, Phase.ONGOING) or found.epoch == MAX_EPOCH:
                raise _is_fenced(found, producer)
            if found.phase is not _complete(is_commit):
                raise _cannot_end(found, is_commit)
            return answer(ticket, _ended(found))
        if found.epoch != producer.epoch or found.epoch == MAX_EPOCH:
            raise _is_fenced(found, producer)
        if found.phase is not Phase.ONGOING and is_commit:
            raise _cannot_end(found, is_commit)
        next_producer_id = _given(new_producer_id) if found.is_exhausted else NO_PRODUCER_ID
        then = found.prepared(is_commit, client_version, next_producer_id, now.wall_ms)
        return self._write(name, then, Answer(ticket, _ended(then.completed(now.wall_ms))))

    def _mark(self, name: str, found: Transaction, now: Moment) -> Decision:
        """What is left to do after a verdict."""
        unmarked = self._unmarked.setdefault(name, set(found.partitions))
        if not unmarked:
            return self._write(name, found.completed(now.wall_ms))
        order = MarkerOrder(
            transactional_id=name,
            producer=found.producer,
            is_commit=found.phase is Phase.PREPARE_COMMIT,
            coordinator_epoch=self._epoch,
            partitions=tuple(sorted(unmarked)),
            transaction_version=found.client_version,
        )

        def ordered(error: KafkaError | None, now: Moment) -> Decision:
            if error is not None:  # the verdict may not be committed yet
                self._deadlines.set((name, RETRY), now.steady_ms + RETRY_MS)
            return NOTHING

        return Decision(orders=(order,), afterwards=ordered)

    def marked(self, order: MarkerOrder, partitions: Sequence[TopicPartition], now: Moment) -> Decision:
        """These partitions have their marker, or will never need one: they are gone."""
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

    def expire(self, now: Moment) -> Iterator[Decision]:
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

    def _clean_up(self, now: Moment) -> Decision:
        """Ids that nobody has used for long are forgotten."""
        latest = now.wall_ms - self._settings().expiration_ms
        expired = [
            name
            for name, found in self.transactions.items()
            if found.phase in AT_REST and found.updated_ms <= latest and name not in self._pending
        ]

        def go_on(error: KafkaError | None, now: Moment) -> Decision:
            return NOTHING if error is not None else self._clean_up(now)

        return Decision(
            records=tuple(
                Kept(TransactionLogKey(transactional_id=name), None) for name in expired[:MAX_EXPIRED_AT_ONCE]
            ),
            afterwards=go_on if len(expired) > MAX_EXPIRED_AT_ONCE else None,
        )

    # -- what is known -------------------------------------------------------------------------------------------------

    def list_transactions(self, wanted: Wanted, now: Moment) -> list[tuple[str, Transaction]]:
        return [(name, found) for name, found in self.transactions.items() if wanted.has(name, found, now.wall_ms)]

    def describe(self, name: str) -> Transaction:
        """With the partitions that take part; after the verdict, those that have not heard of it."""
        must_be_named(name)
        found = self.transactions.get(name)
        if found is None:
            raise TransactionalIdNotFound(f"nobody is {name!r}")
        unmarked = self._unmarked.get(name)
        return found if unmarked is None else replace(found, partitions=frozenset(unmarked))

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _find(self, name: str, producer: Producer) -> Transaction:
        found = self.transactions.get(name)
        if found is None or found.producer_id != producer.id:
            raise InvalidProducerIdMapping(f"producer {producer.id} is not {name!r}")
        if producer.epoch != found.epoch or found.epoch == MAX_EPOCH:
            raise _is_fenced(found, producer)
        return found

    def _must_be_settled(self, name: str) -> None:
        found = self.transactions.get(name)
        if name in self._pending or (found is not None and found.phase in PREPARED):
            raise ConcurrentTransactions()

    def _write(self, name: str, then: Transaction, *answers: Answer) -> Decision:
        def written(error: KafkaError | None, now: Moment) -> Decision:
            del self._pending[name]
            return self._follow(name, now, error)

        self._pending[name] = then
        return Decision(records=(_kept(name, then),), answers=answers, afterwards=written)

    def _follow(self, name: str, now: Moment, error: KafkaError | None = None) -> Decision:
        """What comes after the state that a transaction is in; if its last step could not be written, not at once."""
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


def _kept(name: str, then: Transaction) -> Kept:
    return Kept(TransactionLogKey(transactional_id=name), then.value())


def _given(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerId()
    return producer_id


def _may_go_on(found: Transaction, expected: Producer) -> bool:
    """A new id has no producer yet; this is the one it has; or the one it had, before its epochs were used up."""
    return (
        found.epoch == NO_EPOCH
        or expected.id == found.producer_id
        or (expected.id == found.previous_producer_id and is_exhausted(expected.epoch))
    )


def _is_current(found: Transaction, expected_epoch: int | None) -> bool:
    """Nobody else came meanwhile. The last epoch of all was given to nobody, so that the one before it is current."""
    return expected_epoch in (None, found.epoch) or (found.epoch == MAX_EPOCH and expected_epoch == found.last_epoch)


def _complete(is_commit: bool) -> Phase:
    return Phase.COMPLETE_COMMIT if is_commit else Phase.COMPLETE_ABORT


def _has_overflowed(found: Transaction, producer: Producer) -> bool:
    """The end that the producer repeats has given it another id."""
    return found.previous_producer_id == producer.id and producer.epoch == MAX_EPOCH - 1 and found.epoch == 0


def _is_fenced(found: Transaction, producer: Producer) -> ProducerFenced:
    return ProducerFenced(f"epoch {producer.epoch}, it is {found.epoch}")


def _cannot_end(found: Transaction, is_commit: bool) -> InvalidTxnState:
    return InvalidTxnState(f"{found.phase.text} cannot be {'committed' if is_commit else 'aborted'}")


def _ended(then: Transaction) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=then.producer_id, producer_epoch=then.epoch)
