"""Errors that a client gets over by asking again: somebody else, or a little later."""

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
