"""Small reads: what is taken at once is what the log has, whole batches, as many as may be; all else is left alone."""

from random import Random
from struct import Struct
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import append, open_log

from trioka.protocol.batch import headers
from trioka.storage import small_read
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.verified_ranges import VerifiedRanges

SEGMENT_BYTES = 60_000
ENTRY = Struct(">ii")  # of an index


@pytest.fixture
def storage() -> ModuleType:
    return small_read


def filled(seed: int, count: int = 150, interval: int = 200) -> Log:
    random = Random(seed)
    log = open_log(config=LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=interval))
    for number in range(count):
        append(log, f"{number}:{'x' * random.choice((1, 40, 300, 3000))}", *["more"] * random.randrange(3))
    return log


def expected(log: Log, offset: int, max_bytes: int, upto: int) -> list[int]:
    """The batches that fit, by their first offsets."""
    found: list[int] = []
    segment = log.segments[log.segments.number_for(offset)]
    for place in segment.places():
        if place.base_offset >= offset:
            max_bytes -= place.size
            if max_bytes < 0 or place.last_offset >= upto:
                break
            found.append(place.base_offset)
    return found


def index_points_beyond(log: Log, offset: int, max_bytes: int, upto: int) -> bool:
    """Whether the last entry among the bytes that are asked for is for something that may not be read."""
    segment = log.segments[log.segments.number_for(offset)]
    position = segment.known_start(offset)
    assert position is not None
    around = segment.index.around_position(position + max_bytes, segment.size)
    return around is not None and around[0] > upto


def at_a_known_place(log: Log, offset: int) -> None:
    """As if a read had ended there."""
    segment = log.segments[log.segments.number_for(offset)]
    segment.index_is_warm = True
    segment.followed(offset, next(place.position for place in segment.places() if place.base_offset == offset))


def test_all_that_fits_is_taken_and_nothing_else(storage: ModuleType) -> None:
    random = Random(1)
    for seed in range(4):
        log = filled(seed, interval=random.choice((0, 200, 4096)))
        starts = [place.base_offset for segment in log.segments for place in segment.places()]
        for _ in range(150):
            offset = random.choice(starts)
            upto = random.choice((log.log_end_offset, random.randint(offset + 1, log.log_end_offset)))
            max_bytes = random.choice((500, 5000, 20_000, storage.SMALL_BYTES))
            at_a_known_place(log, offset)
            taken = storage.take(log, offset, max_bytes, upto)
            wanted = expected(log, offset, max_bytes, upto)
            if not wanted or taken is None:
                assert taken is None
                assert not wanted or index_points_beyond(log, offset, max_bytes, upto), "it was plain"
                continue
            assert [header.base_offset for header in headers(taken.records)] == wanted
            assert wanted[-1] < taken.next_offset <= upto


def test_a_sequential_reader_finds_the_next_position_known(storage: ModuleType) -> None:
    log = filled(2, count=60)
    append(log, "the end")
    offset = 0
    at_a_known_place(log, 0)
    seen: list[int] = []
    while offset < log.segments[0].end_offset():
        taken = storage.take(log, offset, 4000, log.log_end_offset)
        assert taken is not None
        seen += [header.base_offset for header in headers(taken.records)]
        offset = taken.next_offset
    assert seen == [place.base_offset for place in log.segments[0].places()]


def test_it_is_read_at_once(storage: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(3)
    at_a_known_place(log, 0)
    file = log.files.get(log.segments[0].log_path)
    data = file.read(0, 5000)
    calls: list[tuple[int, int]] = []

    def response(_: object, offset: int, size: int) -> bytes:
        calls.append((offset, size))
        return data

    monkeypatch.setattr(type(file), "read_resident", response)
    monkeypatch.setattr(type(file), "read", None)
    assert storage.take(log, 0, 5000, log.log_end_offset) is not None
    assert calls == [(0, 5000)]


def test_what_is_not_in_memory_is_left_alone(storage: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(4)
    at_a_known_place(log, 0)
    file = log.files.get(log.segments[0].log_path)
    monkeypatch.setattr(type(file), "read_resident", lambda *_: None)
    assert storage.take(log, 0, 5000, log.log_end_offset) is None


def test_much_is_left_alone(storage: ModuleType) -> None:
    log = filled(5)
    at_a_known_place(log, 0)
    assert storage.take(log, 0, storage.SMALL_BYTES + 1, log.log_end_offset) is None


def test_an_unknown_place_is_left_alone(storage: ModuleType) -> None:
    log = filled(6)
    assert storage.take(log, 0, 5000, log.log_end_offset) is None


def test_a_place_with_other_content_is_left_alone(storage: ModuleType) -> None:
    log = filled(7)
    second = list(log.segments[0].places())[1]
    log.segments[0].followed(0, second.position)
    assert storage.take(log, 0, 5000, log.log_end_offset) is None


def test_unchecked_records_are_left_alone(storage: ModuleType) -> None:
    log = filled(8)
    at_a_known_place(log, 0)
    log.segments[0].checked = VerifiedRanges()
    assert storage.take(log, 0, 5000, log.log_end_offset) is None


def test_a_log_that_is_known_to_be_damaged_is_left_alone(storage: ModuleType) -> None:
    log = filled(9)
    at_a_known_place(log, 0)
    log.segments[0].holes = {40_000: 41_000}
    assert storage.take(log, 0, 5000, log.log_end_offset) is None


def test_a_header_that_makes_no_sense_is_left_alone(storage: ModuleType) -> None:
    for byte, value in ((16, 1), (8, 0x7F), (8, 0xFF), (23, 0x80)):  # magic, length, its sign, last offset delta
        log = filled(10, interval=100_000)
        second = list(log.segments[0].places())[1]
        at_a_known_place(log, 0)
        log.files.get(log.segments[0].log_path).write(second.position + byte, bytes([value]))
        taken = storage.take(log, 0, 5000, log.log_end_offset)
        assert taken is None or len(taken.records) == second.position


def test_an_index_that_lies_is_not_believed(storage: ModuleType) -> None:
    log = filled(11, count=30)
    segment = log.segments.active
    assert segment is log.segments[0]
    at_a_known_place(log, 0)
    assert storage.take(log, 0, 8000, log.log_end_offset) is not None
    around = segment.index.around_position(8000, segment.size)
    assert around is not None
    result = ENTRY.pack(*around[:2])
    tail = segment.index.entries.tail
    at = tail.index(result)
    tail[at : at + len(result)] = ENTRY.pack(around[0] + 1, around[1])
    assert storage.take(log, 0, 8000, log.log_end_offset) is None


MISTAKES: list[tuple[str, str, Rule]] = [
    ("if behind > size or last_offset >= upto:", "if behind > size:", test_all_that_fits_is_taken_and_nothing_else),
    ("or next_offset > upto or", "or", test_all_that_fits_is_taken_and_nothing_else),
    ("segment.followed(next_offset, position + end)", "pass", test_a_sequential_reader_finds_the_next_position_known),
    ("HEADER_SIZE <= size <= SMALL_BYTES", "HEADER_SIZE <= size", test_much_is_left_alone),
    ("or PLACE.unpack_from(data)[0] != offset", "", test_a_place_with_other_content_is_left_alone),
    (" or not segment.checked.covers(position, position + end)", "", test_unchecked_records_are_left_alone),
    ("or segment.holes or", "or", test_a_log_that_is_known_to_be_damaged_is_left_alone),
    (
        "magic != MAGIC or behind < end + HEADER_SIZE or delta < 0 or base_offset < next_offset",
        "behind < end + HEADER_SIZE or delta < 0 or base_offset < next_offset",
        test_a_header_that_makes_no_sense_is_left_alone,
    ),
    ("or behind < end + HEADER_SIZE", "", test_a_header_that_makes_no_sense_is_left_alone),
    ("or delta < 0", "", test_a_header_that_makes_no_sense_is_left_alone),
    ("if last_offset != entry_offset:", "if False:", test_an_index_that_lies_is_not_believed),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(small_read, right, wrong, rule)
