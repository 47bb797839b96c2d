"""Errors after which a client retries, at another node or a little later; and those that end a transaction."""

from typing import Final

from trioka.protocol import errors

PASSES: Final = frozenset(
    error.code
    for error in (
        errors.NotLeaderOrFollower,
        errors.NotCoordinator,
        errors.CoordinatorLoadInProgress,
        errors.CoordinatorNotAvailable,
        errors.LeaderNotAvailable,
        errors.UnknownTopicOrPartition,
        errors.UnknownTopicId,
        errors.ConcurrentTransactions,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.OffsetNotAvailable,
        errors.FencedLeaderEpoch,
        errors.UnknownLeaderEpoch,
        errors.UnstableOffsetCommit,
        errors.RequestTimedOut,
    )
)

TRANSACTION_ENDED: Final = frozenset(
    error.code
    for error in (
        errors.InvalidProducerEpoch,
        errors.ProducerFenced,
        errors.InvalidTxnState,
        errors.InvalidProducerIdMapping,
        errors.TransactionAbortable,
        errors.UnknownProducerId,
    )
)
"""The coordinator has ended the transaction by itself, mostly because it took longer than its timeout."""
