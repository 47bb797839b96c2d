"""Transaction coordinators with one mistake in what they are made of."""

from types import ModuleType
from typing import cast

from mutants.plant import planted

from trioka.coordinator import transaction, transactions
from trioka.coordinator.transactions import TransactionCoordinator

# What others compare or catch stays the same.
SAME = ("Phase", "NEXT", "PREPARED")
TAKEN = ("Transaction", "EPOCHS_PER_END", "MAX_EPOCH", "is_exhausted")
UNCHANGED = "class TransactionCoordinator:"


def coordinator_with(module: ModuleType, right: str, wrong: str) -> type[TransactionCoordinator]:
    if module is transactions:
        copy = planted(transactions, right, wrong)
    else:
        assert module is transaction
        mistaken = planted(transaction, right, wrong)
        vars(mistaken).update({name: getattr(transaction, name) for name in SAME})
        copy = planted(transactions, UNCHANGED, UNCHANGED)
        vars(copy).update({name: getattr(mistaken, name) for name in TAKEN})
    vars(copy)["NeedsProducerId"] = transactions.NeedsProducerId
    return cast(type[TransactionCoordinator], copy.TransactionCoordinator)
