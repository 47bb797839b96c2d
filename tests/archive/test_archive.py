"""The archive returns what the log itself returns: records, isolation, limits, positions, and errors by name."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.archive_objects import (
    TOPIC_ID,
    Objects,
    append_records,
    as_kafka_writes,
    digest,
    digest_of_log,
    end_transaction,
    new_log,
    objects_of,
    read_log,
    sample_log,
    some_records,
)
from support.archive_stores import BUCKET, put_objects, s3_server
from support.log_fixtures import NOW_MS

from trioka.archive import (
    AmbiguousTopic,
    Archive,
    ArchivedRecord,
    ArchiveError,
    DamagedSegment,
    MissingOffsets,
    StoreUnavailable,
    UnknownPartition,
)
from trioka.archive.store import ReadOnlyStore
from trioka.protocol.compression import Codec
from trioka.protocol.primitives import uuid_text
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.manifest import SegmentManifest, Tombstone, decode_manifest, encode_tombstone
from trioka.storage.log import Log

ISOLATIONS = ("read_committed", "read_uncommitted")


def digest_of(records: Iterator[ArchivedRecord]) -> str:
    return digest(
        (each.offset, each.timestamp, each.key, each.value, each.headers, each.leader_epoch) for each in records
    )


def archive_of(directory: Path, objects: Objects) -> Archive:
    directory.mkdir(exist_ok=True)
    put_objects(f"file://{directory}", objects)
    return Archive(f"file://{directory}")


def archived(directory: Path, log: Log) -> Archive:
    return archive_of(directory, objects_of(log))


def test_archive_and_log_agree_to_the_hash(tmp_path: Path) -> None:
    log = sample_log(config=new_log().config)
    codecs = {header.codec for header, _ in read_log(log, "read_uncommitted")}
    assert codecs == set(Codec) and len(log.epochs.entries) == 2
    expected = {isolation: digest_of_log(log, isolation) for isolation in ISOLATIONS}
    assert expected["read_committed"] != expected["read_uncommitted"]
    end = log.log_end_offset
    archive = archived(tmp_path, log)
    for isolation in ISOLATIONS:
        records = archive.records("orders", 0, isolation=isolation)
        assert digest_of(records) == expected[isolation]
        assert records.position == end


def test_archive_and_log_agree_on_s3(tmp_path: Path) -> None:
    log = sample_log(2)
    expected = {isolation: digest_of_log(log, isolation) for isolation in ISOLATIONS}
    with s3_server() as options:
        url = f"s3://{BUCKET}/some/prefix"
        put_objects(url, objects_of(log), options)
        archive = Archive(url, options)
        assert [topic.name for topic in archive.topics()] == ["orders"]
        assert archive.partitions("orders") == [0]
        for isolation in ISOLATIONS:
            assert digest_of(archive.records("orders", 0, isolation=isolation)) == expected[isolation]
        with pytest.raises(UnknownPartition):
            archive.records("orders", 1)
        with pytest.raises(StoreUnavailable):
            Archive("s3://no-such-bucket", options).topics()


def test_what_kafka_wrote_with_the_plugin_is_read_too(tmp_path: Path) -> None:
    log = sample_log(3)
    expected = digest_of_log(log, "read_committed")
    archive = archive_of(tmp_path, as_kafka_writes(objects_of(log)))
    assert digest_of(archive.records("orders", 0)) == expected


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_reader_goes_on_at_its_position_wherever_it_stopped(tmp_path: Path, isolation: str) -> None:
    archive = archived(tmp_path, sample_log(4))
    whole = list(archive.records("orders", 0, isolation=isolation))
    random, position, found = Random(4), 0, []
    while True:
        records = archive.records("orders", 0, offsets=(position, None), isolation=isolation)
        part = [record for _, record in zip(range(random.randrange(1, 40)), records, strict=False)]
        if not part and records.position == position:
            break
        found += part
        position = records.position
        records.close()
    assert found == whole


def test_offsets_and_times_choose_records_and_segments(tmp_path: Path) -> None:
    archive = archived(tmp_path, sample_log(5))
    whole = list(archive.records("orders", 0))
    segments = archive.segments("orders", 0)
    random = Random(5)
    for _ in range(60):
        first, last = sorted(random.randrange(420) for _ in range(2))
        found = list(archive.records("orders", 0, offsets=(first, last)))
        assert found == [record for record in whole if first <= record.offset < last]
        start, end = sorted(NOW_MS + random.randrange(-10, 31_000) for _ in range(2))
        found = list(archive.records("orders", 0, times=(start, end)))
        assert found == [record for record in whole if start <= record.timestamp < end]
        chosen = archive.segments("orders", 0, times=(start, end))
        assert {each.start_offset for each in chosen} >= {
            each.start_offset
            for each in segments
            for record in found
            if each.start_offset <= record.offset < each.end_offset
        }
    assert len(archive.segments("orders", 0, times=(NOW_MS + 29_000, None))) == 1
    assert len(archive.segments("orders", 0, times=(None, NOW_MS + 1))) < len(segments)
    assert len(archive.segments("orders", 0, offsets=(0, 1))) == 1


def test_records_have_the_type_of_their_timestamp(tmp_path: Path) -> None:
    log = new_log(replace(new_log().config, message_timestamp_type="LogAppendTime"))
    append_records(log, Record(0, 5, b"k", None))
    (record,) = archived(tmp_path, log).records("orders", 0)
    assert record == ArchivedRecord(0, 0, NOW_MS, "LogAppendTime", b"k", None, (), 0)  # type: ignore[arg-type]


def test_read_committed_ends_before_a_transaction_that_the_archive_does_not_decide(tmp_path: Path) -> None:
    log = new_log()
    append_records(log, *some_records(Random(1), 3))
    append_records(log, Record(0, 1, b"a", b"1"), producer=(7, 0, 0), transactional=True)
    append_records(log, *some_records(Random(2), 3))
    log.roll(now_ms=NOW_MS)
    upto = log.log_end_offset
    end_transaction(log, 7, commit=False)
    append_records(log, *some_records(Random(3), 2))
    log.advance_high_watermark(log.log_end_offset)
    expected = digest_of_log(log, "read_committed")
    objects = objects_of(log)
    first_segment = {key: data for key, data in objects.items() if "/00000000000000000000-" in key}
    archive = archive_of(tmp_path, first_segment)
    records = archive.records("orders", 0)
    assert [record.offset for record in records] == [0, 1, 2]
    assert records.position == 3
    assert archive.partition("orders", 0).last_stable_offset == 3 and archive.partition("orders", 0).end_offset == upto
    archive = archive_of(tmp_path, objects)  # the rest is uploaded, with the abort marker
    more = archive.records("orders", 0, offsets=(records.position, None))
    assert [record.offset for record in more] == [4, 5, 6, 8, 9]
    assert digest_of(archive.records("orders", 0)) == expected


def three_segments() -> tuple[Objects, list[int]]:
    """Objects of three segments, of ten records each, and the offset at which each begins."""
    log = new_log()
    for number in range(3):
        append_records(log, *some_records(Random(number), 9), codec=Codec.LZ4)
        append_records(log, Record(0, 1, b"t", b"%d" % number), producer=(7, 0, number), transactional=True)
        log.roll(now_ms=NOW_MS)
    end_transaction(log, 7, commit=True)
    log.advance_high_watermark(log.log_end_offset)
    return objects_of(log), [0, 10, 20]


def without(objects: Objects, start: int, suffix: str = "") -> Objects:
    return {key: data for key, data in objects.items() if f"/{start:020d}-" not in key or not key.endswith(suffix)}


def test_missing_offsets_are_an_error_or_left_out(tmp_path: Path) -> None:
    objects, _ = three_segments()
    archive = archive_of(tmp_path, without(objects, 10))
    with pytest.raises(MissingOffsets, match="offsets 10 to 19 are not in the archive"):
        list(archive.records("orders", 0, isolation="read_uncommitted"))
    found = archive.records("orders", 0, isolation="read_uncommitted", fail_on_data_loss=False)
    assert [record.offset for record in found] == [*range(10), *range(20, 30)]
    assert [hole.start_offset for hole in archive.partition("orders", 0).holes] == [10]
    within = archive.records("orders", 0, offsets=(20, None), isolation="read_uncommitted")
    assert len(list(within)) == 10


def test_records_whose_marker_is_lost_are_not_committed(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, without(three_segments()[0], 10))
    with pytest.raises(MissingOffsets):
        list(archive.records("orders", 0, offsets=(0, 10)))
    found = archive.records("orders", 0, fail_on_data_loss=False)
    assert 9 not in [record.offset for record in found]


def test_a_position_before_the_first_segment_is_missing_offsets(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, without(three_segments()[0], 0))
    assert next(archive.records("orders", 0)).offset == 10
    with pytest.raises(MissingOffsets, match="offsets 5 to 9"):
        list(archive.records("orders", 0, offsets=(5, None)))


def test_a_cancelled_upload_and_one_without_a_manifest_are_no_segments(tmp_path: Path) -> None:
    objects, _ = three_segments()
    (key,) = [key for key in objects if "/00000000000000000020-" in key and key.endswith("manifest")]
    manifest = decode_manifest(objects[key])
    assert isinstance(manifest, SegmentManifest) and manifest.uploader is not None
    tombstone = Tombstone(segment=manifest.segment, broker_id=1, event_timestamp_ms=NOW_MS, uploader=manifest.uploader)
    cancelled = archive_of(tmp_path, without(objects, 30) | {key: encode_tombstone(tombstone)})
    assert [each.start_offset for each in cancelled.segments("orders", 0)] == [0, 10]
    (tmp_path / key).unlink()
    assert [each.start_offset for each in cancelled.segments("orders", 0)] == [0, 10]


def test_a_manifest_below_another_key_is_refused(tmp_path: Path) -> None:
    objects, _ = three_segments()
    (key,) = [key for key in objects if "/00000000000000000020-" in key and key.endswith("manifest")]
    archive = archive_of(tmp_path, objects | {key.replace("/0/", "/1/"): objects[key]})
    with pytest.raises(DamagedSegment, match="manifest of another segment"):
        archive.segments("orders", 1)
    assert len(archive.segments("orders", 0)) == 4


def test_an_object_that_a_rule_deleted_is_named(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, without(three_segments()[0], 10, ".log"))
    with pytest.raises(ArchiveError, match=r"there is no object orders-.*/00000000000000000010-.*\.log"):
        list(archive.records("orders", 0, isolation="read_uncommitted"))
    found = archive.records("orders", 0, isolation="read_uncommitted", fail_on_data_loss=False)
    assert [record.offset for record in found] == [*range(10), *range(20, 30)]


def test_a_topic_that_was_created_again_needs_its_id(tmp_path: Path) -> None:
    other_id = bytes(range(16))
    log = new_log()
    append_records(log, Record(0, 1, b"old", b""))
    archive_of(tmp_path, objects_of(log, topic_id=other_id))
    log = new_log()
    append_records(log, Record(0, 1, b"new", b""))
    archive = archived(tmp_path, log)
    with pytest.raises(AmbiguousTopic, match=uuid_text(other_id)):
        archive.records("orders", 0)
    assert next(archive.records("orders", 0, topic_id=other_id)).key == b"old"
    assert next(archive.records("orders", 0, topic_id=uuid_text(TOPIC_ID))).key == b"new"


def test_cancelled_uploads_of_a_deleted_topic_are_no_topic_of_that_name(tmp_path: Path) -> None:
    objects = objects_of(sample_log(6, rounds=2), topic_id=bytes(range(16)))
    for key, data in objects.items():
        manifest = decode_manifest(data) if key.endswith("manifest") else None
        if isinstance(manifest, SegmentManifest) and manifest.uploader is not None:
            tombstone = Tombstone(
                segment=manifest.segment, broker_id=1, event_timestamp_ms=NOW_MS, uploader=manifest.uploader
            )
            archive_of(tmp_path, {key: encode_tombstone(tombstone)})
    archive = archived(tmp_path, sample_log(6, rounds=2))
    assert len(archive.topics()) == 2
    assert list(archive.records("orders", 0))


def test_a_directory_with_blanks_and_percent_signs_is_an_archive(tmp_path: Path) -> None:
    place = tmp_path / "a b%20c"
    place.mkdir()
    put_objects(place.as_uri(), objects_of(sample_log(6, rounds=2)))
    assert list(Archive(place.as_uri()).records("orders", 0))


def test_credentials_are_in_no_text() -> None:
    store = ReadOnlyStore("s3://bucket", {"access_key_id": "a", "secret_access_key": "hidden", "region": "eu-1"})
    assert "hidden" not in repr(store.options) and "region" in repr(store.options)
    with pytest.raises(ArchiveError) as error:
        Archive("az://container/prefix?sig=hidden", {"no_such_option": "x"})
    assert "hidden" not in str(error.value)


def test_wrong_names_and_values_are_one_sentence(tmp_path: Path) -> None:
    archive = archived(tmp_path, sample_log(6, rounds=2))
    for wrong in (
        lambda: archive.partitions("ordres"),
        lambda: archive.records("orders", 7),
        lambda: archive.records("orders", 0, isolation="committed"),
        lambda: archive.records("orders", 0, offsets=(-1, None)),
        lambda: archive.records("orders", 0, topic_id="x"),
        lambda: Archive("nowhere"),
        lambda: Archive("ftp://host/x"),
        lambda: Archive(f"file://{tmp_path}/missing"),
        lambda: Archive(f"file://{tmp_path}", {"region": "x"}),
        lambda: Archive("s3://bucket", {"no_such_option": "x"}),
    ):
        with pytest.raises(ArchiveError) as error:
            wrong()
        assert "\n" not in str(error.value)


def test_foreign_files_and_directories_are_passed_over(tmp_path: Path) -> None:
    archive = archived(tmp_path, sample_log(6, rounds=2))
    (tmp_path / "_trioka" / "cluster").mkdir(parents=True)
    (tmp_path / "_trioka" / "cluster" / "incarnation-0000000001.json").write_text("{}")
    (place,) = tmp_path.glob("orders-*")
    (place / "x").mkdir()
    (place / "x" / "y").write_text("")
    (place / "0" / "notes.txt").write_text("")
    assert [topic.name for topic in archive.topics()] == ["orders"]
    assert archive.partitions("orders") == [0]
    assert list(archive.records("orders", 0))


class CountingStore(ReadOnlyStore):
    """Notes the ranges and objects that are read."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads: list[str] = []
        self.bytes_read = 0

    def read(self, key: str, *, limit: int) -> bytes:
        self.reads.append(key)
        return super().read(key, limit=limit)

    def read_range(self, key: str, start: int, size: int) -> memoryview:
        found = super().read_range(key, start, size)
        self.bytes_read += len(found)
        return found


def test_manifests_are_read_once_and_indexes_only_where_they_are_needed(tmp_path: Path) -> None:
    archive = archived(tmp_path, sample_log(7))
    archive.store = archive.catalog._store = store = CountingStore(archive.url)
    segments = len(archive.segments("orders", 0))
    assert len([key for key in store.reads if key.endswith("manifest")]) == segments
    assert len([key for key in store.reads if key.endswith("indexes")]) == 1  # of the one whose uploader led last
    store.reads.clear()
    archive.segments("orders", 0)
    assert [key for key in store.reads if key.endswith("manifest")] == []


def test_a_batch_in_several_ranges_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sample_log(8)
    expected = digest_of_log(log, "read_committed")
    archive = archived(tmp_path, log)
    for size in (61, 100, 1000):
        monkeypatch.setattr("trioka.archive.ranges.RANGE_BYTES", size)
        assert digest_of(archive.records("orders", 0)) == expected


def test_a_reader_of_few_records_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioka.archive.ranges.RANGE_BYTES", 256)
    archive = archived(tmp_path, sample_log(9, config=replace(new_log().config, segment_bytes=1_000_000)))
    archive.store = store = CountingStore(archive.url)
    (segment,) = archive.segments("orders", 0)
    list(archive.records("orders", 0, offsets=(200, 201), isolation="read_uncommitted"))
    assert 0 < store.bytes_read < segment.manifest.size // 5
