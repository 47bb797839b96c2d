"""Envelope (58): a broker forwards a client's request to the active controller.

The inner request is served as if the client had sent it directly. If this node is not the active controller, the
envelope has the error NOT_CONTROLLER and the broker tries another node. Errors for the client are in the inner
response.
"""

from typing import TYPE_CHECKING

from trioka.cluster.security import host_address
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
from ..network.internal_call import call_handler

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: EnvelopeRequest, error: KafkaError) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=error.code)


@handles(EnvelopeRequest, error_response=error_response, cluster_only=True)
async def envelope(broker: "Broker", call: "Call", request: EnvelopeRequest) -> EnvelopeResponse:
    if not broker.quorum.is_active:
        raise NotController
    principal = read_principal(request.request_principal)
    try:
        host = host_address.from_bytes(bytes(request.client_host_address))
    except ValueError:
        raise InvalidRequest(
            f"the client address has {len(request.client_host_address)} bytes, which is not an IP address"
        ) from None
    frame = memoryview(request.request_data)
    if len(frame) < HEADER_KEY_BYTES:
        raise InvalidRequest("the envelope contains no request")
    key, version, correlation_id = REQUEST_START.unpack_from(frame, 0)
    try:
        route = broker.controller_dispatch.route(key, version)
        if not route.handler.forwards:
            raise InvalidRequest(f"API {key} cannot be forwarded")
        client_id, body = client_id_and_body(frame, route.is_flexible)
        inner = route.decode(frame, body)
        name = "" if client_id is None else bytes(client_id).decode(errors="replace")
    except ProtocolError as error:
        raise InvalidRequest(str(error)) from None
    response = await call_handler(
        broker,
        inner,
        version,
        host=host,
        client_id=name,
        principal=f"{principal.type}:{principal.name}",
        is_token_authenticated=principal.token_authenticated,
        security_protocol=None,  # known to the node that has the connection
    )
    if is_misdirected(response):
        raise NotController
    pieces = frame_response(correlation_id, response, version)
    data = b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))
    if sum(map(len, pieces)) != len(data):
        raise UnknownServerError("the response cannot be sent in an envelope")
    return EnvelopeResponse(response_data=data[SIZE_BYTES:], error_code=NONE)
