"""Reloads certificates while the broker runs.

A listener gets a new TLS context when its `listener.name.<listener>.ssl.…` keys change (kafka-configs), and when the
file of a key store or trust store changes, which is checked every trioka.tls.reload.interval.ms. New connections use
the new context; existing ones continue. A context has its own ticket keys, so a reload also ends the resumption of
sessions.

A certificate is replaced only by one with the same distinguished name and at least the same alternative names, unless
ssl.allow.dn.changes or ssl.allow.san.changes permits it, and never by an expired one. After a rejected change the old
certificate stays in use, with an ERROR line that says for how long it is valid.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import trio

from trioka.protocol.errors import InvalidRequest

from ...config import security_keys as keys
from ...config.key import LISTENER_PREFIX
from ...config.layers import Config, ConfigError
from ...config.trioka_keys import TLS_RELOAD_INTERVAL_MS
from ...security.tls.certificate import Certificate
from ...security.tls.context import ServerTls, server_context
from ...security.tls.store_files import STORE_KEYS, FileState, file_state
from ..listener import Listener

if TYPE_CHECKING:
    from ...broker import Broker

log = logging.getLogger("trioka.tls")
audit = logging.getLogger("trioka.audit")

DAY_S: Final = 86_400

Files = tuple[FileState | None, ...]


class TlsReload:
    """The TLS listeners of a broker, and the sources of their contexts."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._listeners: dict[str, Listener] = {}
        self._made_from: dict[str, tuple[Mapping[str, str], Files]] = {}

    def add(self, listener: Listener) -> None:
        self._listeners[listener.name] = listener
        self._made_from[listener.name] = self._sources(self._broker.config, listener.name)

    def discard(self, name: str) -> None:
        self._listeners.pop(name, None)
        self._made_from.pop(name, None)

    @property
    def listeners(self) -> list[Listener]:
        return list(self._listeners.values())

    def seconds_left(self) -> dict[str, float]:
        """Seconds until the certificate of each listener expires; negative if it has."""
        now = self._now()
        return {name: _tls(listener).certificate.not_after - now for name, listener in self._listeners.items()}

    def check(self, after: Config) -> None:
        """Whether a configuration of this broker can be applied; raises InvalidRequest."""
        for name, listener in self._listeners.items():
            if self._sources(after, name) != self._made_from[name]:
                try:
                    self._replacement(after, listener)
                except ValueError as error:
                    raise InvalidRequest(str(error)) from None

    def apply(self) -> None:
        """Called when the configuration has changed."""
        config = self._broker.config
        for listener in self.listeners:
            sources = self._sources(config, listener.name)
            if self._made_from[listener.name] != sources:
                self._made_from[listener.name] = sources  # a bad file is reported once
                self._use(listener, self._attempt(config, listener))

    async def watch(self) -> None:
        """Checks the files until cancelled."""
        while True:
            await trio.sleep(self._broker.config[TLS_RELOAD_INTERVAL_MS] / 1000)
            config = self._broker.config
            for listener in self.listeners:
                sources = self._sources(config, listener.name)
                if self._made_from.get(listener.name, sources) == sources:
                    continue
                self._made_from[listener.name] = sources
                made = await trio.to_thread.run_sync(self._attempt, config, listener)
                if self._made_from.get(listener.name) is sources:  # otherwise the configuration has changed meanwhile
                    self._use(listener, made)

    def _attempt(self, config: Config, listener: Listener) -> ServerTls | str:
        """The new TLS side of a listener, or an error message. Changes nothing, so it may run in a thread."""
        try:
            return self._replacement(config, listener)
        except (OSError, ValueError) as error:  # a ConfigError, an invalid text of an older version, no descriptor left
            return str(error)

    def _use(self, listener: Listener, made: ServerTls | str) -> None:
        if isinstance(made, str):
            days = (_tls(listener).certificate.not_after - self._now()) / DAY_S
            log.error(
                "The listener %s keeps its old certificate, which ends in %.1f days: %s", listener.name, days, made
            )
            return
        listener.tls = made
        days = (made.certificate.not_after - self._now()) / DAY_S
        log.info("The listener %s has loaded its stores again; its certificate ends in %.1f days", listener.name, days)
        audit.info("TLS stores loaded again: listener %s", listener.name)

    def _replacement(self, config: Config, listener: Listener) -> ServerTls:
        """The new TLS side of a listener; raises ConfigError."""
        old = _tls(listener)
        new = server_context(config, listener.name, is_sasl=old.is_sasl)
        if complaint := self._complaint(config, listener.name, old.certificate, new.certificate):
            raise ConfigError(complaint)
        return new

    def _complaint(self, config: Config, name: str, old: Certificate, new: Certificate) -> str:
        if new.not_after < self._now():
            return f"The new certificate of the listener {name} has ended."
        if old.subject_der != new.subject_der and not config.of_listener(name, keys.SSL_ALLOW_DN_CHANGES):
            return (
                f"The new certificate of the listener {name} has the name '{new.subject}', but the old one has "
                f"'{old.subject}'; ssl.allow.dn.changes=true allows that."
            )
        if not old.alternative_names <= new.alternative_names and not config.of_listener(
            name, keys.SSL_ALLOW_SAN_CHANGES
        ):
            return (
                f"The new certificate of the listener {name} does not have all alternative names of the old one; "
                "ssl.allow.san.changes=true allows that."
            )
        return ""

    def _now(self) -> float:
        return self._broker.clock.now_ms() / 1000

    def _sources(self, config: Config, name: str) -> tuple[Mapping[str, str], Files]:
        prefix = f"{LISTENER_PREFIX}{name.lower()}.ssl."
        texts = {key: text for key, text in {**config.cluster, **config.broker}.items() if key.startswith(prefix)}
        return texts, tuple(file_state(config.of_listener(name, key)) for key in STORE_KEYS)


def _tls(listener: Listener) -> ServerTls:
    assert listener.tls is not None
    return listener.tls
