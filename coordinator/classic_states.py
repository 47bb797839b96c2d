"""The phases of a classic group, as tables.

    Empty ──join──▶ PreparingRebalance ──all have joined──▶ CompletingRebalance ──the leader has shared out──▶ Stable
      ▲                  │   ▲                                    │                                              │
      └──nobody joined───┘   └────────── somebody comes, goes, or has changed ───────────────────────────────────┘

A group that is dead is not one any more: it was deleted, or has become a group of another kind.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from trioka.protocol.errors import KafkaError, RebalanceInProgress, UnknownMemberId


class Phase(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.EMPTY: frozenset({Phase.PREPARING}),
    Phase.PREPARING: frozenset({Phase.COMPLETING, Phase.EMPTY}),
    Phase.COMPLETING: frozenset({Phase.STABLE, Phase.PREPARING}),
    Phase.STABLE: frozenset({Phase.PREPARING}),
    Phase.DEAD: frozenset(),
}

# What a member that is in the group's generation is told when it says that it is alive.
HEARTBEAT_SAYS: Final[Mapping[Phase, type[KafkaError] | None]] = {
    Phase.EMPTY: UnknownMemberId,
    Phase.PREPARING: RebalanceInProgress,
    Phase.COMPLETING: None,
    Phase.STABLE: None,
}
