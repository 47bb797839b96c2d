"""The lane of wide Produces: nobody can tell what went through it from what took the usual road."""

import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from mutants.plant import planted
from support.fast_paths import (
    HELLO,
    BothWays,
    both_ways,
    connected,
    every_record_can_be_read,
    framed,
    poisoned,
    records,
    said,
)
from support.serving import on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.fastpath import produce as produce_lane
from trioka.broker.fastpath import produce_multi as wide_lane
from trioka.broker.handlers.produce import FIRST_VERSION_WITH_IDS
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.frame import KEPT_BYTES, frame_response, read_response
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.primitives import NULL_UUID
from trioka.storage.disk import Buffer
from trioka.storage.failstop_disk import VolumeFile

VERSIONS = (7, 8, 9, 12, 13)
PARTITIONS = 5
TOPICS = {"t": PARTITIONS}
NOBODYS = 99  # a partition that is not there
Told = ProduceResponse.Topic.Partition


def wide(
    broker: Broker, asked: list[tuple[int, bytes | None]], version: int, *, topic: str = "t", acks: int = 1
) -> ProduceRequest:
    known = broker.metadata.topics.by_name(topic)
    by_id = version >= FIRST_VERSION_WITH_IDS
    partitions = [ProduceRequest.Topic.Partition(index=index, records=data) for index, data in asked]
    topic_id = known.topic_id if by_id and known is not None else NULL_UUID
    data = ProduceRequest.Topic(name="" if by_id else topic, topic_id=topic_id, partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def stream(broker: Broker, random: Random, version: int, length: int) -> list[bytes]:
    """Frames of one client: mostly plain, for some of the partitions; some are odd in every way that comes to mind."""
    sequences = [0] * PARTITIONS
    frames = []
    for number in range(length):
        asked: list[tuple[int, bytes | None]] = []
        for index in random.sample(range(PARTITIONS), random.choice((1, 2, 3, PARTITIONS))):
            data = records(random.randbytes(random.choice((1, 10, 60, 61, 62, 63, 300, 17_000))))
            if index < 2 and random.random() < 0.6:
                data = records(b"numbered", producer=(7, 0, sequences[index]), count=2)
                sequences[index] += 2
            asked.append((index, data))
        acks, client_id = 1, "test"
        at = random.randrange(len(asked))
        index, told = asked[at]
        assert told is not None
        match random.randrange(30):
            case 0:
                asked[at] = NOBODYS, told
            case 1:
                same = records(b"the same partition")
                asked.append((index, random.choice((same, same[:30] + bytes([same[30] ^ 1]) + same[31:]))))
            case 2:
                acks = random.choice((-1, 0, 7))
            case 3:
                client_id = "somebody else"
            case 4:
                asked[at] = index, random.choice((None, b"", b"short", told[:-1], told + b"x", told * 2))
            case 5:
                asked[at] = index, told[:30] + bytes([told[30] ^ 1]) + told[31:]
            case 6:
                asked[at] = index, records(b"again", producer=(7, 0, 0), count=2)
            case 7:
                asked[at] = index, records(b"a gap", producer=(7, 0, 1_000_000), count=2)
            case 8:
                asked.clear()
            case 9 | 10:
                asked[at] = index, poisoned(random, told)
            case _:
                pass
        frame = framed(wide(broker, asked, version, acks=acks), version, number, client_id)
        match random.randrange(30):
            case 0:
                frames.append(framed(HELLO, 3, number))
            case 1:  # bytes behind the request are ignored
                frame = len(frame).to_bytes(4) + frame[4:] + bytes(4)
            case 2 if version >= 9:  # a tagged field that nobody knows
                frame = len(frame).to_bytes(4) + frame[4:-1] + b"\x01\x05\x02ab"
            case _:
                pass
        frames.append(frame)
    return frames


def compare_logs(both: BothWays) -> None:
    for index in range(PARTITIONS):
        logs = [broker.partitions.get("t", index).log for broker in both.brokers]
        assert logs[0].log_end_offset == logs[1].log_end_offset == logs[0].high_watermark
        a, b = (log.segments.active.range(0, log.segments.active.size).read() for log in logs)
        assert a == b
        every_record_can_be_read(logs[0])
        assert logs[0].producers._producers.keys() == logs[1].producers._producers.keys()


async def say_all_kinds(path: Path, version: int, seed: int) -> None:
    async with both_ways(path, TOPICS) as both:
        random = Random(seed)
        frames = stream(both.brokers[0], random, version, 150)
        while frames:
            together = random.choice((1, 1, 2, 5, 20))
            both.say(b"".join(frames[:together]))
            del frames[:together]
        compare_logs(both)
        assert not both.connections[0].appended


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(4))
@on_trio
async def test_whatever_comes_is_answered_and_kept_as_on_the_usual_road(
    tmp_path: Path, version: int, seed: int
) -> None:
    await say_all_kinds(tmp_path, version, seed)


async def say_everything_odd(path: Path, version: int) -> None:
    """Two that are plain open the lane, the third goes through it. Then come one that is plain but for one bit, and one
    that is plain: together, and in pieces."""
    async with both_ways(path, TOPICS) as both:
        random = Random(version)
        plain = framed(wide(both.brokers[0], [(1, records(b"plain")), (3, records(b"too"))], version), version, 1)
        begin = plain.index(records(b"plain"))
        bits = [(position, bit) for position in range(4, begin) for bit in range(8)]
        bits += [(position, random.randrange(8)) for position in range(begin, len(plain))]
        odds = [bytearray(plain) for _ in range(len(bits) + 1)]
        for odd, (position, bit) in zip(odds, bits, strict=False):
            odd[position] ^= 1 << bit
        flexible = version >= 9
        odds[-1][begin - (6 if flexible else 9)] -= 1  # a partition less than there are,
        odds[-1][begin + len(records(b"plain")) + flexible] = 1  # and what comes next is no number of tags
        for odd in odds:
            both.connect()
            for _ in range(3):
                both.say(plain)
            both.say(bytes(odd) + plain)
            cut = random.randrange(1, len(plain))
            both.say(plain + plain[:cut])
            both.say(plain[cut:] + bytes(odd) + plain)
        compare_logs(both)


@pytest.mark.parametrize("version", VERSIONS)
@on_trio
async def test_a_request_that_is_plain_but_for_one_bit_is_noticed(tmp_path: Path, version: int) -> None:
    await say_everything_odd(tmp_path, version)


async def each_partition_has_one_write_for_all_that_came_together(path: Path, version: int) -> None:
    """Whatever their sizes are."""
    async with running_broker(path) as broker:
        await broker.create_missing_topics(TOPICS)
        connection = connected(broker)
        sizes = (1, 100, 300, 17_000, 20_000)
        asked: list[tuple[int, bytes | None]] = [(index, records(bytes(size))) for index, size in enumerate(sizes)]
        frame = framed(wide(broker, asked, version), version, 1)
        for _ in range(2):
            said(connection, frame)
        writes = 0
        write = VolumeFile.write

        def counting(file: VolumeFile, offset: int, *buffers: Buffer) -> int:
            nonlocal writes
            writes += 1
            return write(file, offset, *buffers)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(VolumeFile, "write", counting)
            said(connection, frame * 3)
        assert writes == PARTITIONS
        assert [broker.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)] == [5] * PARTITIONS


@pytest.mark.parametrize("version", [8, 9, 13])
@on_trio
async def test_each_partition_has_one_write_for_all_that_came_together(tmp_path: Path, version: int) -> None:
    await each_partition_has_one_write_for_all_that_came_together(tmp_path, version)


@on_trio
async def test_large_requests_are_received_several_at_a_time_until_it_grows_quiet(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics(TOPICS)
        connection = connected(broker)
        frame = framed(wide(broker, [(index, records(bytes(60_000))) for index in range(PARTITIONS)], 9), 9, 1)
        assert len(frame) > wide_lane.LARGE_BYTES
        for _ in range(3):
            said(connection, frame)
        assert len(connection.room()) == wide_lane.AHEAD_BYTES
        said(connection, frame * 5 + frame[:100])
        assert connection.reader.waiting_bytes == 100
        said(connection, frame[100:])
        connection.quiet()
        assert connection.reader.ahead == KEPT_BYTES
        assert connection.held_bytes == 0
        ends = [broker.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)]
        assert ends == [9] * PARTITIONS


@on_trio
async def test_small_requests_are_not_given_a_large_buffer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics(TOPICS)
        connection = connected(broker)
        frame = framed(wide(broker, [(index, records()) for index in range(PARTITIONS)], 9), 9, 1)
        for _ in range(3):
            said(connection, frame)
        said(connection, frame + frame[:50])
        assert connection.held_bytes < KEPT_BYTES


@on_trio
async def test_what_a_disk_refuses_is_told_and_what_is_acknowledged_is_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics(TOPICS)
        connection = connected(broker)
        frame = framed(wide(broker, [(index, records()) for index in range(PARTITIONS)], 9), 9, 1)
        for _ in range(3):
            said(connection, frame)
        logs = [broker.partitions.get("t", index).log for index in range(PARTITIONS)]
        pwrite = os.pwrite

        def failing(descriptor: int, data: Buffer, offset: int) -> int:
            if "/t-2/" in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.EIO, "the disk is broken")
            return pwrite(descriptor, data, offset)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwrite", failing)
            answers = said(connection, frame * 3)
        assert not connection.appended
        told: dict[int, list[tuple[int, int]]] = {index: [] for index in range(PARTITIONS)}
        while answers:
            size = 4 + int.from_bytes(answers[:4])
            response = read_response(ProduceRequest, 9, memoryview(answers)[4:size], 1)
            assert isinstance(response, ProduceResponse)
            for one in response.responses[0].partition_responses:
                told[one.index].append((one.error_code, one.base_offset))
            answers = answers[size:]
        refused = (KafkaStorageError.code, -1)
        assert told[0] == [(0, 3), (0, 4), (0, 5)], "they were written before"
        assert told[2] == [refused] * 3
        for index, log in enumerate(logs):
            assert log.log_end_offset == 3 + sum(one != refused for one in told[index])


def answered(lane: ModuleType, version: int, count: int) -> tuple[bytes, bytes]:
    """By the template, and by the encoder."""
    numbers = [(number * 3, number << 40, number) for number in range(count)]
    name = "t" if version < FIRST_VERSION_WITH_IDS else ""
    answers = lane.WideAnswers(name, bytes(range(16)), version)
    words = [answers.say(*three) for three in numbers]
    assert answers.told(words) == {index: (first, start) for index, first, start in numbers}
    told = [
        Told(index=index, error_code=0, base_offset=first, log_append_time_ms=-1, log_start_offset=start)
        for index, first, start in numbers
    ]
    topic = ProduceResponse.Topic(name=name, topic_id=bytes(range(16)), partition_responses=told)
    framed_whole = frame_response(77, ProduceResponse(responses=[topic]), version)
    return answers.answer(77, words), b"".join(map(bytes, framed_whole))  # type: ignore[arg-type]


def answers_are_what_the_encoder_writes(lane: ModuleType) -> None:
    for version in VERSIONS:
        for count in (1, 2, 3, 126, 127, 128, 1000, 17_000):
            by_template, by_encoder = answered(lane, version, count)
            assert by_template == by_encoder, (version, count)


def test_answers_are_what_the_encoder_writes() -> None:
    answers_are_what_the_encoder_writes(wide_lane)


async def say_much(path: Path, version: int) -> None:
    for seed in range(4):
        await say_all_kinds(path / str(seed), version, seed)


Rule = Callable[[Path, int], Awaitable[None]]
ODD: Rule = say_everything_odd
ALL_KINDS: Rule = say_much
TOGETHER: Rule = each_partition_has_one_write_for_all_that_came_together

MISTAKES = [
    (
        "(kind, prefix) != self._expected or behind > end or size",
        "kind != self._expected[0] or behind > end or size",
        ODD,
    ),
    ("self._expected or behind > end or size", "self._expected or size", ODD),
    ("            if view[behind - tail_bytes : behind] != self._tail:\n                break\n", "", ODD),
    ("or at > end or view[at - 1]:", "or at > end:", ODD),
    ("if at != end or not places or len", "if not places or len", ODD),
    ("or len({one[0] for one in places}) < len(places)", "", ALL_KINDS),
    ("if connection.appended or len(said) < len(places):", "if len(said) < len(places):", ALL_KINDS),
    ("correlation_id, self._answers.told(said)))", "correlation_id, {}))", ALL_KINDS),
    ("append((correlation_id, self._answers.told(said)))", "append((-1, self._answers.told(said)))", ALL_KINDS),
    ("            reader.start = end\n", "", ALL_KINDS),
    ("known.append((position, size))", "pass", TOGETHER),
    ("if replica is not None and replica", "if replica", ALL_KINDS),
    ("firsts = [first] if first != NOT_PLAIN else firsts", "firsts = [first]", ALL_KINDS),
    ("(second - 1) * 128", "second * 128", TOGETHER),
    ("(third - 1) * 16384", "(third - 2) * 16384", TOGETHER),
    ("if len(its_places) > 1:", "if False:", TOGETHER),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
@on_trio
async def test_a_planted_mistake_is_noticed(tmp_path: Path, right: str, wrong: str, rule: Rule) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_lane, "WideLane", planted(wide_lane, right, wrong).WideLane)
        with pytest.raises((Exception, BaseExceptionGroup)):
            await rule(tmp_path, 9)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("len(body) + SIZE_BYTES, correlation_id", "len(body), correlation_id"),
        ("*said, self._tail", "*said"),
        ("for index, _, first_offset, _, log_start in numbers", "for _, index, first_offset, _, log_start in numbers"),
    ],
)
def test_a_planted_mistake_of_an_answer_is_noticed(right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        answers_are_what_the_encoder_writes(planted(wide_lane, right, wrong))
