"""Transactions, as Apache Kafka and trioka have them: short words for asking both, and what both have written.

A producer's id differs from side to side, and so a request of a producer is a function of the side; `Pair` knows the
ids. Apache Kafka writes markers after it has answered: `settle` waits for that.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from side_by_side import Side, SideBySide
from support.transaction_requests import Who, add, add_offsets, commit_offsets, end, init, produce

from trioka.coordinator.record_codec import TRANSACTIONS
from trioka.protocol import batch
from trioka.protocol.internal_records.transactions import TransactionLogKey, TransactionLogValue
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.schema import Request

PATIENCE_S = 60
POLL_S = 0.02
TRANSACTIONS_TOPIC = "__transaction_state"
NO_ID = frozenset({"producer_id"})
# The longest that a broker takes: what a test leaves open is not aborted on one side while both are compared.
LONG_MS = 900_000

_numbers = count(1)


def wait_for_coordinator(side: Side) -> None:
    """Apache Kafka creates the topic on the first request, and answers meanwhile that there is no coordinator."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (found,) = side.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), 4).coordinators
        if not found.error_code and not side.ask(init("first"), 5).error_code:
            return
        assert time.monotonic() < deadline, f"{side.name}: no coordinator"
        time.sleep(POLL_S)


class Pair:
    """The same producer on both sides."""

    def __init__(self, sides: SideBySide, name: str | None = None, *, generation: int = 2) -> None:
        self.sides = sides
        self.name = name or f"transactional-{next(_numbers)}"
        self.generation = generation
        self.topic = "t"  # to produce to
        self.who: dict[str, Who] = {}

    @property
    def epoch(self) -> int:
        epochs = {who[1] for who in self.who.values()}
        assert len(epochs) == 1
        return epochs.pop()

    def as_of(self, side: Side, moved: int = 0) -> Who:
        producer_id, epoch = self.who[side.name]
        return producer_id, epoch + moved

    def note(self, answers: tuple[Any, Any]) -> None:
        for side, answer in zip((self.sides.kafka, self.sides.trioka), answers, strict=True):
            self.who[side.name] = (answer.producer_id, answer.producer_epoch)

    def init(self, version: int = 5, *, again: bool = False, moved: int = 0, timeout_ms: int = LONG_MS) -> int:
        """The error code."""
        answers = self.same(
            lambda side: init(self.name, timeout_ms, self.as_of(side, moved) if again else (-1, -1)), version
        )
        if not answers[0].error_code:
            self.note(answers)
        code: int = answers[0].error_code
        return code

    def add(self, partitions: Mapping[str, Sequence[int]], version: int = 3, *, moved: int = 0) -> None:
        order = {
            "results_by_topic_v3_and_below": "name",
            "results_by_topic_v3_and_below.results_by_partition": "partition_index",
        }
        self.sides.same(lambda side: add(self.as_of(side, moved), partitions, self.name), version, order=order)

    def add_offsets(self, group: str, version: int = 3, *, moved: int = 0) -> None:
        self.same(lambda side: add_offsets(self.as_of(side, moved), group, self.name), version)

    def commit_offsets(self, offsets: Mapping[str, Mapping[int, int]], version: int = 5, **more: Any) -> None:
        moved = more.pop("moved", 0)
        order = {"topics": "name", "topics.partitions": "partition_index"}
        self.sides.same(
            lambda side: commit_offsets(self.as_of(side, moved), offsets, name=self.name, **more), version, order=order
        )

    def produce(self, sequence: int, version: int = 12, *, moved: int = 0, **more: Any) -> None:
        name = more.pop("name", self.name)
        more.setdefault("topic", self.topic)
        self.sides.same(
            lambda side: produce(self.as_of(side, moved), sequence, b"v", name=name, **more),
            version,
            order={"responses.partition_responses": "index"},
        )

    def end(self, *, commit: bool, version: int = 5, moved: int = 0) -> int:
        answers = self.same(lambda side: end(self.as_of(side, moved), commit=commit, name=self.name), version)
        if not answers[0].error_code and version >= 5:
            self.note(answers)
        self.settle()
        code: int = answers[0].error_code
        return code

    def same(self, requested: Callable[[Side], Request], version: int) -> tuple[Any, Any]:
        return self.sides.same(requested, version, ignoring=NO_ID)

    def settle(self) -> None:
        for side in (self.sides.kafka, self.sides.trioka):
            deadline = time.monotonic() + PATIENCE_S
            while self.state(side).startswith("Prepare"):
                assert time.monotonic() < deadline, f"{side.name}: {self.name} does not end"
                time.sleep(POLL_S)

    def state(self, side: Side) -> str:
        requested = DescribeTransactionsRequest(transactional_ids=[self.name])
        state: str = side.ask(requested, 0).transaction_states[0].transaction_state
        return state


def use_up_epochs(pair: Pair, until: int) -> None:
    """On both sides at once, each as fast as it can."""

    def begin_again(side: Side) -> None:
        while True:
            answer = side.ask(init(pair.name), 5)
            assert not answer.error_code, f"{side.name}: {answer}"
            pair.who[side.name] = (answer.producer_id, answer.producer_epoch)
            if answer.producer_epoch == until:
                return

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(begin_again, (pair.sides.kafka, pair.sides.trioka)))


def records(side: Side, names: Sequence[str]) -> dict[str, list[Any]]:
    """What stands in the log about these ids, times and producer ids made equal. That nothing else is lost by reading a
    record: it is written again, and the bytes are the same."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    offset = 0
    while data := _read(side, offset):
        for header in batch.headers(data, partial_tail=True):
            offset = header.base_offset + header.last_offset_delta + 1
            for record in batch.records(data, header):
                assert record.key is not None
                kept = TRANSACTIONS.decode(record.key, record.value)
                assert kept is not None and isinstance(kept.key, TransactionLogKey)
                if kept.key.transactional_id in found:
                    found[kept.key.transactional_id].append(_shown(record, kept.value))
    return found


def _shown(record: Any, value: Any) -> Any:
    if value is None:
        return None
    assert isinstance(value, TransactionLogValue)
    version = int.from_bytes(record.value[:2])
    partitions = None
    if value.transaction_partitions is not None:
        partitions = sorted((topic.topic, sorted(topic.partition_ids)) for topic in value.transaction_partitions)
    return {
        "version": version,
        "epoch": value.producer_epoch,
        "next epoch": value.next_producer_epoch,
        "had this id": value.previous_producer_id == value.producer_id,
        "has a next id": value.next_producer_id >= 0,
        "timeout": value.transaction_timeout_ms,
        "status": value.transaction_status,
        "partitions": partitions,
        "is started": value.transaction_start_timestamp_ms > 0,
        "client": value.client_transaction_version,
        "bytes": len(record.value),
    }


def _read(side: Side, offset: int) -> bytes:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    requested = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic=TRANSACTIONS_TOPIC, partitions=[partition])]
    )
    (answer,) = side.ask(requested, 12).responses[0].partitions
    return bytes(answer.records or b"")
