"""Consumer groups: members join, leave, time out, crash and come back, and the coordinator too."""

from types import ModuleType

import pytest
from mutants.consumer_groups import Install, beating, committing, expiring, keeping, moving
from mutants.plant import planted, within
from support.consumer_steps import STEPS, ConsumerWorld
from support.scenarios import FOLDER, check, files, play

from trioka.coordinator import consumer_expiry, consumer_group, consumer_heartbeat, consumer_state, reconciliation


@pytest.mark.parametrize("name", files("consumer"))
def test_responses_to_members_of_a_group(name: str) -> None:
    check(name, STEPS, ConsumerWorld())


MISTAKES = [
    ("fencing", consumer_heartbeat, "and self._has_only(member.assigned)", "", beating),
    ("fencing", consumer_heartbeat, "        if received > member.epoch:", "        if False:", beating),
    ("fencing", consumer_heartbeat, "if reported is None:\n            return False", "if False: pass", beating),
    (
        "sessions",
        consumer_expiry,
        "group.inputs.deadlines.set((group.id, SESSION, member.id), now.steady_ms + RETRY_MS)",
        "group.inputs.id",
        expiring,
    ),
    (
        "sessions",
        consumer_expiry,
        within("_without", "group.epoch + 1"),
        "group.epoch",
        expiring,
    ),
    ("sessions", consumer_heartbeat, "expiry.set_session(group, after, now)", "id, (group, after, now)", beating),
    (
        "sessions",
        consumer_heartbeat,
        "expiry.set_rebalance(self._group, after, self._now)",
        "id, (self._group, after, self._now)",
        beating,
    ),
    ("crash", consumer_expiry, "set_session(group, member, now)", "", expiring),
    ("crash", consumer_expiry, "            set_rebalance(group, member, now)", "            pass", expiring),
    (
        "static",
        consumer_heartbeat,
        "existing.epoch != LEFT_FOR_A_WHILE and existing.classic is None and self._classic is None",
        "existing.classic is None and self._classic is None",
        beating,
    ),
    ("static", consumer_heartbeat, "    if member_id != request.member_id:", "    if False:", beating),
    ("static", consumer_heartbeat, "is_static and request.member_epoch == LEFT_FOR_A_WHILE", "False", beating),
    (
        "static",
        consumer_heartbeat,
        "{member.id: member for member in group.members.values() if member is not self._replaced}",
        "{member.id: member for member in group.members.values()}",
        beating,
    ),
    ("static", consumer_state, "member_id = self.instances.get(member.instance_id)", "pass", keeping),
    ("subscriptions", reconciliation, "if not inputs.has_new_subscription or not unwanted:", "if True:", moving),
    (
        "subscriptions",
        reconciliation,
        "inputs.target.get(topic, frozenset()) if topic in inputs.subscribed else frozenset[int]()",
        "inputs.target.get(topic, frozenset())",
        moving,
    ),
    ("subscriptions", consumer_heartbeat, "grows = metadata_hash != group.metadata_hash", "grows = False", beating),
    ("patterns", consumer_heartbeat, "            check_pattern(updated.pattern)", "            pass", beating),
    (
        "patterns",
        consumer_heartbeat,
        "max(looked_ms, written_ms) + PATTERNS_AT_MOST_EVERY_MS",
        "max(looked_ms, written_ms)",
        beating,
    ),
    ("patterns", consumer_expiry, "is_same = _is_same(subscriptions.resolved, resolved)", "is_same = False", expiring),
    (
        "patterns",
        consumer_expiry,
        "        yield records.expression_tombstone(group.id, pattern)",
        "        pass",
        expiring,
    ),
    ("commits", consumer_group, "    if epoch < since:", "    if False:", committing),
    ("commits", consumer_group, "        if epoch > member.epoch:", "        if False:", committing),
    ("commits", consumer_group, "if epoch < 0 and not self.members:", "if epoch < 0:", committing),
    ("size", consumer_heartbeat, "len(group.members) >= max_size", "False", beating),
    ("joining", consumer_heartbeat, "or is_whole or before.assigned != after.assigned:", "or is_whole:", beating),
]


@pytest.mark.parametrize(
    ("name", "module", "right", "wrong", "install"), MISTAKES, ids=[f"{m[0]}: {m[2].strip()[:50]}" for m in MISTAKES]
)
def test_a_planted_mistake_is_noticed(
    name: str, module: ModuleType, right: str, wrong: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, planted(module, right, wrong))
    text = (FOLDER / f"consumer_{name}.txt").read_text()
    try:
        played = play(text, STEPS, ConsumerWorld())
    except Exception:  # it does not even get to the end
        return
    assert played.splitlines() != text.splitlines()
