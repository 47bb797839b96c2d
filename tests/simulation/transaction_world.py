"""Transactions in logs: a random walk of producers and their coordinator (`transaction_walk`), with partitions that are
logs, and consumers that read what is committed.

The code under test is production code: the coordinator, and logs with their state of producers, open transactions and
aborted ones. Beside each log is the model of the walk; both must accept and refuse the same (T2, T3, T5). Records are
replicated some time after they were written; a log is closed and opened again, cleanly or not.

A consumer with `read_committed` reads up to the last stable offset and leaves out what was aborted, as clients do. It
must read nothing of a transaction that is not decided, nothing that was aborted (T7), and in the end everything that
was committed, once.
"""

from dataclasses import dataclass
from random import Random

from simulation.transaction_walk import PartitionModel, Value, Walk
from support.log_fixtures import NOW_MS, batch, open_log, reopen

from trioka.coordinator.decision import Producer, TxnMarkerRequest
from trioka.coordinator.transaction import MAX_EPOCH
from trioka.coordinator.transactions import TransactionCoordinator
from trioka.protocol.batch import BatchHeader, build_marker, headers, records
from trioka.protocol.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from trioka.protocol.record import EndTxnMarker
from trioka.storage.append_validation import AppendOrigin

READ_BYTES = 400
FENCED = (InvalidProducerEpoch, TransactionCoordinatorFenced)


class Violation(AssertionError):
    """A promise was broken."""


class LoggedPartition(PartitionModel):
    """The model, the log beside it, and a consumer that reads what is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.log = open_log()
        self.position = 0
        self.read: list[Value] = []
        self._sequences: dict[Value, int] = {}

    def append(self, producer: Producer, value: Value, ends: int) -> bool:
        if self.ends[producer.id] != ends:
            return False  # the verification guard
        is_taken = super().append(producer, value, ends)
        data = batch(
            " ".join(map(str, value)),
            key=None,
            producer=(producer.id, producer.epoch, self._sequence(producer, value)),
            transactional=True,
        )
        try:
            self.log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
            is_in_log = True
        except InvalidProducerEpoch:
            is_in_log = False
        except (OutOfOrderSequenceNumber, DuplicateSequenceNumber):
            is_in_log = value in self.open.get(producer.id, ())  # it was written long ago
        if is_in_log is not is_taken:
            raise Violation(f"T2: {producer} writes; the log says {is_in_log}, and should say {is_taken}")
        return is_taken

    def _sequence(self, producer: Producer, value: Value) -> int:
        """The same for the same value, or else the next one."""
        known = self.log.producers.producers.get(producer.id)
        following = 0 if known is None or known.epoch != producer.epoch else known.last_sequence + 1
        return self._sequences.setdefault(value, following)

    def mark(self, order: TxnMarkerRequest) -> bool:
        is_taken = super().mark(order)
        marker = build_marker(
            EndTxnMarker(order.is_commit, order.coordinator_epoch),
            offset=0,
            timestamp=NOW_MS,
            leader_epoch=0,
            producer_id=order.producer.id,
            producer_epoch=order.producer.epoch,
        )
        try:
            self.log.append_as_leader(
                marker,
                leader_epoch=0,
                now_ms=NOW_MS,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=order.transaction_version,
            )
            is_in_log = True
        except FENCED:
            is_in_log = False
        if is_in_log is not is_taken:
            raise Violation(f"T3: a marker of {order.producer}; the log says {is_in_log}, and should say {is_taken}")
        return is_taken

    def restart(self, *, clean: bool) -> None:
        high_watermark = self.log.high_watermark
        self.log = reopen(self.log, clean=clean)
        self.log.advance_high_watermark(high_watermark)

    def poll(self) -> None:
        """A consumer's view of an answer: it leaves out the aborted transactions of its range, each from its first
        offset up to its marker."""
        log, stable = self.log, self.log.last_stable_offset
        if stable > log.high_watermark:
            raise Violation(f"T7: stable up to {stable}, and replicated up to {log.high_watermark}")
        answer = log.read(self.position, READ_BYTES, upto=stable)
        if answer.records is None:
            return
        waiting = sorted(
            (each.first_offset, each.producer_id)
            for each in log.aborted_transactions(self.position, answer.next_offset)
        )
        aborted: set[int] = set()
        data = answer.records.read()
        for header in headers(data):
            while waiting and waiting[0][0] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif header.producer_id not in aborted and header.base_offset >= self.position:
                self._see(data, header)
        self.position = answer.next_offset

    def _see(self, data: bytes, header: BatchHeader) -> None:
        for record in records(data, header):
            client, serial, write = map(int, (record.value or b"").split())
            value = (client, serial, write)
            if not self.fate.get(value, False):
                fate = "was aborted" if value in self.fate else "is not decided"
                raise Violation(f"T7: a consumer reads {value}, which {fate}")
            self.read.append(value)

    def must_be_read(self) -> None:
        log = self.log
        log.advance_high_watermark(log.log_end_offset)
        if log.last_stable_offset != log.log_end_offset:
            raise Violation(f"T7: stable up to {log.last_stable_offset} of {log.log_end_offset}, and nothing is open")
        while self.position < log.log_end_offset:
            self.poll()
        if sorted(self.read) != sorted(value for value, is_committed in self.fate.items() if is_committed):
            raise Violation("T7: not all that was committed was read, or not once")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    steps: int = 1500
    version: int = 2  # of transactions
    first_epoch: int = 0
    clients: int = 4
    replication: float = 0.1  # the share of steps in which a follower fetches and a client reads
    restart: float = 0.002

    @classmethod
    def of(cls, seed: int) -> "FaultProfile":
        random = Random(f"weather {seed}")
        return cls(
            version=random.choice([1, 2, 2]),
            first_epoch=random.choice([0, 0, MAX_EPOCH - 7]),
            clients=random.choice([2, 4, 6]),
            replication=random.choice([0.05, 0.2, 0.5]),
            restart=random.choice([0, 0.002, 0.01]),
        )


CALM = {"first_epoch": 0, "clients": 1, "replication": 0.5, "restart": 0.0}


class TransactionWorld(Walk):
    def __init__(
        self,
        seed: int,
        *,
        profile: FaultProfile | None = None,
        coordinator: type[TransactionCoordinator] = TransactionCoordinator,
        hurries: bool = False,
    ) -> None:
        self.profile = profile = profile or FaultProfile.of(seed)
        self.logs: list[LoggedPartition] = []
        self.events = 0
        super().__init__(
            seed,
            coordinator=coordinator,
            version=profile.version,
            first_epoch=profile.first_epoch,
            clients=profile.clients,
        )
        self.shell.hurries = hurries

    def _new_partition(self) -> PartitionModel:
        self.logs.append(LoggedPartition())
        return self.logs[-1]

    def trace(self) -> object:
        ends = [(each.log.log_end_offset, each.read) for each in self.logs]
        return self.events, self.crashes, len(self.log), ends

    def _step(self) -> None:
        self.events += 1
        chance = self.random.random()
        if chance < self.profile.replication:
            found = self.random.choice(self.logs)
            log = found.log
            log.advance_high_watermark(self.random.randint(log.high_watermark, log.log_end_offset))
            found.poll()
        elif chance < self.profile.replication + self.profile.restart:
            self.random.choice(self.logs).restart(clean=self.random.random() < 0.5)
        else:
            super()._step()

    def _judge(self) -> None:
        super()._judge()
        for found in self.logs:
            found.must_be_read()
