"""UpdateFeatures: the levels at which the cluster works."""

from pathlib import Path

from serving import ask, on_trio, running_broker

from trioka.protocol.errors import InvalidUpdateVersion
from trioka.protocol.messages.update_features import UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


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
