"""The configuration of a log: Kafka's topic configs, in snake_case, with the defaults of 4.3.

A `LogConfig` is plain data: made by the owner of the configuration (a topic's overrides over the broker's defaults),
handed to a `Log`, and replaced whole when a key changes. Storage never parses a string. Keys that concern replication
(`min.insync.replicas`, throttles, `unclean.leader.election.enable`) are not storage's business and are not here.

Ranges are checked once, when the object is made: a wrong value is a bug of the caller, which validated the user's
input against the configuration's own table.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from trioka.protocol.compression import Codec
from trioka.protocol.lazy_dataclass import frozen

NO_LIMIT: Final = -1  # of retention.ms and retention.bytes
AS_WHOLE_LOG: Final = -2  # of local.retention.ms and local.retention.bytes
FOREVER_MS: Final = 2**63 - 1  # Kafka's way of writing "never" in a long
DAY_MS: Final = 24 * 60 * 60 * 1000
INT32_MAX: Final = 2**31 - 1


SubjectStrategy: TypeAlias = Literal["topic", "record", "topic_record"]


class SchemaIdRules(NamedTuple):
    """How the subjects of schemas are named that keys and values must have; None: they need no schema."""

    key: SubjectStrategy | None
    value: SubjectStrategy | None


@frozen
class LogConfig:
    """One topic's storage settings. Units stand last; -1 means "no limit" only where it does in Kafka."""

    # Segments and indexes.
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096

    # Retention.
    cleanup_policy: frozenset[Literal["compact", "delete"]] = frozenset(("delete",))
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = NO_LIMIT
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS

    # Tiered storage. -2: as for the whole log.
    remote_storage: bool = False
    remote_copy_disable: bool = False
    local_retention_ms: int = AS_WHOLE_LOG
    local_retention_bytes: int = AS_WHOLE_LOG

    # Validation.
    max_message_bytes: int = 1024 * 1024 + 12  # a batch of a MiB and its log overhead
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: Codec | None = None  # None is `producer`: the client's codec
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    validate_records: Literal["full", "header"] = "full"  # of a client's batch; append_validation.py has the checks

    # Checked by the handler of Produce, before the log.
    schema_ids: SchemaIdRules | None = None

    # When it is made durable.
    flush_messages: int = FOREVER_MS
    flush_ms: int = FOREVER_MS

    def __post_init__(self) -> None:
        # Kafka's floor for segment.bytes is a MiB for topics and 14 bytes for tests; anything positive works here.
        assert 0 < self.segment_bytes <= INT32_MAX, f"segment.bytes {self.segment_bytes}: positions are int32"
        assert self.segment_ms >= 1, f"segment.ms {self.segment_ms}"
        assert self.segment_jitter_ms >= 0, f"segment.jitter.ms {self.segment_jitter_ms}"
        assert self.segment_index_bytes >= 4, f"segment.index.bytes {self.segment_index_bytes}"
        assert self.index_interval_bytes >= 0, f"index.interval.bytes {self.index_interval_bytes}"
        assert self.cleanup_policy <= {"compact", "delete"}, f"cleanup.policy {sorted(self.cleanup_policy)}"
        assert self.retention_ms >= NO_LIMIT, f"retention.ms {self.retention_ms}"
        assert self.file_delete_delay_ms >= 0, f"file.delete.delay.ms {self.file_delete_delay_ms}"
        assert self.delete_retention_ms >= 0, f"delete.retention.ms {self.delete_retention_ms}"
        assert 0 <= self.min_cleanable_dirty_ratio <= 1, f"min.cleanable.dirty.ratio {self.min_cleanable_dirty_ratio}"
        assert 0 <= self.min_compaction_lag_ms <= self.max_compaction_lag_ms, "min.compaction.lag.ms exceeds the max"
        assert self.max_compaction_lag_ms >= 1, f"max.compaction.lag.ms {self.max_compaction_lag_ms}"
        assert 0 <= self.max_message_bytes <= INT32_MAX, f"max.message.bytes {self.max_message_bytes}"
        assert self.message_timestamp_type in ("CreateTime", "LogAppendTime"), self.message_timestamp_type
        assert self.message_timestamp_before_max_ms >= 0, "message.timestamp.before.max.ms is negative"
        assert self.message_timestamp_after_max_ms >= 0, "message.timestamp.after.max.ms is negative"
        assert self.flush_messages >= 1, f"flush.messages {self.flush_messages}"
        assert self.flush_ms >= 0, f"flush.ms {self.flush_ms}"

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is closed: a log that is compacted must let go of it by max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def retention_ms_on_disk(self) -> int:
        """local.retention.ms, or the limit that it refers to. While nothing is copied, local segments stay as long."""
        whole = self.local_retention_ms == AS_WHOLE_LOG or self.remote_copy_disable
        return self.retention_ms if whole else self.local_retention_ms

    @property
    def retention_bytes_on_disk(self) -> int:
        whole = self.local_retention_bytes == AS_WHOLE_LOG or self.remote_copy_disable
        return self.retention_bytes if whole else self.local_retention_bytes

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    def compression_level(self, codec: Codec) -> int | None:
        """The configured level when the broker compresses for a topic; None where the codec has no levels."""
        match codec:
            case Codec.GZIP:
                return self.compression_gzip_level
            case Codec.LZ4:
                return self.compression_lz4_level
            case Codec.ZSTD:
                return self.compression_zstd_level
            case _:
                return None
