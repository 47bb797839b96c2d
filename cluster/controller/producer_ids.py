"""Blocks of producer ids: each id is given once in the life of a cluster."""

from typing import Final

from trioka.protocol.errors import UnknownServerError
from trioka.protocol.internal_records.metadata import ProducerIdsRecord
from trioka.protocol.lazy_dataclass import frozen

from ..decision import Decision
from ..image.metadata import Metadata
from .broker_changes import check_broker_epoch

# The block size of Kafka: a broker requests blocks seldom, and wastes at most one when it stops.
BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = (1 << 63) - 1


@frozen
class ProducerIdBlock:
    first: int
    size: int


def allocate(metadata: Metadata, broker_id: int, broker_epoch: int) -> Decision[ProducerIdBlock]:
    check_broker_epoch(metadata, broker_id, broker_epoch)
    first = metadata.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise UnknownServerError("there are no producer ids left")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return Decision(records=(record,), replies=(ProducerIdBlock(first=first, size=BLOCK_SIZE),))
