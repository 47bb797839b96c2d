"""BrokerRegistration (62): a broker joins the cluster, and is given its epoch.

v2 log directories · v3 the epoch before a clean stop (KIP-966) · v4 a feature may start at 0
"""

from ..primitives import Boolean, Int16, Int32, Int64, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+"):
    class Listener(Struct):
        name: String
        host: String
        port: Uint16
        security_protocol: Int16

    class Feature(Struct):
        name: String
        min_supported_version: Int16
        max_supported_version: Int16

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None
    is_migrating_zk_broker: Boolean = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", default=[], ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)
