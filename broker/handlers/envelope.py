"""Envelope (58): a broker passes on what its client asked, for only the active controller can do it.

What is inside is served as if it had come by itself. That this node is not active is said by the envelope, so that the
broker tries elsewhere; what the client is to know is said by the answer in it.
"""

from typing import TYPE_CHECKING

from trioka.cluster import host_address
from trioka.protocol.errors import (
    NONE,
    InvalidRequest,
    KafkaError,
    NotController,
    ProtocolError,
    UnknownServerError,
)
from trioka.protocol.frame import HEADER_KEY_BYTES, SIZE_BYTES, frame_response
from trioka.protocol.header import REQUEST_START, client_id_and_body
from trioka.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

from ..api import handles
from ..controller.client import is_misdirected
from ..controller.forwarding import read_principal
from ..network.internal_call import serve_inside

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: EnvelopeRequest, error: KafkaError) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=error.code)


@handles(EnvelopeRequest, refuse=refuse, for_nodes=True)
async def envelope(broker: "Broker", call: "Call", request: EnvelopeRequest) -> EnvelopeResponse:
    if not broker.quorum.is_active:
        raise NotController
    principal = read_principal(request.request_principal)
    try:
        host = host_address.from_bytes(bytes(request.client_host_address))
    except ValueError:
        raise InvalidRequest(f"{len(request.client_host_address)} bytes are no address of a client") from None
    frame = memoryview(request.request_data)
    if len(frame) < HEADER_KEY_BYTES:
        raise InvalidRequest("there is no request in the envelope")
    key, version, correlation_id = REQUEST_START.unpack_from(frame, 0)
    try:
        route = broker.controller_dispatch.route(key, version)
        if not route.handler.forwards:
            raise InvalidRequest(f"API {key} is not passed on")
        client_id, body = client_id_and_body(frame, route.is_flexible)
        inner = route.decode(frame, body)
        name = "" if client_id is None else bytes(client_id).decode(errors="replace")
    except ProtocolError as error:
        raise InvalidRequest(str(error)) from None
    answer = await serve_inside(
        broker, inner, version, host=host, client_id=name, principal=f"{principal.type}:{principal.name}"
    )
    if is_misdirected(answer):
        raise NotController
    pieces = frame_response(correlation_id, answer, version)
    data = b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))
    if sum(map(len, pieces)) != len(data):
        raise UnknownServerError("an answer that cannot be passed on")
    return EnvelopeResponse(response_data=data[SIZE_BYTES:], error_code=NONE)
