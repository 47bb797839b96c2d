"""Internal requests: requests of this node to itself, and client requests that another node forwards (Envelope).

They are served by the same handlers as requests from a socket. The handler gets a call with an `InternalConnection`,
and its response is returned. NotController is raised instead of encoded in a response, so that the caller can find the
active controller.
"""

from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from trioka.protocol.errors import KafkaError, NotController
from trioka.protocol.schema import Request, Response

from ..config.addresses import SecurityProtocol
from ..security.guard import SELF_PRINCIPAL
from .connection import Call, Connection

if TYPE_CHECKING:
    from ..broker import Broker
    from ..security.sasl.pre_auth import PreAuth
    from .dispatch import Route


class InternalConnection:
    """Replaces the connection of a call. Without a principal the request is this node's own, which is always
    authorized; with one, it is a forwarded request of that client."""

    def __init__(
        self,
        *,
        host: str,
        listener: str,
        client_id: str,
        principal: str,
        is_token_authenticated: bool,
        security_protocol: SecurityProtocol | None,
    ) -> None:
        self.host = host  # spelled as in cluster/security/host_address.py
        self.peer = f"{host}:0"
        self.listener = listener
        self.client_id = client_id
        self.principal = principal
        self.is_token_authenticated = is_token_authenticated
        self.security_protocol = security_protocol
        self.gate: PreAuth | None = None  # the forwarding node has checked the login
        self.is_closing = False


class InternalRoute(NamedTuple):
    """Replaces the route of a call."""

    key: int
    version: int


def target_broker(broker: "Broker", call: Call) -> int | None:
    """The broker that a client has sent a request to. None for forwarded requests: the forwarding node checks it."""
    is_from_inside = (
        isinstance(call.connection, InternalConnection) or call.connection.listener in broker.node.controller_names
    )
    return None if is_from_inside else broker.node_id


async def call_handler(
    broker: "Broker",
    request: Request,
    version: int,
    *,
    host: str = "",
    listener: str = "",
    client_id: str = "",
    principal: str = SELF_PRINCIPAL,
    is_token_authenticated: bool = False,
    security_protocol: SecurityProtocol | None = SecurityProtocol.PLAINTEXT,
) -> Response:
    key = type(request).__key__
    assert key is not None
    internal = InternalConnection(
        host=host,
        listener=listener,
        client_id=client_id,
        principal=principal,
        is_token_authenticated=is_token_authenticated,
        security_protocol=security_protocol,
    )
    call = Call(cast(Connection, internal), cast("Route", InternalRoute(key, version)), 0)
    handler = broker.controller_dispatch.handler(key)
    if handler.forwards and not broker.quorum.is_active:
        raise NotController
    try:
        answer: Any = None if handler.refusal is None else handler.refusal(broker, call, request)
        if answer is None:
            answer = handler.serve(broker, call, request)
        if type(answer) is CoroutineType:
            answer = await answer
    except NotController:
        raise
    except KafkaError as error:
        answer = handler.error_response(request, error)
    assert isinstance(answer, Response), f"{type(request).__name__} is not supported as an internal call"
    return answer
