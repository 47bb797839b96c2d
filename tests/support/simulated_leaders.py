"""Two brokers with one log, as a producer sees them: they refuse what Kafka refuses, and connections break.

They keep Kafka's rules about idempotent producers: the last five batches of a producer are recognised, the next
sequence number must follow, and a new epoch begins with 0. Leadership moves between the two without loss. Until
`faults` are used up, requests and responses are lost, processed late or answered with errors. Time passes from event to
event.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from trioka.cli.producer.batches import ProducerId
from trioka.protocol import batch, errors
from trioka.protocol.errors import NONE

NODES: Final = (1, 2)
REMEMBERED: Final = 5
MAX_ROUNDS: Final = 20_000
BAD: Final = b"bad"
ERRORS: Final[tuple[type[errors.KafkaError], ...]] = (
    errors.NotLeaderOrFollower,
    errors.RequestTimedOut,
    errors.NotEnoughReplicas,
)


class Log:
    """One partition."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.values: list[bytes] = []
        self._producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}

    def append(self, data: bytes) -> tuple[int, int, tuple[int, ...]]:
        """Error code, offset, and the places of records that were refused."""
        header = batch.read_header(data)
        records = list(batch.records(data, header))
        if len(data) > self.max_bytes:
            return errors.MessageTooLarge.code, -1, ()
        if bad := tuple(place for place, record in enumerate(records) if record.value == BAD):
            return errors.InvalidRecord.code, -1, bad
        offset, last = len(self.values), header.base_sequence + header.record_count - 1
        if header.producer_id >= 0:
            epoch, recent = self._producers.get(header.producer_id, (-1, deque()))
            if header.producer_epoch < epoch:
                return errors.InvalidProducerEpoch.code, -1, ()
            if header.producer_epoch > epoch:
                if epoch >= 0 and header.base_sequence != 0:
                    return errors.OutOfOrderSequenceNumber.code, -1, ()
                recent = deque(maxlen=REMEMBERED)
            for first, final, known in recent:
                if (first, final) == (header.base_sequence, last):
                    return NONE, known, ()
            if recent and header.base_sequence != recent[-1][1] + 1:
                return errors.OutOfOrderSequenceNumber.code, -1, ()
            recent.append((header.base_sequence, last, offset))
            self._producers[header.producer_id] = header.producer_epoch, recent
        self.values += [record.value or b"" for record in records]
        return NONE, offset, ()


class World:
    """A producer of this `state` module, and what it talks to."""

    def __init__(
        self, state: Any, producer: Any, *, seed: int, partitions: int = 2, faults: int = 0, max_bytes: int = 1 << 20
    ) -> None:
        self.state = state
        self.producer = producer
        self.chance = random.Random(seed)
        self.faults = faults
        self.now = 0.0
        self.logs = [Log(max_bytes) for _ in range(partitions)]
        self.leaders = {index: self.chance.choice(NODES) for index in range(partitions)}
        self.open: set[int] = set()
        self.rejected = 0
        self.epochs: set[ProducerId] = set()
        self.most_in_flight = 0
        self._next_id = 7
        self._queues: dict[int, deque[Any]] = {
            node: deque() for node in NODES
        }  # requests in the order of their sending
        self._late: list[tuple[float, Any]] = []  # requests of broken connections that are still processed
        producer.leaders_found(dict(self.leaders), self.now)

    def has_fault(self, probability: float) -> bool:
        if self.faults > 0 and self.chance.random() < probability:
            self.faults -= 1
            return True
        return False

    def run(self) -> None:
        """Until all records are written or given up."""
        for _ in range(MAX_ROUNDS):
            self.round()
            if self.producer.is_done or self.producer.fatal is not None:
                return
        raise AssertionError("it does not come to an end")

    def round(self) -> None:
        for action in self.producer.step(self.now):
            self._carry_out(action)
        self.rejected += sum(each.records for each in self.producer.rejections)
        self.producer.rejections.clear()
        if self.producer.is_done:
            return
        for due, request in self._late:
            if due <= self.now:
                self._process(request)
        self._late = [(due, request) for due, request in self._late if due > self.now]
        busy = [node for node in NODES if self._queues[node] and node in self.open]
        if busy and self.chance.random() < 0.25:
            self._serve(self.chance.choice(busy))
        else:
            due = self.producer.next_step_at()
            assert due is not None or busy, "it waits for nothing"
            self.now = max(self.now, self.now + 0.01 if due is None else min(due, self.now + 1.0))
        if self.has_fault(0.05):
            self.leaders[self.chance.randrange(len(self.logs))] = self.chance.choice(NODES)

    def _carry_out(self, action: Any) -> None:
        state = self.state
        if isinstance(action, state.Send):
            if action.node not in self.open:  # its connection broke with an earlier request of this round
                return
            self._queues[action.node].append(
                (action.request, [(each.partition, each.sealed()) for each in action.batches])
            )
            self.epochs |= {each.producer for each in action.batches}
            self.most_in_flight = max(self.most_in_flight, len(self._queues[action.node]))
            if self.has_fault(0.1):
                self._break(action.node)
        elif isinstance(action, state.Disconnect):
            self._forget(action.node)
        elif isinstance(action, state.Connect):
            if self.has_fault(0.2):
                self.producer.disconnected(action.node, self.now)
            else:
                self.open.add(action.node)
                self.producer.connected(action.node)
        elif isinstance(action, state.FindLeaders):
            if self.has_fault(0.2):
                self.producer.leaders_not_found(self.now)
            else:
                self.producer.leaders_found(dict(self.leaders), self.now)
        else:
            self._next_id += 1
            self.producer.producer_id_found(state.ProducerId(self._next_id, 0), self.now)

    def _break(self, node: int) -> None:
        self._forget(node)
        self.producer.disconnected(node, self.now)

    def _forget(self, node: int) -> None:
        """The requests are lost, or processed now or later, and nothing comes back."""
        self.open.discard(node)
        fate = self.chance.random()
        for request in self._queues[node]:
            if fate < 0.4:
                self._process((node, *request))
            elif fate < 0.7:
                self._late.append((self.now + 3 * self.chance.random(), (node, *request)))
        self._queues[node].clear()

    def _serve(self, node: int) -> None:
        request, batches = self._queues[node].popleft()
        if self.has_fault(0.15):
            error = self.chance.choice(ERRORS)
            answers = {partition: self.state.Answer(error.code) for partition, _ in batches}
        else:
            answers = self._process((node, request, batches))
            if self.has_fault(0.1):
                error = self.chance.choice([errors.NotEnoughReplicasAfterAppend, errors.DuplicateSequenceNumber])
                if all(each.error == NONE for each in answers.values()):
                    answers = {partition: self.state.Answer(error.code) for partition in answers}
        if self.has_fault(0.1):
            self._queues[node].appendleft((request, []))  # it is processed, and its response is lost
            self._break(node)
            return
        self.producer.answered(node, request, answers, self.now)

    def _process(self, request: tuple[int, int, Sequence[tuple[int, bytes]]]) -> dict[int, Any]:
        node, _, batches = request
        answers = {}
        for partition, data in batches:
            if self.leaders[partition] != node:
                answers[partition] = self.state.Answer(errors.NotLeaderOrFollower.code)
            else:
                code, offset, bad = self.logs[partition].append(data)
                answers[partition] = self.state.Answer(code, offset, None, bad)
        return answers
