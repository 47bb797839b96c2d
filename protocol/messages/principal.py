"""Who a client is, as a broker tells the controller in an Envelope: the version, an int16, then this."""

from ..schema import Message
from ..wire import Boolean, String


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: String
    name: String
    token_authenticated: Boolean
