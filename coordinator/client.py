"""The client of a request, as a coordinator sees it."""

from typing import Final, NamedTuple


class Client(NamedTuple):
    id: str
    host: str  # as Kafka writes it: "/10.0.0.7"
    version: int  # of the request, where behaviour depends on it
    principal: str = ""  # empty where it is not needed


NO_CLIENT: Final = Client("", "", 0)
