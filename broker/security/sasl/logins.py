"""Logins of clients: mechanisms of a listener, the steps of an exchange, sessions, the audit log, and counters.

    outcome = broker.logins.step(connection, message)

Logins are counted under Kafka's names and written to the logger `trioka.audit`: each success, and at most one failure
per second and address, with the number of omitted lines.

The response to a failed login is delayed by connection.failed.authentication.delay.ms, to slow down password guessing.
"""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from trioka.protocol.sasl.client import nonce_text
from trioka.protocol.sasl.exchange import Authenticated, Challenge, Computation, Failed, ServerExchange
from trioka.protocol.sasl.jaas import OAUTHBEARER
from trioka.protocol.sasl.oauthbearer import OAuthBearerServer
from trioka.protocol.sasl.plain import PLAIN, PlainServer
from trioka.protocol.sasl.scram import NONCE_BYTES, SCRAM_MECHANISMS, Credential, ScramMechanism, ScramServer

from ...config.layers import Config, ConfigError
from ...config.network_keys import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS, CONNECTIONS_MAX_REAUTH_MS
from ...config.oauth import OAuthSettings
from ...config.sasl import ListenerSasl, of_mechanism, sasl_of
from ...counters.logins import LoginCounts
from ...logs.lines import in_a_line
from .pre_auth import LoggedIn, PreAuth, Refused

if TYPE_CHECKING:
    from ...broker import Broker
    from .issuer_keys import IssuerKeys

log = logging.getLogger("trioka.audit")

MAX_AUDITED_HOSTS: Final = 1000  # addresses whose failures are counted
AUDIT_INTERVAL_S: Final = 1.0

TokenLookup = Callable[[ScramMechanism, str], Credential | None]


class Client(Protocol):
    """The attributes of a connection that are used here."""

    host: str
    peer: str
    listener: str
    principal: str
    is_token_authenticated: bool
    session_expires_at: float | None
    token_id: str | None
    gate: PreAuth | None

    def logged_in(self, principal: str, expires_at: float | None, *, is_token: bool) -> None: ...


class Logins:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._config: Config | None = None  # from which `_listeners` were created
        self._listeners: dict[str, ListenerSasl | None] = {}
        self._failures: dict[str, tuple[float, int]] = {}  # by address: time of the last line, and failures since
        self._issuers: dict[str, IssuerKeys] = {}  # by URL
        self.tokens: TokenLookup = broker.tokens.credential  # called in a worker thread

    def of_listener(self, listener: str) -> ListenerSasl | None:
        """The SASL settings of a listener; None if no mechanism can be served."""
        config = self._broker.config
        if config is not self._config:
            self._config, self._listeners = config, {}
        if listener not in self._listeners:
            try:
                self._listeners[listener] = sasl_of(config, listener)
            except ConfigError as error:
                log.error("no login is possible on %s: %s", listener, error)
                self._listeners[listener] = None
        return self._listeners[listener]

    def mechanisms(self, listener: str) -> tuple[str, ...]:
        sasl = self.of_listener(listener)
        return () if sasl is None else sasl.mechanisms

    def exchange(self, listener: str, mechanism: str) -> ServerExchange | None:
        """A new exchange; None if the mechanism is not enabled on the listener."""
        sasl = self.of_listener(listener)
        if sasl is None or mechanism not in sasl.mechanisms:
            return None
        if mechanism == PLAIN:
            assert sasl.plain_users is not None
            return PlainServer(sasl.plain_users)
        if mechanism == OAUTHBEARER:
            assert sasl.oauth is not None
            keys = self._issuer(sasl.oauth)
            clock = self._broker.clock
            return OAuthBearerServer(sasl.oauth.rules, lambda: keys.keys, lambda: clock.now_ms() / 1000, keys.want)
        chosen = SCRAM_MECHANISMS[mechanism]
        tokens, access = self.tokens, self._broker.metadata.access
        return ScramServer(
            chosen,
            lambda name: self._scram_credential(chosen, name),
            nonce=nonce_text(os.urandom(NONCE_BYTES)),
            secret=access.scram_secret(self._broker.cluster_id, self._broker.tokens.settings.secret_key),
            usual_iterations=access.usual_iterations(chosen.number),
            tokens=lambda name: tokens(chosen, name),
        )

    async def fetch_keys(self) -> None:
        """Before the start: fetches the keys of token issuers. A listener without keys rejects all tokens."""
        for endpoint in self._broker.node.listeners:
            sasl = self.of_listener(endpoint.name) if endpoint.protocol.sasl else None
            if sasl is not None and sasl.oauth is not None:
                await self._issuer(sasl.oauth).tried.wait()

    def _issuer(self, settings: OAuthSettings) -> "IssuerKeys":
        from .issuer_keys import FetchIntervals, IssuerKeys  # it contains an HTTP client, which most nodes do not need

        if settings.jwks_url not in self._issuers:
            intervals = FetchIntervals(
                refresh_s=settings.refresh_ms / 1000,
                first_retry_s=settings.first_retry_ms / 1000,
                max_retry_s=settings.max_retry_ms / 1000,
            )
            keys = self._issuers[settings.jwks_url] = IssuerKeys(settings.jwks_url, intervals)
            self._broker.nursery.start_soon(keys.run)
        return self._issuers[settings.jwks_url]

    def _scram_credential(self, mechanism: ScramMechanism, name: str) -> Credential | None:
        found = self._broker.metadata.access.scram(name, mechanism.number)
        if found is None:
            return None
        return Credential(found.salt, found.stored_key, found.server_key, found.iterations)

    @property
    def failure_delay_s(self) -> float:
        return self._broker.config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000

    def counts_of(self, listener: str) -> LoginCounts:
        return self._broker.login_counts.setdefault(listener, LoginCounts())

    # -- a message of the client ---------------------------------------------------------------------------------------

    def step(self, client: Client, gate: PreAuth, message: bytes) -> Challenge | LoggedIn | Refused | Computation:
        return self.outcome(client, gate, gate.next_message().respond(message))

    def outcome(
        self, client: Client, gate: PreAuth, step: Challenge | Authenticated | Failed | Computation
    ) -> Challenge | LoggedIn | Refused | Computation:
        """Applies the outcome of a step of the exchange to the connection."""
        if isinstance(step, Authenticated):
            return self._logged_in(client, gate, step)
        if isinstance(step, Failed):
            return self.refuse(client, gate, step)
        if isinstance(step, Challenge) and step.refused:
            self._audit_failure(client, gate, Failed(step.refused))
        return step

    def _logged_in(self, client: Client, gate: PreAuth, step: Authenticated) -> LoggedIn | Refused:
        if gate.is_reauthentication and step.principal != client.principal:
            before, after = (each.replace(":", ".", 1) for each in (client.principal, step.principal))
            text = f"Cannot change principals during re-authentication from {before}: {after}"
            return self.refuse(client, gate, Failed("another principal", text, step.principal))
        if step.is_token and step.token_id not in self._broker.metadata.access.tokens:
            return self.refuse(client, gate, Failed("the delegation token was removed meanwhile", None, step.principal))
        lifetime_ms = self._lifetime_ms(client, gate, step.expires_at_ms)
        if lifetime_ms is None:
            return self.refuse(client, gate, Failed("the credential has expired", None, step.principal))
        counts = self.counts_of(client.listener)
        result = (in_a_line(step.principal), gate.mechanism, client.peer, client.listener)
        if gate.is_reauthentication:
            counts.reauthentications += 1
            log.info("authenticated again: %s by %s from %s on %s", *result)
        else:
            counts.successful += 1
            log.info("authenticated: %s by %s from %s on %s", *result)
        expires_at = self._broker.clock.now() + lifetime_ms / 1000 if lifetime_ms else None
        client.logged_in(step.principal, expires_at, is_token=step.is_token)
        client.token_id = step.token_id or None
        return LoggedIn(step.data, lifetime_ms)

    def _lifetime_ms(self, client: Client, gate: PreAuth, expires_at_ms: int | None) -> int | None:
        """The lifetime of the session; 0 if it has no end, None if the credential is no longer valid."""
        longest = max(of_mechanism(self._broker.config, client.listener, gate.mechanism, CONNECTIONS_MAX_REAUTH_MS), 0)
        if expires_at_ms is None:
            return longest
        left = expires_at_ms - self._broker.clock.now_ms()
        if left <= 0:
            return None
        return min(left, longest) if longest else left

    def refuse(self, client: Client, gate: PreAuth, failed: Failed) -> Refused:
        counts = self.counts_of(client.listener)
        if gate.is_reauthentication:
            counts.failed_reauthentications += 1
        else:
            counts.failed += 1
        if failed.reason:
            self._audit_failure(client, gate, failed)
        during = "re-authentication" if gate.is_reauthentication else "authentication"
        general = f"Authentication failed during {during} due to invalid credentials with SASL mechanism "
        gate.fail()
        return Refused(general + gate.mechanism if failed.text is None else failed.text)

    def session_expired(self, client: Client) -> None:
        self.counts_of(client.listener).expired_killed += 1
        log.info("session over: %s from %s on %s", in_a_line(client.principal), client.peer, client.listener)

    def _audit_failure(self, client: Client, gate: PreAuth, failed: Failed) -> None:
        now = self._broker.clock.now()
        written_at, left_out = self._failures.get(client.host, (-AUDIT_INTERVAL_S, 0))
        if now - written_at < AUDIT_INTERVAL_S:
            self._failures[client.host] = written_at, left_out + 1
            return
        if len(self._failures) >= MAX_AUDITED_HOSTS:
            self._failures.clear()
        self._failures[client.host] = now, 0
        more = f" ({left_out} more failures of this address were not logged)" if left_out else ""
        log.warning(
            "authentication failed: %s by %s from %s on %s: %s%s%s",
            in_a_line(failed.claimed) or "unnamed",
            in_a_line(gate.mechanism) or "no mechanism",
            client.peer,
            client.listener,
            in_a_line(failed.reason),
            more,
            f" {failed.advice}" if failed.advice else "",
        )
