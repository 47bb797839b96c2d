"""Requests about groups, in few words, for a broker behind a socket."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from support.serving import ClientConnection, ask, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest

OFFSETS_TOPIC = "__consumer_offsets"
LONG_MS = 600_000  # no timeout passes before a test is over, on any machine
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 00000000 00000000")  # of a consumer, to the topic t
TOPICS = CreateTopicsRequest(
    topics=[
        CreateTopicsRequest.Topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
        for name in ("t", "u")
    ]
)

Partition = OffsetCommitRequest.Topic.Partition


def commit(
    offset: int,
    *,
    group: str = "g",
    topic: str | bytes = "t",
    partitions: Sequence[int] = (0,),
    text: str | None = "",
    epoch: int = -1,
    member: str = "",
    instance: str | None = None,
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """The topic by its name or, in version 10, by its id."""
    requested = [
        Partition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=text,
        )
        for partition in partitions
    ]
    named = (
        OffsetCommitRequest.Topic(topic_id=topic, partitions=requested)
        if isinstance(topic, bytes)
        else OffsetCommitRequest.Topic(name=topic, partitions=requested)
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[named],
    )


def codes_of(answer: Any) -> list[int]:
    """Of an OffsetCommit or OffsetDelete: the error code of each partition."""
    return [result.error_code for topic in answer.topics for result in topic.partitions]


def code_of(answer: Any) -> int:
    (code,) = codes_of(answer)
    return code


def fetch(group: str = "g", *, stable: bool = False) -> OffsetFetchRequest:
    """All of a group, from version 8 on."""
    return OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)], require_stable=stable)


def offsets_of(answer: Any) -> dict[tuple[str, int], int]:
    (group,) = answer.groups
    assert not group.error_code, group
    return {(t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions}


def delete_offsets(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.Topic(
                name=name,
                partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ],
    )


def join(
    group: str = "c",
    *,
    member: str = "",
    instance: str | None = None,
    session_ms: int = LONG_MS,
    protocol_type: str = "consumer",
    protocols: Sequence[str] = ("range",),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=LONG_MS,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.Protocol(name=name, metadata=SUBSCRIPTION) for name in protocols],
    )


def sync(
    group: str,
    member: str,
    generation: int,
    *,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> SyncGroupRequest:
    """A leader's, which assigns everything to itself."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[SyncGroupRequest.Assignment(member_id=member, assignment=b"yours")],
    )


def heartbeat(group: str, member: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def consumer_heartbeat(group: str, member: str = "", epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat with all fields, like the first of a member."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=more.pop("rebalance_timeout_ms", LONG_MS),
        subscribed_topic_names=more.pop("topics", ["t"]),
        topic_partitions=more.pop("owned", []),
        **more,
    )


# -- a broker that coordinates -----------------------------------------------------------------------------------------


@asynccontextmanager
async def grouping(directory: Path | str, **settings: object) -> AsyncIterator[tuple[Broker, ClientConnection]]:
    """A broker with a loaded coordinator, with the topics t and u, and a client of it."""
    async with running_broker(directory, None, **settings) as broker, ClientConnection(broker) as client:
        await prepare(broker)
        yield broker, client


async def prepare(broker: Broker) -> None:
    await ask(broker, TOPICS, 7)
    await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    await loaded(broker)


async def loaded(broker: Broker) -> None:
    while (await ask(broker, ListGroupsRequest(), 5)).error_code:
        await trio.sleep(0.005)


async def settle(client: ClientConnection, group: str = "c", *, instance: str | None = None) -> str:
    """The only member of a classic group, with its assignment: its id."""
    joined = await client.ask(join(group, instance=instance), 0 if instance is None else 5)
    assert joined.error_code == 0, joined
    synced = await client.ask(sync(group, joined.member_id, joined.generation_id, instance=instance), 5)
    assert (synced.error_code, synced.assignment) == (0, b"yours")
    return str(joined.member_id)
