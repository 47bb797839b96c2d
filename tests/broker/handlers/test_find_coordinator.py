"""FindCoordinator: who looks after a group is found by its name, on a topic that comes into being when it is needed."""

from pathlib import Path

import pytest
import trio
from support.serving import ClientConnection, ask, on_trio, running_broker

from trioka.coordinator.partitioning import partition_of
from trioka.protocol.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, InvalidRequest, UnknownMemberId
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_looked_after_by_this_broker(tmp_path: Path, version: int) -> None:
    @on_trio
    async def test() -> None:
        async with running_broker(tmp_path) as broker:
            if version < 4:
                result = [await ask(broker, FindCoordinatorRequest(key="g"), version)]
            else:
                response = await ask(broker, FindCoordinatorRequest(coordinator_keys=["g", "h", "g"]), version)
                result = response.coordinators
                assert [each.key for each in result] == ["g", "h", "g"]
            address = broker.addresses["PLAINTEXT"]
            for each in result:
                assert (each.error_code, each.node_id, (each.host, each.port)) == (0, 1, address)

    test()


@on_trio
async def test_the_topic_of_groups_is_created_as_its_keys_say(tmp_path: Path) -> None:
    async with running_broker(tmp_path, offsets_topic_num_partitions=7) as broker:
        assert broker.metadata.topics.by_name("__consumer_offsets") is None
        await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        topic = broker.metadata.topics.by_name("__consumer_offsets")
        assert topic is not None and len(topic.partitions) == 7
        assert broker.groups.partition_of("g") == partition_of("g", 7)


@on_trio
async def test_during_the_creation_of_the_offsets_topic_no_missing_coordinator_is_returned(
    tmp_path: Path,
) -> None:
    """The topic is known before its logs are there. A request in between waits too; a client without one is at the
    right place, only early."""
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as first,
        ClientConnection(broker) as second,
        ClientConnection(broker) as third,
    ):
        await first.say(find, 4)
        while broker.metadata.topics.by_name("__consumer_offsets") is None:
            await trio.lowlevel.checkpoint()
        await second.say(find, 4)
        early = (await third.ask(sync, 4)).error_code
        assert early in (CoordinatorLoadInProgress.code, UnknownMemberId.code)
        (result,) = (await second.hear(find, 4)).coordinators
        assert (result.error_code, result.node_id) == (0, 1)
        assert (await second.ask(sync, 4)).error_code == UnknownMemberId.code


@on_trio
async def test_without_enough_brokers_for_its_replicas_there_is_no_coordinator(tmp_path: Path) -> None:
    async with running_broker(tmp_path, offsets_topic_replication_factor=3) as broker:
        (result,) = (await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators
        assert (result.error_code, result.node_id) == (CoordinatorNotAvailable.code, -1)


@on_trio
async def test_a_share_partition_has_a_name_of_three_parts(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        good, bad = "g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:0"
        for version, expected in ((5, InvalidRequest), (6, CoordinatorNotAvailable)):
            requested = FindCoordinatorRequest(key_type=2, coordinator_keys=[good, bad])
            result = (await ask(broker, requested, version)).coordinators
            assert [each.error_code for each in result] == [expected.code, InvalidRequest.code]


@on_trio
async def test_there_is_no_other_kind_of_coordinator(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert (await ask(broker, FindCoordinatorRequest(key="g", key_type=9), 3)).error_code == InvalidRequest.code
        (result,) = (await ask(broker, FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 4)).coordinators
        assert result.error_code == InvalidRequest.code
