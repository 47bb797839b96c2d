"""Where a copy of a module with a planted mistake must stand, so that consumer groups make the mistake."""

from collections.abc import Callable
from types import ModuleType

import pytest

from trioka.coordinator.consumer import group as consumer_group
from trioka.coordinator.consumer import heartbeat as consumer_heartbeat
from trioka.coordinator.consumer.group import ConsumerGroup
from trioka.coordinator.consumer.state import ConsumerState

Install = Callable[[pytest.MonkeyPatch, ModuleType], None]


def moving(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    patch.setattr(consumer_heartbeat, "reconciled", module.reconciled)


def beating(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    patch.setattr(consumer_group, "consumer_heartbeat", module)


def keeping(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    for name in ("_put", "_replay_member", "target_of"):
        patch.setattr(ConsumerState, name, vars(module.ConsumerState)[name])


def expiring(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    patch.setattr(consumer_group, "consumer_expiry", module)


def committing(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    patch.setattr(ConsumerGroup, "validate_offset_commit", module.ConsumerGroup.validate_offset_commit)
