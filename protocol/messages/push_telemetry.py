"""PushTelemetry (72): a client pushes its metrics."""

from ..primitives import Boolean, Bytes, Int8, Int16, Int32, Uuid
from ..schema import Request, Response


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Boolean
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
