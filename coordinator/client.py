"""Who asks: what a coordinator is told of the connection that a request came over."""

from typing import Final, NamedTuple


class Client(NamedTuple):
    id: str
    host: str  # as Kafka writes it down: "/10.0.0.7"
    version: int  # of the request, where what is done depends on it
    principal: str = ""  # who it is, where that matters


NOBODY: Final = Client("", "", 0)
