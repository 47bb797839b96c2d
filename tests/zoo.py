"""The zoo: mistakes that brokers have made, planted in ours, and how soon the simulated worlds find each of them.

    make zoo                        every animal, from seed 0 on: 20/20
    python tests/zoo.py "ack"

`seed` is one at which it was found, so that a test need not look for it. That the mistakes are found is what makes "no
violation in n seeds" worth something.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

from planted import planted
from raft_world import RaftWorld
from raft_world import Violation as RaftViolation
from replication_parts import Habits, Violation
from replication_world import ReplicationWorld

from trioka.cluster import raft, replica

ENOUGH_SEEDS = 2000  # within so many a mistake must be found
CHAOS_MS, HEAL_MS = 8_000, 6_000
RAFT_NODES = (3, 1, 5, 4)
RAFT_CHAOS_MS, RAFT_HEAL_MS = 12_000, 12_000

Run = Callable[[int], object]


class Animal(NamedTuple):
    name: str
    seed: int
    run: Run

    def is_found(self, seed: int) -> bool:
        try:
            self.run(seed)
        except (Violation, RaftViolation, AssertionError):
            return True
        return False


def run_replication(seed: int, **mistake: object) -> ReplicationWorld:
    world = ReplicationWorld(seed, **mistake)  # type: ignore[arg-type]
    world.run(CHAOS_MS, HEAL_MS)
    return world


def run_raft(seed: int, **mistake: object) -> RaftWorld:
    world = RaftWorld(seed, nodes=RAFT_NODES[seed % len(RAFT_NODES)], **mistake)  # type: ignore[arg-type]
    world.run(RAFT_CHAOS_MS, RAFT_HEAL_MS)
    return world


def _habit(name: str, seed: int, **habits: bool) -> Animal:
    return Animal(name, seed, lambda number: run_replication(number, habits=Habits(**habits)))


def _rule(name: str, seed: int, right: str, wrong: str) -> Animal:
    return Animal(name, seed, lambda number: run_replication(number, rules=planted(replica, right, wrong)))


def _raft(name: str, seed: int, right: str, wrong: str) -> Animal:
    return Animal(name, seed, lambda number: run_raft(number, raft=planted(raft, right, wrong)))


ANIMALS = (
    _rule(
        "the high watermark looks at the ISR, not at the maximal one",
        16,
        "lowest, maximal = leader_end, self.maximal_isr",
        "lowest, maximal = leader_end, set(self.isr)",
    ),
    _rule("no strict min ISR", 0, "if len(self.isr) < min_in_sync:", "if False:"),
    _rule("joins the ISR behind the start of the epoch", 8, "max(high_watermark, self.epoch_start)", "high_watermark"),
    _rule(
        "joins the ISR behind the high watermark",
        1,
        "or follower.log_end_offset < max(high_watermark, self.epoch_start)",
        "",
    ),
    _rule(
        "a proposal that nobody answered is taken for refused",
        57,
        "return not isinstance(error, METADATA_WILL_TELL)",
        "self.proposal = None; return False",
    ),
    _habit("progress of an earlier epoch counts", 59, remembers_followers=True),
    _habit("the epoch of a broker's life is not told", 887, hides_broker_epochs=True),
    _habit("eligible to lead after an unclean stop", 15, claims_a_clean_stop=True),
    _habit("leads before it is registered", 15, leads_before_it_is_registered=True),
    _habit("cuts its log at the high watermark", 4, cuts_at_high_watermark=True),
    _habit("cuts its log only once", 38, cuts_once=True),
    _habit("cuts records and not epochs", 2, keeps_epochs=True),
    _habit("answers whatever the leader epoch is", 210, answers_any_epoch=True),
    _habit("acknowledges before the high watermark", 0, acks_at_once=True),
    _habit("serves above the high watermark", 0, serves_above_high_watermark=True),
    _habit("a new leader tells the latest offset at once", 0, tells_latest_at_once=True),
    _raft("votes for a log that knows less", 50, "if asked.end < self._log.end:", "if False:"),
    _raft(
        "votes twice in an epoch",
        0,
        "return self.standing.voted == asked.candidate and self.standing.leader_id is None",
        "return True",
    ),
    _raft("counts a refusal", 0, "(role.granted if told.is_granted else role.refused)", "role.granted"),
    _raft(
        "two changes of voters at a time",
        150,
        "high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark",
        "False",
    ),
)


def main(wanted: list[str]) -> int:
    animals = [each for each in ANIMALS if not wanted or any(word in each.name for word in wanted)]
    found = 0
    for animal in animals:
        seed = next((seed for seed in range(ENOUGH_SEEDS) if animal.is_found(seed)), None)
        found += seed is not None
        print(f"{'-' if seed is None else seed:>6}  {animal.name}", flush=True)
    print(f"{found}/{len(animals)}")
    return 0 if found == len(animals) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
