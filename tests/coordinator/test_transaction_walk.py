"""Transactions hold together, whatever happens to producers, requests, markers and coordinators: a random walk, and
mistakes that it notices."""

from types import ModuleType

import pytest
from mutants.transactions import coordinator_with
from simulation.transaction_walk import Walk

from trioka.coordinator import transaction, transactions
from trioka.coordinator.transaction import MAX_EPOCH


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first_epoch", [0, MAX_EPOCH - 7])
def test_the_reported_outcome_of_a_transaction_holds(seed: int, version: int, first_epoch: int) -> None:
    walk = Walk(seed, version=version, first_epoch=first_epoch)
    walk.run(2500)
    result = [fate for client in walk.clients for fate in client.outcomes.values()]
    assert result.count(True) > 10 and result.count(False) > 5 and walk.crashes > 2, "too little happened"


# What is changed, and what the walk then complains of.
MISTAKES = [
    ("T4: no such verdict", transactions, "is_commit=found.phase is Phase.PREPARE_COMMIT,", "is_commit=True,"),
    ("T4: .* ends without", transactions, "unmarked.difference_update(partitions)", "unmarked.clear()"),
    (
        "T5: |refuses",
        transaction,
        "epoch, last_epoch = min(self.epoch + 1, MAX_EPOCH), self.epoch",
        "epoch, last_epoch = self.epoch, self.epoch",
    ),
    (
        "T5: got",
        transactions,
        "            if found.phase is not _complete(is_commit):\n",
        "            if found.phase not in (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT):\n",
    ),
    ("T7: ", transactions, "return [self._next_step(name, now) for name in list(self.transactions)]", "return []"),
    ("T7: ", transactions, "elif kind == RETRY and found.phase in PREPARED:", "elif False:"),
    ("T7: |refuses", transactions, "coordinator_epoch=self._epoch,", "coordinator_epoch=min(self._epoch, 2),"),
]


@pytest.mark.parametrize(("complaint", "module", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(complaint: str, module: ModuleType, right: str, wrong: str) -> None:
    coordinator = coordinator_with(module, right, wrong)

    def walk() -> None:
        for seed in range(20):
            Walk(seed, coordinator=coordinator).run(2500)

    with pytest.raises(AssertionError, match=complaint):
        walk()
