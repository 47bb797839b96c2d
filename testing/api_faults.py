"""Faults by API, as a test arms them: on a broker, or on a cluster, where they strike on whichever node gets the
request.
"""

from typing import Any

from .faults import Armed, Effect, ErrorName, Fault, Length, error_name, seconds_of


class ApiFaults:
    """Arms faults by commands (`call`), which a subclass implements."""

    def call(self, order: str, **details: Any) -> Any:
        raise NotImplementedError

    def fail(self, api: str, error: ErrorName, *, topic: str | None = None, count: int | None = 1) -> Armed:
        """Answer the next `count` requests of an API (None: all) with an error: its name in Kafka, its code, or its
        class.
        """
        return self._arm(Fault(api=api, effect=Effect.FAIL, error=error_name(error), topic=topic, count=count))

    def delay(self, api: str, by: Length, *, topic: str | None = None, count: int | None = 1) -> Armed:
        """Delay the next `count` requests by this time before they are executed."""
        return self._arm(Fault(api=api, effect=Effect.DELAY, delay_s=seconds_of(by), topic=topic, count=count))

    def drop(self, api: str, *, topic: str | None = None, count: int | None = 1, done: bool = False) -> Armed:
        """Close the connection of the next `count` requests without a response; with `done`, after the request was
        executed.
        """
        return self._arm(Fault(api=api, effect=Effect.DROP, is_done=done, topic=topic, count=count))

    def _arm(self, fault: Fault) -> Armed:
        return Armed(self, self.call("arm", fault=fault.plain()), fault)
