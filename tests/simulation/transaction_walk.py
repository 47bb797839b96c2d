"""A random walk of producers through transactions: they begin, write, commit, abort, crash and restart; requests are
lost, late and repeated; so are markers; time passes; writes fail or are slow; the coordinator crashes. All from
a seed.

The partitions are models of a leader's producer state, and no more. Every step and the end check:

    T3   a marker of an older coordinator is refused
    T4   markers are written after the decision is committed; the end is written when all of them are
    T5   a client with a commit response has committed: all its acknowledged records, once; an aborted one has none
    T7   at the end nothing is open
    T8   no client gets a definite failure for a transaction that took effect in part

A first-generation client cannot distinguish a late end from the next transaction's: with `version=1` nothing is late,
and nothing comes twice.
"""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from support.coordinator_runtime import CoordinatorDriver
from support.transaction_steps import show_order

from trioka.coordinator.decision import Decision, Now, Producer, RequestId, StoredRecord, TxnMarkerRequest
from trioka.coordinator.record_codec import TRANSACTIONS
from trioka.coordinator.transaction import MAX_EPOCH, PREPARED, Phase, Transaction
from trioka.coordinator.transactions import NeedsProducerId, TransactionCoordinator, TransactionSettings
from trioka.protocol.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
)
from trioka.protocol.internal_records.transactions import TransactionLogKey, TransactionLogValue
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from trioka.protocol.messages.end_txn import EndTxnResponse
from trioka.protocol.messages.init_producer_id import InitProducerIdResponse

NAMES = ("x", "y", "z")
PARTITIONS = tuple(("t", index) for index in range(5))
TIMEOUT_MS = 60_000
MAX_IN_FLIGHT = 60
HEALING_MS = 200_000
AGAIN = (ConcurrentTransactions, CoordinatorNotAvailable, NotCoordinator)
NO_PRODUCER = Producer(-1, -1)
SAID = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)

Value = tuple[int, int, int]  # client, which of its transactions, which of its writes


class PartitionModel:
    """The leader of a partition: its producers, open transactions, and their results."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: dict[int, list[Value]] = {}
        self.fate: dict[Value, bool] = {}
        self.ends: Counter[int] = Counter()  # the verification guard: an end between asking and writing is noticed

    def append(self, producer: Producer, value: Value, ends: int) -> bool:
        if producer.epoch < self.epochs.get(producer.id, -1) or self.ends[producer.id] != ends:
            return False
        self.epochs[producer.id] = producer.epoch
        written = self.open.setdefault(producer.id, [])
        if value not in written:
            assert value not in self.fate, f"T1: {value} is written twice"
            written.append(value)
        return True

    def mark(self, order: TxnMarkerRequest) -> bool:
        producer = order.producer
        known = self.epochs.get(producer.id, -1)
        is_open = bool(self.open.get(producer.id))
        if order.transaction_version >= 2 and producer.epoch == known and producer.epoch != MAX_EPOCH and is_open:
            return False
        if producer.epoch < known or order.coordinator_epoch < self.coordinator_epochs.get(producer.id, 0):
            return False
        self.epochs[producer.id] = producer.epoch
        self.coordinator_epochs[producer.id] = order.coordinator_epoch
        self.ends[producer.id] += 1
        for value in self.open.pop(producer.id, ()):
            self.fate[value] = order.is_commit
        return True


@dataclass
class InFlightRequest:
    """A request on its way. `what` is init, write, commit or abort."""

    client: "Walker"
    what: str
    producer: Producer
    value: Value = (0, 0, 0)
    partition: tuple[str, int] = PARTITIONS[0]
    ends: int = 0  # the leader's knowledge when it sent the request


class Walker:
    """A client, and its view of its transactions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = NAMES[number % len(NAMES)]
        self.serial = 0
        self.writes = 0
        self.acknowledged: list[tuple[Value, tuple[str, int]]] = []
        self.outcomes: dict[int, bool] = {}  # the results of its transactions that it received
        self.reset_to_snapshot()

    def reset_to_snapshot(self, expected: Producer | None = None) -> None:
        self.producer: Producer | None = None
        self.expected = expected  # its former identity, if it continues
        self.pending: InFlightRequest | None = None
        self.is_lost = False  # it must abort
        self.next_transaction()

    def next_transaction(self) -> None:
        self.serial += 1
        self.has_written = False


class Walk:
    def __init__(
        self,
        seed: int,
        *,
        coordinator: type[TransactionCoordinator] = TransactionCoordinator,
        version: int = 2,
        first_epoch: int = 0,
        clients: int = 4,
    ) -> None:
        self.random = Random(seed)
        self.version = version
        self._coordinator = coordinator
        self._settings = TransactionSettings(version=version)
        self.epoch = 0
        self.next_producer_id = 1000
        self.shell = CoordinatorDriver(self._new, TRANSACTIONS)
        self.partitions = {partition: self._new_partition() for partition in PARTITIONS}
        self.clients = [Walker(number) for number in range(clients)]
        self.in_flight: list[InFlightRequest] = []
        self.delivered: dict[RequestId, InFlightRequest] = {}
        self.orders: list[tuple[TxnMarkerRequest, tuple[str, int]]] = []
        self.marked: set[tuple[Producer, tuple[str, int]]] = set()
        self.log: list[tuple[str, Transaction | None]] = []  # the client that received each epoch
        self.given: dict[Producer, int] = {}  # who was given an epoch
        self.crashes = 0
        for number, name in enumerate(NAMES):
            used = Transaction(
                producer_id=number, epoch=first_epoch, timeout_ms=TIMEOUT_MS, updated_ms=self.shell.now.wall_ms
            )
            if first_epoch:
                record = StoredRecord(TransactionLogKey(transactional_id=name), used.value())
                self.shell.notify(lambda c, now, record=record: Decision(records=(record,)))  # type: ignore[misc]

    def _new(self) -> TransactionCoordinator:
        self.epoch += 1
        return self._coordinator(self.epoch, lambda: self._settings)

    def _new_partition(self) -> PartitionModel:
        return PartitionModel()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self._look()
        self._heal()
        self._judge()

    # -- what may happen -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        chance = self.random.random()
        if chance < 0.40:
            self._act(self.random.choice(self.clients))
        elif chance < 0.75:
            self._deliver()
        elif chance < 0.90:
            self._mark()
        elif chance < 0.92:
            self.shell.pass_time(self.random.choice((1, 100, 1000, 20_000)))
        elif chance < 0.93:
            self.shell.holds_back = True
        elif chance < 0.95:
            self.shell.commit(self.random.choice((None, CoordinatorNotAvailable())))
        elif chance < 0.955:
            self.shell.failure = NotCoordinator()
        elif chance < 0.958:
            self.random.choice(self.clients).reset_to_snapshot()
        elif chance < 0.962:
            self._crash()
        else:
            self.shell.failure = None
            self.shell.commit()

    def _act(self, client: Walker) -> None:
        """A client sends a request, or repeats one without a response."""
        if client.pending is not None:
            if self.version >= 2 and self.random.random() < 0.2:
                self._send(client.pending)
            return
        if client.producer is None:
            requested = InFlightRequest(client, "init", client.expected or NO_PRODUCER)
        elif not client.is_lost and (not client.has_written or self.random.random() < 0.6):
            client.writes += 1
            value = (client.number, client.serial, client.writes)
            requested = InFlightRequest(client, "write", client.producer, value, self.random.choice(PARTITIONS))
        else:
            is_commit = not client.is_lost and self.random.random() < 0.7
            requested = InFlightRequest(client, "commit" if is_commit else "abort", client.producer)
        client.pending = requested
        self._send(requested)

    def _send(self, requested: InFlightRequest) -> None:
        if len(self.in_flight) < MAX_IN_FLIGHT:
            self.in_flight.append(requested)

    def _deliver(self) -> None:
        if not self.in_flight:
            return
        place = self.random.randrange(len(self.in_flight)) if self.version >= 2 else 0
        requested = self.in_flight[place]
        chance = self.random.random()
        if self.version < 2 or chance > 0.15:
            del self.in_flight[place]
        if self.version < 2 or chance < 0.95:
            self._ask(requested)

    def _ask(self, requested: InFlightRequest) -> None:
        name, partition, producer = requested.client.name, requested.partition, requested.producer
        requested.ends = self.partitions[partition].ends[producer.id]
        version = 2 if self.version >= 2 else 0

        def decide(c: TransactionCoordinator, request_id: RequestId, now: Now, new: int | None) -> Decision:
            self.delivered[request_id] = replace(requested)
            self.delivered[request_id].client = requested.client
            if requested.what == "init":
                expected = None if producer == NO_PRODUCER else producer
                return c.init_producer_id(request_id, name, TIMEOUT_MS, expected, new, now)
            if requested.what == "write":
                return c.add_partitions(request_id, name, producer, [partition], version, SAID, now)
            return c.end(request_id, name, producer, requested.what == "commit", version, new, now)

        def with_or_without(c: TransactionCoordinator, request_id: RequestId, now: Now) -> Decision:
            try:
                return decide(c, request_id, now, None)
            except NeedsProducerId:
                self.next_producer_id += 1
                return decide(c, request_id, now, self.next_producer_id)

        self.shell.ask(with_or_without)

    def _mark(self) -> None:
        """A marker arrives, perhaps not for the last time, and perhaps when no request waits for it any more."""
        if not self.orders:
            return
        place = self.random.randrange(len(self.orders))
        order, partition = self.orders[place]
        if self.version < 2 or self.random.random() < 0.9:
            del self.orders[place]
        if self.partitions[partition].mark(order):
            self.marked.add((order.producer, partition))
            self.shell.notify(lambda c, now: c.marked(order, [partition], now))
        else:
            assert order.coordinator_epoch < self.epoch or (order.producer, partition) in self.marked, (
                f"{partition} refuses {show_order(order)}"
            )

    def _crash(self) -> None:
        self.crashes += 1
        self.shell.orders.clear()
        self.shell.crash(loses_uncommitted=self.random.random() < 0.5)
        del self.log[len(self.shell.log) :]
        self.delivered.clear()
        for client in self.clients:
            if client.pending is not None and client.pending not in self.in_flight:
                self._send(client.pending)

    # -- what follows --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._check_log()
        for order in self.shell.orders:
            self._check_order(order)
            self.orders += [(order, partition) for partition in order.partitions]
        self.shell.orders.clear()
        result, self.shell.delivered = self.shell.delivered, []
        for request_id, response in result:
            self._learn(self.delivered.pop(request_id), response)

    def _check_order(self, order: TxnMarkerRequest) -> None:
        verdict = Phase.PREPARE_COMMIT if order.is_commit else Phase.PREPARE_ABORT
        latest = self._latest(order.transactional_id, self.shell.committed_end)
        assert latest is not None and latest.phase is verdict and latest.producer == order.producer, (
            f"T4: no such verdict is committed: {show_order(order)}"
        )

    def _check_log(self) -> None:
        for place in range(len(self.log), len(self.shell.log)):
            written = self.shell.log[place]
            name, found = self._read(written.key, written.value)
            verdict = self._latest(name, place)
            self.log.append((name, found))
            if found is not None and found.phase in (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT):
                assert verdict is not None and verdict.phase in PREPARED
                for partition in verdict.partitions:
                    assert (verdict.producer, partition) in self.marked, f"T4: {name} ends without {partition}"

    def _latest(self, name: str, end: int) -> Transaction | None:
        return next((found for other, found in reversed(self.log[:end]) if other == name), None)

    def _read(self, key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
        kept = TRANSACTIONS.decode(key, value)
        assert kept is not None and isinstance(kept.key, TransactionLogKey)
        assert kept.value is None or isinstance(kept.value, TransactionLogValue)
        return kept.key.transactional_id, None if kept.value is None else Transaction.from_value(kept.value)

    def _learn(self, requested: InFlightRequest, response: Any) -> None:
        client = requested.client
        is_written = False
        if requested.what == "write" and not isinstance(response, KafkaError):
            is_written = self.partitions[requested.partition].append(
                requested.producer, requested.value, requested.ends
            )
        current = client.pending
        if current is None or (current.what, current.producer, current.value) != (
            requested.what,
            requested.producer,
            requested.value,
        ):
            return
        if isinstance(response, AGAIN):
            self._send(current)
            return
        client.pending = None
        if isinstance(response, KafkaError):
            if requested.what == "write":
                client.is_lost = True
            else:
                goes_on = requested.what != "init" and self.random.random() < 0.7
                client.reset_to_snapshot(requested.producer if goes_on else None)
        elif requested.what == "write":
            client.has_written = True
            if is_written:
                client.acknowledged.append((requested.value, requested.partition))
            else:
                client.is_lost = True
        elif isinstance(response, InitProducerIdResponse):
            client.producer = self._given(client, response.producer_id, response.producer_epoch)
        else:
            assert isinstance(response, EndTxnResponse)
            client.outcomes[client.serial] = requested.what == "commit"
            client.is_lost = False
            client.next_transaction()
            if self.version >= 2:
                client.producer = self._given(client, response.producer_id, response.producer_epoch)

    def _given(self, client: Walker, producer_id: int, epoch: int) -> Producer:
        producer = Producer(producer_id, epoch)
        assert epoch < MAX_EPOCH, "no producer may get the last epoch"
        owner = self.given.setdefault(producer, client.number)
        assert owner == client.number, f"T5: {producer} was given to two"
        return producer

    # -- the end -------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No more faults and no new transactions; time passes."""
        self.shell.failure = None
        self.shell.commit()
        self.in_flight.clear()
        self.clients, clients = [], self.clients
        for _ in range(6):
            self._look()
            self.shell.pass_time(HEALING_MS // 6)
            self._look()
            while self.orders:
                self._mark()
                self._look()
        self.clients = clients

    def _judge(self) -> None:
        for name, found in self.shell.coordinator.transactions.items():
            assert found.phase not in (Phase.ONGOING, *PREPARED), f"T7: {name} is still {found.phase.text}"
        for partition, model in self.partitions.items():
            assert not any(model.open.values()), f"T7: {partition} hangs: {model.open}"
        fates: dict[tuple[int, int], set[bool]] = {}
        for model in self.partitions.values():
            for (number, serial, _), fate in model.fate.items():
                fates.setdefault((number, serial), set()).add(fate)
        for client in self.clients:
            for serial, is_commit in client.outcomes.items():
                assert fates.get((client.number, serial), {is_commit}) <= {is_commit}, f"T5: got {is_commit}"
            for value, partition in client.acknowledged:
                assert value in self.partitions[partition].fate, f"T5: {value} is lost"
        torn = [key for key, outcome in fates.items() if len(outcome) > 1]
        assert not torn, f"T8: {torn} are half committed"
