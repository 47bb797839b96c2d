"""A transactional producer of the second generation (KIP-890), which knows what became of each of its transactions, or
that nobody can know."""

from typing import TYPE_CHECKING, Any

from history import Outcome, Send
from sim_client import PASSES, TRANSACTION_KIND, Place, SimClient, key_of
from transaction_requests import end, init, produce

from trioka.protocol import errors
from trioka.protocol.errors import NONE

if TYPE_CHECKING:
    from brokers_world import BrokersWorld
    from sim_clients import Clients

INIT_VERSION, PRODUCE_VERSION, END_VERSION = 5, 12, 5
TIMEOUT_MS = 8000

LOST = frozenset(
    error.code
    for error in (
        errors.InvalidProducerEpoch,
        errors.ProducerFenced,
        errors.InvalidTxnState,
        errors.InvalidProducerIdMapping,
        errors.TransactionAbortable,
        errors.OutOfOrderSequenceNumber,
        errors.UnknownProducerId,
    )
)
"""The coordinator has ended the transaction by itself, because it took too long by its calendar."""


class _Gone(Exception):
    """This transaction is not ours any more."""


class TransactionalProducer(SimClient):
    def __init__(self, clients: "Clients", world: "BrokersWorld", name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._clients = clients
        self._places = places
        self._who = (-1, -1)
        self._sequences: dict[Place, int] = {}
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
        told = await self._insist("init", lambda: init(self.name, TIMEOUT_MS), INIT_VERSION)
        self._is_now(told)

    def _is_now(self, told: Any) -> None:
        if (told.producer_id, told.producer_epoch) != self._who:
            self._who = (told.producer_id, told.producer_epoch)
            self._sequences = {}

    async def _insist(self, what: str, request: Any, version: int) -> Any:
        """Until the coordinator has said what it will always say."""
        while True:
            self.state = f"{what} as {self._who}"
            told = await self.ask_coordinator(TRANSACTION_KIND, self.name, request(), version)
            if told is not None and told.error_code == NONE:
                return told
            if told is not None:
                self.state += f": {errors.error_class(told.error_code).name}"
                if told.error_code in LOST:
                    raise _Gone
                if told.error_code not in PASSES:
                    self.surprise(what, told.error_code)
                if told.error_code != errors.ConcurrentTransactions.code:
                    self.forget_coordinator(TRANSACTION_KIND, self.name)
            await self.pause()

    async def _transaction(self) -> None:
        began, sends = self.now(), []
        outcome = Outcome.FAIL  # as long as nobody was asked to commit it
        try:
            for _ in range(self.random.choice([1, 2, 3, 5])):
                place = self.random.choice(self._places)
                self._numbers += 1
                value = f"{self.name}.{self._numbers}".encode()
                sends.append(Send(key_of(place), value, None))
                sends[-1] = Send(key_of(place), value, await self._write(place, value))
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

    async def _write(self, place: Place, value: bytes) -> int:
        sequence = self._sequences.get(place, 0)
        while True:
            self.state = f"writing {value!r} to {key_of(place)} as {self._who}"
            leader = await self.leader(place)
            told = None
            if leader is not None:
                request = produce(
                    self._who,
                    sequence,
                    value,
                    topic=place[0],
                    partitions=[place[1]],
                    name=self.name,
                    now_ms=self.world.now_ms(),
                )
                told = await self.ask(leader, request, PRODUCE_VERSION, "produce")
            if told is not None:
                answer = told.responses[0].partition_responses[0]
                if answer.error_code == NONE:
                    self._sequences[place] = sequence + 1
                    offset: int = answer.base_offset
                    return offset
                self.state += f": {errors.error_class(answer.error_code).name}"
                if answer.error_code in LOST:
                    raise _Gone
                if answer.error_code not in PASSES:
                    self.surprise(f"a write of a transaction to {key_of(place)}", answer.error_code)
            await self.refresh()
            await self.pause()
