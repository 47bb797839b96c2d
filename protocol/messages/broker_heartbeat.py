"""BrokerHeartbeat (63): a broker is alive, and requests to be fenced, unfenced or shut down.

v1 log directories that went offline · v2 directories that take no new replicas
"""

from ..primitives import Boolean, Int16, Int32, Int64, Uuid
from ..schema import Request, Response, field


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Boolean
    want_shut_down: Boolean
    offline_log_dirs: list[Uuid] = field("1+", default=[], tag=0, tagged="1+")
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, tag=1, tagged="2+")


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Boolean = field(default=False)
    is_fenced: Boolean = field(default=True)
    should_shut_down: Boolean
