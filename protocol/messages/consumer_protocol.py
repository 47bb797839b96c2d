"""The messages that members of a classic consumer group exchange inside JoinGroup and SyncGroup.

The coordinator forwards them, and decodes them only to find the topics that a group reads. Each follows its version, an
int16. No version is flexible.
"""

from ..primitives import Bytes, Int32, String
from ..schema import Message, Struct, field


class ConsumerProtocolSubscription(Message, versions="0-3"):
    class OwnedPartition(Struct):
        topic: String = field("1+")
        partitions: list[Int32] = field("1+")

    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[OwnedPartition] = field("1+", default=[], ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    class AssignedPartition(Struct):
        topic: String
        partitions: list[Int32]

    assigned_partitions: list[AssignedPartition]
    user_data: Bytes | None = field(default=None)
