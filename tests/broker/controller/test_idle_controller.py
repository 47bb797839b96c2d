"""An active controller that has nothing to decide: it writes all the same, if anybody follows it."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import on_cluster, running_cluster
from support.serving import on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.config.node_keys import METADATA_MAX_IDLE_INTERVAL_MS
from trioka.broker.controller import active as the_real_one
from trioka.broker.quorum.driver import Quorum
from trioka.cluster.quorum.metadata_log import read_batch
from trioka.protocol import batch
from trioka.protocol.internal_records.metadata import NoOpRecord

OFTEN_MS, MANY = 5, 8
A_WHILE_S = 0.3  # sixty times as long as it would take


def silent_records(quorum: Quorum) -> int:
    """How many of those that are committed say nothing."""
    read = quorum.log.read(quorum.log.log_start_offset, 1 << 20, upto=quorum.high_watermark)
    assert read.records is not None
    data = read.records.read()
    return sum(
        isinstance(entry.record, NoOpRecord) for header in batch.headers(data) for entry in read_batch(data, header)
    )


def start_writing(module: ModuleType, broker: Broker, interval_ms: int) -> None:
    requested = SimpleNamespace(config={METADATA_MAX_IDLE_INTERVAL_MS: interval_ms}, quorum=broker.quorum)
    broker.nursery.start_soon(module.ActiveController(requested).write_on)


def who_is_followed_writes_though_nothing_happens(module: ModuleType, folder: Path) -> None:
    async def test() -> None:
        roles = {1: "controller", 2: "broker"}
        async with running_cluster(folder, roles=roles, metadata_max_idle_interval_ms=0) as cluster:
            active = await cluster.wait_active()
            assert silent_records(active.quorum) == 0, "0 is never"
            start_writing(module, active, OFTEN_MS)
            await cluster.until(lambda: silent_records(cluster[2].quorum) >= MANY, 30 if module is the_real_one else 1)

    on_cluster(test)()


def who_is_alone_does_not(module: ModuleType, folder: Path) -> None:
    async def test() -> None:
        async with running_broker(folder) as broker:
            end = broker.quorum.log.log_end_offset
            start_writing(module, broker, OFTEN_MS)
            await trio.sleep(A_WHILE_S)  # in which nothing must happen
            assert broker.quorum.log.log_end_offset == end

    on_trio(test)()


RULES: list[Callable[[ModuleType, Path], None]] = [who_is_followed_writes_though_nothing_happens, who_is_alone_does_not]
MISTAKES = [
    (RULES[0], "if quorum.is_active and quorum.has_followers:", "if False:"),
    (RULES[1], "if quorum.is_active and quorum.has_followers:", "if quorum.is_active:"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_is_kept(rule: Callable[[ModuleType, Path], None], tmp_path: Path) -> None:
    rule(the_real_one, tmp_path)


@pytest.mark.parametrize(("rule", "right", "wrong"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_mistake_is_noticed(
    rule: Callable[[ModuleType, Path], None], right: str, wrong: str, tmp_path: Path
) -> None:
    with pytest.raises((Exception, BaseExceptionGroup)):
        rule(planted(the_real_one, right, wrong), tmp_path)
