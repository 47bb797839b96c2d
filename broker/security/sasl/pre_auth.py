"""What a connection of a SASL listener may send before it is authenticated, and when it must re-authenticate.

    HANDSHAKE_OR_VERSIONS → HANDSHAKE → AUTHENTICATE → COMPLETE
                                      ↘ RAW (handshake version 0)  ↗

    HANDSHAKE_OR_VERSIONS   ApiVersions once (again after UNSUPPORTED_VERSION), or SaslHandshake
    HANDSHAKE               SaslHandshake
    AUTHENTICATE            SaslAuthenticate; a SaslHandshake is answered with ILLEGAL_SASL_STATE and ends the login
    RAW                     frames without a header, which are SASL messages
    COMPLETE                everything; a SaslHandshake may begin a re-authentication (KIP-368)
    FAILED                  nothing: the connection is closed after connection.failed.authentication.delay.ms

For other requests the connection is closed without decoding them, as in Kafka. An authenticated connection without an
end of its session has no gate any more, so its requests have no extra cost.

The gate decides; the handlers of SaslHandshake and SaslAuthenticate respond (broker/security/sasl/logins.py has their
common code). Times are those of the connection's clock, in seconds.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from trioka.protocol.errors import ProtocolError
from trioka.protocol.header import API_VERSIONS_KEY
from trioka.protocol.sasl.exchange import ServerExchange

SASL_HANDSHAKE_KEY: Final = 17
SASL_AUTHENTICATE_KEY: Final = 36
MAX_LOGIN_S: Final = 30.0  # from accept, or from the handshake of a re-authentication
MAX_PRE_AUTH_BYTES: Final = 32 * 1024 * 1024  # of incomplete requests, of all connections before login together
MIN_REAUTH_INTERVAL_S: Final = 1.0
MAX_MESSAGES: Final = 8  # of one exchange; SCRAM has two, OAUTHBEARER has two


class SaslState(Enum):
    HANDSHAKE_OR_VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    RAW = auto()
    COMPLETE = auto()
    FAILED = auto()


_ADMITTED: Final = {
    SaslState.HANDSHAKE_OR_VERSIONS: (API_VERSIONS_KEY, SASL_HANDSHAKE_KEY),
    SaslState.HANDSHAKE: (SASL_HANDSHAKE_KEY,),
    SaslState.AUTHENTICATE: (SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY),
}


class LoggedIn(NamedTuple):
    data: bytes
    lifetime_ms: int  # of the session; 0 if it has no end


class Refused(NamedTuple):
    text: str  # for the client


class SessionExpired(ProtocolError):
    """The connection's session has expired without a re-authentication."""


class PreAuth:
    """The gate of one connection."""

    __slots__ = (
        "deadline",
        "exchange",
        "expires_at",
        "is_reauthentication",
        "last_reauthentication",
        "mechanism",
        "messages",
        "principal",
        "state",
    )

    def __init__(self, now: float) -> None:
        self.state = SaslState.HANDSHAKE_OR_VERSIONS
        self.deadline: float | None = now + MAX_LOGIN_S  # of the login
        self.mechanism = ""  # agreed in the last handshake
        self.exchange: ServerExchange | None = None
        self.messages = 0
        self.is_reauthentication = False
        self.principal = ""  # of the last login
        self.expires_at: float | None = None  # of the session
        self.last_reauthentication: float | None = None

    @property
    def is_before_login(self) -> bool:
        """Whether the connection has never logged in."""
        return not self.principal

    def is_late(self, now: float) -> bool:
        """Whether the login has exceeded its time limit."""
        return self.deadline is not None and now > self.deadline

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def admits_fast_path(self, now: float) -> bool:
        return self.state is SaslState.COMPLETE and not self.is_expired(now)

    def admit(self, key: int, now: float) -> bool:
        """Whether to serve a request; False: ignore it. Raises ProtocolError if the connection must be closed."""
        if self.state is SaslState.COMPLETE:
            if key == SASL_HANDSHAKE_KEY and self._may_reauthenticate(now):
                self._begin_reauthentication(now)
            elif self.is_expired(now):
                raise SessionExpired("the session has ended, and the client has not authenticated again")
            return True
        if self.state is SaslState.FAILED:
            return False
        if key not in _ADMITTED[self.state]:
            raise ProtocolError(f"API {key} before the SASL login is complete")
        return True

    def _may_reauthenticate(self, now: float) -> bool:
        """Only sessions with an end are renewed, at most once per second."""
        last = self.last_reauthentication
        return self.expires_at is not None and (last is None or now - last >= MIN_REAUTH_INTERVAL_S)

    def _begin_reauthentication(self, now: float) -> None:
        self.state = SaslState.HANDSHAKE
        self.is_reauthentication = True
        self.last_reauthentication = now
        self.deadline = now + MAX_LOGIN_S

    def versions_answered(self) -> None:
        """ApiVersions has succeeded."""
        if self.state is SaslState.HANDSHAKE_OR_VERSIONS:
            self.state = SaslState.HANDSHAKE

    def agree(self, mechanism: str, exchange: ServerExchange, *, is_raw: bool) -> bool:
        """The response to the handshake was sent. False if the mechanism differs from that of the last login: the
        connection is then closed after the response."""
        if self.is_reauthentication and mechanism != self.mechanism:
            self.fail()
            return False
        self.mechanism = mechanism
        self.exchange = exchange
        self.messages = 0
        self.state = SaslState.RAW if is_raw else SaslState.AUTHENTICATE
        return True

    def next_message(self) -> ServerExchange:
        """The exchange, for the client's next message."""
        self.messages += 1
        if self.exchange is None or self.messages > MAX_MESSAGES:
            raise ProtocolError(f"more than {MAX_MESSAGES} SASL messages in one login")
        return self.exchange

    def complete(self, principal: str, expires_at: float | None) -> None:
        self.state = SaslState.COMPLETE
        self.principal = principal
        self.expires_at = expires_at
        self.exchange = None
        self.deadline = None
        self.is_reauthentication = False

    def fail(self) -> None:
        self.state = SaslState.FAILED
        self.exchange = None


def is_above_limit(gate: PreAuth | None, all_held: Iterable[tuple[PreAuth | None, int]]) -> bool:
    """Whether a connection has not logged in, and all such connections together hold more than MAX_PRE_AUTH_BYTES of
    incomplete requests."""
    if gate is None or not gate.is_before_login:
        return False
    return sum(held for each, held in all_held if each is not None and each.is_before_login) > MAX_PRE_AUTH_BYTES
