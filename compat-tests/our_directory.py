"""A data directory written by trioka's storage, with everything that a log can contain, for Kafka to read.

Every codec; several segments with dense indexes; two leader epochs; transactions that were committed, aborted,
interleaved and left open; the broker's time; a compacted log with tombstones and transactions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partition import Writer

from trioka.protocol.compression import Codec
from trioka.protocol.record import Record
from trioka.storage.cleaning.cleaner import clean, log_to_clean
from trioka.storage.directory import LogDirectory
from trioka.storage.files.disk import OsDisk
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig

FIRST_TIMESTAMP_MS = 1_700_000_000_000
NOW_MS = FIRST_TIMESTAMP_MS + 3_600_000  # no producer is forgotten yet
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=128, segment_ms=1 << 40, retention_ms=-1)
APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
COMPACTED = LogConfig(
    segment_bytes=1500, index_interval_bytes=128, segment_ms=1 << 40, cleanup_policy=frozenset({"compact"})
)


@contextmanager
def opened(path: Path) -> Iterator[LogDirectory]:
    """The directory, with every record replicated. It is stopped cleanly in the end."""
    directory = LogDirectory.open(OsDisk(), str(path), lambda _: CONFIG, now_ms=NOW_MS)
    try:
        for log in directory.logs.values():
            log.advance_high_watermark(log.log_end_offset)
        yield directory
    finally:
        directory.close(broker_epoch=1)


def write_everything(directory: LogDirectory) -> None:
    for codec in Codec:
        log = create(directory, f"codec-{codec.name.lower()}")
        writer = Writer(log, producer_id=100 + codec, now_ms=NOW_MS, codec=codec)
        for batch in range(24):
            if batch == 12:
                log.begin_epoch(7)
                writer.leader_epoch = 7
            writer.write(*shapes(batch, 1 + batch % 5))
    write_transactions(create(directory, "transactions"))
    append_time = Writer(create(directory, "append-time", APPEND_TIME), producer_id=200, now_ms=NOW_MS, codec=Codec.LZ4)
    for batch in range(3):
        append_time.write(*shapes(batch, 3))
    write_compacted(create(directory, "compacted", COMPACTED))


def create(directory: LogDirectory, topic: str, config: LogConfig = CONFIG) -> Log:
    number = len(directory.logs) + 1
    return directory.create(TopicPartition(topic, 0), config, now_ms=NOW_MS, topic_id=number.to_bytes(16, "big"))


def shapes(batch: int, count: int, *, keys: int = 1000) -> list[Record]:
    """Records with and without keys, values and headers. Every fifth batch is older than the one before it."""
    start = FIRST_TIMESTAMP_MS + batch * 1000 - (3500 if batch % 5 == 4 else 0)
    found = []
    for index in range(count):
        number = batch * count + index
        key = None if keys == 1000 and number % 7 == 3 else f"key-{number % keys}".encode()
        value = None if number % 11 == 7 else f"value {number} {'lorem ipsum ' * (number % 4)}|".encode()
        headers = (("batch", b"%d" % batch), ("nothing", None)) if index % 3 == 1 else ()
        found.append(Record(index, start + index * 10, key if index else b"once-%d" % number, value, headers))
    return found


def write_transactions(log: Log) -> None:
    """Two producers take turns, so that their transactions overlap; every third of each is aborted; one stays open."""
    plain, first, second = (Writer(log, producer_id=300 + number, now_ms=NOW_MS) for number in range(3))
    first.codec = Codec.ZSTD
    for turn in range(12):
        for writer in (first, second):
            writer.write(*shapes(turn, 2), transactional=True)
        plain.write(*shapes(turn, 1))
        for writer in (second, first):
            writer.write(*shapes(turn, 2), transactional=True)
            writer.end(commit=(turn + (writer is second)) % 3 != 0)
    second.write(*shapes(12, 2), transactional=True)


def write_compacted(log: Log) -> None:
    """Few keys, many times; two rounds of compaction, with a tail that stays dirty."""
    plain, zstd, transactional = (Writer(log, producer_id=400 + number, now_ms=NOW_MS) for number in range(3))
    zstd.codec = Codec.ZSTD
    checkpoint = None
    for part in range(2):
        for turn in range(part * 30, part * 30 + 30):
            (zstd if turn % 2 else plain).write(*shapes(turn % 40, 8, keys=8))
            if turn % 10 == 5:
                transactional.write(*shapes(turn, 4, keys=4), transactional=True)
                transactional.end(commit=turn != 15)
        plain.write(*(Record(0, NOW_MS, b"key-%d" % key, None) for key in (2, 3)))
        log.sync()
        work = clean(log, log_to_clean(log, checkpoint, now_ms=NOW_MS), now_ms=NOW_MS)
        while True:
            try:
                next(work)
            except StopIteration as finished:
                checkpoint = finished.value.first_dirty_offset
                break
    log.sweep(NOW_MS + log.config.file_delete_delay_ms)
