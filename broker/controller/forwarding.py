"""Forwards a client's request to the active controller in an Envelope, with the client's principal (KIP-590).

While there is no active controller the request is repeated until its own timeout; then the response is
REQUEST_TIMED_OUT. The controller may therefore execute a request twice: the second CreateTopics finds that the topic
exists. Kafka does the same.
"""

from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster import host_address
from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import (
    NONE,
    KafkaError,
    NotController,
    PrincipalDeserializationFailure,
    ProtocolError,
    RequestTimedOut,
    UnknownServerError,
)
from trioka.protocol.frame import SIZE_BYTES, frame_request, read_response
from trioka.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from trioka.protocol.messages.principal import DefaultPrincipalData
from trioka.protocol.schema import Request, Response

from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..network.connection import Call
from .client import FIRST_RETRY_S, is_misdirected

if TYPE_CHECKING:
    from ..api import Handler
    from ..broker import Broker

MIN_TIMEOUT_S: Final = 1.0  # also for a request with a timeout of 0, so that it is tried once
_VERSION: Final = Struct(">h")


class Forwarding:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def forward(self, call: Call, request: Request, handler: "Handler[Any]") -> Response:
        most_s = self._broker.config[REQUEST_TIMEOUT_MS] / 1000
        timeout_s = min(max(getattr(request, "timeout_ms", most_s * 1000) / 1000, MIN_TIMEOUT_S), most_s)
        with trio.move_on_after(timeout_s):
            while True:
                response = await self._try(call, request, handler, timeout_s)
                if response is not None:
                    return response
                await trio.sleep(FIRST_RETRY_S)
        raise RequestTimedOut("the active controller did not respond in time")

    async def _try(self, call: Call, request: Request, handler: "Handler[Any]", timeout_s: float) -> Response | None:
        """Returns None if the request is to be repeated."""
        try:
            if self._broker.quorum.raft.is_leader:
                served: Any = handler.serve(self._broker, call, request)
                response: Response = await served if type(served) is CoroutineType else served
            else:
                response = await self._send_envelope(call, request, timeout_s)
        except (NotController, ProtocolError):
            return None
        return None if is_misdirected(response) else response

    async def _send_envelope(self, call: Call, request: Request, timeout_s: float) -> Response:
        envelope = self._envelope(call, request)
        response: EnvelopeResponse = await self._broker.controller.send_to_leader(envelope, timeout_s)
        if response.error_code != NONE or response.response_data is None:
            raise _error_for_client(response.error_code)
        data = memoryview(response.response_data)
        return read_response(type(request), call.version, data, call.correlation_id)

    def _envelope(self, call: Call, request: Request) -> EnvelopeRequest:
        frame = frame_request(call.correlation_id, call.client_id, request, call.version)
        kind, _, name = call.connection.principal.partition(":")
        principal = DefaultPrincipalData(
            type=kind, name=name, token_authenticated=call.connection.is_token_authenticated
        )
        return EnvelopeRequest(
            request_data=frame[SIZE_BYTES:],
            request_principal=_VERSION.pack(0) + encode(principal, 0),
            client_host_address=host_address.to_bytes(call.connection.host),
        )


def _error_for_client(code: int) -> KafkaError:
    """An error of the envelope is about this broker, not about the request of the client, and the client does not
    expect it."""
    return NotController() if code == NotController.code else UnknownServerError()


def read_principal(data: bytes | memoryview | None) -> DefaultPrincipalData:
    try:
        if data is None or len(data) < _VERSION.size:
            raise ProtocolError("the envelope has no principal")
        (version,) = _VERSION.unpack_from(data, 0)
        return decode(DefaultPrincipalData, version, bytes(data)[_VERSION.size :])
    except ProtocolError as error:
        raise PrincipalDeserializationFailure(str(error)) from None
