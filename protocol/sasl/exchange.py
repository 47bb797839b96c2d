"""The interface between SASL mechanisms and connections: an exchange, and the steps that it returns."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias


class Challenge(NamedTuple):
    """The exchange goes on: this is the server's message."""

    data: bytes
    refused: str = ""  # why the login will fail, if the message reports it to the client; for the log


class Authenticated(NamedTuple):
    """The login is complete. `data` is the server's last message."""

    principal: str  # type and name, such as User:alice
    data: bytes = b""
    expires_at_ms: int | None = None  # wall clock time at which the credential expires; None for never
    is_token: bool = False  # the credential was a delegation token
    token_id: str = ""  # of that token


class Failed(NamedTuple):
    """The login is refused. Without a text, the client gets the general sentence of the mechanism."""

    reason: str  # for the log; may contain what the client must not learn. Empty if it has been logged already
    text: str | None = None  # for the client
    claimed: str = ""  # the name that the client has claimed, as far as it was read
    advice: str = ""  # a sentence for the operator, if the reason is a known mistake of a client


class Computation(NamedTuple):
    """A step that takes milliseconds of CPU: to be called in a worker thread."""

    run: "Callable[[], Challenge | Authenticated | Failed]"


Step: TypeAlias = Challenge | Authenticated | Failed | Computation


class ServerExchange(Protocol):
    def respond(self, message: bytes) -> Step:
        """The answer to the next message of the client."""


class ServerNotAuthenticated(ValueError):
    """The server does not prove that it knows the password, or its message makes no sense."""


class ClientExchange(Protocol):
    def respond(self, challenge: bytes) -> bytes | None:
        """The next message to the server; None if the login is complete. The first challenge is empty."""


def user_principal(name: str) -> str:
    """The principal of a user. No login may yield an empty name: the guard takes an empty principal for this node."""
    assert name, "a principal needs a name"
    return f"User:{name}"
