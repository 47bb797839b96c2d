"""The rules of the producer: which batch is sent next and what a response means. No clock, no sockets, no randomness.

The owner adds records, carries out the actions of `step`, and reports what came of them; every call has the time. Each
wait ends: a request after `request_timeout_s`, a partition whose leader has acknowledged nothing for `timeout_s` with
an error for all of its records. Records in memory are limited by `has_room`, which the owner asks before it adds more.

    written              the response has no error, or the leader says that it has the batch already
    split                the batch is too large and has several records
    given up             an error that sending again cannot mend; records that the leader names, or all
    sent again           every other error, and a lost connection: the leader may have the batch or not
    the command ends     the leader misses records that it had acknowledged (OUT_OF_ORDER_SEQUENCE_NUMBER for the next
                         number), a newer producer has the id, or the user may not write

With acks=1 or 0 there are no sequence numbers: a batch that is sent again may be written twice, and one batch of a
partition is in flight, so that their order stays.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol import errors
from trioka.protocol.compression import Codec
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.record_run import RunEncoder

from .batches import NO_PRODUCER, Batch, Pair, ProducerId
from .partition import MAX_IN_FLIGHT, NO_LEADER, Partition

BATCH_BYTES: Final = 512 << 10  # before compression; a single larger record has a batch of its own
MIN_BATCH_BYTES: Final = 1 << 10  # brokers may lower max.message.bytes; a batch is not made smaller than this
REQUEST_BYTES: Final = 1 << 20
BUFFER_BYTES: Final = 32 << 20  # of all records without a response
FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
MAX_EPOCH: Final = (1 << 15) - 1
ALL: Final = -1
NO_OFFSET: Final = -1

TOO_LARGE: Final = frozenset({errors.MessageTooLarge.code, errors.RecordListTooLarge.code})
FENCED: Final = frozenset({errors.InvalidProducerEpoch.code, errors.ProducerFenced.code})
UNAUTHORIZED: Final = frozenset({errors.TopicAuthorizationFailed.code, errors.ClusterAuthorizationFailed.code})


class Send(NamedTuple):
    node: int
    request: int
    batches: Sequence[Batch]


class Connect(NamedTuple):
    node: int


class Disconnect(NamedTuple):
    node: int


class FindLeaders(NamedTuple):
    pass


class FindProducerId(NamedTuple):
    pass


Action: TypeAlias = Send | Connect | Disconnect | FindLeaders | FindProducerId


class Answer(NamedTuple):
    """The response for one partition."""

    error: int = NONE
    offset: int = NO_OFFSET
    message: str | None = None
    bad_records: tuple[int, ...] = ()  # places in the batch


class Rejection(NamedTuple):
    """Records that were given up. `error` 0: without a response that says why."""

    partition: int
    records: int
    error: int = NONE
    message: str | None = None
    may_be_written: bool = False


class _Node:
    def __init__(self) -> None:
        self.is_open = self.is_opening = False
        self.not_before = 0.0
        self.failures = 0
        self.muted_until = 0.0  # by a quota
        self.requests: dict[int, tuple[list[Batch], float]] = {}  # with the time when each expires


class _Lookup:
    """A question to the cluster, asked again after a pause if it failed."""

    def __init__(self) -> None:
        self.is_wanted = self.is_running = False
        self.failures = 0
        self.not_before = 0.0

    def begins(self, now: float) -> bool:
        if self.is_running or not self.is_wanted or now < self.not_before:
            return False
        self.is_running, self.is_wanted = True, False
        return True

    def ended(self, now: float, *, failed: bool) -> None:
        self.is_running = False
        self.is_wanted = self.is_wanted or failed
        self.failures = self.failures + 1 if failed else 0
        self.not_before = now + backoff_s(self.failures)


def backoff_s(failures: int) -> float:
    return float(min(FIRST_BACKOFF_S * 2 ** min(failures, 10), MAX_BACKOFF_S))


class Producer:
    def __init__(
        self,
        encoder: RunEncoder,
        *,
        acks: int = ALL,
        codec: Codec = Codec.NONE,
        timeout_s: float,
        linger_s: float,
        chance: random.Random,
    ) -> None:
        self.acks = acks
        self.is_idempotent = acks == ALL
        self.partitions: dict[int, Partition] = {}
        self.added = self.written = self.buffered_bytes = 0
        self.offsets: dict[int, tuple[int, int]] = {}  # first and last that were written, by partition
        self.rejections: list[Rejection] = []
        self.fatal: Rejection | None = None
        self.has_timed_out = False
        self._encoder = encoder
        self._codec = codec
        self._timeout_s = timeout_s
        self._request_timeout_s = timeout_s / 3
        self._linger_s = linger_s
        self._chance = chance
        self._batch_bytes = BATCH_BYTES
        self._accepted_bytes = MIN_BATCH_BYTES  # size of the largest batch that was written
        self._producer = NO_PRODUCER
        self._nodes: dict[int, _Node] = {}
        self._active: dict[int, Partition] = {}  # those with batches
        self._leaders, self._ids = _Lookup(), _Lookup()
        self._sticky = 0  # the partition of records without a key
        self._requests = 0

    # -- records -------------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < BUFFER_BYTES

    @property
    def is_done(self) -> bool:
        """Whether each record is written or given up."""
        return not any(each.queue or each.flying for each in self._active.values())

    @property
    def request_timeout_ms(self) -> int:
        return max(1, int(1000 * self._request_timeout_s))

    def linger_no_more(self) -> None:
        """Send everything at once from now on."""
        self._linger_s = 0.0

    def add_values(self, values: Sequence[bytes], partition: int | None, timestamp: int, now: float) -> None:
        """Records without keys of their own. Without a partition they go to one, which changes with each batch."""
        rest: Sequence[bytes] = values
        while rest:
            sizes = list(map(len, rest))
            batch, count = self._batch_for(partition, sizes, now)
            batch.add_values(self._encoder, rest[:count], timestamp)
            self._grown(batch, count)
            rest = rest[count:]

    def add_pairs(self, pairs: Sequence[Pair], partition: int, timestamp: int, now: float) -> None:
        rest: Sequence[Pair] = pairs
        while rest:
            sizes = [len(key or b"") + len(value) for key, value in rest]
            batch, count = self._batch_for(partition, sizes, now)
            batch.add_pairs(self._encoder, rest[:count], timestamp)
            self._grown(batch, count)
            rest = rest[count:]

    def partition_without_key(self) -> int:
        """The partition of the open batch; after it another one, of those that have a leader."""
        current = self.partitions.get(self._sticky)
        if current is None or current.open is None:
            able = [index for index, each in self.partitions.items() if each.leader != NO_LEADER]
            choices = [index for index in able or self.partitions if index != self._sticky]
            self._sticky = self._chance.choice(choices) if choices else self._sticky
        return self._sticky

    def _batch_for(self, partition: int | None, sizes: Sequence[int], now: float) -> tuple[Batch, int]:
        """The open batch, or a new one, and how many of the records go there: as many as it has room for."""
        overhead = self._encoder.overhead_bytes
        target = self.partitions[self._sticky if partition is None else partition]
        if target.open is not None and target.open.size + sizes[0] + overhead > self._batch_bytes:
            target.close()
        if partition is None:
            target = self.partitions[self.partition_without_key()]
        batch = target.open
        if batch is None:
            batch = target.open = Batch(target.index, target.added, self._codec, now)
            target.queue.append(batch)
            self._active[target.index] = target
        room = self._batch_bytes - batch.size
        if sum(sizes) + len(sizes) * overhead <= room:
            return batch, len(sizes)
        count = 0
        while count < len(sizes) and (sizes[count] + overhead <= room or not (count or batch.count)):
            room -= sizes[count] + overhead
            count += 1
        return batch, count

    def _grown(self, batch: Batch, count: int) -> None:
        self.partitions[batch.partition].added += count
        self.added += count
        self.buffered_bytes += batch.size - batch.charged
        batch.charged = batch.size

    # -- what to do next -----------------------------------------------------------------------------------------------

    def step(self, now: float) -> list[Action]:
        """What is to be done now."""
        actions: list[Action] = []
        for number, node in self._nodes.items():
            if any(expires <= now for _, expires in node.requests.values()):
                actions.append(Disconnect(number))
        for action in actions:
            assert isinstance(action, Disconnect)
            self.disconnected(action.node, now)
        self._expire(now)
        self._leave_gaps()
        self._active = {index: each for index, each in self._active.items() if each.queue or each.flying}
        waiting = [each for each in self._active.values() if each.next_batch(now, self._linger_s) is not None]
        if any(self._lacks_producer(each) for each in waiting):
            self._ids.is_wanted = not self._ids.is_running
            for each in waiting:
                each.stall(now)
            waiting = [each for each in waiting if not self._lacks_producer(each)]
        actions += self._sends(waiting, now)
        if self._ids.begins(now):
            actions.append(FindProducerId())
        if self._leaders.begins(now):
            actions.append(FindLeaders())
        return actions

    def _sends(self, waiting: Sequence[Partition], now: float) -> Iterable[Action]:
        by_leader: dict[int, list[Partition]] = {}
        for each in waiting:
            by_leader.setdefault(each.leader, []).append(each)
        for leader, partitions in by_leader.items():
            node = self._nodes.setdefault(leader, _Node())
            if leader == NO_LEADER or not node.is_open:
                for each in partitions:
                    each.stall(now)
                if leader == NO_LEADER:
                    self._leaders.is_wanted = True
                elif not node.is_opening and node.not_before <= now:
                    node.is_opening = True
                    yield Connect(leader)
                continue
            # Those that wait longest come first; one batch of a partition per request.
            partitions.sort(key=lambda each: each.queue[0].opened_at)
            while partitions and len(node.requests) < MAX_IN_FLIGHT and node.muted_until <= now:
                yield self._send(leader, node, partitions, now)
                partitions = [each for each in partitions if each.next_batch(now, self._linger_s) is not None]

    def _send(self, leader: int, node: _Node, partitions: Sequence[Partition], now: float) -> Send:
        batches: list[Batch] = []
        expires, size = now + self._request_timeout_s, 0
        for each in partitions:
            batch = each.queue[0]
            if batches and size + batch.size > REQUEST_BYTES:
                break
            each.take(batch, self._current_producer, now)
            batches.append(batch)
            size += batch.size
            assert each.stalled_since is not None
            expires = min(expires, each.stalled_since + self._timeout_s)
        self._requests += 1
        if self.acks == 0:
            for batch in batches:
                self._written(batch, NO_OFFSET, now)
        else:
            node.requests[self._requests] = batches, expires
        return Send(leader, self._requests, batches)

    def _current_producer(self) -> ProducerId:
        return self._producer

    def _lacks_producer(self, partition: Partition) -> bool:
        return self.is_idempotent and self._producer is NO_PRODUCER and partition.producer is NO_PRODUCER

    def next_step_at(self) -> float | None:
        """When `step` is due, if nothing happens before; None: not until then."""
        times: list[float] = []
        for node in self._nodes.values():
            times += [expires for _, expires in node.requests.values()]
        for each in self._active.values():
            if each.stalled_since is not None:
                times.append(each.stalled_since + self._timeout_s)
            wakes = each.wakes_at(self._linger_s)
            if wakes is None or each.next_batch(wakes, self._linger_s) is None:
                continue
            node_of = self._nodes.get(each.leader)
            if self._lacks_producer(each):
                blocked = self._ids.is_wanted or self._ids.is_running
            elif each.leader == NO_LEADER:
                blocked = self._leaders.is_wanted or self._leaders.is_running
            elif node_of is None:
                blocked = False
            elif node_of.is_open:
                blocked, wakes = len(node_of.requests) >= MAX_IN_FLIGHT, max(wakes, node_of.muted_until)
            else:
                blocked, wakes = node_of.is_opening, max(wakes, node_of.not_before)
            if not blocked:
                times.append(wakes)
        times += [each.not_before for each in (self._leaders, self._ids) if each.is_wanted and not each.is_running]
        return min(times, default=None)

    # -- what came of it -----------------------------------------------------------------------------------------------

    def leaders_found(self, leaders: Mapping[int, int], now: float) -> None:
        """The leader of each partition, or `NO_LEADER`."""
        for index, leader in leaders.items():
            if index not in self.partitions:
                self.partitions[index] = Partition(index, is_idempotent=self.is_idempotent)
            self.partitions[index].leader = leader
        for index in self.partitions.keys() - leaders.keys():
            self.partitions[index].leader = NO_LEADER
        lacks = any(each.leader == NO_LEADER for each in self._active.values())
        self._leaders.ended(now, failed=lacks)

    def leaders_not_found(self, now: float) -> None:
        self._leaders.ended(now, failed=True)

    def producer_id_found(self, producer: ProducerId, now: float) -> None:
        self._producer = producer
        self._ids.ended(now, failed=False)

    def producer_id_not_found(self, now: float) -> None:
        self._ids.ended(now, failed=True)

    def connected(self, node: int) -> None:
        found = self._nodes[node]
        found.is_open, found.is_opening = True, False

    def disconnected(self, node: int, now: float) -> None:
        """A connection ended, or could not be opened: its requests may have been carried out or not."""
        found = self._nodes[node]
        found.is_open = found.is_opening = False
        found.failures += 1
        found.not_before = now + backoff_s(found.failures)
        self._leaders.is_wanted = not self._leaders.is_running
        for request in list(found.requests):
            batches, _ = found.requests.pop(request)
            for batch in batches:
                batch.may_be_written = True
                self.partitions[batch.partition].put_back(batch)

    def answered(
        self, node: int, request: int, answers: Mapping[int, Answer], now: float, throttle_s: float = 0.0
    ) -> None:
        found = self._nodes[node]
        batches, _ = found.requests.pop(request)
        found.failures = 0
        if throttle_s > 0:
            self._mute(found, now, throttle_s)
        for batch in batches:
            answer = answers.get(batch.partition, Answer(errors.UnknownServerError.code))
            if answer.error in (NONE, errors.DuplicateSequenceNumber.code):
                self._written(batch, answer.offset, now)
            else:
                self._refused(batch, answer, now)

    def _mute(self, node: _Node, now: float, throttle_s: float) -> None:
        """Send nothing as long as a quota says; the broker does not read either, and no time limit counts it."""
        node.muted_until = max(node.muted_until, now + throttle_s)
        for request, (batches, expires) in node.requests.items():
            node.requests[request] = batches, expires + throttle_s
            for batch in batches:
                self.partitions[batch.partition].extend(throttle_s)

    def _written(self, batch: Batch, offset: int, now: float) -> None:
        self.partitions[batch.partition].written(batch, now)
        self._release(batch)
        self._accepted_bytes = max(self._accepted_bytes, min(batch.size, BATCH_BYTES))
        self.written += batch.count
        if offset != NO_OFFSET:
            last = offset + batch.count - 1
            known = self.offsets.get(batch.partition, (offset, last))
            self.offsets[batch.partition] = min(offset, known[0]), max(last, known[1])

    def _refused(self, batch: Batch, answer: Answer, now: float) -> None:
        partition, code = self.partitions[batch.partition], answer.error
        partition.last_error = code
        if code in TOO_LARGE and batch.count > 1:
            self._split(partition, batch)
        elif code in UNAUTHORIZED or (batch.sequence is not None and code in FENCED):
            self._end(batch, answer)
        elif batch.sequence is not None and code == errors.OutOfOrderSequenceNumber.code:
            if partition.is_first(batch) and not partition.has_gap:
                self._end(batch, answer)
            batch.may_be_written = False
            partition.put_back(batch)
        elif batch.sequence is not None and code == errors.UnknownProducerId.code:
            partition.has_gap = partition.has_gap or partition.is_first(batch)
            batch.may_be_written = False
            partition.put_back(batch)
        elif error_class(code).retriable:
            batch.may_be_written = True
            partition.put_back(batch)
            partition.not_before = now + backoff_s(batch.attempts)
            self._leaders.is_wanted = not self._leaders.is_running
        else:
            self._give_up(partition, batch, answer, now)

    def _split(self, partition: Partition, batch: Batch) -> None:
        """Send it as two batches, and make later ones as small."""
        self._release(batch)
        halves = batch.halves()
        for half in halves:
            half.charged = half.size
            self.buffered_bytes += half.size
        partition.put_back(*halves)
        self._batch_bytes = max(self._accepted_bytes, min(self._batch_bytes, halves[0].size))

    def _give_up(self, partition: Partition, batch: Batch, answer: Answer, now: float) -> None:
        """Give up the records that the leader names, or all."""
        bad = {index for index in answer.bad_records if 0 <= index < batch.count}
        self._release(batch)
        partition.give_up(batch, now)
        if bad and len(bad) < batch.count:
            rest = batch.without(bad)
            rest.charged = rest.size
            self.buffered_bytes += rest.size
            partition.put_back(rest)
        else:
            bad = set(range(batch.count))
        may_be_written = batch.may_be_written or answer.error == errors.UnknownServerError.code
        self.rejections.append(Rejection(batch.partition, len(bad), answer.error, answer.message, may_be_written))

    def _end(self, batch: Batch, answer: Answer) -> None:
        self.fatal = Rejection(batch.partition, batch.count, answer.error, answer.message)

    def _expire(self, now: float) -> None:
        """Give up the records of partitions that have waited too long. Their requests have ended by then."""
        for each in self._active.values():
            if each.stalled_since is None or now < each.stalled_since + self._timeout_s or each.flying:
                continue
            self.has_timed_out = True
            for batch in each.give_up_all():
                self._release(batch)
                self.rejections.append(Rejection(each.index, batch.count, each.last_error, None, batch.may_be_written))

    def _leave_gaps(self) -> None:
        for each in self._active.values():
            if each.needs_new_epoch():
                each.begin_again()
                known = self._producer
                # No id has an epoch behind the last one: a new id begins with epoch 0.
                is_last = known is NO_PRODUCER or known.epoch >= MAX_EPOCH
                self._producer = NO_PRODUCER if is_last else ProducerId(known.id, known.epoch + 1)

    def _release(self, batch: Batch) -> None:
        self.buffered_bytes -= batch.charged
