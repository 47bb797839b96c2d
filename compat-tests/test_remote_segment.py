"""Apache Kafka's own readers on the parts of an `.indexes` object and on the `.log` object of a tiered segment."""

from pathlib import Path

import pytest
from dump import complaints, parse_dump
from oracle import dump_log
from support.archive_objects import objects_of, sample_log

from trioka.protocol.remote_segment.indexes import (
    decode_indexes,
    decode_offset_index,
    decode_open_transactions,
    decode_time_index,
    decode_transactions,
)
from trioka.protocol.remote_segment.manifest import SegmentManifest, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix

pytestmark = pytest.mark.usefixtures("apache_kafka")


def test_kafka_reads_the_segment_and_each_of_its_indexes_as_we_do(tmp_path: Path) -> None:
    objects = objects_of(sample_log())
    key = sorted(key for key in objects if key.endswith(ObjectSuffix.MANIFEST))[3]
    manifest = decode_manifest(objects[key])
    assert isinstance(manifest, SegmentManifest) and len(manifest.leader_epochs) == 2
    data = objects[manifest.segment.key(ObjectSuffix.LOG)]
    indexes = decode_indexes(objects[manifest.segment.key(ObjectSuffix.INDEXES)], manifest.indexes)
    name = f"{manifest.start_offset:020d}"
    contents = {
        f"{name}.log": data,
        f"{name}.index": indexes.offset,
        f"{name}.timeindex": indexes.timestamp,
        f"{name}.txnindex": indexes.transaction or b"",
        f"{manifest.next_offset:020d}.snapshot": indexes.producer_snapshot,
    }
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    files = parse_dump(dump_log(*(tmp_path / file for file in contents)))
    assert complaints(files) == []
    log, offsets, times, transactions, producers = files
    assert manifest.content is not None
    assert len(log.batches) == manifest.content.batches
    assert log.batches[-1].last_offset == manifest.end_offset
    start = manifest.start_offset
    assert [(int(entry["offset"]), int(entry["position"])) for entry in offsets.entries] == [
        tuple(entry) for entry in decode_offset_index(indexes.offset, start)
    ]
    assert [(int(entry["timestamp"]), int(entry["offset"])) for entry in times.entries] == [
        tuple(entry) for entry in decode_time_index(indexes.timestamp, start)
    ]
    assert [int(entry["lastOffset"]) for entry in transactions.entries] == [
        entry.last_offset for entry in decode_transactions(indexes.transaction or b"")
    ]
    assert decode_transactions(indexes.transaction or b"")
    is_open = {
        int(entry["producerId"]): int("".join(filter(str.isdigit, entry["currentTxnFirstOffset"])))
        for entry in producers.entries
        if entry["currentTxnFirstOffset"] != "OptionalLong.empty"
    }
    assert decode_open_transactions(indexes.producer_snapshot) == is_open != {}
