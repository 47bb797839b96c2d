"""Tracks transactions in compaction, batch by batch from the start of the log: which were aborted, which are empty.

Records of an aborted transaction go at once. Its marker stays while any batch of the transaction is still there, for a
reader needs to know where the aborted records end; the round that removes the last batch has still seen it, so the
marker goes in a later round at the earliest. The same holds for a commit marker, and neither goes at once: consumers
that are reading through the transaction must find its end, so an idle marker is given a delete horizon, like a
tombstone, and goes after it.

The transaction index of the new segment gets an entry for every abort marker that stays because of its batches.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from trioka.protocol.batch import BatchHeader
from trioka.protocol.record import EndTxnMarker

from ..segments.txn_index import AbortedTransaction, TransactionIndex


class TransactionFilter:
    """Batches must be shown in the order of the log, and aborted transactions before the batches they have."""

    __slots__ = ("_aborted", "_committed", "_to_come", "index")

    def __init__(self) -> None:
        self.index: TransactionIndex | None = None  # of the segment that is being written
        self._to_come: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer id; whether a batch was seen
        self._committed: set[int] = set()  # producers with batches of a transaction that will be committed

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Adds aborted transactions with records in the next segment. Some may have been returned for an earlier
        one."""
        for transaction in transactions:
            heappush(self._to_come, (transaction.first_offset, transaction))

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        found = self._aborted.get(batch.producer_id)
        if found is None or found[0].last_offset < batch.base_offset:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = (found[0], True)
        return True

    def is_idle_marker(self, batch: BatchHeader, marker: EndTxnMarker | None) -> bool:
        """Whether a control batch is the marker of a transaction without remaining records.

        None means an empty batch, or a control record of another kind, which always stays.
        """
        self._begin_up_to(batch.last_offset)
        if marker is None:
            return batch.record_count == 0
        if marker.commit:
            met = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not met
        found = self._aborted.pop(batch.producer_id, None)
        if found is None or not found[1]:
            return True
        if self.index is not None:
            self.index.append(found[0])
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            _, transaction = heappop(self._to_come)
            known = self._aborted.get(transaction.producer_id)
            if known is None or known[0].last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = (transaction, False)
