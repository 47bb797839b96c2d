"""ApiVersions (18): what this broker can do. The first question of every client.

A version of the future is answered in version 0 with UNSUPPORTED_VERSION and the range of this one API (dispatch.py).
v3 the client's name and version, which must be words; features · v4 features that start at 0
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from trioka.cluster.features import KRAFT_VERSION
from trioka.protocol.errors import InvalidRequest, KafkaError, UnsupportedVersion
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..api import BROKER, CONTROLLER, SERVED, handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def refuse(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    own = [key for key in api_keys(BROKER) if key.api_key == API_VERSIONS_KEY]
    keys = own if isinstance(error, UnsupportedVersion) else []
    return ApiVersionsResponse(error_code=error.code, api_keys=keys, throttle_time_ms=0)


@handles(ApiVersionsRequest, refuse=refuse)
def api_versions(broker: "Broker", call: "Call", request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= 3:
        for said in (request.client_software_name, request.client_software_version):
            if not SOFTWARE.fullmatch(said):
                raise InvalidRequest(f"{said!r} is no name or version of software")
    features = broker.metadata.features
    oldest = 0 if call.version >= 4 else 1  # older clients take a feature that may be 0 for a broken one
    return ApiVersionsResponse(
        error_code=0,
        api_keys=api_keys(CONTROLLER if call.connection.listener in broker.node.controller_names else BROKER),
        throttle_time_ms=0,
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name=feature.name, min_version=feature.first, max_version=feature.last)
            for feature in broker.supported_features.values()
            if feature.first >= oldest
        ],
        finalized_features_epoch=broker.metadata.offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
            for name, level in {**features.levels, KRAFT_VERSION: broker.quorum.kraft_version}.items()
            if level > 0 and name in broker.supported_features
        ],
    )


@cache
def api_keys(listeners: int) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=served.first, max_version=served.last)
        for key, served in sorted(SERVED.items())
        if served.listeners & listeners
    ]
