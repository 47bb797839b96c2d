"""UpdateFeatures (57): raises or lowers the cluster's feature levels.

v1 the kind of change, dry run · v2 one error for all
"""

from ..primitives import Boolean, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    class FeatureUpdate(Struct):
        feature: String
        max_version_level: Int16
        allow_downgrade: Boolean = field("0", default=False)
        upgrade_type: Int8 = field("1+", default=1)

    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdate]
    validate_only: Boolean = field("1+", default=False)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    class Result(Struct):
        feature: String
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[Result] = field("0-1", default=[], ignorable=True)
