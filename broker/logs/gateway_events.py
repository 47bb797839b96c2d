"""The names of the events that `trioka gateway` logs: a process of its own, with the same formats of log lines."""

from collections.abc import Mapping
from typing import Final

from .event import Event

GATEWAY_EVENTS: Final[Mapping[tuple[str, str], Event]] = {
    ("trioka.gateway", "the gateway stops; calls have %.1f s to end"): Event("gateway.stopping", ("grace_s",)),
    ("trioka.gateway", "the gateway ends while a call to the cluster does not return"): Event("gateway.call_left"),
    ("trioka.gateway", "the listeners keep their old certificate: %s"): Event("gateway.tls_refused", ("reason",)),
    ("trioka.gateway", "the listeners have loaded their certificate again: %s"): Event("gateway.tls_loaded", ("file",)),
    ("trioka.gateway", "internal error in a call of %s"): Event("bug.gateway_call", ("method",)),
    ("trioka.gateway", "internal error: producer %s"): Event("bug.gateway_producer", ("producer",)),
    ("trioka.gateway", "internal error in a request of a stream"): Event("bug.gateway_stream"),
    ("trioka.gateway.librdkafka", "a producer of the gateway has ended and is replaced: %s"): Event(
        "gateway.producer_replaced", ("reason",)
    ),
    ("trioka.gateway.rest", "offsets of the consumer instance %s are not committed: %s"): Event(
        "rest.offsets_not_committed", ("instance", "reason")
    ),
    ("trioka.gateway.rest", "internal error in %s"): Event("bug.rest", ("endpoint",)),
    ("trioka.gateway.registry", "internal error in %s %s"): Event("bug.registry", ("method", "path")),
    ("trioka.gateway.registry", "the topic %s cannot be read, next attempt in %.0f s: %s"): Event(
        "registry.topic_unreadable", ("topic", "pause_s", "reason")
    ),
    ("trioka.gateway.registry", "skipped the record %s-0@%d: %s"): Event(
        "registry.record_skipped", ("topic", "offset", "reason")
    ),
    ("trioka.gateway.registry", "reading the topic %s: %s"): Event("registry.read_error", ("topic", "reason")),
    ("trioka.gateway.registry", "a write did not succeed, attempt %d: %s"): Event(
        "registry.write_repeated", ("attempt", "reason")
    ),
}
