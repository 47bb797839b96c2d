"""The settings of the object store, from the keys `trioka.tier.*`."""

from typing import TYPE_CHECKING

from trioka.protocol.lazy_dataclass import frozen

from ...config import trioka_keys as keys

if TYPE_CHECKING:
    from ...config.layers import Config


@frozen
class StoreOptions:
    """How to reach an object store. What is None comes from the environment, as the store's own tools read it."""

    url: str  # without credentials, so it may be shown
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    path_style: bool = True
    request_timeout_ms: int = 30_000
    retries: int = 3

    def __repr__(self) -> str:
        return f"<StoreOptions {self.url}>"  # without the secrets


def store_options(config: "Config") -> StoreOptions | None:
    """None if no object store is configured."""
    if (url := config[keys.TIER_URL]) is None:
        return None
    access_key, secret_key = config[keys.TIER_ACCESS_KEY], config[keys.TIER_SECRET_KEY]
    return StoreOptions(
        url=url,
        endpoint=config[keys.TIER_ENDPOINT],
        region=config[keys.TIER_REGION],
        access_key=None if access_key is None else access_key.value,
        secret_key=None if secret_key is None else secret_key.value,
        path_style=config[keys.TIER_PATH_STYLE],
        request_timeout_ms=config[keys.TIER_REQUEST_TIMEOUT_MS],
        retries=config[keys.TIER_REQUEST_RETRIES],
    )
