"""Fetches of committed records have a fast path too, unless the range has an aborted transaction."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.fast_paths import NOW_MS, FastAndGeneralPath, both_ways, framed
from support.serving import on_trio

from trioka.broker.broker import Broker
from trioka.broker.fastpath import fetch as fetch_fast_path
from trioka.broker.fastpath import registry
from trioka.protocol import batch
from trioka.protocol.codec import decode
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.record import EndTxnMarker, Record
from trioka.storage.append_validation import AppendOrigin

TOPICS = {"t": 2}
VERSIONS = (9, 11, 12, 13, 18)
SMALL, LARGE = 50, 20_000  # of a value: what is read at once, and what is sent as a range of a file


def append(both: FastAndGeneralPath, data: bytearray, partition: int = 0) -> None:
    for broker in both.brokers:
        broker.partitions.get("t", partition).append(bytearray(data), 1, NOW_MS, AppendOrigin.COORDINATOR)


class Producer:
    def __init__(self, both: FastAndGeneralPath, producer_id: int, partition: int = 0) -> None:
        self._both, self._id, self._partition = both, producer_id, partition
        self._sequence = 0

    def write(self, size: int, *, transactional: bool = True) -> None:
        built = batch.build(
            [Record(0, NOW_MS, None, bytes([self._id]) * size)],
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequence,
            transactional=transactional,
        )
        self._sequence += 1
        append(self._both, built, self._partition)

    def end(self, *, commit: bool) -> None:
        marker = batch.build_marker(
            EndTxnMarker(commit=commit, coordinator_epoch=0),
            offset=0,
            leader_epoch=0,
            producer_id=self._id,
            producer_epoch=0,
            timestamp=NOW_MS,
        )
        append(self._both, marker, self._partition)


def fetch(broker: Broker, version: int, places: list[tuple[int, int]], limit: int, isolation: int = 1) -> FetchRequest:
    known = broker.metadata.topics.by_name("t")
    assert known is not None
    named = {"topic_id": known.topic_id} if version >= 13 else {"topic": "t"}
    requested = [
        FetchRequest.Topic.Partition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
        for partition, offset in places
    ]
    topics = [FetchRequest.Topic(**named, partitions=requested)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation, topics=topics)


def read_all(both: FastAndGeneralPath, version: int, limit: int, partitions: tuple[int, ...] = (0,)) -> list[bool]:
    """Reads from the start, batch by batch. Returns which responses listed aborted transactions."""
    both.connect()
    broker = both.brokers[0]
    end = broker.partitions.get("t", 0).log.log_end_offset
    result = []
    for number, offset in enumerate((0, *range(end + 1))):
        places = [(partition, offset) for partition in partitions]
        text = both.say(framed(fetch(broker, version, places, limit), version, number))
        answer = decode(FetchResponse, version, text[9 if version >= 12 else 8 :])
        assert isinstance(answer, FetchResponse)
        result.append(bool(answer.responses[0].partitions[0].aborted_transactions))
    return result


async def committed_records_are_read_as_by_the_general_path(path: Path) -> None:
    for version in VERSIONS:
        for size in (SMALL, LARGE):
            async with both_ways(path / f"{version}-{size}", TOPICS) as both:
                for partition in (0, 1):
                    first, second = Producer(both, 1, partition), Producer(both, 2, partition)
                    for _ in range(6):
                        first.write(size)
                    first.end(commit=True)
                    for _ in range(3):
                        first.write(size)
                        second.write(size)
                    first.end(commit=False)
                    second.write(size)
                    second.end(commit=True)
                    for _ in range(6):
                        first.write(size, transactional=False)
                    second.write(size)  # and is not decided
                    first.write(size, transactional=False)
                for limit in (2 * size + 200, 6 * size):
                    result = read_all(both, version, limit)
                    assert any(result)
                    assert not all(result)
                read_all(both, version, 2 * size + 200, (0, 1))


async def it_goes_through_the_fast_path(path: Path) -> None:
    async with both_ways(path, TOPICS) as both:
        producer = Producer(both, 1)
        for _ in range(20):
            producer.write(LARGE, transactional=False)
        broker, connection = both.brokers[0], both.connections[0]
        for number, offset in enumerate((0, 2, 4)):
            both.say(framed(fetch(broker, 12, [(0, offset)], 2 * LARGE + 400), 12, number))
        fast_path = connection._fast_path
        assert fast_path is not None
        frame = framed(fetch(broker, 12, [(0, 6)], 2 * LARGE + 400), 12, 3)
        connection.receive_buffer()[: len(frame)] = frame
        connection.reader.end += len(frame)
        fast_path.try_serve(connection)
        assert connection.outgoing_bytes > 2 * LARGE


async def a_replica_that_is_reassigned_back_leaves_it(path: Path) -> None:
    """The same requests, but for what is to be read."""
    async with both_ways(path, TOPICS) as both:
        producer = Producer(both, 1)
        for _ in range(10):
            producer.write(SMALL)
        for isolation in (0, 1, 0, 1):
            for number, offset in enumerate((0, 1, 2)):
                both.say(framed(fetch(both.brokers[0], 12, [(0, offset)], 500, isolation), 12, number))


Rule = Callable[[Path], Awaitable[None]]
RULES: list[Rule] = [
    committed_records_are_read_as_by_the_general_path,
    it_goes_through_the_fast_path,
    a_replica_that_is_reassigned_back_leaves_it,
]


@pytest.mark.parametrize("rule", RULES)
def test_reading_what_is_committed(tmp_path: Path, rule: Rule) -> None:
    on_trio(rule)(tmp_path)


MISTAKES = [
    ("upto = stable if self._is_committed else high_watermark", "upto = high_watermark", RULES[0]),
    ("self._is_committed and log.aborted_transactions(offset, following)", "False", RULES[0]),
    ("aborted_transactions=[] if is_committed else None", "aborted_transactions=None", RULES[0]),
    ("aborted_transactions=[] if is_committed else None", "aborted_transactions=[]", RULES[2]),
    (
        "request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)",
        "request.isolation_level != READ_UNCOMMITTED",
        RULES[1],
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken: ModuleType = planted(fetch_fast_path, right, wrong)
    monkeypatch.setattr(registry, "fast_path_for", mistaken.fast_path_for)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that goes wrong
        trio.run(rule, tmp_path)
