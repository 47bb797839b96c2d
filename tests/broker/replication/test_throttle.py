"""How fast throttled replicas are replicated: the average over the last seconds, and who is held up by it."""

from pathlib import Path
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.multi_replica import filled, follow, leading
from support.serving import ClientConnection, on_trio

from trioka.broker.replication import throttle as replication_quota
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, SET = 2, 0


@pytest.fixture
def module() -> ModuleType:
    return replication_quota


def test_the_rate_is_an_average_over_the_last_windows(module: ModuleType) -> None:
    rate = module.Rate()
    assert rate.per_second(100.0, 1, 11) == 0
    rate.add(500, 100.1, 1)
    rate.add(500, 100.9, 1)
    assert rate.per_second(100.9, 1, 11) == 100
    rate.add(1000, 105.0, 1)
    assert rate.per_second(110.9, 1, 11) == 200
    assert rate.per_second(111.0, 1, 11) == 100  # what came first is too long ago
    assert rate.per_second(116.0, 1, 11) == 0


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "self._total -= self._windows.popleft()[1]",
        "self._windows.popleft()",
        test_the_rate_is_an_average_over_the_last_windows,
    ),
    (
        "int(now // window_s) - count + 1",
        "int(now // window_s) - count",
        test_the_rate_is_an_average_over_the_last_windows,
    ),
    ("(number, size_before + size)", "(number, size)", test_the_rate_is_an_average_over_the_last_windows),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(replication_quota, right, wrong, rule)


@on_trio
async def test_a_throttled_follower_that_is_not_in_sync_gets_a_burst_and_then_waits(tmp_path: Path) -> None:
    async with leading(tmp_path, leader_replication_throttled_rate=1) as (broker, _), ClientConnection(broker) as admin:
        await filled(broker)
        for _ in range(2):  # not throttled: not configured
            assert (await follow(broker, 0, by=3)).records
        text = IncrementalAlterConfigsRequest.Resource
        config = text.Config(name="leader.replication.throttled.replicas", config_operation=SET, value="0:1")
        topic = text(resource_type=TOPIC, resource_name="t", configs=[config])
        response = await admin.ask(IncrementalAlterConfigsRequest(resources=[topic], validate_only=False), 1)
        assert response.responses[0].error_code == 0, response
        assert (await follow(broker, 0, by=3)).records
        assert not (await follow(broker, 0, by=3)).records
        assert (await follow(broker, 0, by=2)).records  # which is in sync
