"""The zoo: mistakes that brokers have made, planted in ours, and how soon the simulated worlds find each of them.

    make zoo                        every animal, from seed 0 on, and how many were found
    python tests/mutants/catalog.py "ack"

`seed` is one at which it was found, so that a test need not look for it. That the mistakes are found is what makes "no
violation in n seeds" worth something.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the packages of tests/, not this folder's modules

import pytest
from mutants import catalog_brokers, catalog_logs, catalog_tier
from mutants.plant import planted, within
from mutants.transactions import coordinator_with
from simulation import raft_world
from simulation.raft_world import RaftWorld
from simulation.replication_parts import Habits
from simulation.replication_world import ReplicationWorld
from simulation.simulators import RAFT_CHAOS_MS, RAFT_HEAL_MS, run

from trioka.cluster import leader_state, partition_change, raft, read_barrier
from trioka.cluster.voters import ReplicaKey
from trioka.coordinator import transaction
from trioka.storage import (
    batch_scan,
    directory,
    disk,
    failstop_disk,
    log,
    producer_state,
    recovery,
    segment_repair,
    segments,
)

__all__ = ["MUTANTS", "RAFT_CHAOS_MS", "RAFT_HEAL_MS", "Mutant", "run_raft", "run_replication"]

ENOUGH_SEEDS = 2000  # within so many a mistake must be found

Run = Callable[[int], object]


class Mutant(NamedTuple):
    name: str
    seed: int
    run: Run
    enough_seeds: int = ENOUGH_SEEDS

    def is_found(self, seed: int) -> bool:
        try:
            self.run(seed)
        except AssertionError:
            return True
        return False


def run_replication(seed: int, **mistake: object) -> ReplicationWorld:
    world: ReplicationWorld = run("replication", seed, **mistake)
    return world


def run_raft(seed: int, **mistake: object) -> RaftWorld:
    world: RaftWorld = run("raft", seed, **mistake)
    return world


def _given(world: str, name: str, seed: int, make: Callable[[], dict[str, Any]]) -> Mutant:
    """A world that is made of something mistaken, which is made when it is needed, once."""
    once = cache(make)
    return Mutant(name, seed, lambda number: run(world, number, **once()))


def _habit(name: str, seed: int, **habits: bool) -> Mutant:
    return _given("replication", name, seed, lambda: {"habits": Habits(**habits)})


def _rule(name: str, seed: int, right: str, wrong: str) -> Mutant:
    return _given("replication", name, seed, lambda: {"rules": planted(leader_state, right, wrong)})


def _read_barrier(name: str, seed: int, right: str, wrong: str) -> Mutant:
    return _module("reads", name, seed, read_barrier, "ReadBarrier", leader_state, right, wrong)


def _raft(name: str, seed: int, right: str, wrong: str) -> Mutant:
    return _given("raft", name, seed, lambda: {"raft": planted(raft, right, wrong)})


def _module(
    world: str, name: str, seed: int, module: ModuleType, what: str, user: ModuleType, right: str, wrong: str
) -> Mutant:
    """`user` takes `what` from a copy of the module with a mistake in it, for as long as a run takes."""
    return _patched(world, name, seed, user, what, lambda: getattr(planted(module, right, wrong), what))


def _patched(world: str, name: str, seed: int, owner: object, what: str, make: Callable[[], object]) -> Mutant:
    once = cache(make)

    def live(number: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, what, once())
            run(world, number)

    return Mutant(name, seed, live)


MUTANTS = (
    _rule(
        "the high watermark looks at the ISR, not at the maximal one",
        12,
        "lowest, maximal = leader_end, self.maximal_isr",
        "lowest, maximal = leader_end, set(self.isr)",
    ),
    _rule("no strict min ISR", 1, "if len(self.isr) < min_in_sync:", "if False:"),
    _rule("joins the ISR behind the start of the epoch", 25, "max(high_watermark, self.epoch_start)", "high_watermark"),
    _rule(
        "joins the ISR behind the high watermark",
        1,
        "or follower.log_end_offset < max(high_watermark, self.epoch_start)",
        "",
    ),
    _rule(
        "a proposal without a response is taken for refused",
        95,
        "return not isinstance(error, STALE_REFUSALS)",
        "self.proposal = None; return False",
    ),
    _habit("progress of an earlier epoch counts", 530, remembers_followers=True),
    _habit("requests lack the broker epoch", 10_406, hides_broker_epochs=True)._replace(enough_seeds=12_000),
    _habit("eligible to lead after an unclean stop", 91, claims_a_clean_stop=True),
    _patched(
        "replication",
        "eligible to lead though enough are in sync",
        1,
        partition_change,
        "_eligible_leaders",
        lambda: vars(
            planted(partition_change, "if not now.has_elr or len(isr) >= min(now.min_isr, len(replicas)):", "if False:")
        )["_eligible_leaders"],
    ),
    _habit("leads before it is registered", 4, leads_before_it_is_registered=True),
    _habit("cuts its log at the high watermark", 4, cuts_at_high_watermark=True),
    _habit("cuts its log only once", 111, cuts_once=True),
    _habit("cuts records and not epochs", 1, keeps_epochs=True),
    _habit("answers whatever the leader epoch is", 821, answers_any_epoch=True),
    _habit("acknowledges before the high watermark", 0, acks_at_once=True),
    _habit("serves above the high watermark", 0, serves_above_high_watermark=True),
    _habit("a new leader tells the latest offset at once", 3, tells_latest_at_once=True),
    _read_barrier(
        "a fetch in another leader epoch counts for a read",
        40,
        within("ReadBarrier.note_fetch", "if leader_epoch == self._leader_epoch:"),
        "if True:",
    ),
    _read_barrier(
        "a fetch from before a read counts for it",
        18,
        "self._heard.get(each, NO_READ) < read",
        "each not in self._heard",
    ),
    _given(
        "reads",
        "a read does not wait for eligible leader replicas",
        53,
        lambda: {
            "rules": planted(
                leader_state,
                "return (self.maximal_isr | self._eligible) - {self._node_id}",
                "return self.maximal_isr - {self._node_id}",
            )
        },
    ),
    _given(
        "reads", "a fetch that was sent before a read counts when it arrives", 189, lambda: {"counts_arrivals": True}
    ),
    _given(
        "reads",
        "a new leader answers reads before the start of its epoch",
        1,
        lambda: {
            "rules": planted(leader_state, within("LeaderState.may_read", "high_watermark >= self.epoch_start"), "True")
        },
    ),
    _raft("votes for a log that knows less", 40, "if request.end < self._log.end:", "if False:"),
    _raft(
        "votes twice in an epoch",
        0,
        "return self.persisted.voted.matches(request.candidate) and self.persisted.leader_id is None",
        "return True",
    ),
    _raft(
        "calls committed what an earlier leader wrote",
        1020,
        "reached <= role.epoch_start or reached <= self._log.high_watermark",
        "reached <= self._log.high_watermark",
    ),
    _given("raft", "answers before its vote is saved", 278, lambda: {"habits": raft_world.Habits(saves_late=True)}),
    _given(
        "raft", "a snapshot has what is not committed", 4, lambda: {"habits": raft_world.Habits(snapshots_all=True)}
    ),
    _patched(
        "raft",
        "a voter is known by its number, whatever its disk",
        54,
        ReplicaKey,
        "matches",
        lambda: lambda self, other: self.id == other.id,
    ),
    _raft("counts a refusal", 0, "(role.granted if response.is_granted else role.refused)", "role.granted"),
    _raft(
        "two changes of voters at a time",
        39,
        "high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark",
        "False",
    ),
    _module(
        "storage",
        "the recovery point moves before the fsync",
        16,
        segments,
        "Segments",
        log,
        "try:\n    for file in files:\n        file.sync()\nfinally:\n    _close_all(files)",
        "end.recovery_point = max(end.recovery_point, point.end_offset)\n"
        "try:\n"
        "    for file in files:\n"
        "        file.sync()\n"
        "finally:\n"
        "    _close_all(files)",
    ),
    _module(
        "storage",
        "renames, and does not sync the directory",
        29,
        disk,
        "write_atomically",
        failstop_disk,
        '    disk.rename(temporary, path)\n    disk.sync_directory(os.path.dirname(path) or ".")\n',
        "    disk.rename(temporary, path)\n",
    ),
    _module(
        "storage",
        "an error of fsync is ignored",
        4,
        failstop_disk,
        "FailStopDisk",
        directory,
        "try:\n"
        "    self._file.sync()\n"
        "except OSError as error:\n"
        "    raise self._volume.judge(error, NO_EXPECTED_ERRORS, is_open=True) from error",
        "try:\n    self._file.sync()\nexcept OSError:\n    pass",
    ),
    _patched("storage", "a torn tail is kept", 7, batch_scan, "check_crc", lambda: lambda buffer, header: True),
    _module(
        "producers",
        "a window of four batches",
        5,
        producer_state,
        "ProducerState",
        recovery,
        "WINDOW_BATCHES: Final = 5",
        "WINDOW_BATCHES: Final = 4",
    ),
    _module(
        "producers",
        "a follower knows nothing of producers",
        1,
        log,
        "Log",
        directory,
        "            ended = self.producers.replay(view, header)\n",
        "            ended = None\n",
    ),
    _module(
        "producers",
        "sequence numbers do not begin again after 2^31",
        0,
        producer_state,
        "ProducerState",
        recovery,
        "if sequence != ((window[-1].last_sequence + 1) % SEQUENCES if window else 0):",
        "if sequence != (window[-1].last_sequence + 1 if window else 0):",
    ),
    _module(
        "producers",
        "snapshots of producers are not loaded",
        0,
        producer_state,
        "ProducerState",
        recovery,
        within("ProducerState.truncate_and_reload", "self._load(snapshot, now_ms, expiration_ms)"),
        "pass",
    ),
    _module(
        "producers",
        "a clean stop keeps one batch of each producer",
        1,
        producer_state,
        "ProducerState",
        recovery,
        "window[-WINDOW_BATCHES:]",
        "window[-1:]",
    ),
    _module(
        "producers",
        "a log whose records are deleted forgets its producers",
        9,
        producer_state,
        "ProducerState",
        recovery,
        "        self.on_high_watermark_moved(log_start)\n",
        "        self._producers.clear()\n",
    ),
    _given(
        "transactions",
        "the end of a transaction does not bump the epoch",
        0,
        lambda: {
            "coordinator": coordinator_with(
                transaction,
                "epoch, last_epoch = min(self.epoch + 1, MAX_EPOCH), self.epoch",
                "epoch, last_epoch = self.epoch, self.epoch",
            )
        },
    ),
    _given("transactions", "markers are ordered before the verdict is replicated", 0, lambda: {"hurries": True}),
    _module(
        "transactions",
        "the last stable offset is past an open transaction",
        0,
        producer_state,
        "ProducerState",
        recovery,
        "return high_watermark if unstable == NO_OFFSET or unstable >= high_watermark else unstable",
        "return high_watermark",
    ),
    *(Mutant(*each) for each in catalog_logs.MUTANTS),
    *(Mutant(*each) for each in catalog_tier.MUTANTS),
    _given(
        "rot",
        "what stands behind a mended range is not copied",
        0,
        lambda: {"mending": planted(segment_repair, "        self._copy(file, position, self._work.held.size)\n", "")},
    ),
    _given(
        "rot",
        "what is left of a range that is mended in part is forgotten",
        0,
        lambda: {
            "mending": planted(
                segment_repair, "                if not patch.is_whole:\n", "                if False:\n"
            )
        },
    ),
    _given(
        "rot",
        "damaged bytes are dropped before it is known that nothing among them is sound",
        310,
        lambda: {
            "mending": planted(
                segment_repair,
                "position = min(damage.position + len(patch.data), damage.end_position)",
                "position = damage.end_position",
            )
        },
    ),
    *(Mutant(*each, catalog_brokers.ENOUGH_SEEDS) for each in catalog_brokers.MUTANTS),
)


def main(wanted: list[str]) -> int:
    animals = [each for each in MUTANTS if not wanted or any(word in each.name for word in wanted)]
    found = 0
    for animal in animals:
        seed = next((seed for seed in range(animal.enough_seeds) if animal.is_found(seed)), None)
        found += seed is not None
        print(f"{'-' if seed is None else seed:>6}  {animal.name}", flush=True)
    print(f"{found}/{len(animals)}")
    return 0 if found == len(animals) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
