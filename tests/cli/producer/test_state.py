"""The rules of the producer against brokers that lose requests and responses, refuse, and change leaders."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import pytest
from mutants.plant import assert_noticed, planted, within
from support.simulated_leaders import BAD, World

from trioka.cli.producer import partition as partition_module
from trioka.cli.producer import state
from trioka.cli.producer.batches import ProducerId
from trioka.cli.producer.partition import NO_LEADER
from trioka.protocol import errors
from trioka.protocol.compression import Codec
from trioka.protocol.record_run import RunEncoder

SEEDS: Final = range(12)
TIMEOUT_S: Final = 1000.0


@pytest.fixture
def module() -> ModuleType:
    return state


def producer_of(module: ModuleType, *, timeout_s: float = TIMEOUT_S, acks: int = state.ALL, **more: Any) -> Any:
    return module.Producer(
        RunEncoder(), acks=acks, timeout_s=timeout_s, linger_s=0.005, chance=random.Random(1), **more
    )


def fill(world: World, lines: int, *, bad: float = 0.0, large: float = 0.0) -> list[list[bytes]]:
    """Add lines in chunks, between rounds; returns what should be in each partition."""
    expected: list[list[bytes]] = [[] for _ in world.logs]
    chance, done = world.chance, 0
    while done < lines:
        partition = chance.randrange(len(world.logs))
        values = [b"%d" % number for number in range(done, done + chance.randrange(1, 30))]
        done += len(values)
        if chance.random() < bad:
            values.insert(chance.randrange(len(values)), BAD)
        if chance.random() < large:
            values.insert(chance.randrange(len(values)), b"x" * 600)
        world.producer.add_values(values, partition, 1000 + done, world.now)
        expected[partition] += [value for value in values if value != BAD and len(value) < 600]
        for _ in range(chance.randrange(4)):
            world.round()
    return expected


def run(module: ModuleType, seed: int, *, faults: int, max_bytes: int = 1 << 20, **shares: float) -> World:
    world = World(module, producer_of(module), seed=seed, faults=faults, max_bytes=max_bytes)
    expected = fill(world, 600, **shares)
    world.run()
    assert world.producer.fatal is None
    assert [log.values for log in world.logs] == expected
    assert world.producer.buffered_bytes == 0
    assert world.producer.added == world.producer.written + world.rejected
    assert world.producer.written == sum(map(len, expected))
    return world


def test_each_record_is_written_once_and_in_order(module: ModuleType) -> None:
    for seed in SEEDS:
        run(module, seed, faults=80)


def test_batches_that_are_too_large_are_split(module: ModuleType) -> None:
    for seed in SEEDS:
        run(module, seed, faults=20, max_bytes=200)


def test_records_that_are_refused_leave_the_others(module: ModuleType) -> None:
    refused = 0
    for seed in SEEDS:
        refused += run(module, seed, faults=40, max_bytes=500, bad=0.08, large=0.04).rejected
    assert refused > 2 * len(SEEDS)


def test_a_gap_is_left_behind_by_a_new_epoch() -> None:
    world = run(state, 1, faults=0, bad=0.5)
    assert len(world.epochs) > 2 and len({each.id for each in world.epochs}) == 1


def test_after_the_last_epoch_there_is_a_new_producer_id(module: ModuleType) -> None:
    producer = producer_of(module)
    world = World(module, producer, seed=3)
    producer.producer_id_found(module.ProducerId(5, module.MAX_EPOCH - 1), 0.0)
    expected = fill(world, 300, bad=0.5)
    world.run()
    assert [log.values for log in world.logs] == expected
    assert max(each.epoch for each in world.epochs if each.id == 5) == module.MAX_EPOCH
    assert {each.id for each in world.epochs} > {5}


def test_five_requests_are_in_flight_and_no_more(module: ModuleType) -> None:
    producer = producer_of(module)
    world = World(module, producer, seed=1, partitions=3)
    world.leaders = dict.fromkeys(world.leaders, 1)
    producer.leaders_found(world.leaders, 0.0)
    for number in range(60):
        producer.add_values([b"%d" % number * 1000] * 100, number % 3, 1000, 0.0)
    first = True
    sent = 0
    for _ in range(8):
        for action in producer.step(world.now + 1):
            if not isinstance(action, module.Send):
                world._carry_out(action)
            elif first:  # the leader knows the producer then
                producer.answered(1, action.request, {each.partition: module.Answer() for each in action.batches}, 1.0)
            else:
                sent += 1
        first = first and not producer.written
    assert sent == module.MAX_IN_FLIGHT


def test_records_that_the_leader_has_lost_end_the_command(module: ModuleType) -> None:
    world = World(module, producer_of(module), seed=1, partitions=1)
    expected = fill(world, 50)
    world.run()
    (log,) = world.logs
    assert log.values == expected[0]
    ((epoch, recent),) = log._producers.values()
    assert epoch == 0
    recent.pop()
    world.producer.add_values([b"next"], 0, 1000, world.now)
    world.run()
    assert world.producer.fatal is not None
    assert world.producer.fatal.error == errors.OutOfOrderSequenceNumber.code
    assert b"next" not in log.values


@pytest.mark.parametrize("error", [errors.TopicAuthorizationFailed, errors.InvalidProducerEpoch])
def test_errors_that_hold_for_all_records_end_the_command(error: type[errors.KafkaError]) -> None:
    producer = connected(state)
    (send,) = producer.step(0.01)
    producer.answered(1, send.request, {0: state.Answer(error.code)}, 1.0)
    assert producer.fatal is not None and producer.fatal.error == error.code


def test_a_line_that_is_refused_makes_later_batches_no_smaller_than_those_that_were_written() -> None:
    producer = connected(state)
    (send,) = producer.step(0.01)
    producer.answered(1, send.request, {0: state.Answer()}, 1.0)
    for size in (20_000, 5000):
        producer.add_values([b"x" * size, b"y"], 0, 1000, 1.0)
        (send,) = producer.step(2.0)
        code = errors.MessageTooLarge.code if size == 5000 else 0
        producer.answered(1, send.request, {0: state.Answer(code)}, 2.0)
    producer.add_values([b"z" * 15_000, b"z"], 0, 1000, 3.0)
    assert producer.partitions[0].queue[-1].count == 2


def test_without_acks_of_all_replicas_the_order_stays(module: ModuleType) -> None:
    for seed in SEEDS:
        world = World(module, producer_of(module, acks=1), seed=seed, faults=30)
        expected = fill(world, 300)
        world.run()
        for log, values in zip(world.logs, expected, strict=True):
            assert list(dict.fromkeys(log.values)) == values  # a record may be there twice


def test_acks_0_expects_no_response(module: ModuleType) -> None:
    producer = producer_of(module, acks=0)
    producer.leaders_found({0: 1}, 0.0)
    producer.add_values([b"a", b"b"], 0, 1000, 0.0)
    assert producer.step(1.0) == [module.Connect(1)]
    producer.connected(1)
    (send,) = producer.step(1.0)
    assert isinstance(send, module.Send)
    assert producer.is_done and producer.written == 2 and not producer.offsets


# -- limits of time and memory -----------------------------------------------------------------------------------------


def connected(module: ModuleType, **more: Any) -> Any:
    producer = producer_of(module, **more)
    producer.leaders_found({0: 1}, 0.0)
    producer.producer_id_found(module.ProducerId(5, 0), 0.0)
    producer.add_values([b"a"], 0, 1000, 0.0)
    assert producer.step(0.005) == [module.Connect(1)]
    producer.connected(1)
    return producer


def test_a_leader_that_never_answers_is_left_and_then_the_records_are_given_up(module: ModuleType) -> None:
    producer = connected(module, timeout_s=30.0)
    now = 0.005
    disconnects: list[float] = []
    for _ in range(100):
        if producer.is_done:
            break
        for action in producer.step(now):
            if isinstance(action, module.Disconnect):
                disconnects.append(now)
            elif isinstance(action, module.Connect):
                producer.connected(1)
            elif isinstance(action, module.FindLeaders):
                producer.leaders_found({0: 1}, now)
        now = now if producer.is_done else max(now, producer.next_step_at())
    assert disconnects[0] == pytest.approx(10.005) and 2 <= len(disconnects) <= 4
    assert now == pytest.approx(30.005)
    (rejection,) = producer.rejections
    assert rejection.may_be_written and producer.has_timed_out and producer.buffered_bytes == 0


def test_records_that_were_never_sent_are_surely_not_written(module: ModuleType) -> None:
    producer = producer_of(module, timeout_s=30.0)
    producer.leaders_found({0: -1}, 0.0)
    producer.producer_id_found(module.ProducerId(5, 0), 0.0)
    producer.add_values([b"a"], 0, 1000, 0.0)
    now = 1.0
    for _ in range(100):
        if producer.is_done:
            break
        for action in producer.step(now):
            assert isinstance(action, module.FindLeaders)
            producer.leaders_not_found(now)
        now = now if producer.is_done else max(now, producer.next_step_at())
    (rejection,) = producer.rejections
    assert not rejection.may_be_written and now == pytest.approx(31.0)


def two_in_flight(module: ModuleType) -> tuple[Any, Any, Any]:
    """A producer that the leader knows, and two requests with a batch each."""
    producer = connected(module)
    (known,) = producer.step(0.01)
    producer.answered(1, known.request, {0: module.Answer()}, 0.01)
    sends = []
    for value in (b"first", b"second"):
        producer.add_values([value], 0, 1000, 0.01)
        sends += producer.step(0.02)
    first, second = sends
    return producer, first, second


def sent_again(module: ModuleType, producer: Any) -> Any:
    """The next request, after a pause and another connection."""
    now = 1.0
    for _ in range(20):
        now += 1.0
        for action in producer.step(now):
            if isinstance(action, module.Send):
                return action
            if isinstance(action, module.Connect):
                producer.connected(1)
            elif isinstance(action, module.FindLeaders):
                producer.leaders_found({0: 1}, now)
    raise AssertionError("nothing is sent")


def test_a_batch_behind_a_gap_keeps_its_number_as_long_as_it_may_be_written(module: ModuleType) -> None:
    producer, first, second = two_in_flight(module)
    (batch,) = second.batches
    numbers = batch.producer, batch.sequence
    producer.answered(1, first.request, {0: module.Answer(errors.UnknownServerError.code)}, 1.0)
    producer.disconnected(1, 1.0)
    again = sent_again(module, producer)
    assert again.batches == [batch] and (batch.producer, batch.sequence) == numbers
    producer.answered(1, again.request, {0: module.Answer(errors.OutOfOrderSequenceNumber.code)}, 2.0)
    assert producer.fatal is None
    again = sent_again(module, producer)
    assert again.batches == [batch]
    assert (batch.producer.epoch, batch.sequence) == (numbers[0].epoch + 1, 0)


def test_a_batch_that_comes_before_its_predecessor_is_sent_again(module: ModuleType) -> None:
    producer, first, second = two_in_flight(module)
    producer.answered(1, first.request, {0: module.Answer(errors.NotLeaderOrFollower.code)}, 1.0)
    producer.answered(1, second.request, {0: module.Answer(errors.OutOfOrderSequenceNumber.code)}, 1.0)
    assert producer.fatal is None
    for expected in (first, second):
        again = sent_again(module, producer)
        assert again.batches == expected.batches
        producer.answered(1, again.request, {0: module.Answer()}, 5.0)
    assert producer.is_done and producer.written == 3


def test_a_quota_stops_the_clock(module: ModuleType) -> None:
    producer = connected(module, timeout_s=30.0)
    (known,) = producer.step(0.005)
    producer.answered(1, known.request, {0: module.Answer()}, 0.005)
    producer.add_values([b"a"], 0, 1000, 0.005)
    (first,) = producer.step(0.01)
    producer.add_values([b"b"], 0, 1000, 0.01)
    (second,) = producer.step(0.02)
    producer.answered(1, first.request, {0: module.Answer()}, 1.0, 20.0)
    producer.add_values([b"c"], 0, 1000, 1.0)
    assert producer.step(19.0) == []
    producer.answered(1, second.request, {0: module.Answer(offset=1)}, 20.0)
    assert producer.step(20.9) == []
    (third,) = producer.step(21.0)
    assert isinstance(third, module.Send)


def test_memory_is_bounded_and_free_again(module: ModuleType) -> None:
    producer = connected(module)
    while producer.has_room:
        producer.add_values([b"x" * 100_000] * 10, 0, 1000, 0.0)
    assert producer.buffered_bytes < module.BUFFER_BYTES + 2_000_000
    (*sends,) = producer.step(1.0)
    assert sends
    for send in sends:
        producer.answered(1, send.request, {0: module.Answer()}, 1.0)
    assert producer.has_room


def test_records_without_a_key_change_the_partition_with_each_batch() -> None:
    producer = producer_of(state)
    producer.leaders_found({0: 1, 1: 1, 2: NO_LEADER}, 0.0)
    producer.producer_id_found(ProducerId(5, 0), 0.0)
    used = []
    for _ in range(6):
        producer.add_values([b"a"], None, 1000, 0.0)
        producer.add_values([b"b"], None, 1000, 0.0)
        (index,) = [each.index for each in producer.partitions.values() if each.open is not None]
        used.append(index)
        assert producer.partitions[index].queue[-1].count == 2
        producer.partitions[index].close()
    assert set(used) == {0, 1}
    assert all(first != second for first, second in pairwise(used))


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed(codec: Codec) -> None:
    world = World(state, producer_of(state, codec=codec), seed=1, faults=20, max_bytes=400)
    expected = fill(world, 200, bad=0.1)
    world.run()
    assert [log.values for log in world.logs] == expected


ONCE = test_each_record_is_written_once_and_in_order
SPLIT = test_batches_that_are_too_large_are_split
REFUSED = test_records_that_are_refused_leave_the_others

MISTAKES: Sequence[tuple[str, str, Callable[..., None]]] = [
    (within("Producer._leave_gaps", "known.epoch + 1"), "known.epoch", REFUSED),
    ("known.epoch >= MAX_EPOCH", "False", test_after_the_last_epoch_there_is_a_new_producer_id),
    (
        "partition.is_first(batch) and not partition.has_gap",
        "partition.is_first(batch)",
        test_a_batch_behind_a_gap_keeps_its_number_as_long_as_it_may_be_written,
    ),
    (
        "partition.is_first(batch) and not partition.has_gap",
        "not partition.has_gap",
        test_a_batch_that_comes_before_its_predecessor_is_sent_again,
    ),
    (
        "partition.is_first(batch) and not partition.has_gap",
        "False",
        test_records_that_the_leader_has_lost_end_the_command,
    ),
    ("answer.error in (NONE, errors.DuplicateSequenceNumber.code)", "answer.error == NONE", ONCE),
    ("code in TOO_LARGE and batch.count > 1", "False", SPLIT),
    ("code in TOO_LARGE and batch.count > 1", "code in TOO_LARGE", REFUSED),
    ("index not in self.partitions", "True", ONCE),
    ("self.partitions[batch.partition].put_back(batch)", "pass", ONCE),
    ("len(node.requests) < MAX_IN_FLIGHT", "True", test_five_requests_are_in_flight_and_no_more),
    ("node.muted_until <= now", "True", test_a_quota_stops_the_clock),
    (
        within("Producer.disconnected", "batch.may_be_written = True"),
        "pass",
        test_a_leader_that_never_answers_is_left_and_then_the_records_are_given_up,
    ),
    (
        within("Producer.disconnected", "batch.may_be_written = True"),
        "pass",
        test_a_batch_behind_a_gap_keeps_its_number_as_long_as_it_may_be_written,
    ),
    ("self.buffered_bytes -= batch.charged", "pass", test_memory_is_bounded_and_free_again),
]

PARTITION_MISTAKES: Sequence[tuple[str, str, Callable[..., None]]] = [
    ("not self.is_recognised or self.has_gap", "self.has_gap", REFUSED),
    (
        "self.queue[0].sequence is None or not self.queue[0].may_be_written",
        "True",
        test_a_batch_behind_a_gap_keeps_its_number_as_long_as_it_may_be_written,
    ),
    ("not self.has_gap or self.flying", "not self.has_gap", REFUSED),
    ("self.has_gap = self.has_gap or batch.sequence is not None", "pass", REFUSED),
    ("batch.renumber()", "pass", REFUSED),
    ("insort(self.queue, each, key=lambda queued: queued.number)", "self.queue.append(each)", ONCE),
    ("self.is_idempotent and batch.sequence is None", "self.is_idempotent", ONCE),
    (
        "not self.is_idempotent or head.attempts or may_overtake",
        "head.attempts",
        test_without_acks_of_all_replicas_the_order_stays,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[..., None]) -> None:
    assert_noticed(state, right, wrong, rule)


@pytest.mark.parametrize(("right", "wrong", "rule"), PARTITION_MISTAKES)
def test_a_planted_mistake_in_a_partition_is_noticed(
    monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, rule: Callable[..., None]
) -> None:
    rule(state)
    monkeypatch.setattr(state, "Partition", planted(partition_module, right, wrong).Partition)
    with pytest.raises((Exception, pytest.fail.Exception)):
        rule(state)
