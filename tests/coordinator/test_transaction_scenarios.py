"""Transactions: producers begin, write, end, are fenced, take too long, ask again and are late, in every phase."""

from types import ModuleType

import pytest
from mutants.transactions import coordinator_with
from support.scenarios import FOLDER, check, files, play
from support.transaction_steps import STEPS, TransactionWorld, show_record

from trioka.coordinator import transaction, transactions


@pytest.mark.parametrize("name", files("transaction"))
def test_responses_to_producers(name: str) -> None:
    check(name, STEPS, TransactionWorld())


MISTAKES = [
    # T5: each end has an epoch of its own …
    (
        "second_generation",
        transaction,
        "epoch, last_epoch = min(self.epoch + 1, MAX_EPOCH), self.epoch",
        "epoch, last_epoch = self.epoch, self.epoch",
    ),
    # … what is repeated is answered as the first time, if it is the same …
    ("second_generation", transactions, "has_overflowed or found.epoch == producer.epoch + 1", "has_overflowed"),
    (
        "second_generation",
        transactions,
        "            if found.phase is not _complete(is_commit):\n",
        "            if found.phase not in (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT):\n",
    ),
    ("late", transactions, "found.phase in (Phase.EMPTY, Phase.ONGOING) or", "found.phase is Phase.EMPTY or"),
    ("second_generation", transactions, "if found.phase is not Phase.ONGOING and is_commit:", "if False:"),
    # … at the last epoch another id comes, and it is repeated, too (KAFKA-18660) …
    (
        "epochs",
        transactions,
        "_given(new_producer_id) if found.is_exhausted else NO_PRODUCER_ID",
        "NO_PRODUCER_ID if True else NO_PRODUCER_ID",
    ),
    ("epochs", transaction, "epoch=0 if has_next else self.epoch", "epoch=self.epoch"),
    ("epochs", transactions, "producer.epoch == MAX_EPOCH - 1 and found.epoch == 0", "False"),
    ("epochs", transaction, "return epoch >= MAX_EPOCH - 1", "return epoch >= MAX_EPOCH"),
    ("epochs", transactions, "found.phase in (Phase.EMPTY, Phase.ONGOING) or found.epoch == MAX_EPOCH", "False"),
    ("epochs", transaction, "            previous_producer_id=self.producer_id,\n", ""),
    # … and InitProducerId bumps once, not twice (KAFKA-19367).
    (
        "init",
        transaction,
        "return self.prepared(False, version, NO_PRODUCER_ID, now_ms)",
        "return replace(self, epoch=self.epoch + 1).prepared(False, version, NO_PRODUCER_ID, now_ms)",
    ),
    ("init", transaction, "if expected_epoch != self.last_epoch:", "if True:"),
    ("init", transactions, "decided if decided == read else read", "read"),
    ("init", transactions, "        or expected.id == found.producer_id\n", "        or True\n"),
    ("first_generation", transaction, "epoch=min(self.epoch + 1, MAX_EPOCH), last_epoch=NO_EPOCH", ""),
    # T4: the verdict comes first, the end last, and a new coordinator goes on.
    ("second_generation", transactions, "unmarked.difference_update(partitions)", "unmarked.clear()"),
    ("crash", transactions, "return [self._next_step(name, now) for name in list(self.transactions)]", "return []"),
    ("crash", transactions, "            or order.coordinator_epoch != self._epoch\n", ""),
    ("crash", transactions, "coordinator_epoch=self._epoch,", "coordinator_epoch=0,"),
    # T6: only what takes part may be written.
    ("verify", transactions, "None if partition in found.partitions else TransactionAbortable()", "None"),
    # T8: a client whose request has an unknown outcome may repeat it until the outcome is known.
    ("writing", transactions, "        self._deadlines.set((name, RETRY), now.steady_ms + pause_ms)\n", ""),
    (
        "writing",
        transactions,
        "name in self._pending or (found is not None and found.phase in PREPARED)",
        "found is not None and found.phase in PREPARED",
    ),
    ("timeout", transactions, "found.started_ms + found.timeout_ms - now.wall_ms", "found.timeout_ms"),
    ("timeout", transactions, "max(left_ms, pause_ms)", "left_ms"),
    ("timeout", transactions, "elif self._deadlines.get((name, TIMEOUT)) is None:", "elif False:"),
    ("expiry", transactions, "found.phase in IDLE_PHASES and ", ""),
]


@pytest.mark.parametrize(("name", "module", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(name: str, module: ModuleType, right: str, wrong: str) -> None:
    text = (FOLDER / f"transaction_{name}.txt").read_text()
    world = TransactionWorld(coordinator_with(module, right, wrong))
    try:
        played = play(text, STEPS, world)
    except (AssertionError, KeyError):  # it went so far astray that a step made no sense any more
        return
    assert played != text


SCRIPT = (
    "a inits",
    "a adds t-0",
    "a adds t-1",
    "a commits",
    "a adds t-0",
    "a aborts",
    "a aborts",
    "a adds u-0",
    "a commits",
)


@pytest.mark.parametrize("point", range(len(SCRIPT)))
@pytest.mark.parametrize("crash", ["crash", "crash losing"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_coordinator_may_crash_at_any_point(point: int, crash: str, is_committed: bool) -> None:
    """A repeated request succeeds sooner or later; and it takes effect once."""
    world = TransactionWorld()

    def do(line: str) -> str:
        followed = play(line, STEPS, world)
        while [order for order in world.ordered if order.coordinator_epoch == world.epoch]:
            followed += play("marked", STEPS, world)
        return followed

    for number, line in enumerate(SCRIPT):
        followed = ""
        if number == point:
            if not is_committed:
                do("writing waits")
            followed = do(line)
            do(crash)
        if " ok" not in followed:
            followed = do(line)
        assert " ok" in followed, followed
    log = [show_record(written).split()[3].rstrip(",") for written in world.shell.log]
    # An abort of nothing that was done, and not heard of, is repeated; a commit is never done twice.
    assert log.count("PrepareCommit") == log.count("CompleteCommit") == 2
    assert log.count("PrepareAbort") == log.count("CompleteAbort")
    assert log[-1] == "CompleteCommit"
