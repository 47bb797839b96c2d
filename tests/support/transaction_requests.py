"""Requests about transactions, in few words, and a producer that sends them to a broker over the wire.

Producers of the second generation (KIP-890) write at once, and get a new epoch with each end; those of the first add
partitions to the transaction before they write.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import time
from typing import Any, Final

from trioka.protocol import batch
from trioka.protocol.batch import build
from trioka.protocol.errors import NONE, ConcurrentTransactions, error_class
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from trioka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from trioka.protocol.messages.end_txn import EndTxnRequest
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from trioka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

NAME: Final = "x"
NOW_MS: Final = int(time() * 1000)  # markers have the broker's time, and a log with distant timestamps is rolled
FIND_TRANSACTIONS: Final = FindCoordinatorRequest(coordinator_keys=[NAME], key_type=1)
TRIES: Final = 100

Who = tuple[int, int]  # a producer's id and epoch
Partitions = Mapping[str, Sequence[int]]


def init(name: str | None = NAME, timeout_ms: int = 60_000, who: Who = (-1, -1)) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=who[0], producer_epoch=who[1]
    )


def add(who: Who, partitions: Partitions, name: str = NAME) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[Topic(name=topic, partitions=list(some)) for topic, some in partitions.items()],
    )


def add_many(*transactions: tuple[str, Who, Partitions, bool]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.Transaction(
                transactional_id=name,
                producer_id=who[0],
                producer_epoch=who[1],
                verify_only=verify_only,
                topics=[Topic(name=topic, partitions=list(some)) for topic, some in partitions.items()],
            )
            for name, who, partitions, verify_only in transactions
        ]
    )


def add_offsets(who: Who, group: str = "g", name: str = NAME) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=group)


def end(who: Who, *, commit: bool, name: str = NAME) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit)


def commit_offsets(
    who: Who,
    offsets: Mapping[str, Mapping[int, int]],
    group: str = "g",
    name: str = NAME,
    generation: int = -1,
    member: str = "",
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=who[0],
        producer_epoch=who[1],
        generation_id=generation,
        member_id=member,
        topics=[
            TxnOffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequest.Topic.Partition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index, offset in some.items()
                ],
            )
            for topic, some in offsets.items()
        ],
    )


def markers(
    who: Who, partitions: Partitions, *, commit: bool, coordinator_epoch: int = 0, version: int = 0
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.Marker(
                producer_id=who[0],
                producer_epoch=who[1],
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
                topics=[
                    WriteTxnMarkersRequest.Marker.Topic(name=topic, partition_indexes=list(some))
                    for topic, some in partitions.items()
                ],
            )
        ]
    )


def produce(
    who: Who,
    sequence: int,
    *values: bytes,
    topic: str = "t",
    partitions: Sequence[int] = (0,),
    name: str | None = NAME,
    transactional: bool = True,
    now_ms: int = NOW_MS,
) -> ProduceRequest:
    """The same batch for each of the partitions, by name: version 12 at most."""
    records = [Record(offset, now_ms, None, value) for offset, value in enumerate(values)]
    built = build(
        records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=transactional
    )
    return ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequest.Topic(
                name=topic,
                partition_data=[ProduceRequest.Topic.Partition(index=index, records=built) for index in partitions],
            )
        ],
    )


def fetch(topic: str = "t", index: int = 0, *, committed: bool = True, offset: int = 0) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=int(committed),
        topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
    )


def values_in(response: FetchResponse) -> list[bytes]:
    """A consumer's view of a Fetch: without aborted records, and without markers."""
    (partition,) = response.responses[0].partitions
    aborted = sorted((a.first_offset, a.producer_id) for a in partition.aborted_transactions or ())
    gone: set[int] = set()
    found: list[bytes] = []
    data = bytes(partition.records or b"")  # type: ignore[call-overload]
    for header in batch.headers(data):
        while aborted and aborted[0][0] <= header.base_offset + header.last_offset_delta:
            gone.add(aborted.pop(0)[1])
        if header.is_control:
            gone.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in gone):
            found += [record.value or b"" for record in batch.records(data, header)]
    return found


class Refused(Exception):
    """The error of the broker."""

    def __init__(self, code: int) -> None:
        super().__init__(error_class(code).name)
        self.code = code


class Writer:
    """A transactional producer. `ask` sends its requests to the broker."""

    def __init__(self, ask: Callable[[Request, int], Awaitable[Any]], name: str = NAME, *, generation: int = 2) -> None:
        self._ask = ask
        self.name = name
        self.generation = generation
        self.who: Who = (-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, timeout_ms: int = 60_000, *, again: bool = False) -> Who:
        response = await self._try(init(self.name, timeout_ms, self.who if again else (-1, -1)), 5)
        return self._is_now(response.producer_id, response.producer_epoch)

    def _is_now(self, producer_id: int, epoch: int) -> Who:
        if (producer_id, epoch) != self.who:
            self.who = (producer_id, epoch)
            self.sequences.clear()
        return self.who

    async def write(self, *values: bytes, topic: str = "t", index: int = 0) -> int:
        """The offset of the first."""
        if self.generation < 2:
            response = await self._ask(add(self.who, {topic: [index]}, self.name), 3)
            must(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        sequence = self.sequences.get((topic, index), 0)
        request = produce(self.who, sequence, *values, topic=topic, partitions=[index], name=self.name)
        response = await self._ask(request, 12 if self.generation >= 2 else 11)
        (result,) = response.responses[0].partition_responses
        must(result.error_code)
        self.sequences[topic, index] = (sequence + len(values)) % 2**31
        offset: int = result.base_offset
        return offset

    async def commit_offsets(self, offsets: Mapping[str, Mapping[int, int]], group: str = "g") -> None:
        if self.generation < 2:
            must((await self._ask(add_offsets(self.who, group, self.name), 3)).error_code)
        version = 5 if self.generation >= 2 else 4
        response = await self._ask(commit_offsets(self.who, offsets, group, self.name), version)
        for topic in response.topics:
            for partition in topic.partitions:
                must(partition.error_code)

    async def commit(self) -> Who:
        return await self._end(True)

    async def abort(self) -> Who:
        return await self._end(False)

    async def _end(self, commit: bool) -> Who:
        response = await self._try(end(self.who, commit=commit, name=self.name), 5 if self.generation >= 2 else 4)
        if self.generation >= 2:
            self._is_now(response.producer_id, response.producer_epoch)
        return self.who

    async def _try(self, request: Request, version: int) -> Any:
        for _ in range(TRIES):
            response = await self._ask(request, version)
            if response.error_code != ConcurrentTransactions.code:
                must(response.error_code)
                return response
        raise AssertionError("it still gets a retriable error")


def must(code: int) -> None:
    if code != NONE:
        raise Refused(code)
