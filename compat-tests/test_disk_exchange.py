"""One disk format, two programs: what Apache Kafka wrote reads back equal here, and Kafka reads what was written here.

Kafka writes a directory; its consumer says what the partitions hold, its answers to ListOffsets what a lookup finds;
then it stops, and each test opens a copy. In the other direction Kafka's DumpLogSegments is the judge of our files, and
last of all Kafka starts on a directory in which we went on writing.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dump import DumpedBatch, DumpedFile, complaints, optional_long, parse_dump
from kafka_directory import SETTINGS, TOPICS, KafkaDirectory, kafka_directory
from oracle import ApacheKafka, dump_log, run_program
from our_directory import NOW_MS, opened, shapes, write_everything
from partition import Writer, batches_of, consumed

from trioka.protocol.record import Record
from trioka.storage.layout import TopicPartition
from trioka.storage.log_config import LogConfig
from trioka.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp
from trioka.storage.producer_snapshot import ProducerSnapshot, decode, encode

Json = dict[str, Any]
NEW_KEYS = 1_000_000  # keys that no record has yet: Kafka's cleaner, when it comes, has nothing to do
pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture(scope="module")
def of_kafka(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaDirectory]:
    with kafka_directory(tmp_path_factory.mktemp("kafka")) as directory:
        yield directory


def result(records: list[Json]) -> list[Json]:
    """What Kafka's consumer said, without what it was asked."""
    return [
        {key: record[key] for key in record if key not in ("topic", "partition", "isolation")} for record in records
    ]


def copied(directory: Path, tmp_path: Path) -> Path:
    """To open: a log may change its files."""
    return Path(shutil.copytree(directory, tmp_path / "copy"))


# Kafka wrote it ------------------------------------------------------------------------------------------------------


def test_the_directory_of_kafka_holds_what_it_claims(of_kafka: KafkaDirectory) -> None:
    files = parse_dump(dump_log(*sorted(of_kafka.path.glob("[!_]*/*.log"))))
    assert complaints(files) == []
    batches: dict[str, list[DumpedBatch]] = {topic: [] for topic in TOPICS}
    for file in files:
        batches[file.path.parent.name.removesuffix("-0")] += file.batches
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert {batch.codec for batch in batches[f"codec-{codec}"]} == {codec}
    assert {batch.timestamp_type for batch in batches["append-time"]} == {"LogAppendTime"}
    assert {record.marker for batch in batches["transactions"] for record in batch.records} == {None, "COMMIT", "ABORT"}
    assert any(batch.delete_horizon_ms for batch in batches["compacted"]), "the cleaner has seen tombstones"
    assert any(batch.count <= batch.last_offset - batch.base_offset for batch in batches["compacted"])
    seen = of_kafka.records
    assert seen["transactions", "read_committed"] != seen["transactions", "read_uncommitted"]
    assert seen["open-transaction", "read_committed"] != seen["open-transaction", "read_uncommitted"]
    assert seen["moved-start", "read_committed"][0]["offset"] == 70


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", TOPICS)
def test_what_kafka_wrote_reads_back_equal(
    of_kafka: KafkaDirectory, tmp_path: Path, topic: str, isolation: str
) -> None:
    with opened(copied(of_kafka.path, tmp_path)) as directory:
        log = directory.logs[TopicPartition(topic, 0)]
        assert consumed(log, isolation) == result(of_kafka.records[topic, isolation])


def test_a_clean_stop_of_kafka_needs_no_recovery(of_kafka: KafkaDirectory, tmp_path: Path) -> None:
    with opened(copied(of_kafka.path, tmp_path)) as directory:
        assert directory.report.clean
        assert not directory.report.damaged_files
        assert {
            name.topic: log.report for name, log in directory.logs.items() if log.report and name.topic in TOPICS
        } == {}


@pytest.mark.parametrize("topic", TOPICS)
def test_what_kafka_wrote_before_it_was_killed_reads_back_equal(
    of_kafka: KafkaDirectory, tmp_path: Path, topic: str
) -> None:
    with opened(copied(of_kafka.crashed, tmp_path)) as directory:
        assert not directory.report.clean
        log = directory.logs[TopicPartition(topic, 0)]
        assert log.report is not None
        assert log.report.scanned_segments
        assert not log.report.cut_reason
        expected = result(of_kafka.records[topic, "read_committed"])
        # Kafka had not written yet where `moved-start` starts, and would have started it at 0 itself.
        first = expected[0]["offset"]
        assert [record for record in consumed(log, "read_committed") if record["offset"] >= first] == expected


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "compacted"])
def test_what_is_rebuilt_after_kafka_was_killed_is_what_kafka_had_to_the_byte(
    of_kafka: KafkaDirectory, tmp_path: Path, topic: str
) -> None:
    """Both indexes, aborted transactions, producers, epochs. (Compaction takes away what some of them are made of.)"""
    path = copied(of_kafka.crashed, tmp_path)
    with opened(path):
        pass
    assert contents(path / f"{topic}-0") == contents(of_kafka.path / f"{topic}-0")


def contents(folder: Path) -> dict[str, str]:
    return {file.name: _kafkas_part(file).hex() for file in folder.iterdir()}


def _kafkas_part(file: Path) -> bytes:
    """Of a snapshot of producers, which has another one of ours; of any other file all of it."""
    data = file.read_bytes()
    return encode(ProducerSnapshot(decode(str(file), data).entries)) if file.suffix == ".snapshot" else data


@pytest.mark.parametrize("topic", TOPICS)
def test_lookups_in_what_kafka_wrote_find_what_kafka_finds(
    of_kafka: KafkaDirectory, tmp_path: Path, topic: str
) -> None:
    answers = [answer for answer in of_kafka.offsets if answer["topic"] == topic]
    assert len(answers) > 5
    with opened(copied(of_kafka.path, tmp_path)) as directory:
        log = directory.logs[TopicPartition(topic, 0)]
        for answer in answers:
            timestamp = answer["timestamp"]
            upto = log.last_stable_offset if answer["isolation"] == "read_committed" else log.high_watermark
            if timestamp in (-1, -2):
                assert answer["offset"] == (upto if timestamp == -1 else log.log_start_offset)
                continue
            found = offset_of_max_timestamp(log) if timestamp == -3 else offset_for_timestamp(log, timestamp, upto=upto)
            ours = (found.offset, found.timestamp) if found else (-1, -1)
            if topic == "moved-start" and answer["offset"] == -1:
                # Kafka finds nothing while the first segment that is new enough lies below the start of the log,
                # waiting to be deleted. When it is gone, Kafka finds this one.
                assert ours == next((r["offset"], r["timestamp"]) for r in consumed(log) if r["timestamp"] >= timestamp)
            else:
                assert ours == (answer["offset"], answer["found_timestamp"]), answer


# We wrote it ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours")
    with opened(path) as directory:
        write_everything(directory)
    return path


@pytest.fixture(scope="module")
def dumped(apache_kafka: None, of_ours: Path) -> dict[str, list[DumpedFile]]:
    """Our segments, whole, as Kafka's tool reads them, by topic."""
    files = parse_dump(dump_log(*sorted(of_ours.glob("*/*.log")), data=True))
    topics = {file.path.parent.name.removesuffix("-0") for file in files}
    return {topic: [file for file in files if file.path.parent.name == f"{topic}-0"] for topic in topics}


def test_kafka_reads_our_segments_without_a_complaint(dumped: dict[str, list[DumpedFile]]) -> None:
    assert {topic: complaints(files) for topic, files in dumped.items() if complaints(files)} == {}
    with_gaps = {topic for topic, files in dumped.items() for file in files if file.gaps}
    assert with_gaps == {"compacted"}, "only compaction takes records out"
    assert all(len(files) > 2 for topic, files in dumped.items() if topic != "append-time"), "there are many segments"
    assert any(batch.delete_horizon_ms for file in dumped["compacted"] for batch in file.batches)


def test_kafka_reads_in_our_segments_what_we_read(
    of_ours: Path, dumped: dict[str, list[DumpedFile]], tmp_path: Path
) -> None:
    with opened(copied(of_ours, tmp_path)) as directory:
        assert sorted(dumped) == sorted(name.topic for name in directory.logs)
        for name, log in directory.logs.items():
            read_by_kafka = [batch for file in dumped[name.topic] for batch in file.batches]
            for (header, records), batch in zip(batches_of(log), read_by_kafka, strict=True):
                assert (header.base_offset, header.last_offset, header.record_count, header.size, header.crc) == (
                    batch.base_offset,
                    batch.last_offset,
                    batch.count,
                    batch.size,
                    batch.crc,
                )
                assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.leader_epoch,
                )
                assert (header.is_transactional, header.is_control, header.delete_horizon_ms, header.max_timestamp) == (
                    batch.is_transactional,
                    batch.is_control,
                    batch.delete_horizon_ms,
                    batch.max_timestamp,
                )
                assert (header.codec.name.lower(), header.is_log_append_time) == (
                    batch.codec,
                    batch.timestamp_type == "LogAppendTime",
                )
                if not header.is_control:
                    assert [printed(record) for record in records] == [
                        (each.offset, each.timestamp, each.key, each.value, each.header_keys) for each in batch.records
                    ]


def printed(record: Record) -> tuple[int, int, str | None, str | None, tuple[str, ...]]:
    key, value = (None if content is None else content.decode() for content in (record.key, record.value))
    return record.offset, record.timestamp, key, value, tuple(name for name, _ in record.headers)


def test_kafka_finds_our_indexes_in_order(of_ours: Path) -> None:
    indexes = sorted([*of_ours.glob("*/*.index"), *of_ours.glob("*/*.timeindex")])
    assert sum(index.stat().st_size for index in indexes) > 1000
    assert complaints(parse_dump(dump_log(*indexes, index="verify", deep=False))) == []
    assert complaints(parse_dump(dump_log(*indexes, index="sanity", deep=False))) == []


def test_kafka_reads_our_aborted_transactions(of_ours: Path, dumped: dict[str, list[DumpedFile]]) -> None:
    files = parse_dump(dump_log(*sorted(of_ours.glob("transactions-0/*.txnindex"))))
    assert complaints(files) == []
    entries = [entry for file in files for entry in file.entries]
    begun: dict[int, int] = {}
    aborted = []
    for batch in (batch for file in dumped["transactions"] for batch in file.batches):
        if batch.is_control:
            first = begun.pop(batch.producer_id)
            if batch.records[0].marker == "ABORT":
                aborted.append((batch.producer_id, first, batch.last_offset))
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    assert len(aborted) == 8
    assert [(int(e["producerId"]), int(e["firstOffset"]), int(e["lastOffset"])) for e in entries] == aborted


def test_kafka_reads_our_producer_snapshots(of_ours: Path, tmp_path: Path) -> None:
    """And leaves our part of them alone, which has the earlier batches of each producer."""
    snapshots = sorted(of_ours.glob("*/*.snapshot"))
    assert any(decode(str(path), path.read_bytes()).batches for path in snapshots)
    files = parse_dump(dump_log(*snapshots))
    assert complaints(files) == []
    assert all(file.entries for file in files)
    last = {file.path.parent.name: file.entries for file in files}  # of each partition the newest
    with opened(copied(of_ours, tmp_path)) as directory:
        for name, log in directory.logs.items():
            read_by_kafka = {int(entry["producerId"]): entry for entry in last[str(name)]}
            assert set(read_by_kafka) == set(log.producers.producers)
            for producer_id, producer in log.producers.producers.items():
                entry = read_by_kafka[producer_id]
                assert int(entry["producerEpoch"]) == producer.epoch
                assert int(entry.get("lastSequence", -1)) == producer.last_sequence
                assert int(entry.get("lastOffset", -1)) == producer.last_offset
            undecided = [optional_long(entry["currentTxnFirstOffset"]) for entry in read_by_kafka.values()]
            assert (
                min((first for first in undecided if first is not None), default=None)
                == log.producers.first_unstable_offset
            )


# Both wrote it -------------------------------------------------------------------------------------------------------


def test_kafka_starts_on_a_directory_in_which_we_went_on(of_kafka: KafkaDirectory, tmp_path: Path) -> None:
    path = copied(of_kafka.path, tmp_path)
    with opened(path) as directory:
        logs = {topic: directory.logs[TopicPartition(topic, 0)] for topic in TOPICS}
        for topic, log in logs.items():
            writer = Writer(log, producer_id=5000, now_ms=NOW_MS)
            writer.write(*shapes(5000, 6, keys=NEW_KEYS))
            log.roll(now_ms=NOW_MS)
            writer.write(*shapes(5001, 3, keys=NEW_KEYS), transactional=True)
            writer.end(commit=topic != "transactions")
        levels = ("read_uncommitted", "read_committed")
        expected = {(topic, level): consumed(log, level) for topic, log in logs.items() for level in levels}
    with ApacheKafka(SETTINGS, data_dir=path, parent=tmp_path) as kafka:
        said = run_program("Consume", kafka.bootstrap, ",".join(levels), *TOPICS)
    read: dict[tuple[str, str], list[Json]] = {key: [] for key in expected}
    for record in map(json.loads, said.splitlines()):
        read[record["topic"], record["isolation"]].append(record)
    assert {key: result(records) for key, records in read.items()} == expected


def test_kafka_complains_of_nothing_when_it_starts_on_partitions_without_records(
    of_kafka: KafkaDirectory, tmp_path: Path
) -> None:
    """Without their indexes Kafka would log an error for each of them, and recover it."""
    path = copied(of_kafka.path, tmp_path)
    with opened(path) as directory:
        directory.create(TopicPartition("empty", 0), LogConfig(), now_ms=NOW_MS, topic_id=bytes(range(1, 17)))
        directory.logs[TopicPartition("codec-none", 0)].roll(now_ms=NOW_MS)
    with ApacheKafka(SETTINGS, data_dir=path, parent=tmp_path) as kafka:
        said = kafka.log.read_text()
    assert "empty-0" in said
    assert [line for line in said.splitlines() if "index file" in line] == []
