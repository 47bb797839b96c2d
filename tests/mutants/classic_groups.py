"""Coordinators with one mistake in what classic groups are made of."""

from types import ModuleType
from typing import cast

from mutants.plant import planted

from trioka.coordinator import groups
from trioka.coordinator.classic import (
    group as classic_group,
)
from trioka.coordinator.classic import (
    joining as classic_joining,
)
from trioka.coordinator.classic import (
    membership as classic_membership,
)
from trioka.coordinator.classic import (
    rebalance as classic_rebalance,
)
from trioka.coordinator.groups import GroupCoordinator

# From the ground up: what each is made of comes before it.
HARNESS: dict[str, ModuleType] = {
    "ClassicMembership": classic_membership,
    "Rebalance": classic_rebalance,
    "Joining": classic_joining,
    "ClassicGroup": classic_group,
    "GroupCoordinator": groups,
}


def coordinator_with(module: ModuleType, right: str, wrong: str) -> type[GroupCoordinator]:
    made: dict[str, type[object]] = {}
    for name, part in HARNESS.items():
        same = f"class {name}:"
        copy = planted(part, right, wrong) if part is module else planted(part, same, same)
        vars(copy).update(made)
        made[name] = getattr(copy, name)
    return cast(type[GroupCoordinator], made["GroupCoordinator"])
