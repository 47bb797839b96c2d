"""A transactional producer of a chaos run that pipelines: transaction version 2 (KIP-890), raw requests.

No Python client speaks transaction version 2, and those that speak version 1 wait for AddPartitionsToTxn before they
write. This producer sends several Produces on one connection right after EndTxn was answered, before the first of them
is answered. It repeats what was not acknowledged, in order and with the same sequence numbers, so each record is in its
partition at most once. A batch that is refused as out of order although every batch before it was accepted is a
violation: the broker has let a later Produce overtake an earlier one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.load import ABORTED, DEALS, DELIVERY_S, PADDING, PARTITIONS, Journal, Writer
from chaos.security import Access
from history.operations import Outcome, Send
from support.retriable_errors import PASSES, TRANSACTION_ENDED
from support.transaction_requests import Who, end, init, produce

from trioka.cli.client.connection import Connection, ConnectionClosed
from trioka.cli.terminal.failure import Failure
from trioka.protocol import errors
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.schema import Request

FIND_VERSION, INIT_VERSION, PRODUCE_VERSION, END_VERSION, METADATA_VERSION = 4, 5, 12, 5, 12
TRANSACTION_KEY_TYPE: Final = 1
TIMEOUT_MS: Final = 60_000
RESPONSE_TIMEOUT_S: Final = 12.0  # longer than the timeout of a Produce
RETRY_S: Final = 0.1
BATCHES: Final = (1, 2, 2, 3, 4, 5)  # in flight at a time, to one partition

RETRIABLE: Final = PASSES | {errors.KafkaStorageError.code, errors.NetworkException.code}


class OutOfOrder(Exception):
    """A batch was refused as out of order, and every batch before it was accepted."""


class Unexpected(Exception):
    """An error that no correct broker answers here."""


class TransactionEnded(Exception):
    """This transaction is over; the producer starts again with InitProducerId."""


@dataclass(slots=True)
class Batch:
    partition: int
    value: bytes
    sequence: int
    offset: int | None = None


class PipelinedTransactions(Writer):
    def __init__(self, name: str, access: Access, journal: Journal, seed: int, rest_s: float = 0.0) -> None:
        super().__init__(name, access, journal, seed, rest_s)
        self._connections: dict[str, Connection] = {}
        self._nodes: dict[int, str] = {}
        self._leaders: dict[int, int] = {}
        self._coordinator: str | None = None  # its address
        self._who: Who = (-1, -1)
        self._sequences: dict[int, int] = {}

    # -- one transaction -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        result = self._ask_coordinator(init(self.name, TIMEOUT_MS), INIT_VERSION)
        self._use(result)

    def _use(self, result: Any) -> None:
        if (result.producer_id, result.producer_epoch) != self._who:
            self._who = (result.producer_id, result.producer_epoch)
            self._sequences = dict.fromkeys(range(PARTITIONS[DEALS]), 0)

    def work(self) -> None:
        began = time.monotonic()
        batches = self._new_batches()
        commits = self.random.random() >= ABORTED
        outcome = Outcome.FAIL  # as long as no coordinator has received a request to commit it
        try:
            self._write(batches)
            if commits:
                outcome = Outcome.INFO
            self._use(self._ask_coordinator(end(self._who, commit=commits, name=self.name), END_VERSION))
            outcome = Outcome.OK if commits else Outcome.FAIL
            self.count += 1
        except TransactionEnded:
            self.open()
        finally:
            steps = [Send(f"{DEALS}-{each.partition}", each.value, each.offset) for each in batches]
            self.journal.note(self.name, outcome, began, steps)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _new_batches(self) -> list[Batch]:
        batches = []
        for partition in self.random.sample(range(PARTITIONS[DEALS]), self.random.choice((1, 1, 2))):
            for _ in range(self.random.choice(BATCHES)):
                self._number += 1
                sequence = self._sequences[partition]
                self._sequences[partition] = sequence + 1
                padding = "." * self.random.choice(PADDING)
                batches.append(Batch(partition, f"{self.name}:{self._number}:{padding}".encode(), sequence))
        return batches

    def _write(self, batches: Sequence[Batch]) -> None:
        until = time.monotonic() + DELIVERY_S
        while left := [each for each in batches if each.offset is None]:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: {len(left)} batches were not acknowledged in {DELIVERY_S:.0f} s")
            by_leader: dict[int, list[Batch]] = {}
            for each in left:
                by_leader.setdefault(self._leaders.get(each.partition, -1), []).append(each)
            for leader, some in by_leader.items():
                if leader not in self._nodes or not self._pipeline(self._connection(self._nodes[leader]), some):
                    self._refresh()

    def _pipeline(self, connection: Connection, batches: Sequence[Batch]) -> bool:
        """Sends all requests, then reads all responses. False if any was not accepted."""
        requests = [
            produce(
                self._who,
                each.sequence,
                each.value,
                topic=DEALS,
                partitions=[each.partition],
                name=self.name,
                now_ms=int(time.time() * 1000),
            )
            for each in batches
        ]
        refused: set[int] = set()
        try:
            ids = [connection.send(request, PRODUCE_VERSION) for request in requests]
            for correlation_id, request, each in zip(ids, requests, batches, strict=True):
                response = connection.receive(request, PRODUCE_VERSION, correlation_id=correlation_id)
                (answer,) = response.responses[0].partition_responses
                if not self._is_accepted(each, answer.error_code, refused):
                    refused.add(each.partition)
                else:
                    each.offset = answer.base_offset if answer.base_offset >= 0 else 0
        except (Failure, ConnectionClosed, OSError):
            connection.close()
            return False
        return not refused

    def _is_accepted(self, batch: Batch, code: int, refused: set[int]) -> bool:
        if code == NONE:
            if batch.partition in refused:
                raise OutOfOrder(f"{batch.value[:40]!r} was accepted, and one before it was refused")
            return True
        if code in TRANSACTION_ENDED:
            raise TransactionEnded
        is_out_of_order = code == errors.OutOfOrderSequenceNumber.code
        if is_out_of_order and batch.partition not in refused:
            raise OutOfOrder(f"{batch.value[:40]!r} (sequence {batch.sequence}) is out of order, as {self._who}")
        if not is_out_of_order and code not in RETRIABLE:
            raise Unexpected(f"{error_class(code).name} for a write of a transaction")
        return False

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _connection(self, address: str) -> Connection:
        if address not in self._connections:
            made = self.access.connection(address, timeout_s=RESPONSE_TIMEOUT_S, client_id=self.name)
            self._connections[address] = made
        return self._connections[address]

    def _refresh(self) -> None:
        time.sleep(RETRY_S)
        topics = [MetadataRequest.Topic(name=DEALS)]
        result = self._ask_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False), METADATA_VERSION)
        if result is not None:
            self._nodes = {broker.node_id: f"{broker.host}:{broker.port}" for broker in result.brokers}
            self._leaders = {each.partition_index: each.leader_id for each in result.topics[0].partitions}

    def _ask_any(self, request: Request, version: int) -> Any:
        """None if the node does not answer."""
        connection = self._connection(self.random.choice(self.access.servers.split(",")))
        try:
            return connection.ask(request, version)
        except (Failure, ConnectionClosed, OSError):
            connection.close()
            return None

    def _ask_coordinator(self, request: Request, version: int) -> Any:
        """Retries until the coordinator gives a final answer."""
        until = time.monotonic() + DELIVERY_S
        while time.monotonic() < until:
            result = self._ask_known_coordinator(request, version)
            if result is not None:
                if result.error_code == NONE:
                    return result
                if result.error_code in TRANSACTION_ENDED:
                    raise TransactionEnded
                if result.error_code not in RETRIABLE:
                    raise Unexpected(f"{error_class(result.error_code).name} for {type(request).__name__}")
            if result is None or result.error_code != errors.ConcurrentTransactions.code:
                self._coordinator = None
            time.sleep(RETRY_S)
        raise TimeoutError(f"{self.name}: no answer to {type(request).__name__} in {DELIVERY_S:.0f} s")

    def _ask_known_coordinator(self, request: Request, version: int) -> Any:
        if self._coordinator is None:
            find = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[self.name])
            result = self._ask_any(find, FIND_VERSION)
            if result is None or result.coordinators[0].error_code != NONE:
                return None
            found = result.coordinators[0]
            self._coordinator = f"{found.host}:{found.port}"
        connection = self._connection(self._coordinator)
        try:
            return connection.ask(request, version)
        except (Failure, ConnectionClosed, OSError):
            connection.close()
            return None
