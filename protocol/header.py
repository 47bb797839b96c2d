"""What stands before every request and response, and in which version.

    request    int32 size · int16 key · int16 version · int32 correlation id · int16-string client id [· tagged fields]
    response   int32 size · int32 correlation id                                                      [· tagged fields]

The tagged fields are there when the body is flexible, with one exception: ApiVersions is answered with a header
without them always, because its client cannot know yet what the other side speaks. The client id kept its old form in
flexible headers, so that a broker can read it before it knows the version.

Every request has one, so its header is read by hand: a third of the price of the compiled decoder, to which a test
compares it.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final

from .decoding import skip_tags
from .errors import ProtocolError
from .primitives import Int16, Int32, String
from .schema import Message, Request, Response, field

API_VERSIONS_KEY: Final = 18


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field("1+", flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: Int32


_FIXED: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
REQUEST_START: Final = Struct(">hhi")  # key, version, correlation id: where they stand in every version


def client_id_and_body(frame: memoryview, flexible: bool) -> tuple[memoryview | None, int]:
    """The client id's bytes, and where the body of the request begins."""
    try:
        size = _FIXED.unpack_from(frame, 0)[3]
        if size < -1:
            raise ProtocolError(f"request header: client_id: its length is {size}")
        position = _FIXED.size + max(size, 0)
        if flexible:
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags)
    except (struct_error, IndexError):
        raise ProtocolError(f"request header: the bytes end too early, at {len(frame)}") from None
    if position > len(frame):
        raise ProtocolError(f"request header: client_id: its length is {size} in a frame of {len(frame)} bytes")
    return (None if size < 0 else frame[_FIXED.size : _FIXED.size + size]), position


def request_header_version(request: type[Request], version: int) -> int:
    return 2 if version in request.__flexible__ else 1


def response_header_version(response: type[Response], version: int) -> int:
    return 1 if version in response.__flexible__ and response.__key__ != API_VERSIONS_KEY else 0
