"""The phases of a classic group, as tables.

    Empty ──join──▶ PreparingRebalance ──all have joined──▶ CompletingRebalance ──assignment written──▶ Stable
      ▲                  │   ▲                                    │                                       │
      └──none joined─────┘   └────────── a member joins, leaves, or has changed ──────────────────────────┘

A dead group was deleted, or has become a group of another kind.
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

# The error of a Heartbeat from a member of the current generation.
HEARTBEAT_ERRORS: Final[Mapping[Phase, type[KafkaError] | None]] = {
    Phase.EMPTY: UnknownMemberId,
    Phase.PREPARING: RebalanceInProgress,
    Phase.COMPLETING: None,
    Phase.STABLE: None,
}
