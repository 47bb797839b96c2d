"""Steps for scenarios about transactions, and their world: one coordinator, some producers.

All producers have the transactional id `x`, unless a step names another. A producer keeps its last answer: its id and
its epoch, written `100/0`. It uses the second generation of the protocol unless a step has `v=1`, once.
"""

from collections.abc import Callable
from dataclasses import replace

from support.coordinator_runtime import CoordinatorDriver, DeliveredResponse, Written
from support.scenarios import Line, Steps

from trioka.coordinator.decision import Decision, Now, Producer, RequestId, StoredRecord, TxnMarkerRequest
from trioka.coordinator.record_codec import TRANSACTIONS
from trioka.coordinator.transaction import TopicPartition, Transaction
from trioka.coordinator.transactions import NeedsProducerId, TransactionCoordinator, TransactionSettings
from trioka.protocol.errors import KafkaError
from trioka.protocol.internal_records.transactions import TransactionLogKey, TransactionLogValue
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from trioka.protocol.messages.end_txn import EndTxnResponse
from trioka.protocol.messages.init_producer_id import InitProducerIdResponse

NAME = "x"
FIRST_PRODUCER_ID = 100
Decide = Callable[[TransactionCoordinator, RequestId, Now, int | None], Decision]


class Asker:
    """A producer, and its own state."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.producer = Producer(-1, -1)
        self.version = 2


class TransactionWorld:
    def __init__(self, coordinator: type[TransactionCoordinator] = TransactionCoordinator) -> None:
        self.settings = TransactionSettings()
        self._coordinator = coordinator
        self.epoch = 0
        self.next_producer_id = FIRST_PRODUCER_ID
        self._askers: dict[str, Asker] = {}
        self._asked: dict[RequestId, tuple[Asker, str]] = {}
        self.shell = CoordinatorDriver(self._new, TRANSACTIONS)
        self.shown = 0  # how many of the log's records have been mentioned
        self.ordered: list[TxnMarkerRequest] = []
        self.notes: list[str] = []

    def _new(self) -> TransactionCoordinator:
        self.epoch += 1
        return self._coordinator(self.epoch, lambda: self.settings)

    def asker(self, line: Line) -> Asker:
        asker = self._askers.setdefault(line.who, Asker(line.who))
        asker.version = line.number("v", asker.version)
        return asker

    def ask(self, asker: Asker, what: str, decide: Decide) -> None:
        """With an id only for requests that need one, as in the broker."""

        def with_or_without(coordinator: TransactionCoordinator, request_id: RequestId, now: Now) -> Decision:
            self._asked[request_id] = (asker, what)
            try:
                return decide(coordinator, request_id, now, None)
            except NeedsProducerId:
                self.next_producer_id += 1
                return decide(coordinator, request_id, now, self.next_producer_id - 1)

        self.shell.ask(with_or_without)

    # -- what followed -------------------------------------------------------------------------------------------------

    def happened(self) -> list[str]:
        result, self.shell.delivered = self.shell.delivered, []
        for one in result:
            self._learn(one)
        written, self.shown = self.shell.log[self.shown :], len(self.shell.log)
        orders, self.shell.orders = self.shell.orders, []
        self.ordered += orders
        notes, self.notes = self.notes, []
        return (
            [show_record(w) for w in written]
            + [self._show_answer(one) for one in result]
            + [show_order(order) for order in orders]
            + notes
        )

    def _learn(self, result: DeliveredResponse) -> None:
        asker, _ = self._asked[result.request_id]
        response = result.response
        if isinstance(response, InitProducerIdResponse) or (
            isinstance(response, EndTxnResponse) and asker.version >= 2
        ):
            asker.producer = Producer(response.producer_id, response.producer_epoch)

    def _show_answer(self, result: DeliveredResponse) -> str:
        asker, what = self._asked[result.request_id]
        response = result.response
        if isinstance(response, KafkaError):
            return f"{asker.name}: {what} {response.name}"
        if isinstance(response, InitProducerIdResponse | EndTxnResponse):
            return f"{asker.name}: {what} ok, {response.producer_id}/{response.producer_epoch}"
        return f"{asker.name}: {what} ok"


def show_record(written: Written) -> str:
    kept = TRANSACTIONS.decode(written.key, written.value)
    assert kept is not None and isinstance(kept.key, TransactionLogKey)
    name = kept.key.transactional_id
    if kept.value is None:
        return f"kept: no {name}"
    assert isinstance(kept.value, TransactionLogValue)
    found = Transaction.from_value(kept.value)
    changed = "" if found.previous_producer_id == found.producer_id else f", was {found.previous_producer_id}"
    coming = "" if found.next_producer_id == -1 else f", will be {found.next_producer_id}"
    version = f", v{found.client_version}" if found.client_version else ""
    partitions = "".join(f" {topic}-{partition}" for topic, partition in sorted(found.partitions))
    return f"kept: {name} {found.producer_id}/{found.epoch} {found.phase.text}{partitions}{changed}{coming}{version}"


def show_order(order: TxnMarkerRequest) -> str:
    verdict = "commit" if order.is_commit else "abort"
    partitions = " ".join(f"{topic}-{partition}" for topic, partition in order.partitions)
    who = f"{order.producer.id}/{order.producer.epoch}"
    return f"markers: {verdict} {who} by {order.coordinator_epoch}, v{order.transaction_version}: {partitions}"


def _partitions(words: list[str]) -> list[TopicPartition]:
    return [(topic, int(partition)) for topic, _, partition in (word.rpartition("-") for word in words)]


def _producer(line: Line, asker: Asker) -> Producer:
    text = line.options.get("as")
    return asker.producer if text is None else Producer(*map(int, text.split("/")))


# -- the steps ---------------------------------------------------------------------------------------------------------


def inits(world: TransactionWorld, line: Line) -> None:
    """`a inits timeout=60000`; `a inits again` sends its former id and epoch (KIP-360), `as=100/3` those."""
    asker = world.asker(line)
    is_said = "again" in line.words or "as" in line.options
    expected = _producer(line, asker) if is_said else None
    name, timeout_ms = line.options.get("id", NAME), line.number("timeout", 60_000)
    world.ask(
        asker,
        "init",
        lambda c, request_id, now, new: c.init_producer_id(request_id, name, timeout_ms, expected, new, now),
    )


def adds(world: TransactionWorld, line: Line) -> None:
    """`a adds t-0 t-1`"""
    asker = world.asker(line)
    producer, partitions = _producer(line, asker), _partitions(line.words)
    name = line.options.get("id", NAME)
    text = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)
    version = 2 if asker.version >= 2 else 0
    world.ask(
        asker,
        "add",
        lambda c, request_id, now, new: c.add_partitions(request_id, name, producer, partitions, version, text, now),
    )


def verifies(world: TransactionWorld, line: Line) -> None:
    """The leader of a partition verifies that the partition is in a's transaction."""
    asker = world.asker(line)
    try:
        outcome = world.shell.coordinator.verify_partitions(
            line.options.get("id", NAME), _producer(line, asker), _partitions(line.words)
        )
    except KafkaError as error:
        world.notes.append(f"verified: {error.name}")
    else:
        world.notes += [
            f"{topic}-{partition}: {'ok' if error is None else error.name}"
            for (topic, partition), error in sorted(outcome.items())
        ]


def commits(world: TransactionWorld, line: Line) -> None:
    _end(world, line, "commit")


def aborts(world: TransactionWorld, line: Line) -> None:
    _end(world, line, "abort")


def _end(world: TransactionWorld, line: Line, verdict: str) -> None:
    asker = world.asker(line)
    producer, name = _producer(line, asker), line.options.get("id", NAME)
    version, is_commit = 2 if asker.version >= 2 else 0, verdict == "commit"
    world.ask(
        asker, verdict, lambda c, request_id, now, new: c.end(request_id, name, producer, is_commit, version, new, now)
    )


def marked(world: TransactionWorld, line: Line) -> None:
    """Writes the ordered markers: all of them, or `marked t-0`; `old` are those that a former coordinator
    ordered."""
    orders = [o for o in world.ordered if ("old" in line.words) == (o.coordinator_epoch != world.epoch)]
    assert orders, "no markers were ordered"
    words = [word for word in line.words if word != "old"]
    for order in orders:
        done = _partitions(words) or order.partitions
        world.shell.notify(lambda c, now, order=order, done=done: c.marked(order, done, now))  # type: ignore[misc]
        if not words:
            world.ordered.remove(order)


def time(world: TransactionWorld, line: Line) -> None:
    world.shell.pass_time(int(line.words[0]))


def crash(world: TransactionWorld, line: Line) -> None:
    """The coordinator starts again from its log; `crash losing` without the uncommitted records."""
    world.shell.orders.clear()
    world.shell.crash(loses_uncommitted="losing" in line.words)
    world.shown = min(world.shown, len(world.shell.log))


def settings(world: TransactionWorld, line: Line) -> None:
    world.settings = replace(world.settings, **{name: int(value) for name, value in line.options.items()})


def epoch(world: TransactionWorld, line: Line) -> None:
    """`a epoch 32765`: as if there had been so many transactions already."""
    found = replace(world.shell.coordinator.transactions[NAME], epoch=int(line.words[0]))
    record = StoredRecord(TransactionLogKey(transactional_id=NAME), found.value())
    world.shell.notify(lambda c, now: Decision(records=(record,)))
    world.asker(line).producer = found.producer


def writing(world: TransactionWorld, line: Line) -> None:
    """`writing waits`, `writing succeeds`, `writing fails NOT_ENOUGH_REPLICAS`: then nothing is appended until it
    succeeds again; `writing expires …`: waiting records were appended, and may or may not stay."""
    world.shell.write_as(*line.words)


def describe(world: TransactionWorld, line: Line) -> None:
    try:
        found = world.shell.coordinator.describe(line.options.get("id", NAME))
    except KafkaError as error:
        world.notes.append(error.name)
        return
    partitions = "".join(f" {topic}-{partition}" for topic, partition in sorted(found.partitions))
    started = "" if found.started_ms < 0 else f" since {found.started_ms - world.shell.now.wall_ms} ms"
    world.notes.append(f"{found.phase.text} {found.producer_id}/{found.epoch}{partitions}{started}")


STEPS: Steps[TransactionWorld] = {
    step.__name__: step
    for step in (inits, adds, verifies, commits, aborts, marked, time, crash, settings, epoch, writing, describe)
}
