"""Records of `__share_group_state`: how far each share group has come in each partition, whole or as a change."""

from ..primitives import Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Entry, Struct, field


class ShareSnapshotKey(Entry, key=0, versions="0"):
    group_id: String = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


class ShareSnapshotValue(Entry, key=0, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0, tagged="0+")
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


class ShareUpdateKey(Entry, key=1, versions="0"):
    group_id: String = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


class ShareUpdateValue(Entry, key=1, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0, tagged="0+")
    state_batches: list[StateBatch]
