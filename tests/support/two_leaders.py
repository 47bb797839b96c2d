"""The objects of two leaders: the later one was elected without the end of the log, and wrote other records there."""

from dataclasses import replace
from random import Random

from support.archive_objects import (
    SMALL_SEGMENTS,
    Objects,
    append_records,
    digest_of_log,
    end_transaction,
    new_log,
    objects_of,
    sample_log,
    some_records,
)
from support.log_fixtures import NOW_MS

from trioka.protocol.batch import headers
from trioka.storage.log import Log

LATER_EPOCH = 6
PRODUCERS = (100, 101, 102)


def new_leader_of(log: Log, seed: int) -> Log:
    """A replica with the beginning of a log, elected without its end: it aborts what is open, and goes on."""
    random = Random(seed)
    replica = new_log(replace(SMALL_SEGMENTS, segment_bytes=random.choice((2800, 4100))))
    cut = random.randrange(log.log_end_offset // 3, log.log_end_offset)
    for segment in log.segments:
        data = log.files.disk.read(segment.log_path)
        for header in headers(data):
            if header.next_offset <= cut:
                replica.append_as_follower(bytes(data[header.position : header.end]), now_ms=NOW_MS)
    for producer in PRODUCERS:
        end_transaction(replica, producer, commit=False, epoch=LATER_EPOCH)
    for _ in range(random.randrange(2, 20)):
        append_records(replica, *some_records(random, 5), epoch=LATER_EPOCH)
    replica.advance_high_watermark(replica.log_end_offset)
    return replica


def both(seed: int) -> tuple[Objects, dict[str, str], int]:
    """The objects of both leaders, what the later one's log says, and where it ends."""
    first = sample_log(seed, rounds=12)
    second = new_leader_of(first, seed)
    expected = {each: digest_of_log(second, each) for each in ("read_committed", "read_uncommitted")}
    end = second.log_end_offset
    objects = objects_of(first, ids=Random(1)) | objects_of(second, ids=Random(2))
    return objects, expected, end
