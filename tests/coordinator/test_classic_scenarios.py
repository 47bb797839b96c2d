"""Classic groups: members join, leave, time out, crash and come back, in every phase."""

from types import ModuleType

import pytest
from mutants.classic_groups import coordinator_with
from support.classic_steps import STEPS, ClassicWorld
from support.scenarios import FOLDER, check, files, play

from trioka.coordinator import classic_group, classic_joining, classic_membership, classic_rebalance


@pytest.mark.parametrize("name", files("classic"))
def test_responses_to_members_of_a_group(name: str) -> None:
    check(name, STEPS, ClassicWorld())


MISTAKES = [
    ("first_generation", classic_joining, "REQUIRES_MEMBER_ID: Final = 4", "REQUIRES_MEMBER_ID: Final = 10"),
    ("initial_delay", classic_rebalance, "            self._initial.has_more = True", "            pass"),
    ("joining_again", classic_joining, "    Phase.STABLE: _is_leader_or_changed,", "    Phase.STABLE: _has_changed,"),
    ("joining_again", classic_joining, "    Phase.COMPLETING: _has_changed,", "    Phase.COMPLETING: _always,"),
    ("leaving", classic_group, "if member_id in rebalance.roster.pending:", "if False:"),
    ("sessions", classic_group, "self._rebalance.phase in (Phase.STABLE, Phase.PREPARING)", "False"),
    ("rebalance_timeout", classic_rebalance, "        elif member.is_excused:", "        elif False:"),
    (
        "sync_timeout",
        classic_rebalance,
        "if self.roster.unsynced:",
        "if False:",
    ),
    (
        "new_members",
        classic_joining,
        "NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000  # a new member cannot send heartbeats yet; "
        "this long may its join wait",
        "NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 30_000  # a new member cannot send heartbeats yet; "
        "this long may its join wait",
    ),
    (
        "static",
        classic_membership,
        "                raise FencedInstanceId()",
        "                raise UnknownMemberId()",
    ),
    ("static", classic_joining, "MAY_SKIP_ASSIGNMENT: Final = 9", "MAY_SKIP_ASSIGNMENT: Final = 5"),
    ("static_writing", classic_joining, "rebalance.roster.rename(member, old.id)", "member"),
    ("protocols", classic_membership, "-votes[name]", "votes[name]"),
    ("size", classic_joining, "or roster.joined < max_size", "or len(roster) < max_size"),
    (
        "crash",
        classic_rebalance,
        "                    self._abandon_assignment(error, now)\n",
        "                    pass\n",
    ),
    (
        "offsets",
        classic_group,
        "        if not is_transactional and self._rebalance.phase is Phase.COMPLETING:",
        "        if False:",
    ),
]


@pytest.mark.parametrize(("name", "module", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(name: str, module: ModuleType, right: str, wrong: str) -> None:
    text = (FOLDER / f"classic_{name}.txt").read_text()
    world = ClassicWorld(coordinator_with(module, right, wrong))
    try:
        played = play(text, STEPS, world)
    except (AssertionError, IndexError):  # it went so far astray that a step made no sense any more
        return
    assert played != text
