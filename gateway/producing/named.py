"""Exactly once for simple clients: requests of a producer name are written in transactions with their sequence.

    request ─→ queue of the name ─→ collect for producer.commit.interval.ms ─→ one transaction ─→ answers in order

A name belongs to one gateway at a time. A gateway that gets a name for the first time fences whoever had it
(InitProducerId), which also ends an open transaction; then it reads the committed sequence and goes on behind it. So it
does not matter which gateway a client reaches after one has died. `sequences.py` has the rule.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import grpc

from trioka.protocol import errors
from trioka.protocol.errors import NONE, KafkaError, error_class
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

from ..failures import Refused, code_of
from ..kafka.cluster import Cluster
from ..process.metrics import Metrics
from ..v1 import types_pb2
from .outcome import Outcome
from .sequences import MAX_SEQUENCE, Sequences, StreamOrder, Verdict
from .transactions import PREFIX, SEQUENCE_PARTITION, TransactionalProducer, Unusable, Writing

LOG: Final = logging.getLogger("trioka.gateway")
MAX_NAME_CHARS: Final = 200
MAX_TRANSACTION_RECORDS: Final = 10_000
MAX_TRANSACTION_REQUESTS: Final = 1_000
MAX_QUEUED: Final = 10_000  # requests of one name
BY_NAME: Final = 9  # the last version of OffsetFetch that names topics by name
FAULTS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
STUCK_S: Final = 4.0  # more than a transaction, with its abort, may take beyond its time limit
THREADS: Final = 32  # transactions at the same time


def is_fault_of_request(error: Exception) -> bool:
    """Whether a repetition would fail, too, so that later requests need not wait for one."""
    return isinstance(error, KafkaError) and code_of(error) in FAULTS


class Item:
    """One request in the queue of its name."""

    __slots__ = ("future", "order", "sequence", "writing")

    def __init__(self, sequence: int, writing: Writing, order: StreamOrder | None) -> None:
        self.sequence = sequence
        self.writing = writing
        self.order = order  # of the stream that it came on; None for a unary call
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class NamedProducer:
    """One name. `run` is its only writer."""

    def __init__(self, cluster: Cluster, name: str, pool: ThreadPoolExecutor, interval_s: float) -> None:
        self._cluster = cluster
        self._name = name
        self._pool = pool
        self._interval_s = interval_s
        self._queue: asyncio.Queue[Item] = asyncio.Queue(MAX_QUEUED)
        self._producer: TransactionalProducer | None = None
        self._sequences = Sequences(0)
        self.busy = 0  # requests that are not answered
        self._task = asyncio.create_task(self._run())

    def add(
        self,
        sequence: int,
        topic: str,
        partition: int | None,
        records: Sequence[types_pb2.Record],
        order: StreamOrder | None,
    ) -> "asyncio.Future[Outcome]":
        item = Item(sequence, Writing(topic, partition, records), order)
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{MAX_QUEUED} requests of producer {self._name!r} wait to be written; try again later",
                retriable=True,
            ) from None
        self.busy += 1
        item.future.add_done_callback(self._answered)
        return item.future

    def _answered(self, future: "asyncio.Future[Outcome]") -> None:
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # a caller that has gone does not fetch it

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        while not self._queue.empty():
            self._fail(self._queue.get_nowait(), errors.NetworkException("the gateway stops"))
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, producer.close)

    async def _run(self) -> None:
        while True:
            items = [await self._queue.get()]
            if items[0].order is not None and self._interval_s > 0:
                await asyncio.sleep(self._interval_s)
            records = len(items[0].writing.records)
            while (
                not self._queue.empty() and len(items) < MAX_TRANSACTION_REQUESTS and records < MAX_TRANSACTION_RECORDS
            ):
                items.append(self._queue.get_nowait())
                records += len(items[-1].writing.records)
            try:
                await self._decide(items)
            except BaseException as error:
                if isinstance(error, Exception):
                    LOG.error("internal error: producer %s", self._name, exc_info=error)
                for item in items:
                    self._fail(item, errors.NetworkException(f"producer {self._name!r}: the outcome is not known"))
                if not isinstance(error, Exception):
                    raise
                self._drop()

    async def _decide(self, items: list[Item]) -> None:
        """Answer all of these."""
        ready = [item for item in items if self._is_its_turn(item)]
        if ready:
            await self._write_all(ready)

    def _is_its_turn(self, item: Item) -> bool:
        """False, and refused, if an earlier request of its stream has failed and was not repeated yet. This comes
        before the name is taken over: a stream that lost its name to another gateway must not take it back with what
        it had sent ahead."""
        if item.order is None or item.order.may_write(item.sequence):
            return True
        self._fail(item, self._out_of_order(item, f"sequence {item.order.expected} failed and comes first"))
        return False

    async def _write_all(self, items: list[Item]) -> None:
        try:
            if self._producer is None:
                await self._take_over()
        except Exception as failure:
            for item in items:
                self._fail(item, failure)
            return
        verdicts = self._sequences.plan([each.sequence for each in items])
        chosen = [item for item, verdict in zip(items, verdicts, strict=True) if verdict is Verdict.WRITE]
        error = await self._write(chosen)
        if error is not None and len(chosen) > 1 and is_fault_of_request(error):
            # One of them is at fault, and nothing is written. Each gets a transaction of its own, in their order.
            for item in items:
                if self._is_its_turn(item):
                    await self._write_all([item])
            return
        for item, verdict in zip(items, verdicts, strict=True):
            if verdict is Verdict.OUT_OF_ORDER:
                reason = f"sequence {self._sequences.next - 1} was written before it, and sequences of a name rise"
                self._fail(item, self._out_of_order(item, reason))
            elif error is not None and (verdict is Verdict.WRITE or item.sequence >= self._sequences.next):
                self._fail(item, error)
            else:
                self._succeed(item, is_duplicate=verdict is Verdict.DUPLICATE)

    async def _write(self, items: list[Item]) -> KafkaError | None:
        """One transaction. After an error nothing is written, or it is not known; the next request takes the name
        anew, and learns what is committed."""
        if not items:
            return None
        assert self._producer is not None
        writings, last = [each.writing for each in items], items[-1].sequence
        call = asyncio.get_running_loop().run_in_executor(self._pool, self._producer.write, writings, last + 1)
        await asyncio.wait([call], timeout=self._cluster.timeout_s + STUCK_S)
        if not call.done():
            self._abandon(call)
            return errors.RequestTimedOut(f"producer {self._name!r}: the transaction did not end in time")
        try:
            call.result()
        except Unusable as unusable:
            self._drop()
            return unusable.error
        except Exception as error:
            self._drop()
            return errors.UnknownServerError(f"producer {self._name!r}: {error}")
        self._sequences.committed([each.sequence for each in items])
        return None

    async def _take_over(self) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = self._cluster.timeout_s
        producer = await loop.run_in_executor(
            self._pool, TransactionalProducer, self._cluster.access, self._name, timeout_s
        )
        try:
            await loop.run_in_executor(self._pool, producer.begin)
            self._sequences = Sequences(await committed_sequence(self._cluster, self._name))
        except BaseException as error:
            self._pool.submit(producer.close)
            if isinstance(error, Unusable):
                raise error.error from None
            raise
        self._producer = producer

    def _abandon(self, call: "asyncio.Future[None]") -> None:
        """Leave a producer that librdkafka does not return from, in spite of its time limit: it waits for a coordinator
        that has died. Its successor fences it, so that nothing of it is committed later."""
        producer, self._producer = self._producer, None

        def ended(ended_call: "asyncio.Future[None]") -> None:
            if not ended_call.cancelled():
                ended_call.exception()
            with suppress(RuntimeError):  # the pool may be closed
                if producer is not None:
                    self._pool.submit(producer.close)

        call.add_done_callback(ended)

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            self._pool.submit(producer.close)

    def _out_of_order(self, item: Item, reason: str) -> KafkaError:
        return errors.OutOfOrderSequenceNumber(f"producer {self._name!r}, sequence {item.sequence}: {reason}")

    def _fail(self, item: Item, error: Exception) -> None:
        if item.order is not None and not is_fault_of_request(error):
            item.order.failed(item.sequence)
        if not item.future.done():
            item.future.set_exception(error)

    def _succeed(self, item: Item, *, is_duplicate: bool) -> None:
        if not item.future.done():
            positions = () if is_duplicate else tuple(item.writing.positions)
            item.future.set_result(Outcome(positions, is_duplicate))


async def committed_sequence(cluster: Cluster, name: str) -> int:
    """The next sequence of a name: the highest that any of its topics has; 0 if it was never used."""
    kind = OffsetFetchRequest.Group
    request = OffsetFetchRequest(groups=[kind(group_id=PREFIX + name, topics=None)], require_stable=True)
    response = await cluster.ask_coordinator(
        PREFIX + name,
        request,
        lambda result: [
            result.groups[0].error_code,
            *(each.error_code for topic in result.groups[0].topics for each in topic.partitions),
        ],
        at_most=BY_NAME,
    )
    group = response.groups[0]
    if group.error_code not in (NONE, errors.GroupIdNotFound.code):
        raise error_class(group.error_code)(f"group {PREFIX + name!r}")
    found = 0
    for topic in group.topics:
        for each in topic.partitions:
            if each.error_code != NONE:
                raise error_class(each.error_code)(f"group {PREFIX + name!r}")
            if each.partition_index == SEQUENCE_PARTITION:
                found = max(found, each.committed_offset)
    return found


class NamedProducers:
    """The names of one user, the most recently used last."""

    def __init__(self, cluster: Cluster, metrics: Metrics, *, max_names: int, interval_s: float) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._max_names = max_names
        self._interval_s = interval_s
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="transactions")
        self._by_name: OrderedDict[str, NamedProducer] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str, sequence: int) -> NamedProducer:
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, f"a producer name has 1 to {MAX_NAME_CHARS} printable characters"
            )
        if sequence > MAX_SEQUENCE:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"sequence {sequence} is above {MAX_SEQUENCE}")
        found = self._by_name.get(name)
        if found is None:
            self._make_place()
            self._metrics.named_producers.inc()
            found = self._by_name[name] = NamedProducer(self._cluster, name, self._pool, self._interval_s)
        self._by_name.move_to_end(name)
        return found

    def _make_place(self) -> None:
        if len(self._by_name) < self._max_names:
            return
        idle = next((name for name, each in self._by_name.items() if not each.busy), None)
        if idle is None:
            raise Refused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._max_names} producer names are being written (producer.max.names); try again later",
                retriable=True,
            )
        self._metrics.named_producers.dec()
        task = asyncio.create_task(self._by_name.pop(idle).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        closing = [asyncio.create_task(each.close()) for each in self._by_name.values()]
        self._metrics.named_producers.dec(len(self._by_name))
        self._by_name.clear()
        if closing or self._closing:
            await asyncio.wait([*closing, *self._closing])
        self._pool.shutdown(wait=False)
