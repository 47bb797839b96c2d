"""AlterPartition (56): a leader requests a change of its partition's in-sync replicas from the controller.

v2 topics by id, and the leader's recovery state · v3 each replica with its broker epoch
"""

from ..primitives import Int8, Int16, Int32, Int64, Uuid
from ..schema import Request, Response, Struct, field


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class NewIsrWithEpoch(Struct):
                broker_id: Int32 = field("3+")
                broker_epoch: Int64 = field("3+", default=-1)

            partition_index: Int32
            leader_epoch: Int32
            new_isr: list[Int32] = field("0-2", default=[])
            new_isr_with_epochs: list[NewIsrWithEpoch] = field("3+", default=[])
            leader_recovery_state: Int8 = field("1+", default=0)
            partition_epoch: Int32

        topic_id: Uuid = field("2+", ignorable=True)
        partitions: list[Partition]

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[Topic]


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32
            isr: list[Int32]
            leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
            partition_epoch: Int32

        topic_id: Uuid = field("2+", ignorable=True)
        partitions: list[Partition]

    throttle_time_ms: Int32
    error_code: Int16
    topics: list[Topic]
