"""What a `.snapshot` file beside a segment holds: the producers that a log remembers."""

from ..primitives import Int16, Int32, Int64, Uint32
from ..schema import Message, Struct, field


class ProducerSnapshot(Message, versions="1"):
    class ProducerEntry(Struct):
        producer_id: Int64 = field("1")
        epoch: Int16 = field("1")
        last_sequence: Int32 = field("1")
        last_offset: Int64 = field("1")
        offset_delta: Int32 = field("1")
        timestamp: Int64 = field("1")
        coordinator_epoch: Int32 = field("1")
        current_txn_first_offset: Int64 = field("1")

    crc: Uint32 = field("1")
    producer_entries: list[ProducerEntry] = field("1")
