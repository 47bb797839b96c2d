"""Records of `__transaction_state`: the state of a transactional id."""

from ..primitives import Int8, Int16, Int32, Int64, String
from ..schema import Entry, Struct, field


class TransactionLogKey(Entry, key=0, versions="0"):
    transactional_id: String = field("0")


class TransactionLogValue(Entry, key=0, versions="0-1", flexible="1+"):
    class Topic(Struct):
        topic: String
        partition_ids: list[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = field("1+", default=-1, tag=0, tagged="1+")
    next_producer_id: Int64 = field("1+", default=-1, tag=1, tagged="1+")
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[Topic] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", default=0, tag=2, tagged="1+")
