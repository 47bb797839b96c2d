"""Requests that come from inside: this node asks itself, or another node passes on what its client asked.

The handler is the one that serves the wire. It is given a call without a socket behind it, and its answer is returned.
NotController is raised and not made an answer of: whoever has asked knows better where to go next.
"""

from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from trioka.protocol.errors import KafkaError, NotController
from trioka.protocol.schema import Request, Response

from ..security.guard import THIS_NODE
from .connection import Call, Connection

if TYPE_CHECKING:
    from ..broker import Broker
    from .dispatch import Route


class Insider:
    """Stands where a connection would. Without a principal it is this node, which may do everything; with one, it is
    the client of the node that passes its request on."""

    def __init__(self, *, host: str, listener: str, client_id: str, principal: str) -> None:
        self.host = host  # in the spelling of cluster/host_address.py
        self.peer = f"{host}:0"
        self.listener = listener
        self.client_id = client_id
        self.principal = principal
        self.is_closing = False


class NoRoad(NamedTuple):
    """Stands where a route would."""

    key: int
    version: int


def asked_broker(broker: "Broker", call: Call) -> int | None:
    """The broker that a client has asked. None for what another node passes on: that node has looked at it."""
    is_from_inside = isinstance(call.connection, Insider) or call.connection.listener in broker.node.controller_names
    return None if is_from_inside else broker.node_id


async def serve_inside(
    broker: "Broker",
    request: Request,
    version: int,
    *,
    host: str = "",
    listener: str = "",
    client_id: str = "",
    principal: str = THIS_NODE,
) -> Response:
    key = type(request).__key__
    assert key is not None
    insider = Insider(host=host, listener=listener, client_id=client_id, principal=principal)
    call = Call(cast(Connection, insider), cast("Route", NoRoad(key, version)), 0)
    handler = broker.controller_dispatch.handler(key)
    if handler.forwards and not broker.quorum.is_active:
        raise NotController
    try:
        answer: Any = handler.serve(broker, call, request)
        if type(answer) is CoroutineType:
            answer = await answer
    except NotController:
        raise
    except KafkaError as error:
        answer = handler.refuse(request, error)
    assert isinstance(answer, Response), f"{type(request).__name__} cannot be asked from inside"
    return answer
