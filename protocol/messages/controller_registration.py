"""ControllerRegistration (70): a controller makes its endpoints and features known."""

from ..primitives import Boolean, Int16, Int32, String, Uint16, Uuid
from ..schema import Request, Response, Struct


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+"):
    class Listener(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Boolean
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
