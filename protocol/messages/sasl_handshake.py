"""SaslHandshake (17): agrees on a SASL mechanism.

v1 the exchange that follows is wrapped into SaslAuthenticate
"""

from ..primitives import Int16, String
from ..schema import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: String


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: Int16
    mechanisms: list[String]
