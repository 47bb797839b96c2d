"""UpdateFeatures: the levels at which the cluster works."""

from pathlib import Path
from random import Random

import pytest
from support.serving import SETTINGS, ask, on_trio, running_broker

from trioka.broker.api import SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.config.server import load
from trioka.broker.membership.format import format_node
from trioka.cluster.bootstrap import fresh_records
from trioka.cluster.features import NOT_SERVED
from trioka.cluster.partition import random_uuid
from trioka.protocol.errors import InvalidUpdateVersion
from trioka.protocol.internal_records.metadata import FeatureLevelRecord
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.primitives import uuid_text
from trioka.storage.disk import OsDisk

UPGRADE, SAFE_DOWNGRADE = 1, 2
SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 76, 88


def request(*levels: tuple[str, int], how: int = UPGRADE, validate_only: bool = False) -> UpdateFeaturesRequest:
    update = UpdateFeaturesRequest.FeatureUpdate
    return UpdateFeaturesRequest(
        feature_updates=[update(feature=name, max_version_level=level, upgrade_type=how) for name, level in levels],
        validate_only=validate_only,
    )


@on_trio
async def test_all_levels_are_changed_or_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        levels = broker.metadata.features.level
        refused = await ask(broker, request(("group.version", 0), ("nope", 0), how=SAFE_DOWNGRADE), 1)
        assert (refused.error_code, refused.results) == (InvalidUpdateVersion.code, [])
        assert levels("group.version") == 1
        tried = await ask(broker, request(("group.version", 0), how=SAFE_DOWNGRADE, validate_only=True), 1)
        assert (tried.error_code, [result.feature for result in tried.results]) == (0, ["group.version"])
        assert levels("group.version") == 1
        done = await ask(broker, request(("group.version", 0), how=SAFE_DOWNGRADE), 2)
        assert (done.error_code, done.results, levels("group.version")) == (0, [], 0)
        assert (await ask(broker, request(("group.version", 1)), 2)).error_code == 0
    async with running_broker(tmp_path) as broker:
        assert broker.metadata.features.level("group.version") == 1


async def told_features(broker: Broker) -> tuple[dict[str, int], dict[str, int]]:
    """What ApiVersions returns: supported levels, and finalized ones."""
    requested = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await ask(broker, requested, 4)
    supported = {each.name: each.max_version for each in answer.supported_features}
    return supported, {each.name: each.max_version_level for each in answer.finalized_features}


@on_trio
async def test_clients_see_served_features_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        supported, finalized = await told_features(broker)
        assert {**supported, "metadata.version": 30} == {**finalized, "kraft.version": supported["kraft.version"]}
        for name, api in (("share.version", SHARE_GROUP_HEARTBEAT), ("streams.version", STREAMS_GROUP_HEARTBEAT)):
            assert (name in supported) == (name in finalized) == (api in SUPPORTED_APIS)


@on_trio
async def test_a_directory_of_kafka_with_features_that_are_not_served_opens_and_keeps_them(tmp_path: Path) -> None:
    not_served = [FeatureLevelRecord(name=name, feature_level=1) for name in NOT_SERVED]
    format_node(
        OsDisk(),
        load({**SETTINGS, "log.dirs": str(tmp_path)}).node,
        cluster_id=uuid_text(random_uuid(Random())),
        records=[*fresh_records(), *not_served],
        initial_voters=[],
        has_voters_in_log=False,
        random=Random(),
        now_ms=0,
    )
    for _ in range(2):  # the second time it is in the log
        async with running_broker(tmp_path) as broker:
            assert broker.alive == {1}
            assert {name: broker.metadata.features.level(name) for name in NOT_SERVED} == dict.fromkeys(NOT_SERVED, 1)
            assert not set(NOT_SERVED) & {name for response in await told_features(broker) for name in response}
    async with running_broker(tmp_path) as broker:
        assert (await ask(broker, request(("share.version", 0), how=SAFE_DOWNGRADE), 2)).error_code == 0
        assert (await ask(broker, request(("share.version", 1)), 2)).error_code == InvalidUpdateVersion.code
        assert broker.metadata.features.level("share.version") == 0


def test_a_node_that_does_not_register_what_it_can_live_with_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "registered_features", property(lambda self: list(self.supported_features.values())))
    with pytest.raises(BaseExceptionGroup):
        test_a_directory_of_kafka_with_features_that_are_not_served_opens_and_keeps_them(tmp_path)
