"""Appends the small Produces of many connections together.

When one poll finds several connections ready, the server receives from each of them before it answers any. A Produce
of a fast path that arrives alone (fastpath/produce.py) is then deferred: its range of the shared receive buffer is
registered here, by partition. At the end of the round each partition gets one append (storage/batch_append.py), one
write for all of them, and every connection its response.

With acks=all and followers, the responses of one append share one wait, and are sent when the records are committed.

A batch that the append does not take (refused, or the next one of another producer) is tried again at the head of the
next append, and then takes the general path, unchanged. A deferred request waits for one round, which is bounded by the
events of one poll and the size of the buffer.
"""

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import ReceiveBuffer

from ..counters.latency import PRODUCE
from ..network.limits.charge import Charge
from ..network.limits.request_quotas import with_throttle_time

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection
    from ..network.limits.request_quotas import RequestQuotas
    from ..replication.partitions import Replica
    from .produce import ProduceFastPath

    BufferRange = tuple[int, int]  # position in the shared buffer, size
    DeferredRequest = tuple[Connection, int, ProduceFastPath]  # with the correlation id


class PendingBatch(NamedTuple):
    """The requests of a round for one replica."""

    ranges: "list[BufferRange]"
    requests: "list[DeferredRequest]"


class ProduceCoalescer:
    """The deferred requests of one round."""

    __slots__ = ("_broker", "_pending", "is_open", "round", "scratch")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.scratch = ReceiveBuffer()
        self.is_open = False  # whether this round has several events; a single one gains nothing by being deferred
        self.round = 0  # counts flushes
        self._pending: dict[tuple[Replica, float | None], PendingBatch] = {}

    def batch_for(self, replica: "Replica", commit_timeout_s: float | None) -> PendingBatch:
        """Where requests for this replica are collected until the end of the round. Those with a timeout wait for
        their commit, and share one wait."""
        key = (replica, commit_timeout_s)
        batch = self._pending.get(key)
        if batch is None:
            batch = self._pending[key] = PendingBatch([], [])
        return batch

    def flush(self) -> None:
        """Appends the deferred requests and leaves the responses with their connections. A connection without one then
        takes the general path; after that the shared buffer is free."""
        pending, self._pending = self._pending, {}
        self.round += 1
        now_ms = self._broker.clock.now_ms()
        for (replica, commit_timeout_s), (ranges, requests) in pending.items():
            while ranges:
                done = self._append(replica, commit_timeout_s is not None, ranges, requests, now_ms)
                if done == len(ranges):
                    break
                # The batch that ended this append may begin the next one.
                ranges, requests = ranges[done or 1 :], requests[done or 1 :]

    def _append(
        self,
        replica: "Replica",
        waits: bool,
        ranges: "list[BufferRange]",
        requests: "list[DeferredRequest]",
        now_ms: int,
    ) -> int:
        """How many of the requests one append took."""
        if not replica.leads:  # no longer
            return 0
        quotas = self._broker.dispatch.quotas
        began = 0.0 if quotas is None else perf_counter()
        try:
            offsets = replica.try_append_batches(self.scratch.view, ranges, now_ms)
        except (KafkaError, OSError):
            return 0
        if not offsets:
            return 0
        self._broker.purgatory.notify(replica)
        if waits:
            waiting = []
            seconds = 0.0 if quotas is None else (perf_counter() - began) / len(offsets)
            for (connection, correlation_id, fast_path), offset, (_, size) in zip(
                requests, offsets, ranges, strict=False
            ):
                call = connection.begin_deferred_call(fast_path.route, correlation_id)
                if quotas is not None:
                    call.charge = Charge.of_fast_path(fast_path.frame_bytes(size), seconds)
                waiting.append((call, fast_path, ((correlation_id, offset),)))
            waiting[0][1].respond_when_committed(replica, replica.log.log_end_offset, waiting)
        else:
            for (connection, correlation_id, fast_path), offset in zip(requests, offsets, strict=False):
                connection.deferred = fast_path.response(replica, ((correlation_id, offset),))
            if quotas is not None:
                self._charge(quotas, requests[: len(offsets)], ranges, perf_counter() - began)
            self._broker.dispatch.times.pending[PRODUCE] += len(offsets)
        return len(offsets)

    def _charge(
        self, quotas: "RequestQuotas", requests: "list[DeferredRequest]", ranges: "list[BufferRange]", seconds: float
    ) -> None:
        sizes = [fast_path.frame_bytes(size) for (_, _, fast_path), (_, size) in zip(requests, ranges, strict=False)]
        throttled = quotas.charge_round(requests, sizes, seconds / len(requests))
        for (connection, _, fast_path), throttle_ms in zip(requests, throttled, strict=False):
            if throttle_ms and connection.deferred:
                connection.deferred = with_throttle_time(connection.deferred, fast_path.route.version, throttle_ms)
