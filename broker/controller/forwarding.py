"""What only the active controller can do, asked of another node: the request is passed on, in an Envelope, with the
name of whoever asked, and the answer comes back the same way (KIP-590).

As long as nobody leads, or the one who was asked does not, it is tried again, until the request's own time is up; then
the answer is REQUEST_TIMED_OUT. A request may thus be carried out twice: a topic that was created by the first try is
one that exists already to the second. Kafka's nodes do the same.
"""

from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster import host_address
from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import (
    NONE,
    NotController,
    PrincipalDeserializationFailure,
    ProtocolError,
    RequestTimedOut,
    error_class,
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

MIN_TIMEOUT_S: Final = 1.0  # a request that gives no time at all still deserves one try
_VERSION: Final = Struct(">h")


class Forwarding:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def forward(self, call: Call, request: Request, handler: "Handler[Any]") -> Response:
        most_s = self._broker.config[REQUEST_TIMEOUT_MS] / 1000
        timeout_s = min(max(getattr(request, "timeout_ms", most_s * 1000) / 1000, MIN_TIMEOUT_S), most_s)
        with trio.move_on_after(timeout_s):
            while True:
                answer = await self._try(call, request, handler, timeout_s)
                if answer is not None:
                    return answer
                await trio.sleep(FIRST_RETRY_S)
        raise RequestTimedOut("the active controller has not answered in time")

    async def _try(self, call: Call, request: Request, handler: "Handler[Any]", timeout_s: float) -> Response | None:
        """None if it may go better a little later."""
        try:
            if self._broker.quorum.raft.is_leader:
                answer: Any = handler.serve(self._broker, call, request)
                found: Response = await answer if type(answer) is CoroutineType else answer
            else:
                found = await self._pass_on(call, request, timeout_s)
        except (NotController, ProtocolError):
            return None
        return None if is_misdirected(found) else found

    async def _pass_on(self, call: Call, request: Request, timeout_s: float) -> Response:
        sent = self._envelope(call, request)
        enveloped: EnvelopeResponse = await self._broker.controller.ask_leader(sent, timeout_s)
        if enveloped.error_code != NONE or enveloped.response_data is None:
            raise error_class(enveloped.error_code)()
        data = memoryview(enveloped.response_data)
        return read_response(type(request), call.version, data, call.correlation_id)

    def _envelope(self, call: Call, request: Request) -> EnvelopeRequest:
        frame = frame_request(call.correlation_id, call.client_id, request, call.version)
        kind, _, name = call.connection.principal.partition(":")
        principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=False)
        return EnvelopeRequest(
            request_data=frame[SIZE_BYTES:],
            request_principal=_VERSION.pack(0) + encode(principal, 0),
            client_host_address=host_address.to_bytes(call.connection.host),
        )


def read_principal(data: bytes | memoryview | None) -> DefaultPrincipalData:
    try:
        if data is None or len(data) < _VERSION.size:
            raise ProtocolError("there is none")
        (version,) = _VERSION.unpack_from(data, 0)
        return decode(DefaultPrincipalData, version, bytes(data)[_VERSION.size :])
    except ProtocolError as error:
        raise PrincipalDeserializationFailure(str(error)) from None
