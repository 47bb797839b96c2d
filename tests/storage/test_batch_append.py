"""A run of batches, or a plain one alone, is appended as it would be in the usual way, to which all else is left."""

import struct
from random import Random
from types import ModuleType

import pytest
from crc32c import crc32c
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import DIRECTORY, NOW_MS, SMALL, batch, open_log

from trioka.protocol.batch import build, seal, set_max_timestamp
from trioka.protocol.batch import read_header as header_of
from trioka.protocol.batch import records as records_of
from trioka.protocol.compression import Codec
from trioka.protocol.errors import InvalidRecord, InvalidTimestamp, KafkaError, KafkaStorageError
from trioka.protocol.record import Record, encode
from trioka.storage import batch_append
from trioka.storage.files.failstop_disk import FailStopDisk
from trioka.storage.log import Log
from trioka.storage.log_config import DAY_MS, LogConfig
from trioka.testing.disks.disk_faults import Fault, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

Outcome = tuple[int, int, bool] | type[KafkaError]
LARGE = LogConfig(index_interval_bytes=500, max_message_bytes=5000)
BY_HEADER = LogConfig(index_interval_bytes=500, max_message_bytes=5000, validate_records="header")


@pytest.fixture
def storage() -> ModuleType:
    return batch_append


def one_by_one(log: Log, batches: list[bytearray], leader_epoch: int = 0) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for each in batches:
        try:
            appended = log.append_as_leader(bytearray(each), leader_epoch=leader_epoch, now_ms=NOW_MS)
            outcomes.append((appended.first_offset, appended.last_offset, appended.duplicate))
        except KafkaError as refusal:
            outcomes.append(type(refusal))
    return outcomes


def by_runs(storage: ModuleType, log: Log, batches: list[bytearray], leader_epoch: int = 0) -> list[Outcome]:
    """As the broker does it: a run as far as it goes, then one in the usual way."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(batches):
        rest = batches[len(outcomes) :]
        buffer, places = laid_out(rest)
        firsts = storage.try_append_batches(log, buffer, places, leader_epoch, NOW_MS)
        for first, each in zip(firsts, rest, strict=False):
            outcomes.append((first, first + header_of(each).last_offset_delta, False))
        rest = rest[len(firsts) :]
        assert [bytes(buffer[at : at + size]) for at, size in places[len(firsts) :]] == rest, "they are as they were"
        outcomes += one_by_one(log, rest[:1], leader_epoch)
    return outcomes


def laid_out(batches: list[bytearray]) -> tuple[memoryview, list[tuple[int, int]]]:
    """In one buffer, with something between them, as frames are."""
    buffer, places = bytearray(), []
    for each in batches:
        buffer += b"frame"
        places.append((len(buffer), len(each)))
        buffer += each
    return memoryview(buffer + bytes(61)), places


def same(a: Log, b: Log) -> bool:
    """All that is known, and all that is on disk."""
    for log in (a, b):
        for segment in log.segments:
            segment.close_indexes()
        log.producers.take_snapshot(sync=False)
    files = [
        {name: log.files.disk.read(f"{log.directory}/{name}") for name in log.files.disk.list(log.directory)}
        for log in (a, b)
    ]
    return files[0] == files[1] and a.log_end_offset == b.log_end_offset


AT = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "delta": (23, ">i"),
    "count": (57, ">i"),
}


def changed(of: bytearray, **fields: int) -> bytearray:
    """With another header, and the sum of it."""
    made = bytearray(of)
    for name, value in fields.items():
        struct.pack_into(AT[name][1], made, AT[name][0], value)
    struct.pack_into(">I", made, 17, crc32c(made[21:]))
    return made


def stream(random: Random, length: int) -> list[bytearray]:
    """Batches of two producers and without a producer, some of them invalid."""
    sequences = {7: 0, 8: 0}
    found = []
    for number in range(length):
        who = random.choice((-1, -1, 7, 7, 7, 8))
        values = [f"value {number}" * random.choice((1, 1, 5, 40)) for _ in range(random.choice((1, 1, 3)))]
        sequence = sequences.get(who, -1)
        if random.random() < 0.1 and who >= 0:
            sequence += random.choice((-3, -1, 1))  # a retry, or a gap
        elif who >= 0:
            sequences[who] += len(values)
        made = batch(
            *values,
            producer=(who, 0 if who >= 0 else -1, sequence if who >= 0 else -1),
            codec=random.choice((Codec.NONE, Codec.NONE, Codec.GZIP)),
            timestamp=NOW_MS + random.randrange(-1000, 1000),
        )
        if random.random() < 0.1:
            made[random.randrange(12, len(made))] ^= 1 << random.randrange(8)
        found.append(made)
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("config", [SMALL, LARGE, BY_HEADER], ids=["small segments", "one segment", "by header"])
def test_a_run_leaves_what_appends_one_by_one_leave(seed: int, config: LogConfig, storage: ModuleType) -> None:
    batches = stream(Random(seed), 60)
    a, b = open_log(config=config), open_log(config=config)
    assert one_by_one(a, batches) == by_runs(storage, b, batches)
    assert same(a, b)


FIRST = batch("first", producer=(7, 0, 0))
PLAIN = [batch("plain", producer=(7, 0, 1)), batch("nobody's"), batch("plain too", producer=(7, 0, 2))]
NOBODYS = batch("odd")
LATE = batch("odd", timestamp=NOW_MS + 2 * LARGE.message_timestamp_after_max_ms)
BACK = batch("odd", "odd")
set_max_timestamp(BACK, header_of(BACK), NOW_MS - 1, 0)
WRONG_SUM = batch("odd")
WRONG_SUM[-1] ^= 1

ODD = {
    "a sum that is wrong": WRONG_SUM,
    "a magic that is another": changed(NOBODYS, magic=1),
    "a base offset": changed(NOBODYS, base_offset=5),
    "a length that is another": changed(NOBODYS, length=len(NOBODYS) - 13),
    "less than it says": batch("odd", "odd")[:-5],
    "bytes behind": NOBODYS + b"?",
    "a control batch": changed(NOBODYS, attributes=0x20),
    "a transaction": batch("odd", producer=(7, 0, 3), transactional=True),
    "the broker's time": changed(NOBODYS, attributes=8),
    "a codec that does not exist": changed(NOBODYS, attributes=5),
    "a count that is another": changed(NOBODYS, count=2),
    "no records": changed(NOBODYS, count=0, delta=-1),
    "time that goes back": BACK,
    "a time to come": LATE,
    "too large": batch("odd" * 2000),
    "a sequence that was": batch("odd", producer=(7, 0, 1)),
    "a sequence that is not yet": batch("odd", producer=(7, 0, 5)),
    "another epoch": batch("odd", producer=(7, 1, 3)),
    "another producer": batch("odd", producer=(8, 0, 3)),
    "a producer without an epoch": batch("odd", producer=(9, -1, 0)),
}


def poisoned(name: str, codec: Codec) -> bytearray:
    """A batch whose header is in order and whose CRC is right."""
    two = [Record(0, NOW_MS, b"k", b"one"), Record(1, NOW_MS + 5, b"k", b"two")]
    header = header_of(build(two, codec=codec))
    data = [encode(each, base_offset=0, base_timestamp=NOW_MS) for each in two]
    match name:
        case "garbage":
            data = [b"garbage" * 9]
        case "a record count that is one too large":
            header = header._replace(record_count=3, last_offset_delta=2)
        case "a record count that is one too small":
            header = header._replace(record_count=1, last_offset_delta=0)
        case "two records with one offset":
            data = [data[0], encode(two[1], base_offset=1, base_timestamp=NOW_MS)]
        case "a byte behind the records":
            data.append(b"?")
        case "a hidden time to come":
            data[0] = encode(Record(0, NOW_MS + 10**9, b"k", b"one"), base_offset=0, base_timestamp=NOW_MS)
        case "a newest time that no record has":
            header = header._replace(max_timestamp=NOW_MS + 6)
        case "a time before all times":
            data[0] = encode(Record(0, -(1 << 63), b"k", b"one"), base_offset=0, base_timestamp=NOW_MS)
        case "compression that is damaged":
            return changed(seal(header._replace(attributes=0), b"garbage"), attributes=int(codec) or 1)
        case _:
            raise AssertionError(name)
    return seal(header, b"".join(data))


POISON: dict[str, type[KafkaError] | None] = {
    "garbage": InvalidRecord,
    "a record count that is one too large": InvalidRecord,
    "a record count that is one too small": InvalidRecord,
    "two records with one offset": InvalidRecord,
    "a byte behind the records": InvalidRecord,
    "a hidden time to come": InvalidTimestamp,
    "a newest time that no record has": None,  # it is mended
    "a time before all times": InvalidTimestamp,
    "compression that is damaged": InvalidRecord,
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", POISON)
def test_a_run_ends_before_records_that_are_not_what_the_header_says(
    name: str, codec: Codec, storage: ModuleType
) -> None:
    """And the usual way refuses them, or mends the header."""
    poison = poisoned(name, codec)
    log = open_log(config=LARGE)
    one_by_one(log, [FIRST])
    buffer, places = laid_out([*PLAIN, poison])
    assert storage.try_append_batches(log, buffer, places, 0, NOW_MS) == [1, 2, 3]
    position, size = places[3]
    assert buffer[position : position + size] == poison, "it is as it was"
    error = POISON[name]
    assert one_by_one(log, [poison]) == ([(4, 5, False)] if error is None else [error])
    if error is None:
        newest = max(record.timestamp for record in records_of(poison, header_of(poison)))
        assert log.segments.active.largest_timestamp()[0] == newest
        assert log.log_end_offset == 6


def every_poison(storage: ModuleType) -> None:
    for name in POISON:
        for codec in (Codec.NONE, Codec.GZIP):
            test_a_run_ends_before_records_that_are_not_what_the_header_says(name, codec, storage)


@pytest.mark.parametrize("config", [LARGE, BY_HEADER], ids=["full", "header"])
@pytest.mark.parametrize("odd", ODD)
def test_a_run_ends_before_what_is_not_plain(odd: str, config: LogConfig, storage: ModuleType) -> None:
    batches = [*PLAIN, ODD[odd], batch("behind", producer=(7, 0, 3))]
    a, b = open_log(config=config), open_log(config=config)
    assert one_by_one(a, [FIRST]) == one_by_one(b, [FIRST])
    buffer, places = laid_out(batches)
    assert storage.try_append_batches(b, buffer, places, 0, NOW_MS) == [1, 2, 3]
    rest = [bytearray(buffer[at : at + size]) for at, size in places[3:]]
    assert rest == batches[3:]
    assert one_by_one(a, batches)[3:] == one_by_one(b, rest)
    assert same(a, b)


def everything_odd(storage: ModuleType) -> None:
    for odd in ODD:
        for config in (LARGE, BY_HEADER):
            test_a_run_ends_before_what_is_not_plain(odd, config, storage)


def test_a_run_does_not_begin_where_a_look_is_due(storage: ModuleType) -> None:
    """An empty log, another epoch, a closed log, a segment that is full or old."""

    def taken(log: Log, leader_epoch: int = 0, now_ms: int = NOW_MS, first: bytearray | None = None) -> int:
        buffer, places = laid_out([first or batch("one"), batch("two")])
        return len(storage.try_append_batches(log, buffer, places, leader_epoch, now_ms))

    def begun(config: LogConfig, timestamp: int = NOW_MS) -> Log:
        log = open_log(config=config)
        log.append_as_leader(batch("first", timestamp=timestamp), leader_epoch=0, now_ms=NOW_MS)
        return log

    assert taken(open_log(config=LARGE)) == 0
    assert taken(begun(LARGE)) == 2
    assert taken(begun(LARGE), leader_epoch=1) == 0
    assert taken(begun(LARGE), first=batch("one", producer=(7, 0, 0))) == 0  # of an unknown producer
    assert taken(begun(LogConfig(segment_bytes=180))) == 1
    assert taken(begun(LARGE, timestamp=NOW_MS - 8 * DAY_MS)) == 0
    assert taken(begun(LARGE, timestamp=-1), now_ms=NOW_MS + 8 * DAY_MS) == 0
    closed = begun(LARGE)
    closed.close()
    assert taken(closed) == 0


def test_a_run_begins_with_the_next_batch_of_its_producer_and_with_no_other(storage: ModuleType) -> None:
    def taken(*producer: int, is_open: bool = False) -> int:
        log = open_log(config=LARGE)
        log.append_as_leader(batch("a", producer=(7, 3, 0), transactional=is_open), leader_epoch=0, now_ms=NOW_MS)
        buffer, places = laid_out([batch("b", producer=(producer[0], producer[1], producer[2]))])
        return len(storage.try_append_batches(log, buffer, places, 0, NOW_MS))

    assert taken(7, 3, 1) == 1
    for other in ((7, 3, 0), (7, 3, 2), (7, 4, 0), (7, 4, 1), (7, 2, 1), (8, 3, 1)):
        assert taken(*other) == 0, other
    assert taken(7, 3, 1, is_open=True) == 0


def test_topics_with_rules_about_records_or_the_disk_take_no_runs(storage: ModuleType) -> None:
    for config in (
        LogConfig(cleanup_policy=frozenset(("compact",))),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(message_timestamp_before_max_ms=1000),
        LogConfig(compression_type=Codec.ZSTD),
        LogConfig(flush_messages=10),
    ):
        assert storage.append_limits(config, 1 << 30) is None
        log = open_log(config=config)
        log.append_as_leader(batch("first"), leader_epoch=0, now_ms=NOW_MS)
        assert storage.try_append_batches(log, *laid_out([batch("one")]), 0, NOW_MS) == []


def test_a_run_that_cannot_be_written_changes_nothing(storage: ModuleType) -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    log = open_log(FailStopDisk(disk, "/logs"), config=LARGE)
    one_by_one(log, [FIRST])
    buffer, places = laid_out(PLAIN[:2])
    before = log.producers.producers[7].last_sequence, log.segments.active.size
    disk.faults.add(Fault(kinds=frozenset({Kind.WRITE})))
    with pytest.raises(KafkaStorageError):
        storage.try_append_batches(log, buffer, places, 0, NOW_MS)
    assert log.log_end_offset == 1
    assert (log.producers.producers[7].last_sequence, log.segments.active.size) == before
    rest = [bytearray(buffer[at : at + size]) for at, size in places]
    assert one_by_one(log, rest) == [KafkaStorageError] * 2  # and not that their offsets are set


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "validates and not records_match_header(buffer, position, size, attributes, count, oldest, newest)",
        "records_match_header is None and (buffer, position, size, attributes, count, oldest, newest)",
        every_poison,
    ),
    ("and walked[1] == newest", "", every_poison),
    ("and walked[0] >= 0", "", every_poison),
    (
        "walked is not None and walked[1] == newest and walked[0] >= 0",
        "walked is None or walked[1] == newest and walked[0] >= 0",
        every_poison,
    ),
    (
        "try:\n    data = payload(view, read_header(view))\nexcept KafkaError:\n    return False",
        "try:\n    data = payload(view, read_header(view))\nfinally:\n    pass",
        every_poison,
    ),
    ("length + LOG_OVERHEAD != size", "False", everything_odd),
    ("or magic != MAGIC\n", "\n", everything_odd),
    ("or base\n", "\n", everything_odd),
    ("0 <= attributes <= LAST_CODEC", "0 <= attributes & 7 <= LAST_CODEC", everything_odd),
    ("0 <= attributes <= LAST_CODEC", "attributes <= 7", everything_odd),
    ("or delta < 0\n", "\n", everything_odd),
    ("or delta + 1 != count\n", "\n", everything_odd),
    ("not oldest <= newest <= max_timestamp", "not newest <= max_timestamp", everything_odd),
    ("not oldest <= newest <= max_timestamp", "not oldest <= newest", everything_odd),
    ("or size > max_bytes\n", "\n", everything_odd),
    ("or size > space\n", "\n", test_a_run_does_not_begin_where_a_look_is_due),
    ("or crc32c(buffer[position + CHECKED_FROM : position + size]) != crc", "", everything_odd),
    (
        "log.producers.expected(producer, epoch, sequence)",
        "log.producers.producers.get(producer)",
        test_a_run_begins_with_the_next_batch_of_its_producer_and_with_no_other,
    ),
    (
        "producer != producer_id or epoch != producer_epoch or sequence != next_sequence",
        "epoch != producer_epoch or sequence != next_sequence",
        everything_odd,
    ),
    ("or epoch != producer_epoch or", "or", everything_odd),
    ("or sequence != next_sequence:", ":", everything_odd),
    ("batch[:8] = bytes(8)", "pass", test_a_run_that_cannot_be_written_changes_nothing),
    ("or log.closed or", "or", test_a_run_does_not_begin_where_a_look_is_due),
    ("or leader_epoch != log.epochs.latest_epoch:", ":", test_a_run_does_not_begin_where_a_look_is_due),
    (
        "not BatchValidator(config).is_plain or config.flush_messages != FOREVER_MS",
        "config.flush_messages != FOREVER_MS",
        test_topics_with_rules_about_records_or_the_disk_take_no_runs,
    ),
    ("or config.flush_messages != FOREVER_MS:", ":", test_topics_with_rules_about_records_or_the_disk_take_no_runs),
    (
        "newest if newest <= first + roll_ms else first + roll_ms",
        "newest if newest <= first + roll_ms else newest",
        test_a_run_does_not_begin_where_a_look_is_due,
    ),
    ("now_ms - segment.created_ms <= roll_ms", "True", test_a_run_does_not_begin_where_a_look_is_due),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(batch_append, right, wrong, rule)
