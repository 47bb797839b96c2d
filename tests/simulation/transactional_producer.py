"""A transactional producer of the second generation (KIP-890), which records the result of each of its transactions, or
that it cannot be known.

It sends up to three batches of a partition at a time, through a connection that it keeps for each leader, and so also
directly after the end of the previous transaction: the leader then has to verify the first of them with a coordinator.
"""

from typing import TYPE_CHECKING, Any

from history.operations import Outcome, Send
from simulation.client import PASSES, TRANSACTION_KIND, Place, SimClient, key_of
from support.retriable_errors import TRANSACTION_ENDED
from support.transaction_requests import end, init, produce

from trioka.broker.peers.link import PeerConnection
from trioka.protocol import errors
from trioka.protocol.errors import NONE, DuplicateSequenceNumber, OutOfOrderSequenceNumber
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from simulation.brokers_world import BrokersWorld
    from simulation.clients import Clients

INIT_VERSION, PRODUCE_VERSION, END_VERSION = 5, 12, 5
TIMEOUT_MS = 8000


class _Gone(Exception):
    """Another producer has taken over this transactional id."""


class _Batch:
    """Of one record, on its way to a partition."""

    def __init__(self, sequence: int, value: bytes) -> None:
        self.sequence = sequence
        self.value = value
        self.is_acknowledged = False
        self.offset: int | None = None


class TransactionalProducer(SimClient):
    def __init__(self, clients: "Clients", world: "BrokersWorld", name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._clients = clients
        self._places = places
        self._who = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._lines: dict[int, PeerConnection] = {}
        self._numbers = 0
        self._is_over = False

    @property
    def is_done(self) -> bool:
        return self._is_over

    async def run(self) -> None:
        while not self._clients.is_over:
            try:
                if self._who == (-1, -1):
                    await self._init()
                await self._transaction()
            except _Gone:
                self._who = (-1, -1)
            await self.pause(0.2)
        self._is_over = True

    async def _init(self) -> None:
        result = await self._insist("init", lambda: init(self.name, TIMEOUT_MS), INIT_VERSION)
        self._is_now(result)

    def _is_now(self, result: Any) -> None:
        if (result.producer_id, result.producer_epoch) != self._who:
            self._who = (result.producer_id, result.producer_epoch)
            self._sequences = {}

    async def _insist(self, what: str, request: Any, version: int) -> Any:
        """Retries until the coordinator gives a final answer."""
        while True:
            self.state = f"{what} as {self._who}"
            result = await self.ask_coordinator(TRANSACTION_KIND, self.name, request(), version)
            if result is not None and result.error_code == NONE:
                return result
            if result is not None:
                self.state += f": {errors.error_class(result.error_code).name}"
                if result.error_code in TRANSACTION_ENDED:
                    raise _Gone
                if result.error_code not in PASSES:
                    self.surprise(what, result.error_code)
                if result.error_code != errors.ConcurrentTransactions.code:
                    self.forget_coordinator(TRANSACTION_KIND, self.name)
            await self.pause()

    async def _transaction(self) -> None:
        began = self.now()
        sends: list[Send] = []
        outcome = Outcome.FAIL  # as long as no coordinator received a request to commit it
        try:
            for _ in range(self.random.choice([1, 2, 3])):
                place = self.random.choice(self._places)
                values = [self._value() for _ in range(self.random.choice([1, 2, 3]))]
                first = len(sends)
                sends += [Send(key_of(place), value, None) for value in values]
                offsets = await self._write(place, values)
                sends[first:] = [Send(key_of(place), *each) for each in zip(values, offsets, strict=True)]
                if self.random.random() < 0.3:
                    await self.pause(0.4)
            is_commit = self.random.random() < 0.7
            if is_commit:
                outcome = Outcome.INFO
            self._is_now(
                await self._insist("end", lambda: end(self._who, commit=is_commit, name=self.name), END_VERSION)
            )
            if is_commit:
                outcome = Outcome.OK
        finally:
            self.world.history.add(self.name, outcome, sends, began=began, ended=self.now())
            self.world.note(f"{self.name} {outcome.value} {self._numbers}")

    def _value(self) -> bytes:
        self._numbers += 1
        return f"{self.name}.{self._numbers}".encode()

    async def _write(self, place: Place, values: list[bytes]) -> list[int | None]:
        """Until all are acknowledged; where."""
        sequence = self._sequences.get(place, 0)
        batches = [_Batch(sequence + number, value) for number, value in enumerate(values)]
        while waiting := [each for each in batches if not each.is_acknowledged]:
            self.state = f"writing {waiting[0].value!r} to {key_of(place)} as {self._who}"
            leader = await self.leader(place)
            if leader is not None:
                line = self._lines.pop(leader, None)
                line = await self.talk(leader, line, lambda line, waiting=waiting: self._burst(place, waiting, line))  # type: ignore[misc]
                if line is not None:
                    self._lines[leader] = line
                    continue
            await self.refresh()
            await self.pause()
        self._sequences[place] = sequence + len(batches)
        return [each.offset for each in batches]

    async def _burst(self, place: Place, batches: list[_Batch], line: PeerConnection) -> bool:
        """Sends them one after another, and reads the responses. True if all are acknowledged."""
        for number, each in enumerate(batches):
            request = produce(
                self._who,
                each.sequence,
                each.value,
                topic=place[0],
                partitions=[place[1]],
                name=self.name,
                now_ms=self.world.now_ms(),
            )
            await line.send(frame_request(number, self.name, request, PRODUCE_VERSION))
        failed: list[int] = []
        for number, each in enumerate(batches):
            answer: Any = read_response(ProduceRequest, PRODUCE_VERSION, await line.receive(), number)
            result = answer.responses[0].partition_responses[0]
            if result.error_code in (NONE, DuplicateSequenceNumber.code):
                each.is_acknowledged = True
                each.offset = result.base_offset if result.error_code == NONE else None
                continue
            if result.error_code == OutOfOrderSequenceNumber.code and not failed:
                self.surprise(f"{key_of(place)}, sequence {each.sequence} of {self._who}", result.error_code)
            failed.append(result.error_code)
        for code in failed:
            self.state += f": {errors.error_class(code).name}"
            if code not in PASSES and code not in TRANSACTION_ENDED and code != OutOfOrderSequenceNumber.code:
                self.surprise(f"a write of a transaction to {key_of(place)}", code)
        if TRANSACTION_ENDED.intersection(failed):
            line.close()
            raise _Gone
        return not failed
