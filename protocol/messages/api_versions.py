"""ApiVersions (18): the version ranges of all APIs of a node, and its features.

A client sends it first. An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of this one
API; the response header is always version 0, because the client does not know the node's versions yet. v3 flexible,
the client's name, features · v4 a feature may start at 0
"""

from ..primitives import Boolean, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    class ApiVersion(Struct):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeature(Struct):
        name: String = field("3+")
        min_version: Int16 = field("3+")
        max_version: Int16 = field("3+")

    class FinalizedFeature(Struct):
        name: String = field("3+")
        max_version_level: Int16 = field("3+")
        min_version_level: Int16 = field("3+")

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeature] = field("3+", default=[], tag=0, tagged="3+", ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: list[FinalizedFeature] = field("3+", default=[], tag=2, tagged="3+", ignorable=True)
    zk_migration_ready: Boolean = field("3+", default=False, tag=3, tagged="3+", ignorable=True)
