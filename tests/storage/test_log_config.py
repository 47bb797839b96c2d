"""The defaults are Kafka 4.3's. (They were printed by its own LogConfig.)"""

import dataclasses

import pytest

from trioka.protocol.compression import Codec
from trioka.storage.log_config import LogConfig

KAFKA = {
    "cleanup.policy": frozenset(("delete",)),
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": None,  # producer
    "compression.zstd.level": 3,
    "delete.retention.ms": 86400000,
    "file.delete.delay.ms": 60000,
    "flush.messages": 9223372036854775807,
    "flush.ms": 9223372036854775807,
    "index.interval.bytes": 4096,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 9223372036854775807,
    "max.message.bytes": 1048588,
    "message.timestamp.after.max.ms": 3600000,
    "message.timestamp.before.max.ms": 9223372036854775807,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "remote.copy.disable": False,  # remote.log.copy.disable
    "remote.storage": False,  # remote.storage.enable
    "retention.bytes": -1,
    "retention.ms": 604800000,
    "segment.bytes": 1073741824,
    "segment.index.bytes": 10485760,
    "segment.jitter.ms": 0,
    "segment.ms": 604800000,
}
OURS = {"validate.records": "full", "schema.ids": None}  # Kafka always checks records, and never schemas


def test_the_defaults_are_kafkas() -> None:
    ours = {field.name.replace("_", "."): field.default for field in dataclasses.fields(LogConfig)}
    assert ours == KAFKA | OURS


@pytest.mark.parametrize(
    "wrong", [{"segment_bytes": 2**31}, {"segment_ms": 0}, {"retention_ms": -2}, {"min_cleanable_dirty_ratio": 1.5}]
)
def test_a_value_that_cannot_be_is_a_mistake_of_the_caller(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        LogConfig(**wrong)  # type: ignore[arg-type]


def test_each_codec_has_its_own_level() -> None:
    config = LogConfig(compression_gzip_level=6)
    assert [config.compression_level(codec) for codec in Codec] == [None, 6, None, 9, 3]
