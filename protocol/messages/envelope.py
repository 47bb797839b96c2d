"""Envelope (58): a broker forwards a client's request to the controller, with the principal."""

from ..primitives import Bytes, Int16
from ..schema import Request, Response, field


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = field(default=None)
    error_code: Int16
