"""Features are raised and lowered: all of a request or nothing, and only to what every node understands."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed
from support.small_cluster import SmallCluster, registration

from trioka.cluster import feature_changes
from trioka.cluster.brokers import FeatureRange
from trioka.cluster.configs import ALL_BROKERS, ConfigResource, ConfigResourceType
from trioka.cluster.decision import ItemResult
from trioka.cluster.features import FRESH_LEVELS, SUPPORTED
from trioka.protocol.errors import InvalidUpdateVersion, KafkaError
from trioka.protocol.internal_records.metadata import ConfigRecord, FeatureLevelRecord, NoOpRecord
from trioka.protocol.messages.controller_registration import ControllerRegistrationRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR = "eligible.leader.replicas.version"


@pytest.fixture
def features() -> ModuleType:
    return feature_changes


def to(name: str, level: int, how: int = UPGRADE) -> UpdateFeaturesRequest.FeatureUpdate:
    return UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=how)


def update(cluster: SmallCluster, *updates: UpdateFeaturesRequest.FeatureUpdate) -> type[KafkaError] | None:
    (outcome,) = cluster.do(cluster.controller.update_features(updates))
    assert isinstance(outcome, ItemResult)
    return outcome.error


@pytest.mark.parametrize(
    ("wanted", "is_refused"),
    [
        (to("metadata.version", 30), False),
        (to("metadata.version", 31), True),
        (to("metadata.version", 29), True),
        (to("metadata.version", 29, SAFE), True),
        (to("metadata.version", 29, UNSAFE), True),
        (to("metadata.version", 6, UNSAFE), True),
        (to("metadata.version", 0, UNSAFE), True),
        (to("metadata.version", -1), True),
        (to("nope", 1), True),
        (to("nope", 0), True),
        (to("", 1), True),
        (to("group.version", 1), False),
        (to("group.version", 2), True),
        (to("group.version", 0), True),
        (to("group.version", 0, SAFE), False),
        (to("group.version", 0, UNSAFE), False),
        (to("group.version", 1, SAFE), False),
        (to("group.version", 1, 0), True),
        (to("group.version", 1, 9), True),
        (to("transaction.version", 1, SAFE), False),
        (to("transaction.version", 3), True),
        (to("kraft.version", 1), False),
        (to("kraft.version", 0, SAFE), True),
        (to("kraft.version", 2), True),
        (to(ELR, 0, SAFE), False),
    ],
)
def test_an_update_is_taken_or_refused_as_kafka_does(
    wanted: UpdateFeaturesRequest.FeatureUpdate, is_refused: bool
) -> None:
    assert update(SmallCluster(), wanted) is (InvalidUpdateVersion if is_refused else None)


def test_a_level_counts_when_it_is_replayed_and_nought_means_off() -> None:
    cluster = SmallCluster()
    assert update(cluster, to("transaction.version", 1, SAFE), to("group.version", 0, SAFE)) is None
    assert cluster.metadata.features.level("transaction.version") == 1
    assert "group.version" not in cluster.metadata.features.levels


def test_an_unserved_feature_is_not_turned_on_and_can_be_turned_off() -> None:
    cluster = SmallCluster()
    assert update(cluster, to("share.version", 1)) is InvalidUpdateVersion
    assert update(cluster, to("share.version", 0, SAFE)) is InvalidUpdateVersion, "it is not there"
    cluster.append([FeatureLevelRecord(name="share.version", feature_level=1)])
    cluster.append([FeatureLevelRecord(name="streams.version", feature_level=1)])
    assert update(cluster, to("share.version", 0)) is InvalidUpdateVersion, "no downgrade was requested"
    assert update(cluster, to("share.version", 0, SAFE)) is None
    assert update(cluster, to("streams.version", 2)) is InvalidUpdateVersion
    assert dict(cluster.metadata.features.levels) == {**FRESH_LEVELS, "streams.version": 1}


def test_one_wrong_update_refuses_all() -> None:
    cluster = SmallCluster()
    assert update(cluster, to("group.version", 0, SAFE), to("nope", 1)) is InvalidUpdateVersion
    assert dict(cluster.metadata.features.levels) == FRESH_LEVELS


def test_validate_only_writes_nothing_and_what_is_there_is_not_written_again() -> None:
    controller = SmallCluster().controller
    assert controller.update_features([to("group.version", 0, SAFE)], validate_only=True).records == ()
    assert controller.update_features([to("group.version", 1)]).records == ()


def test_a_level_that_one_broker_does_not_understand_is_refused() -> None:
    cluster = SmallCluster(brokers=1)
    update(cluster, to("transaction.version", 1, SAFE))
    older = {**SUPPORTED, "transaction.version": FeatureRange(name="transaction.version", first=0, last=1)}
    request = registration(2, features=older.values())
    cluster.do(cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=False))
    assert update(cluster, to("transaction.version", 2)) is InvalidUpdateVersion


def test_an_unregistered_voter_blocks_the_upgrade() -> None:
    cluster = SmallCluster(voter_ids=(1, 2))
    assert update(cluster, to("group.version", 1)) is InvalidUpdateVersion


def with_voter(*result: tuple[int, int]) -> SmallCluster:
    """Voters 1 and 2, of the configuration; the kraft.version range that 2 has sent to this leader, if any."""
    ranges = {2: FeatureRange(name="kraft.version", first=low, last=high) for low, high in result}  # noqa: B035 - one
    cluster = SmallCluster(voter_ids=(2,), kraft_version=0, voter_ranges=ranges)
    request = ControllerRegistrationRequest(
        controller_id=2,
        incarnation_id=b"2" * 16,
        zk_migration_ready=False,
        listeners=[],
        features=[
            ControllerRegistrationRequest.Feature(
                name=f.name, min_supported_version=f.first, max_supported_version=f.last
            )
            for f in SUPPORTED.values()
        ],
    )
    cluster.do(cluster.controller.register_controller(request))
    return cluster


def test_the_quorum_is_upgraded_when_every_voter_supports_it(features: ModuleType) -> None:
    def raised(cluster: SmallCluster, level: int = 1, how: int = UPGRADE) -> Any:
        wanted = [to("kraft.version", level, how)]
        return features.update_features(cluster.metadata, cluster.settings, wanted, False)

    assert raised(with_voter((0, 1))).records == (NoOpRecord(),)
    for cluster in (with_voter(), with_voter((0, 0))):
        decision = raised(cluster)
        assert decision.records == () and decision.replies[0].error is InvalidUpdateVersion
    assert raised(with_voter((0, 1)), 0).records == ()
    at_one = replace(with_voter().settings, kraft_version=1)
    back = features.update_features(SmallCluster().metadata, at_one, [to("kraft.version", 0, SAFE)], False)
    assert back.replies[0].error is InvalidUpdateVersion


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if known is None or level not in known:", "if known is not None and level not in known:"),
        ("if known is None or level not in known:", "if known is None:"),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str) -> None:
    rule = test_the_quorum_is_upgraded_when_every_voter_supports_it
    assert_noticed(feature_changes, right, wrong, rule)


def test_eligible_leaders_need_a_newer_metadata_version() -> None:
    cluster = SmallCluster(brokers=0)
    cluster.append(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=22),
            FeatureLevelRecord(name=ELR, feature_level=0),
        ]
    )
    assert update(cluster, to(ELR, 1)) is InvalidUpdateVersion
    assert update(cluster, to(ELR, 1), to("metadata.version", 30)) is None


def test_with_eligible_leaders_the_min_isr_is_fixed_for_the_whole_cluster() -> None:
    cluster = SmallCluster(min_insync_replicas=2)
    update(cluster, to(ELR, 0, SAFE))
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    cluster.append(
        [
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=None),
            ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3"),
        ]
    )
    assert update(cluster, to(ELR, 1)) is None
    assert cluster.metadata.configs.value(ALL_BROKERS, "min.insync.replicas") == "2"
    assert cluster.metadata.configs.value(broker, "min.insync.replicas") is None
