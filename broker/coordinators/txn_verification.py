"""The first write of a transaction to a partition: does its coordinator know of it? (T6, KIP-890)

Without asking, a late write of a transaction that has ended would open another one, which nobody ends. So the leader of
a partition lets in a transactional batch only if that transaction is open there already, or if the coordinator says
that the partition takes part. A new client does not say that beforehand: then the coordinator is told by the leader.

Asking may take time, and the transaction may end meanwhile. So a guard is set up before; its end takes the guard away,
and a write without its guard is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import trio

from trioka.coordinator.decision import Decision, Moment, Producer, Ticket, answer
from trioka.coordinator.transaction import EPOCHS_PER_END, TopicPartition
from trioka.coordinator.transactions import TransactionCoordinator
from trioka.protocol.batch import only_header
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
from .txn_rpc import Batches, PartitionsItem, ask_for_partitions

if TYPE_CHECKING:
    from ..broker import Broker

MAX_GUARDS: Final = 100_000  # of writes that were let in nowhere yet; when there are more, all ask again
SAID: Final = AddPartitionsToTxnResponse(throttle_time_ms=0)

FIRST_VERSION_WITH_ABORTABLE: Final = 11  # of Produce
FIRST_VERSION_OF_SECOND: Final = 12
FIRST_VERSION_WITH_IDS: Final = 13
NOT_REACHED: Final = (NetworkException, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

Outcome = Mapping[TopicPartition, KafkaError | None]


class Generation(IntEnum):
    """What a client knows of transactions."""

    FIRST = 0
    ABORTABLE = 1  # … and that an error may mean that it has to abort
    SECOND = 2  # it has an epoch for each transaction, and does not say which partitions take part

    @classmethod
    def of(cls, version: int, *, abortable: int, second: int) -> "Generation":
        """As the version of a request tells it."""
        return cls((version >= abortable) + (version >= second))


class Guard:
    """Somebody asks for a producer's first write to a partition."""

    __slots__ = ("epoch", "is_adding", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, is_adding: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.is_adding = is_adding

    def note(self, epoch: int, sequence: int) -> None:
        """One more asks: what comes first must be written first."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence = epoch, sequence


class Verification:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._guards: dict[tuple[Replica, int, int], Guard] = {}
        self._batches = Batches[PartitionsItem](broker, "transactions", ask_for_partitions)

    def permit(self, request: ProduceRequest, version: int) -> "Permit":
        return Permit(self._broker, request, version)

    def is_wanted(self, generation: Generation) -> bool:
        return generation is Generation.SECOND or self._broker.config[TRANSACTION_PARTITION_VERIFICATION_ENABLE]

    def start(self, replica: Replica, producer: Producer, sequence: int, generation: Generation) -> Guard | None:
        """None if the transaction is open here already, so that there is nothing to ask."""
        replica.must_lead()
        known = replica.log.producers.producers.get(producer.id)
        if known is not None:
            if producer.epoch < known.epoch:
                raise InvalidProducerEpoch(f"producer {producer.id}: epoch {producer.epoch}, it is {known.epoch}")
            if known.transaction_first_offset >= 0 and producer.epoch == known.epoch:
                return None
        key = (replica, replica.leader_epoch, producer.id)
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= MAX_GUARDS:
                self._guards.clear()
            guard = self._guards[key] = Guard(producer.epoch, sequence, is_adding=generation is Generation.SECOND)
        guard.note(producer.epoch, sequence)
        return guard

    def check(self, replica: Replica, producer: Producer, sequence: int, guard: Guard | None) -> None:
        """Just before it is written."""
        known = replica.log.producers.producers.get(producer.id)
        if known is not None and known.transaction_first_offset >= 0 and producer.epoch == known.epoch:
            return
        if guard is None or self._guards.get((replica, replica.leader_epoch, producer.id)) is not guard:
            raise InvalidTxnState(f"producer {producer.id} has no transaction in {replica.topic}-{replica.index}")
        is_unknown = known is None or not known.window
        if (guard.is_adding and sequence > 0 and is_unknown) or sequence > guard.lowest_sequence:
            raise OutOfOrderSequenceNumber(f"producer {producer.id} begins with sequence {sequence}")

    def ended(self, replica: Replica, producer: Producer, transaction_version: int) -> None:
        """A marker was written. In the second generation it has the epoch with which the producer goes on, so that a
        guard of that epoch is of the next transaction: the leader has been asked for it while the marker was on its
        way. Only the last epoch of all cannot be followed by another."""
        guard = self._guards.get((replica, replica.leader_epoch, producer.id))
        is_of_next = guard is not None and guard.epoch >= producer.epoch != MAX_EPOCH
        if transaction_version < BUMPING_TRANSACTION_VERSION or not is_of_next:
            self.forget(replica, producer.id)

    def forget(self, replica: Replica, producer_id: int) -> None:
        """There is no transaction here."""
        self._guards.pop((replica, replica.leader_epoch, producer_id), None)

    def ask(
        self,
        name: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        generation: Generation,
        then: Callable[[Outcome], None],
    ) -> None:
        """Whether the partitions take part; in the second generation they do from now on. `then` is called with what is
        wrong with each, perhaps at once: the coordinator may be this broker."""
        asked = tuple(partitions)
        outcome: dict[TopicPartition, KafkaError | None] = dict.fromkeys(asked)

        def decide(coordinator: TransactionCoordinator, ticket: Ticket, now: Moment) -> Decision:
            if generation is Generation.SECOND:
                return coordinator.add_partitions(ticket, name, producer, asked, EPOCHS_PER_END, SAID, now)
            outcome.update(coordinator.verify_partitions(name, producer, asked))
            return answer(ticket, SAID)

        def deliver(response: Response | KafkaError) -> None:
            error = response if isinstance(response, KafkaError) else None
            told({partition: error or found for partition, found in outcome.items()})

        def told(found: Outcome) -> None:
            then({partition: _worded(error, generation) for partition, error in found.items()})

        transactions, batches = self._broker.transactions, self._batches
        coordinator = transactions.coordinator_of(name)
        if coordinator not in (None, self._broker.node_id):
            is_question = generation is not Generation.SECOND
            batches.put(coordinator, PartitionsItem(name, producer, asked, is_question, told))
            return
        try:
            transactions.put(name, decide, deliver)
        except KafkaError as error:
            deliver(error)


class Permit:
    """Which batches of a Produce may be written.

    Most requests of a transaction come after its first, and have nothing to ask. If the coordinator answers at once, as
    it does when it is this broker and nobody else has to have what it wrote, nothing waits either.
    """

    def __init__(self, broker: "Broker", request: ProduceRequest, version: int) -> None:
        self._broker = broker
        self._generation = Generation.of(
            version, abortable=FIRST_VERSION_WITH_ABORTABLE, second=FIRST_VERSION_OF_SECOND
        )
        self._is_wanted = broker.verification.is_wanted(self._generation)
        self._name = request.transactional_id or ""
        self._guards: dict[Replica, Guard] = {}
        self.refused: dict[Replica | None, KafkaError] = {}  # without asking their logs
        self._producer: Producer | None = None
        found: dict[Replica, int] = {}
        for topic in request.topic_data:
            for asked in topic.partition_data:
                header = None if asked.records is None else only_header(asked.records)
                if header is None or not header.is_transactional or header.producer_id < 0:
                    continue
                self._note(Producer(header.producer_id, header.producer_epoch))
                if version >= FIRST_VERSION_WITH_IDS:
                    replica = broker.partitions.find_by_id(topic.topic_id, asked.index)
                else:
                    replica = broker.partitions.find(topic.name, asked.index)
                if replica is not None:
                    found[replica] = header.base_sequence
        if self._is_wanted:
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

    def ask(self) -> trio.Event | None:
        """None if all is clear at once; otherwise what to wait for, before `settle`."""
        if not self._guards:
            return None
        is_there = trio.Event()
        self._ask(lambda outcome: is_there.set())
        return None if is_there.is_set() and not self._is_to_be_asked_again else is_there

    async def settle(self, is_there: trio.Event) -> None:
        """Another transaction of the producer is about to end: that takes no longer than asking again, and less than
        the client would wait. It is the rule if it writes to many partitions."""
        clock, config = self._broker.clock, self._broker.config
        until = clock.now() + config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS] / 1000
        await is_there.wait()
        while self._is_to_be_asked_again and clock.now() < until:
            await trio.sleep(config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS] / 1000)
            is_there = trio.Event()
            self._ask(lambda outcome, is_there=is_there: is_there.set())  # type: ignore[misc]
            await is_there.wait()

    @property
    def _is_to_be_asked_again(self) -> bool:
        return self._generation is Generation.SECOND and any(
            isinstance(self.refused.get(replica), ConcurrentTransactions) for replica in self._guards
        )

    def _ask(self, then: Callable[[Outcome], None]) -> None:
        assert self._producer is not None
        producer = self._producer
        by_name = {(replica.topic, replica.index): replica for replica in self._guards}

        def settle(outcome: Outcome) -> None:
            for partition, error in outcome.items():
                replica = by_name[partition]
                self.refused.pop(replica, None)
                if error is not None:
                    self.refused[replica] = self._worded(error)
                    if not error.retriable:
                        self._broker.verification.forget(replica, producer.id)
            then(outcome)

        self._broker.verification.ask(self._name, producer, by_name, self._generation, settle)

    def _worded(self, error: KafkaError) -> KafkaError:
        """Clients of the first generation do not expect every error of a coordinator in the answer to a Produce. This
        one lets them try again, without looking for another leader."""
        is_for_all = isinstance(error, ConcurrentTransactions) and self._generation is not Generation.SECOND
        if is_for_all or isinstance(error, NOT_REACHED):
            return NotEnoughReplicas(f"nobody knows whether the partition takes part in the transaction: {error.name}")
        return error

    def is_said(self, error: KafkaError) -> bool:
        """Whether it is told in words: if the code alone would mislead."""
        return isinstance(error, InvalidTxnState | NotEnoughReplicas)

    def check(self, replica: Replica, records: RecordBytes) -> None:
        """Just before a transactional batch is written."""
        if replica in self.refused:
            raise self.refused[replica]
        header = only_header(records)
        if header is not None and header.producer_id >= 0 and self._is_wanted:
            producer = Producer(header.producer_id, header.producer_epoch)
            self._broker.verification.check(replica, producer, header.base_sequence, self._guards.get(replica))


def _worded(error: KafkaError | None, generation: Generation) -> KafkaError | None:
    """As those say it who write, and not those who coordinate."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, TransactionAbortable) and generation is Generation.FIRST:
        return InvalidTxnState("the partition does not take part in the transaction")
    return error
