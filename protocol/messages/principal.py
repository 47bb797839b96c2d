"""The principal of a client in an Envelope: the version, an int16, then this struct."""

from ..primitives import Boolean, String
from ..schema import Message


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: String
    name: String
    token_authenticated: Boolean
