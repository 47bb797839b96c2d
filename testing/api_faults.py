"""Faults by API, as a test orders them: of a broker, or of a cluster, where they strike on whichever node is asked."""

from typing import Any

from .faults import Armed, Effect, ErrorName, Fault, Length, error_name, seconds_of


class ApiFaults:
    """For who takes orders (`tell`)."""

    def tell(self, order: str, **details: Any) -> Any:
        raise NotImplementedError

    def fail(self, api: str, error: ErrorName, *, topic: str | None = None, count: int | None = 1) -> Armed:
        """The next `count` requests of an API (None: all) are answered with an error: its name in Kafka, its code, or
        our class for it."""
        return self._arm(Fault(api=api, effect=Effect.FAIL, error=error_name(error), topic=topic, count=count))

    def delay(self, api: str, by: Length, *, topic: str | None = None, count: int | None = 1) -> Armed:
        """They are carried out so much later."""
        return self._arm(Fault(api=api, effect=Effect.DELAY, delay_s=seconds_of(by), topic=topic, count=count))

    def drop(self, api: str, *, topic: str | None = None, count: int | None = 1, done: bool = False) -> Armed:
        """Their connection is closed instead of an answer; with `done`, after the request was carried out."""
        return self._arm(Fault(api=api, effect=Effect.DROP, is_done=done, topic=topic, count=count))

    def _arm(self, fault: Fault) -> Armed:
        return Armed(self, self.tell("arm", fault=fault.plain()), fault)
