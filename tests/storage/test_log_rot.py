"""One flipped bit, anywhere in a log directory: it is healed or refused, and wrong bytes are never served.

Every byte of every file is tried, one bit of each (of the logs every third), after a clean stop and after an unclean
one. Not caught, because nothing in Kafka's format would tell: a leader epoch in a batch that is wrong and still in
order, and a checkpoint of a log's start that says another number.
"""

from contextlib import suppress
from random import Random

import pytest
from support.log_fixtures import NOW_MS, batch

from trioka.protocol.batch import build_marker, check_crc, headers, records
from trioka.protocol.errors import CorruptMessage
from trioka.protocol.record import EndTxnMarker
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.directory import LogDirectory
from trioka.storage.files.checkpoint import MetaProperties, write_meta_properties
from trioka.storage.files.layout import CorruptFile, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)


def directory_on(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "/logs", lambda name: CONFIG, now_ms=NOW_MS, threads=1)


def fill(log: Log) -> None:
    for number in range(12):
        transactional = number in (3, 4, 7)
        data = batch(
            f"{number}:{'x' * 30}", timestamp=NOW_MS + number, producer=(7, 0, number), transactional=transactional
        )
        log.append_as_leader(data, leader_epoch=number // 5, now_ms=NOW_MS)
        if number in (4, 7):
            marker = build_marker(
                EndTxnMarker(number == 7, 0),
                offset=0,
                timestamp=NOW_MS,
                leader_epoch=0,
                producer_id=7,
                producer_epoch=0,
            )
            log.append_as_leader(marker, leader_epoch=number // 5, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.advance_high_watermark(log.log_end_offset)


def prepared() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/logs")
    write_meta_properties(
        disk, "/logs/meta.properties", MetaProperties(cluster_id="abc", node_id=1, directory_id=bytes(range(16)))
    )
    directory = directory_on(disk)
    fill(directory.create(NAME, CONFIG, now_ms=NOW_MS, topic_id=bytes(range(1, 17))))
    directory.close(broker_epoch=3)
    return disk


DISK = prepared()
LOG = directory_on(MemoryDisk(DISK.files())).logs[NAME]
END = LOG.log_end_offset


def contents(log: Log) -> dict[int, tuple[object, ...]]:
    """Every record that can be read, by offset. What comes out has a right CRC, or the test fails."""
    found: dict[int, tuple[object, ...]] = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        try:
            answer = log.read(at, 300)
        except CorruptMessage:
            at += 1
            continue
        if answer.records is None:
            break
        data = answer.records.read()
        for header in headers(data):
            assert check_crc(data, header)
            for record in records(data, header):
                found[record.offset] = (record, header.producer_id)
        at = max(answer.next_offset, at + 1)
    return found


EXPECTED = contents(LOG)
ABORTED = [entry[:3] for entry in LOG.aborted_transactions(0, END)]  # a last stable offset that is too low is harmless
EPOCHS = [LOG.end_offset_for_epoch(epoch) for epoch in range(4)]


def kinds() -> list[str]:
    return sorted(DISK.files())


def flipped(path: str, at: int, bit: int, *, clean: bool) -> MemoryDisk:
    disk = MemoryDisk(DISK.files())
    if not clean:
        disk.remove("/logs/.kafka_cleanshutdown")
    disk.flip_bit(path, at, bit)
    disk.settle()
    return disk


def test_the_log_has_one_of_each_kind() -> None:
    names = " ".join(kinds())
    for ending in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "metadata"):
        assert ending in names
    assert ABORTED
    assert len(EXPECTED) == END


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("path", kinds(), ids=lambda path: path.rsplit("/", 1)[1])
def test_a_flipped_bit_is_healed_or_refused(path: str, clean: bool) -> None:
    if path.endswith(".kafka_cleanshutdown") and not clean:
        return
    random = Random(path)
    step = 3 if path.endswith(".log") else 1
    for at in range(random.randrange(step), DISK.size(path), step):
        check(flipped(path, at, random.randrange(8), clean=clean), path)


def check(disk: MemoryDisk, path: str) -> None:
    if path.endswith("meta.properties"):
        # Refused, or a name that is still a name: then a start compares it with the node's own.
        with suppress(CorruptFile):
            directory_on(disk)
        return
    directory = directory_on(disk)
    log = directory.logs[NAME]
    found = contents(log)
    assert found.items() <= EXPECTED.items(), "wrong bytes"
    missing = set(range(log.log_start_offset, END)) - found.keys()
    for offset in missing:
        cut = offset >= log.log_end_offset and path.endswith(".log") and not directory.report.clean
        assert cut or any(damage.holds(offset) for damage in log.quarantine.damages), f"{offset} is gone, silently"
    if not path.endswith(".log"):
        assert not missing
        if log.log_start_offset == 0 and not log.quarantine:
            assert [entry[:3] for entry in log.aborted_transactions(0, END)] == ABORTED
            assert [log.end_offset_for_epoch(epoch) for epoch in range(4)] == EPOCHS
