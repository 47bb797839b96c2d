"""GetTelemetrySubscriptions (71): the metrics that a client is requested to push."""

from ..primitives import Boolean, Int8, Int16, Int32, String, Uuid
from ..schema import Request, Response


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Boolean
    requested_metrics: list[String]
