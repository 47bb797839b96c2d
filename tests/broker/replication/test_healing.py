"""Damage on several replicas at once: each is healed by good copies of the others, while all serve."""

from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.log_fixtures import verify
from support.replicated_topics import Producer, are_the_same, create, fetch, partition, read, replica, wait_leader

from trioka.cluster.acls import AclOperation, AclPermission, AclResourceType
from trioka.cluster.healing import RepairAction, first_uncommitted_damage, repair_action, sources
from trioka.cluster.partition import Partition
from trioka.protocol.batch import check_crc, headers
from trioka.protocol.errors import NONE, CorruptMessage, TopicAuthorizationFailed
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.storage.log import Log
from trioka.storage.quarantine import Damage

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PATIENT: dict[str, Any] = {"replica_lag_time_max_ms": 30_000, "log_segment_bytes": 1_048_576}


# What decides --------------------------------------------------------------------------------------------------------


def damage(first: int, end: int) -> Damage:
    return Damage(first_offset=first, end_offset=end, base_offset=0, position=0, end_position=1, reason="")


@pytest.mark.parametrize(
    ("first", "end", "leads", "cure"),
    [
        (3, 4, True, RepairAction.FETCH),
        (3, 4, False, RepairAction.FETCH),
        (9, 10, True, RepairAction.FETCH),
        (10, 11, True, RepairAction.DEMOTE),
        (9, 11, True, RepairAction.DEMOTE),
        (10, 11, False, RepairAction.FETCH_AGAIN),
        (19, 20, False, RepairAction.CUT),
        (19, 20, True, RepairAction.DEMOTE),
    ],
)
def test_what_is_committed_is_fetched_and_what_is_not_is_its_leaders(
    first: int, end: int, leads: bool, cure: RepairAction
) -> None:
    assert repair_action(damage(first, end), leads=leads, high_watermark=10, log_end_offset=20) is cure


def test_a_follower_claims_what_is_committed_and_not_what_is_damaged_behind_it() -> None:
    assert first_uncommitted_damage((damage(3, 4), damage(9, 10)), 10) is None
    assert first_uncommitted_damage((damage(3, 4), damage(9, 11), damage(15, 16)), 10) == damage(9, 11)


def test_the_leader_comes_first_then_in_sync_then_live_replicas() -> None:
    made = Partition(
        index=0,
        replicas=(1, 2, 3, 4, 5),
        directories=(bytes(16),) * 5,
        isr=(2, 4),
        leader=4,
        leader_epoch=1,
        partition_epoch=1,
        eligible_leader_replicas=(5,),
    )
    assert sources(made, 2, lambda node: True) == (4, 5, 1, 3)
    assert sources(made, 4, lambda node: node != 5) == (2, 1, 3)
    assert sources(made, 1, lambda node: False) == ()


# Real brokers --------------------------------------------------------------------------------------------------------


def flip(cluster: Cluster, node: int, offset: int) -> None:
    """A bit of the batch that holds this offset, on one replica, behind the broker's back; nothing is believed of what
    was checked before."""
    log = replica(cluster, node).log
    segment = log.segments.holding(offset)
    place = segment.locate(offset)
    assert place is not None
    with open(segment.log_path, "r+b") as file:
        file.seek(place.position + 62)
        byte = file.read(1)[0]
        file.seek(place.position + 62)
        file.write(bytes([byte ^ 4]))
    segment.checked.cut(0)


async def filled(cluster: Cluster, count: int = 30) -> Producer:
    """A topic of several segments on three nodes, which are all the same."""
    await create(cluster, min_insync_replicas=2, segment_ms=3_600_000)
    producer = Producer(cluster)
    for number in range(count):
        assert await producer.send() == number
        if number % 8 == 7:
            for node in (1, 2, 3):
                await cluster.until(lambda node=node: replica(cluster, node).log.log_end_offset == number + 1)  # type: ignore[misc]  # noqa: B023
                replica(cluster, node).log.roll(now_ms=0)
    await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
    await cluster.until(lambda: all(replica(cluster, node).log.high_watermark == count for node in (1, 2, 3)))
    return producer


def notice(cluster: Cluster) -> None:
    for node in cluster.brokers:
        for _ in verify(replica(cluster, node).log):
            pass


def logs(cluster: Cluster) -> list[Log]:
    return [replica(cluster, node).log for node in cluster.brokers]


async def records_of(cluster: Cluster, node: int, count: int) -> list[int]:
    """Every offset that a consumer reads there."""
    offsets: list[int] = []
    while len(offsets) < count:
        result = await fetch(cluster, node, len(offsets))
        assert result.error_code == NONE, result
        data = bytes(result.records)
        assert all(check_crc(data, header) for header in headers(data))
        offsets += [header.base_offset for header in headers(data)]
    return offsets


@on_cluster
async def test_a_node_that_may_replicate_a_topic_and_not_read_it_heals_it(tmp_path: Path) -> None:
    """With an authorizer: CLUSTER_ACTION, which no rule takes from it here, is enough."""
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD, "allow_everyone_if_no_acl_found": "true"}
    async with running_cluster(tmp_path, **PATIENT, **settings) as cluster:
        await filled(cluster)
        rule = CreateAclsRequest.Creation(
            resource_type=AclResourceType.TOPIC,
            resource_name="*",
            resource_pattern_type=3,
            principal="User:somebody-else",
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermission.ALLOW,
        )
        active = await cluster.wait_active()
        await active.quorum.change(lambda controller: controller.create_acls([rule]))
        end = active.metadata.offset
        await cluster.until(lambda: all(broker.metadata.offset >= end for broker in cluster.up))
        assert (await read(cluster, await wait_leader(cluster)))[0] == TopicAuthorizationFailed.code
        flip(cluster, 2, 12)
        notice(cluster)
        assert replica(cluster, 2).log.quarantine
        await cluster.until(lambda: not any(log.quarantine for log in logs(cluster)))
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))


@on_cluster
async def test_three_replicas_that_are_damaged_in_different_places_heal_one_another(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, **PATIENT) as cluster:
        producer = await filled(cluster)
        leader = await wait_leader(cluster)
        isr = set(partition(cluster).isr)
        assert len(isr) == 3
        shrunk: list[object] = []
        for node, offset in zip((1, 2, 3), (3, 12, 20), strict=True):
            flip(cluster, node, offset)
        flip(cluster, leader, 29)  # in the active segment
        notice(cluster)
        assert all(log.quarantine for log in logs(cluster))

        async def watch() -> None:
            while True:
                if set(partition(cluster).isr) != isr or partition(cluster).leader != leader:
                    shrunk.append(partition(cluster))
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for number in range(30, 40):
                assert await producer.send() == number, "producers go on"
            await cluster.until(lambda: not any(log.quarantine for log in logs(cluster)))
            nursery.cancel_scope.cancel()
        assert not shrunk, "no replica leaves the ISR, and the leader stays"
        await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        for node in (1, 2, 3):
            log = replica(cluster, node).log
            await cluster.until(lambda log=log: log.high_watermark == 40)  # type: ignore[misc]
            assert list(verify(log)) == []
            assert await records_of(cluster, node, 40) == list(range(40))
        assert sum(cluster[node].counts.damage_healed for node in (1, 2, 3)) == 4
        for node in (1, 2, 3):  # and it is so on the disk
            await cluster.kill(node)
        await cluster.start_all(1, 2, 3)
        await wait_leader(cluster)
        assert all(list(verify(log)) == [] for log in logs(cluster))
        assert await producer.send() == 40


@on_cluster
async def test_unrepairable_damage_is_logged_and_refused_and_all_else_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(tmp_path, **PATIENT) as cluster:
        producer = await filled(cluster)
        leader = await wait_leader(cluster)
        for node in (1, 2, 3):
            flip(cluster, node, 12)
        flip(cluster, leader, 3)
        notice(cluster)
        await cluster.until(lambda: caplog.text.count("no replica has a good copy of offsets 12 to 12") == 3)
        await cluster.until(lambda: all(len(log.quarantine.damages) == 1 for log in logs(cluster)))
        assert await producer.send() == 30, "producers go on"
        assert set(partition(cluster).isr) == {1, 2, 3}
        assert (await fetch(cluster, leader, 12)).error_code == CorruptMessage.code
        assert (await read(cluster, leader, 13))[0] == NONE
        for node in (1, 2, 3):
            assert cluster[node].replication.healing.unhealed(replica(cluster, node).log) == 1


@on_cluster
async def test_a_follower_whose_damage_is_not_committed_has_it_sent_again(tmp_path: Path) -> None:
    """And loses nothing of what stands behind it; if nothing does, the log is cut there."""
    async with running_cluster(tmp_path, **PATIENT) as cluster:
        await filled(cluster, 10)
        leader = await wait_leader(cluster)
        follower = next(node for node in (1, 2, 3) if node != leader)
        log = replica(cluster, follower).log
        for offset in (5, 9):
            flip(cluster, follower, offset)
            log.high_watermark = 2  # as if it did not know yet
            # Its leader does not tell it for now, either.
            leading = replica(cluster, leader).log
            leading.high_watermark = 2
            notice(cluster)
            await cluster.until(lambda: not log.quarantine)
            leading.high_watermark = 10
            await cluster.until(lambda: are_the_same(cluster, 1, 2, 3))
        assert await records_of(cluster, leader, 10) == list(range(10))
