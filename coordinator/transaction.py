"""The state of one transactional id: its producer, its phase, and the partitions of its transaction.

    EMPTY ── partitions ──→ ONGOING ── EndTxn ──→ PREPARE_COMMIT ── markers ──→ COMPLETE_COMMIT
                               │  └─── EndTxn ──→ PREPARE_ABORT ─── markers ──→ COMPLETE_ABORT
                               └── fenced: another InitProducerId, or its timeout ───────────────↑
    COMPLETE_… ── partitions ──→ ONGOING          COMPLETE_…, EMPTY ── InitProducerId ──→ EMPTY

A `Transaction` is immutable. Each step returns the next one, which takes effect when its record (`value`) is replayed;
reading the log back (`from_value`) yields the same.

There are two client generations. An old client keeps its epoch from one transaction to the next. A new one (KIP-890)
gets a new epoch at each end, so that a late request of one transaction cannot affect the next. Its markers carry the
new epoch. When the epochs of a producer id are used up, the end is written with the last one, and the next transaction
has another id.
"""

from collections.abc import Iterable
from dataclasses import field, replace
from enum import IntEnum
from typing import Final

from trioka.protocol.errors import InvalidRequest, InvalidTransactionTimeout, ProducerFenced, ProtocolError
from trioka.protocol.internal_records.transactions import TransactionLogValue
from trioka.protocol.lazy_dataclass import frozen

from .decision import Producer

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1
MAX_EPOCH: Final = 32767  # reserved for the coordinator, which must always be able to fence a producer
EPOCHS_PER_END: Final = 2  # from this transaction version on each end has an epoch of its own

TopicPartition = tuple[str, int]


class Phase(IntEnum):
    """The phases, with their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # Kafka's names for states between two records; they are never written
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name in responses: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


IDLE_PHASES: Final = (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)
PREPARED: Final = (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)

NEXT: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.EMPTY: frozenset({Phase.EMPTY, Phase.ONGOING, Phase.PREPARE_ABORT}),
    Phase.ONGOING: frozenset({Phase.ONGOING, *PREPARED}),
    Phase.PREPARE_COMMIT: frozenset({Phase.COMPLETE_COMMIT}),
    Phase.PREPARE_ABORT: frozenset({Phase.COMPLETE_ABORT}),
    Phase.COMPLETE_COMMIT: frozenset({Phase.EMPTY, Phase.ONGOING, Phase.PREPARE_ABORT}),
    Phase.COMPLETE_ABORT: frozenset({Phase.EMPTY, Phase.ONGOING, Phase.PREPARE_ABORT}),
}


@frozen
class Transaction:
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID  # before the last step, which may have changed it
    next_producer_id: int = NO_PRODUCER_ID  # after the markers, if the epochs are used up
    epoch: int = NO_EPOCH
    # The previous epoch, for a producer that missed the response with the new one. It is not in the log: after a change
    # of coordinators such a producer is fenced.
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    timeout_ms: int
    phase: Phase = Phase.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED
    updated_ms: int
    client_version: int = 0  # transaction version of the last client that changed it

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no further epoch can be given to a producer."""
        return is_exhausted(self.epoch)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def initialised(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> "Transaction":
        """InitProducerId: the next epoch. A producer that sends its epoch (KIP-360) may repeat the request: the second
        time it sends the previous epoch, and gets the same one again."""
        epoch, last_epoch = self.epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            last_epoch = self.epoch
            if NO_EPOCH != self.epoch != expected_epoch:
                if expected_epoch != self.last_epoch:
                    raise ProducerFenced(f"epoch {expected_epoch} instead of {self.epoch}")
                epoch, last_epoch = self.epoch, self.last_epoch
        return self._idle(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> "Transaction":
        """InitProducerId when the epochs are used up."""
        last_epoch = NO_EPOCH if expected_epoch is None else expected_epoch
        return self._idle(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _idle(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        return self._moved(
            Phase.EMPTY,
            now_ms,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NOT_STARTED,
        )

    def joined(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        """Adds partitions; with the first ones, the transaction begins."""
        return self._moved(
            Phase.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.phase is Phase.ONGOING else now_ms,
            client_version=client_version,
        )

    def prepared(self, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> "Transaction":
        """The decision to commit or abort. The last epoch, which no producer gets, is kept."""
        epoch, last_epoch = self.epoch, self.last_epoch
        if client_version >= EPOCHS_PER_END:
            epoch, last_epoch = min(self.epoch + 1, MAX_EPOCH), self.epoch
        return self._moved(
            Phase.PREPARE_COMMIT if is_commit else Phase.PREPARE_ABORT,
            now_ms,
            epoch=epoch,
            last_epoch=last_epoch,
            next_producer_id=next_producer_id,
            started_ms=self.started_ms if self.phase is Phase.ONGOING else now_ms,
            client_version=client_version,
        )

    def fenced(self, version: int, now_ms: int) -> "Transaction":
        """The coordinator aborts the transaction, in an epoch that the producer does not have: exactly one more, in
        both generations (KAFKA-19367)."""
        if version >= EPOCHS_PER_END:
            return self.prepared(False, version, NO_PRODUCER_ID, now_ms)
        aborted = self.prepared(False, 0, NO_PRODUCER_ID, now_ms)
        return replace(aborted, epoch=min(self.epoch + 1, MAX_EPOCH), last_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> "Transaction":
        """The step after all markers are written."""
        assert self.phase in PREPARED
        has_next = self.client_version >= EPOCHS_PER_END and self.next_producer_id != NO_PRODUCER_ID
        return self._moved(
            Phase.COMPLETE_COMMIT if self.phase is Phase.PREPARE_COMMIT else Phase.COMPLETE_ABORT,
            now_ms,
            producer_id=self.next_producer_id if has_next else self.producer_id,
            epoch=0 if has_next else self.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def _moved(self, phase: Phase, now_ms: int, **changes: object) -> "Transaction":
        assert phase in NEXT[self.phase], f"{self.phase.name} → {phase.name}"
        return replace(
            self,
            phase=phase,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            **changes,  # type: ignore[arg-type]
        )

    # -- records -------------------------------------------------------------------------------------------------------

    def value(self) -> TransactionLogValue:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.phase,
            transaction_partitions=None
            if self.phase is Phase.EMPTY
            else [TransactionLogValue.Topic(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )

    @classmethod
    def from_value(cls, value: TransactionLogValue) -> "Transaction":
        if value.transaction_status not in NEXT:
            raise ProtocolError(f"a transaction is never written in phase {value.transaction_status}")
        return cls(
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            phase=Phase(value.transaction_status),
            partitions=frozenset(
                (topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            started_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


def is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_EPOCH - 1


def check_transactional_id(name: str) -> None:
    if not name:
        raise InvalidRequest("the transactional id is empty")


def check_transaction_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    if not 0 < timeout_ms <= max_timeout_ms:
        raise InvalidTransactionTimeout(f"a transaction timeout of {timeout_ms} ms is out of range")
