"""Verifies the first write of a transaction to a partition with its coordinator (T6, KIP-890).

Without it, a late write of an ended transaction would open another one that never ends. So the leader of a partition
accepts a transactional batch only if that transaction is already open there, or if the coordinator confirms that the
partition is part of it. A client of transaction version 2 does not add partitions beforehand: the leader adds the
partition instead.

Verification takes time, and the transaction may end meanwhile. So a guard is created before; a marker removes the
guard, and a write without its guard is rejected.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import trio

from trioka.coordinator.decision import Decision, Now, Producer, RequestId, reply
from trioka.coordinator.transaction import EPOCHS_PER_END, TopicPartition
from trioka.coordinator.transactions import TransactionCoordinator
from trioka.protocol.batch import single_batch_header
from trioka.protocol.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
)
from trioka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import RecordBytes
from trioka.protocol.schema import Response
from trioka.storage.producer_state import BUMPING_TRANSACTION_VERSION, MAX_EPOCH

from ..config.coordinator_keys import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
)
from ..replication.partitions import Replica
from .txn_rpc import BatchedSender, PartitionsItem, send_partitions

if TYPE_CHECKING:
    from ..broker import Broker

MAX_PENDING_WRITES: Final = 100_000  # at this limit all are verified again
CONFIRMED: Final = AddPartitionsToTxnResponse(throttle_time_ms=0)

FIRST_VERSION_WITH_ABORTABLE: Final = 11  # of Produce
FIRST_VERSION_OF_SECOND: Final = 12
FIRST_VERSION_WITH_IDS: Final = 13
NOT_REACHED: Final = (NetworkException, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

Outcome = Mapping[TopicPartition, KafkaError | None]


class Generation(IntEnum):
    """The transaction features that a client supports."""

    FIRST = 0
    ABORTABLE = 1  # … and an error may require an abort
    SECOND = 2  # each transaction has its own epoch, and partitions are not added beforehand

    @classmethod
    def of(cls, version: int, *, abortable: int, second: int) -> "Generation":
        """The features that the version of a Produce request implies."""
        return cls((version >= abortable) + (version >= second))


class PendingWrite:
    """The verification of a producer's first write to a partition."""

    __slots__ = ("epoch", "is_adding", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, is_adding: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.is_adding = is_adding

    def note(self, epoch: int, sequence: int) -> None:
        """One more write waits: the first batch must be written first."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence = epoch, sequence


class TxnVerifier:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._guards: dict[tuple[Replica, int, int], PendingWrite] = {}
        self._batches = BatchedSender[PartitionsItem](broker, "transactions", send_partitions)

    def permit(self, request: ProduceRequest, version: int) -> "WriteCheck":
        return WriteCheck(self._broker, request, version)

    def is_required(self, generation: Generation) -> bool:
        return generation is Generation.SECOND or self._broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]

    def start(self, replica: Replica, producer: Producer, sequence: int, generation: Generation) -> PendingWrite | None:
        """Starts the verification; None if the transaction is already open here."""
        replica.require_leader()
        known = replica.log.producers.producers.get(producer.id)
        if known is not None:
            if producer.epoch < known.epoch:
                raise InvalidProducerEpoch(f"producer {producer.id}: epoch {producer.epoch} instead of {known.epoch}")
            if known.transaction_first_offset >= 0 and producer.epoch == known.epoch:
                return None
        key = (replica, replica.leader_epoch, producer.id)
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= MAX_PENDING_WRITES:
                self._guards.clear()
            guard = self._guards[key] = PendingWrite(
                producer.epoch, sequence, is_adding=generation is Generation.SECOND
            )
        guard.note(producer.epoch, sequence)
        return guard

    def check(self, replica: Replica, producer: Producer, sequence: int, guard: PendingWrite | None) -> None:
        """Called just before the batch is written."""
        known = replica.log.producers.producers.get(producer.id)
        if known is not None and known.transaction_first_offset >= 0 and producer.epoch == known.epoch:
            return
        if guard is None or self._guards.get((replica, replica.leader_epoch, producer.id)) is not guard:
            raise InvalidTxnState(f"producer {producer.id} has no transaction in {replica.topic}-{replica.index}")
        is_unknown = known is None or not known.window
        if (guard.is_adding and sequence > 0 and is_unknown) or sequence > guard.lowest_sequence:
            raise OutOfOrderSequenceNumber(f"the first sequence of producer {producer.id} is {sequence}")

    def on_txn_end(self, replica: Replica, producer: Producer, transaction_version: int) -> None:
        """Removes the guard when a marker is written. In version 2 the marker has the epoch with which the producer
        continues, so a guard with that epoch belongs to the next transaction, whose first write arrived while the
        marker was on its way. Only the last possible epoch has no successor."""
        guard = self._guards.get((replica, replica.leader_epoch, producer.id))
        is_of_next = guard is not None and guard.epoch >= producer.epoch != MAX_EPOCH
        if transaction_version < BUMPING_TRANSACTION_VERSION or not is_of_next:
            self.forget(replica, producer.id)

    def forget(self, replica: Replica, producer_id: int) -> None:
        """Removes the guard: no transaction is open here."""
        self._guards.pop((replica, replica.leader_epoch, producer_id), None)

    def verify(
        self,
        name: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        generation: Generation,
        then: Callable[[Outcome], None],
    ) -> None:
        """Verifies the partitions, or adds them in version 2. `then` is called with the error of each, possibly at
        once: the coordinator may be this broker."""
        requested = tuple(partitions)
        outcome: dict[TopicPartition, KafkaError | None] = dict.fromkeys(requested)

        def decide(coordinator: TransactionCoordinator, request_id: RequestId, now: Now) -> Decision:
            if generation is Generation.SECOND:
                return coordinator.add_partitions(request_id, name, producer, requested, EPOCHS_PER_END, CONFIRMED, now)
            outcome.update(coordinator.verify_partitions(name, producer, requested))
            return reply(request_id, CONFIRMED)

        def deliver(response: Response | KafkaError) -> None:
            error = response if isinstance(response, KafkaError) else None
            on_outcome({partition: error or found for partition, found in outcome.items()})

        def on_outcome(found: Outcome) -> None:
            then({partition: _to_client_error(error, generation) for partition, error in found.items()})

        transactions, batches = self._broker.transactions, self._batches
        coordinator = transactions.coordinator_of(name)
        if coordinator not in (None, self._broker.node_id):
            is_question = generation is not Generation.SECOND
            batches.put(coordinator, PartitionsItem(name, producer, requested, is_question, on_outcome))
            return
        try:
            transactions.submit_callback(name, decide, deliver)
        except KafkaError as error:
            deliver(error)


class WriteCheck:
    """The batches of a Produce that may be written.

    Most requests of a transaction follow its first one and need no verification. If the coordinator responds at once,
    as it does when it is this broker and no other replica is needed, no request waits either.
    """

    def __init__(self, broker: "Broker", request: ProduceRequest, version: int) -> None:
        self._broker = broker
        self._generation = Generation.of(
            version, abortable=FIRST_VERSION_WITH_ABORTABLE, second=FIRST_VERSION_OF_SECOND
        )
        self._is_required = broker.verification.is_required(self._generation)
        self._name = request.transactional_id or ""
        self._guards: dict[Replica, PendingWrite] = {}
        self.refused: dict[Replica | None, KafkaError] = {}  # without a check by their logs
        self._producer: Producer | None = None
        found: dict[Replica, int] = {}
        for topic in request.topic_data:
            for requested in topic.partition_data:
                header = None if requested.records is None else single_batch_header(requested.records)
                if header is None or not header.is_transactional or header.producer_id < 0:
                    continue
                self._note(Producer(header.producer_id, header.producer_epoch))
                if version >= FIRST_VERSION_WITH_IDS:
                    replica = broker.partitions.find_by_id(topic.topic_id, requested.index)
                else:
                    replica = broker.partitions.find(topic.name, requested.index)
                if replica is not None:
                    found[replica] = header.base_sequence
        if self._is_required:
            for replica, sequence in found.items():
                self._start(replica, sequence)

    def _note(self, producer: Producer) -> None:
        if self._producer not in (None, producer):
            raise InvalidProducerIdMapping("the records are of more than one producer")
        self._producer = producer

    def _start(self, replica: Replica, sequence: int) -> None:
        assert self._producer is not None
        try:
            guard = self._broker.verification.start(replica, self._producer, sequence, self._generation)
        except KafkaError as error:
            self.refused[replica] = error
        else:
            if guard is not None:
                self._guards[replica] = guard

    def verify(self) -> trio.Event | None:
        """Starts the verification; None if nothing must be verified, otherwise the event to wait for before
        `settle`."""
        if not self._guards:
            return None
        is_there = trio.Event()
        self._send(lambda outcome: is_there.set())
        return None if is_there.is_set() and not self._should_retry else is_there

    async def settle(self, is_there: trio.Event) -> None:
        """Waits while the producer's previous transaction is about to end, which is faster than a retry by the client.
        This is frequent if a transaction writes to many partitions."""
        clock, config = self._broker.clock, self._broker.config
        until = clock.now() + config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS] / 1000
        await is_there.wait()
        while self._should_retry and clock.now() < until:
            await trio.sleep(config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS] / 1000)
            is_there = trio.Event()
            self._send(lambda outcome, is_there=is_there: is_there.set())  # type: ignore[misc]
            await is_there.wait()

    @property
    def _should_retry(self) -> bool:
        return self._generation is Generation.SECOND and any(
            isinstance(self.refused.get(replica), ConcurrentTransactions) for replica in self._guards
        )

    def _send(self, then: Callable[[Outcome], None]) -> None:
        assert self._producer is not None
        producer = self._producer
        by_name = {(replica.topic, replica.index): replica for replica in self._guards}

        def settle(outcome: Outcome) -> None:
            for partition, error in outcome.items():
                replica = by_name[partition]
                self.refused.pop(replica, None)
                if error is not None:
                    self.refused[replica] = self._to_client_error(error)
                    if not error.retriable:
                        self._broker.verification.forget(replica, producer.id)
            then(outcome)

        self._broker.verification.verify(self._name, producer, by_name, self._generation, settle)

    def _to_client_error(self, error: KafkaError) -> KafkaError:
        """Clients before version 2 do not expect every coordinator error in a Produce response. This one makes them
        retry without looking for another leader."""
        is_for_all = isinstance(error, ConcurrentTransactions) and self._generation is not Generation.SECOND
        if is_for_all or isinstance(error, NOT_REACHED):
            return NotEnoughReplicas(f"could not verify that the partition takes part in the transaction: {error.name}")
        return error

    def has_message(self, error: KafkaError) -> bool:
        """Whether the response has an error message, because the code alone would mislead."""
        return isinstance(error, InvalidTxnState | NotEnoughReplicas)

    def check(self, replica: Replica, records: RecordBytes) -> None:
        """Called just before a transactional batch is written."""
        if replica in self.refused:
            raise self.refused[replica]
        header = single_batch_header(records)
        if header is not None and header.producer_id >= 0 and self._is_required:
            producer = Producer(header.producer_id, header.producer_epoch)
            self._broker.verification.check(replica, producer, header.base_sequence, self._guards.get(replica))


def _to_client_error(error: KafkaError | None, generation: Generation) -> KafkaError | None:
    """The error that a Produce returns for this error of the coordinator."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, TransactionAbortable) and generation is Generation.FIRST:
        return InvalidTxnState("the partition does not take part in the transaction")
    return error
