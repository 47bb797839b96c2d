"""Records of `__consumer_offsets` that committed offsets and classic groups leave.

The first int16 of a key is its kind, which is also the key of the class here; the first int16 of a value is its
version. Keys of kind 0 and 1 hold the same.
"""

from ..primitives import NULL_UUID, Bytes, Int32, Int64, String, Uuid
from ..schema import Entry, Struct, field


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: String | None = field("3+", default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class LegacyOffsetCommitKey(Entry, key=0, versions="0"):
    group: String = field("0")
    topic: String = field("0")
    partition: Int32 = field("0")


class LegacyOffsetCommitValue(Entry, key=0, versions="0"):
    offset: Int64 = field("0")
    metadata: String = field("0")
    commit_timestamp: Int64 = field("0")


class OffsetCommitKey(Entry, key=1, versions="0"):
    group: String = field("0")
    topic: String = field("0")
    partition: Int32 = field("0")


class OffsetCommitValue(Entry, key=1, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=NULL_UUID, tag=0, tagged="4+", ignorable=True)


class GroupMetadataKey(Entry, key=2, versions="0"):
    group: String = field("0")


class GroupMetadataValue(Entry, key=2, versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]
