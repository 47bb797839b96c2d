"""Ends transactions whose marker is lost: a log continues behind the object store, and the marker was not in it.

Only what lies below the last stable offset is copied, so such a transaction had been committed or aborted. Which of the
two is not known any more, and its coordinator will send no second marker: it is aborted, or consumers with
read_committed would wait for ever.
"""

from collections.abc import Mapping
from typing import Final

from trioka.protocol import batch
from trioka.protocol.record import EndTxnMarker
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.log import Log
from trioka.storage.producers.producer_state import MAX_EPOCH

FENCED: Final = 1  # added to the producer's epoch, so that the producer itself cannot go on


def abort_undecided(
    log: Log, open_transactions: Mapping[int, int], *, leader_epoch: int, now_ms: int, epoch_gap: int = 0
) -> list[int]:
    """Aborts those of these transactions (producer id → first offset) that the log still has as open. Returns the ids
    of their producers. Blocks."""
    aborted = []
    for producer_id, first_offset in sorted(open_transactions.items()):
        producer = log.producers.producers.get(producer_id)
        if producer is None or producer.transaction_first_offset != first_offset:
            continue  # the log has the marker
        marker = batch.build_marker(
            EndTxnMarker(commit=False, coordinator_epoch=max(producer.coordinator_epoch, 0)),
            offset=log.log_end_offset,
            timestamp=now_ms,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=min(producer.epoch + epoch_gap, MAX_EPOCH),
        )
        log.append_as_leader(
            memoryview(marker), leader_epoch=leader_epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )
        aborted.append(producer_id)
    return aborted
