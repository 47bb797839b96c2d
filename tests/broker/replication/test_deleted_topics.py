"""Nothing is left of a topic that was deleted: on connections that used it, in chores, sessions and caches."""

import gc
from pathlib import Path

import pytest
import trio
from support.serving import ClientConnection, on_trio, running_broker
from support.topic_requests import create, produce, producing

from trioka.broker import background as housekeeping
from trioka.broker.background import LogMaintenance
from trioka.broker.broker import Broker
from trioka.broker.fastpath.produce import ProduceFastPath
from trioka.broker.replication.partitions import Replica
from trioka.cluster.purgatory import Purgatory
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.storage.log import Log
from trioka.storage.producer_state import ProducerState
from trioka.storage.segment import Segment
from trioka.storage.segments import Segments

TOPICS = 20
KINDS = (Log, Replica, Segment, Segments, ProducerState)


def alive() -> dict[type, set[int]]:
    """The objects of each kind that there are."""
    gc.collect()
    found: dict[type, set[int]] = {kind: set() for kind in KINDS}
    for each in gc.get_objects():
        if type(each) in found:
            found[type(each)].add(id(each))
    return found


def fetching(
    names: list[str], *, session_id: int = 0, epoch: int = 0, offset: int = 0, max_wait_ms: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.Topic(
                topic=name,
                partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1000)],
            )
            for name in names
        ],
    )


async def use(broker: Broker, chores: LogMaintenance, connection: ClientConnection, names: list[str]) -> None:
    """Written, read within a session, flushed, and looked at by every chore."""
    for name in names:
        for _ in range(3):
            await connection.ask(producing(name, 1), 9)
        await connection.ask(fetching([name]), 11)
    opened = await connection.ask(fetching(names), 11)
    assert opened.session_id
    await connection.ask(fetching([], session_id=opened.session_id, epoch=1), 11)
    for chore in (chores.flush, chores.checkpoint, chores.compact, chores.apply_retention, chores.expire_producers):
        await chore()
    for replica in broker.partitions:
        chores._warn_once(replica.log, ValueError("a reason"))


async def left_by_deleted_topics(tmp_path: Path) -> dict[type, set[int]]:
    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as connection,
        ClientConnection(broker) as waiting,
    ):
        await create(broker, "stays", retention_ms=-1)
        await produce(broker, "stays", 1)
        before, chores = alive(), LogMaintenance(broker)
        names = [f"goes-{number}" for number in range(TOPICS)]
        for name in names:
            await create(broker, name, cleanup_policy="compact")
        await use(broker, chores, connection, names)
        waits = fetching(names, offset=3, max_wait_ms=600_000)
        await waiting.say(waits, 11)
        while not len(broker.purgatory):
            await trio.lowlevel.checkpoint()
        during = alive()
        assert all(len(during[kind]) >= len(before[kind]) + TOPICS for kind in KINDS)
        await connection.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), 5)
        assert await waiting.hear(waits, 11) is not None, "no fetch waits for a topic that is deleted"
        await chores.sweep()
        return {kind: found - before[kind] for kind, found in alive().items()}


@on_trio
async def test_nothing_is_left_of_topics_that_were_deleted(tmp_path: Path) -> None:
    assert await left_by_deleted_topics(tmp_path) == {kind: set() for kind in KINDS}


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (ProduceFastPath, "release", lambda self: None),
        (Purgatory, "sweep", lambda self: None),
        (housekeeping, "WeakKeyDictionary", dict),
    ],
    ids=["fast paths", "waiters", "chores"],
)
def test_a_reference_to_a_deleted_log_is_found(
    owner: object, name: str, mistake: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)

    @on_trio
    async def look() -> None:
        assert (await left_by_deleted_topics(tmp_path))[Log]

    look()
