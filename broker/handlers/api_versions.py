"""ApiVersions (18): the supported APIs and features of this broker. The first request of every client.

An unsupported version is answered in version 0, with UNSUPPORTED_VERSION and the versions of this API
(broker/network/dispatch.py).
v3 name and version of the client software, and features · v4 features whose first version is 0
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.features import KRAFT_VERSION
from trioka.protocol.errors import InvalidRequest, KafkaError, UnsupportedVersion
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..api import BROKER, CONTROLLER, SUPPORTED_APIS, handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def error_response(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    own = [key for key in api_keys(BROKER) if key.api_key == API_VERSIONS_KEY]
    keys = own if isinstance(error, UnsupportedVersion) else []
    return ApiVersionsResponse(error_code=error.code, api_keys=keys, throttle_time_ms=0)


@handles(ApiVersionsRequest, error_response=error_response)
def api_versions(broker: "Broker", call: "Call", request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not SOFTWARE.fullmatch(text):
                raise InvalidRequest(f"{text!r} is not a valid name or version of client software")
    if call.connection.gate is not None:
        call.connection.gate.versions_answered()
    features = broker.metadata.features
    oldest = 0 if call.version >= 4 else 1  # older clients reject features whose first version is 0
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
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=spec.first, max_version=spec.last)
        for key, spec in sorted(SUPPORTED_APIS.items())
        if spec.listeners & listeners
    ]
