"""A data directory written by Apache Kafka, and the results of Kafka's own clients before it was stopped.

It holds what a log can hold: every codec; several segments with dense indexes, one of them empty; transactions
that were committed, aborted, interleaved and left open; timestamps that go back; a topic in the broker's time; one
whose start was moved; one that the cleaner has compacted, with tombstones and transactions. It is small: 130 KB.
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import ApacheKafka, run_program

Json = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
COMPACTION_TIMEOUT_SECONDS = 60
SEGMENT_BYTES = 1500

SETTINGS = {
    "log.retention.ms": -1,
    "log.roll.ms": 1 << 40,  # the timestamps lie years back, which must not end a segment
    "log.index.interval.bytes": 128,
    "log.cleaner.backoff.ms": 100,
    "log.segment.delete.delay.ms": 0,
    "log.index.size.max.bytes": 4096,  # the active segment's indexes have this size until it ends
}
# The cleaner comes when a part is written, not before: so the same is compacted in every run.
WAIT, CLEAN = {"min.cleanable.dirty.ratio": 1.0}, {"min.cleanable.dirty.ratio": 0.0}
TOPICS: dict[str, Json] = {
    **{f"codec-{codec}": {"internal.segment.bytes": SEGMENT_BYTES} for codec in CODECS},
    "transactions": {"internal.segment.bytes": SEGMENT_BYTES},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "moved-start": {"internal.segment.bytes": SEGMENT_BYTES},
    "compacted": {"internal.segment.bytes": SEGMENT_BYTES, "cleanup.policy": "compact", **WAIT},
    "open-transaction": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDirectory:
    """`records` by topic and isolation level, and answers to ListOffsets, all from Kafka's clients.

    `crashed` is the directory as it stood while Kafka ran, which is what a SIGKILL would have left.
    """

    path: Path
    crashed: Path
    records: dict[tuple[str, str], list[Json]]
    offsets: list[Json]


@contextmanager
def kafka_directory(parent: Path) -> Iterator[KafkaDirectory]:
    """Start Apache Kafka, write everything, read everything, stop cleanly."""
    with ApacheKafka(SETTINGS, parent=parent) as kafka:
        for part in (first_part(), second_part()):
            run_program("Produce", kafka.bootstrap, stdin="\n".join(map(json.dumps, part)))
            wait_until_compacted(kafka)
        message = run_program("Consume", kafka.bootstrap, "read_uncommitted,read_committed", *TOPICS)
        records: dict[tuple[str, str], list[Json]] = {
            (topic, isolation): [] for topic in TOPICS for isolation in ("read_uncommitted", "read_committed")
        }
        for record in map(json.loads, message.splitlines()):
            records[record["topic"], record["isolation"]].append(record)
        requested = "\n".join(map(json.dumps, questions(records)))
        offsets = [json.loads(line) for line in run_program("Offsets", kafka.bootstrap, stdin=requested).splitlines()]
        crashed = kafka.folder / "crashed"
        shutil.copytree(kafka.data_dir, crashed)
        kafka.stop()
        yield KafkaDirectory(path=kafka.data_dir, crashed=crashed, records=records, offsets=offsets)


def first_part() -> Iterator[Json]:
    """What is written first, in the words of programs/Produce.java."""
    yield {"create": TOPICS}
    for codec in CODECS:
        yield {"open": {"compression.type": codec, "linger.ms": 1000}, "by": codec}
        for batch in range(24):
            yield from sends(f"codec-{codec}", batch, count=1 + batch % 5, by=codec)
    yield {"open": {"linger.ms": 1000}}
    for batch in range(3):
        yield from sends("append-time", batch, count=3)
    for batch in range(40):
        yield from sends("moved-start", batch, count=4)
    yield {"delete_before": {"topic": "moved-start", "offset": 70}}
    yield from transactions()
    yield from compaction()
    yield {"alter": {"compacted": CLEAN}}


def second_part() -> Iterator[Json]:
    """What is written after the cleaner's first round: more for a second round, and a transaction that stays open."""
    yield {"alter": {"compacted": WAIT}}
    yield {"open": {"linger.ms": 1000}}
    for turn in range(11, 29):  # a whole stretch of the log loses its records, up to the end of a segment
        yield send("compacted", 60 + turn, 0, key=f"once-{turn * 8}", value="rewritten")
    yield {"flush": 1}
    for turn in range(90, 100):
        yield from sends("compacted", turn, count=4)
    yield {"alter": {"compacted": CLEAN}}
    yield {"open": {"transactional.id": "open", "linger.ms": 1000, "transaction.timeout.ms": 900_000}, "by": "open"}
    yield from sends("open-transaction", 0, count=2)
    yield {"begin": 1, "by": "open"}
    yield from sends("open-transaction", 1, count=2, by="open")
    yield from sends("open-transaction", 2, count=2)
    yield {"halt": 1}  # nothing is closed


def transactions() -> Iterator[Json]:
    """Two producers take turns, so that their transactions overlap; every third of each is aborted."""
    for name in "ab":
        yield {"open": {"transactional.id": name, "linger.ms": 1000, "compression.type": "lz4"}, "by": name}
    for turn in range(12):
        for name in "ab":
            yield {"begin": 1, "by": name}
            yield from sends("transactions", turn, count=2, by=name)
        yield from sends("transactions", turn, count=1)
        for name in "ba":
            yield from sends("transactions", turn, count=2, by=name)
            yield {("abort" if (turn + (name == "b")) % 3 == 0 else "commit"): 1, "by": name}


def compaction() -> Iterator[Json]:
    """Few keys, many times; some deleted in the end; transactions, one of them aborted; then a tail of other keys.

    The first record of each batch has a key of its own, so most batches keep some records and lose others.
    """
    yield {"open": {"transactional.id": "compacted", "linger.ms": 1000}, "by": "compacted"}
    yield {"open": {"linger.ms": 1000, "compression.type": "zstd"}, "by": "zstd"}
    for turn in range(30):
        yield from sends("compacted", turn, count=8, keys=8, by="zstd" if turn % 2 else "")
        if turn % 10 == 5:
            yield {"begin": 1, "by": "compacted"}
            yield from sends("compacted", turn, count=4, keys=4, by="compacted")
            yield {("abort" if turn == 15 else "commit"): 1, "by": "compacted"}
            yield {"settle": "compacted"}
    for key in (2, 3):
        yield send("compacted", 31, key, key=f"key-{key}", value=None)
    yield {"flush": 1}
    for turn in range(32, 50):
        yield from sends("compacted", turn, count=4)


def sends(topic: str, batch: int, *, count: int, by: str = "", keys: int = 1000) -> Iterator[Json]:
    """One batch: records of many shapes, ended by a flush. The first has a key of its own."""
    for index in range(count):
        number = batch * count + index
        value = None if number % 11 == 7 else f"{topic} {number} " + "lorem ipsum " * (number % 4)
        key = None if topic != "compacted" and number % 7 == 3 else f"key-{number % keys}"
        yield send(topic, batch, index, key=key if index else f"once-{number}", value=value) | {"by": by}
    yield {"flush": 1, "by": by}


def send(topic: str, batch: int, index: int, *, key: str | None, value: str | None) -> Json:
    # Every fifth batch is older than the one before it.
    timestamp = FIRST_TIMESTAMP_MS + batch * 1000 + index * 10 - (3500 if batch % 5 == 4 else 0)
    record = {"topic": topic, "timestamp": timestamp, "key": as_hex(key), "value": as_hex(value)}
    if index % 3 == 1:
        record["headers"] = [["batch", as_hex(str(batch))], ["nothing", None]]
    return {"send": record}


def as_hex(text: str | None) -> str | None:
    return None if text is None else text.encode().hex()


def questions(records: dict[tuple[str, str], list[Json]]) -> Iterator[Json]:
    """Both ends of each topic, for both isolation levels, and the first offset at and after each timestamp in it."""
    for (topic, isolation), result in records.items():
        stamps = sorted({record["timestamp"] + step for record in result for step in (0, 1)})[::7]
        for timestamp in (-1, -2, *([-3] if isolation == "read_uncommitted" else []), *stamps):
            yield {"topic": topic, "timestamp": timestamp, "isolation": isolation}


def wait_until_compacted(kafka: ApacheKafka) -> None:
    """Until the cleaner has been through everything but the active segment."""
    checkpoint = kafka.data_dir / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + COMPACTION_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        active = int(kafka.segments("compacted-0")[-1].stem)
        if f"compacted 0 {active}" in checkpoint.read_text().splitlines():
            return
        time.sleep(0.05)
    raise TimeoutError(f"the cleaner did not come: {checkpoint.read_text()!r}")
