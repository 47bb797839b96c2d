"""Who a client is, as a broker tells the controller in an Envelope: the version, an int16, then this."""

from ..primitives import Boolean, String
from ..schema import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: String
    name: String
    token_authenticated: Boolean
