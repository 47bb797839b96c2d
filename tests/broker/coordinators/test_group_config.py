"""Settings of groups are those of this moment, although the last ones are kept."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.config_requests import GROUP, SET, alter
from support.serving import on_trio, running_broker

from trioka.broker.coordinators import group_config as group_settings
from trioka.testing.disks.memory_disk import MemoryDisk

INTERVAL = "consumer.heartbeat.interval.ms"
USUAL_MS = 5000


@pytest.fixture
def settings() -> ModuleType:
    return group_settings


def test_a_group_has_its_own_settings_as_they_are_now(settings: ModuleType) -> None:
    @on_trio
    async def test() -> None:
        async with running_broker("/data", MemoryDisk(), group_consumer_min_heartbeat_interval_ms=1) as broker:
            read = settings.GroupConfigs(broker).consumer
            assert read("special").heartbeat_interval_ms == USUAL_MS
            for interval_ms in (1234, 2345):
                await alter(broker, GROUP, "special", (INTERVAL, SET, str(interval_ms)))
                assert read("special").heartbeat_interval_ms == interval_ms
                assert read("ordinary").heartbeat_interval_ms == USUAL_MS

    test()


def test_what_is_set_for_all_groups_holds_at_once(settings: ModuleType) -> None:
    @on_trio
    async def test() -> None:
        async with running_broker("/data", MemoryDisk()) as broker:
            found = settings.GroupConfigs(broker)
            assert found.consumer("g").heartbeat_interval_ms == USUAL_MS
            broker.config = broker.config.changed(cluster={"group.consumer.heartbeat.interval.ms": "6000"})
            assert found.consumer("g").heartbeat_interval_ms == 6000

    test()


MISTAKES: list[tuple[str, str, Rule]] = [
    (" or self._last_seen_at != metadata.offset", "", test_a_group_has_its_own_settings_as_they_are_now),
    ("self._last_group != group_id or ", "", test_a_group_has_its_own_settings_as_they_are_now),
    (
        "        self._consumer = _consumer(config.group())\n        self._last_seen_at = NEVER\n",
        "        self._consumer = _consumer(config.group())\n",
        test_what_is_set_for_all_groups_holds_at_once,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(group_settings, right, wrong, rule)
