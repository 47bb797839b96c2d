"""The format of log lines, and the names of the events in them.

On a terminal a line is plain text:      2026-11-16 10:00:00,123 WARNING trioka.dispatch: closed 127.0.0.1:5 on …
Anywhere else it is one JSON object:     {"time": "…Z", "level": "warning", "event": "connection.malformed", …}

An event's name is stable: searches and alerts by it keep working when the text of a message changes. One table maps
logger and sentence (the format string) to the event, so logging calls are ordinary ones; a test checks that the table
is complete. The arguments of the sentence are also fields of the JSON object, named by the table.

Client input in a line (a client id, a name) may contain any character; it is escaped so that it cannot start a new line
or control a terminal. Records, passwords and tokens never appear in a line: no code that logs has access to them.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

from .event import Event
from .gateway_events import GATEWAY_EVENTS
from .lifecycle_events import LIFECYCLE_EVENTS
from .tier_events import TIER_EVENTS

MAX_LINE: Final = 16 * 1024  # characters; tracebacks are the longest
HUMAN: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
RESERVED: Final = frozenset({"time", "level", "event", "logger", "message", "exception", "repeated"})
REPEAT_S: Final = 60.0  # the same warning is written once in this interval
MAX_REPEATED: Final = 1000  # distinct warnings that are remembered


# By logger and sentence. Two loggers may log the same event under one name.
EVENTS: Final[Mapping[tuple[str, str], Event]] = {
    **TIER_EVENTS,
    **GATEWAY_EVENTS,
    **LIFECYCLE_EVENTS,
    ("trioka.broker", "a log directory is offline: %s"): Event("directory.offline", ("reason",)),
    ("trioka.broker", "this node ends: %s"): Event("broker.failed", ("reason",)),
    ("trioka.broker", "log directory %s was not closed cleanly: %s"): Event(
        "directory.not_closed", ("directory", "reason")
    ),
    ("trioka.broker", "could not report replica directories to the controller: %s"): Event(
        "directory.untold", ("reason",)
    ),
    ("trioka.broker", "port in use, taking another: %s"): Event("config.ports_in_use", ("reason",)),
    ("trioka.replicas", "%d logs in %s have no topic id: %s"): Event(
        "directory.no_topic_ids", ("logs", "directory", "reason")
    ),
    (
        "trioka.broker",
        "%s ends at %d; by the checkpoint of recovery points %d more offsets were durable: unless the "
        "checkpoint is wrong, this replica has lost them; compare it with the other replicas",
    ): Event("log.ends_early", ("partition", "end_offset", "missing_offsets")),
    ("trioka.broker", "%s was recovered: %d bytes scanned, %d truncated"): Event(
        "log.recovered", ("partition", "scanned_bytes", "cut_bytes")
    ),
    ("trioka.broker", "%s was recovered with damage: %s"): Event("log.damaged", ("partition", "reason")),
    ("trioka.controller", "a periodic task of the controller failed: %s"): Event("controller.duty_failed", ("reason",)),
    ("trioka.controller", "internal error in a periodic task of the controller"): Event("bug.controller"),
    ("trioka.controller", "a NoOpRecord is not committed: %s"): Event("controller.idle_write_failed", ("reason",)),
    ("trioka.controller", "broker %d is fenced: no heartbeat for %.1f s"): Event(
        "broker.fenced", ("broker", "silent_s")
    ),
    ("trioka.controller", "%s failed with error %d"): Event("controller.refused", ("request", "error_code")),
    ("trioka.controller", "%s failed: %s"): Event("controller.unanswered", ("request", "reason")),
    ("trioka.followers", "cannot fetch from broker %d: %s"): Event("follower.unreachable", ("leader", "reason")),
    ("trioka.followers", "internal error: fetching from broker %d"): Event("bug.follower", ("leader",)),
    ("trioka.followers", "broker %d: %s"): Event("follower.refused", ("leader", "reason")),
    ("trioka.followers", "%r: log truncated from %d to %d"): Event(
        "follower.truncated", ("replica", "end_offset", "new_end_offset")
    ),
    ("trioka.followers", "%r: refetching the damaged log from offset %d"): Event(
        "follower.healing", ("replica", "offset")
    ),
    ("trioka.followers", "%r: log restarted at %d, the leader's log start offset"): Event(
        "follower.begun_anew", ("replica", "offset")
    ),
    ("trioka.followers", "%r: begins at %d, behind the object store"): Event(
        "follower.begun_behind_store", ("replica", "offset")
    ),
    ("trioka.followers", "internal error: %r cannot begin"): Event("bug.follower_begin", ("replica",)),
    ("trioka.reads", "internal error: a linearizable read"): Event("bug.linearizable_read"),
    ("trioka.reads", "the controller does not confirm %d leader epochs: %s"): Event(
        "read.unconfirmed", ("leader_epochs", "reason")
    ),
    ("trioka.reads", "internal error: confirming %d leader epochs"): Event("bug.read_confirmation", ("leader_epochs",)),
    ("trioka.in_sync", "%r: log damaged, leaving the ISR"): Event("replica.damaged", ("replica",)),
    ("trioka.in_sync", "%r: log damaged, and no other replica is in sync"): Event("leader.damaged", ("replica",)),
    ("trioka.in_sync", "AlterPartition failed, retrying: %s"): Event("isr.proposed_again", ("reason",)),
    ("trioka.in_sync", "%r: the ISR is %s"): Event("isr.changed", ("replica", "isr")),
    ("trioka.in_sync", "%r: proposing ISR %s"): Event("isr.proposed", ("replica", "isr")),
    ("trioka.in_sync", "internal error: %d ISR proposals"): Event("bug.isr", ("proposals",)),
    ("trioka.in_sync", "a replica with a damaged log could not leave the ISR: %s"): Event(
        "replica.not_left", ("reason",)
    ),
    ("trioka.in_sync", "%r: shrinking the ISR from %s to %s"): Event("isr.shrinking", ("replica", "isr", "new_isr")),
    ("trioka.membership", "broker %d: %s: %s"): Event("broker.membership_failed", ("broker", "what", "reason")),
    ("trioka.membership", "broker %d stops without a controlled shutdown: %s"): Event(
        "broker.left_silently", ("broker", "reason")
    ),
    ("trioka.membership", "broker %d stops while it may still lead partitions"): Event(
        "broker.left_leading", ("broker",)
    ),
    ("trioka.quorum", "the metadata log can no longer be written: %s"): Event("quorum.failed", ("reason",)),
    ("trioka.quorum", "internal error: replaying decided records failed"): Event("bug.metadata"),
    ("trioka.quorum", "node %d could not become the active controller: %s"): Event(
        "quorum.not_active", ("node", "reason")
    ),
    ("trioka.quorum", "%s"): Event("quorum.trouble", ("reason",)),
    ("trioka.quorum", "quorum leader: %s"): Event("quorum.leader_refused", ("reason",)),
    ("trioka.quorum", "fetching the metadata snapshot at offset %d from %s"): Event(
        "quorum.snapshot_fetched", ("offset", "leader")
    ),
    ("trioka.quorum", "no response to %s: %s"): Event("quorum.unanswered", ("request", "reason")),
    ("trioka.replicas", "%s-%d is no longer assigned to this broker: its replicas are %s"): Event(
        "replica.removed", ("topic", "partition", "replicas")
    ),
    ("trioka.transactions", "internal error: %s of node %d"): Event("bug.transaction_peer", ("what", "node")),
    ("trioka.coordinators", "internal error: %s"): Event("bug.coordinator", ("topic",)),
    ("trioka.coordinators", "internal error: %s-%d"): Event("bug.coordinator", ("topic", "partition")),
    ("trioka.coordinators", "coordinator partition %s-%d cannot be loaded: %s"): Event(
        "coordinator.load_failed", ("topic", "partition", "reason")
    ),
    ("trioka.coordinators", "cannot create topic %s for client %s: %s"): Event(
        "topic.not_created", ("topic", "client_id", "reason")
    ),
    ("trioka.dispatch", "internal error: %s from %s"): Event("bug.answer", ("request", "peer")),
    ("trioka.dispatch", "internal error: connection of %s"): Event("bug.connection", ("peer",)),
    ("trioka.dispatch", "internal error: %s"): Event("bug.request", ("request",)),
    ("trioka.dispatch", "closed %s on %s: %s"): Event("connection.malformed", ("peer", "listener", "reason")),
    ("trioka.dispatch", "client %s sent %s to the %s listener"): Event(
        "connection.wrong_protocol", ("peer", "protocol", "listener")
    ),
    ("trioka.audit", "authenticated: %s by %s from %s on %s"): Event(
        "login.succeeded", ("principal", "mechanism", "peer", "listener")
    ),
    ("trioka.audit", "authenticated again: %s by %s from %s on %s"): Event(
        "login.renewed", ("principal", "mechanism", "peer", "listener")
    ),
    ("trioka.audit", "authentication failed: %s by %s from %s on %s: %s%s%s"): Event(
        "login.failed", ("claimed", "mechanism", "peer", "listener", "reason", "left_out", "advice")
    ),
    ("trioka.audit", "TLS login: %s from %s on %s"): Event("login.by_certificate", ("principal", "peer", "listener")),
    ("trioka.audit", "TLS handshake failed: %s on %s: %s%s"): Event(
        "login.handshake_failed", ("peer", "listener", "reason", "left_out")
    ),
    ("trioka.audit", "TLS stores loaded again: listener %s"): Event("tls.audited_reload", ("listener",)),
    ("trioka.controller", "%d delegation tokens are past their time and removed"): Event(
        "token.all_expired", ("count",)
    ),
    ("trioka.dispatch", "client %s sent %s to the TLS listener %s"): Event(
        "connection.not_tls", ("peer", "protocol", "listener")
    ),
    ("trioka.tls", "The listener %s keeps its old certificate, which ends in %.1f days: %s"): Event(
        "tls.reload_refused", ("listener", "days_left", "reason")
    ),
    ("trioka.tls", "The listener %s has loaded its stores again; its certificate ends in %.1f days"): Event(
        "tls.reloaded", ("listener", "days_left")
    ),
    ("trioka.peers", "connections to other nodes keep their security settings: %s"): Event(
        "peer.security_refused", ("reason",)
    ),
    (
        "trioka.oauth",
        "the key set of sasl.oauthbearer.jwks.endpoint.url is not renewed: %s; %d earlier keys stay",
    ): Event("oauth.keys_not_renewed", ("reason", "keys")),
    ("trioka.oauth", "the key set of sasl.oauthbearer.jwks.endpoint.url has %d keys"): Event(
        "oauth.keys_renewed", ("keys",)
    ),
    ("trioka.audit", "%s %s %s by %s from %s"): Event(
        "security.changed", ("kind", "name", "change", "principal", "host")
    ),
    ("trioka.audit", "%d more changes by %s from %s"): Event("security.more_changed", ("count", "principal", "host")),
    ("trioka.audit", "session over: %s from %s on %s"): Event("login.expired", ("principal", "peer", "listener")),
    ("trioka.audit", "no login is possible on %s: %s"): Event("login.impossible", ("listener", "reason")),
    ("trioka.dispatch", "refused %s on %s: the listener is not configured"): Event(
        "connection.unknown_listener", ("peer", "listener")
    ),
    ("trioka.dispatch", "refused %s on %s: too many connections"): Event("connection.refused", ("peer", "listener")),
    ("trioka.groups", "group.consumer.assignors: unknown assignor %s"): Event(
        "config.unknown_assignor", ("assignors",)
    ),
    ("trioka.partitions", "internal error: %s-%d"): Event("bug.partition", ("topic", "partition")),
    ("trioka.partitions", "internal error in DeleteRecords"): Event("bug.delete_records"),
    ("trioka.healing", "%r: not healed yet: %s"): Event("replica.not_healed_yet", ("replica", "reason")),
    ("trioka.healing", "internal error: healing %r"): Event("bug.healing", ("replica",)),
    ("trioka.healing", "%r: invalid copy of %s from the leader: %s"): Event(
        "replica.copy_refused", ("replica", "damage", "reason")
    ),
    ("trioka.healing", "%r: broker %d cannot heal %s: %s"): Event(
        "replica.no_copy_there", ("replica", "broker", "damage", "reason")
    ),
    ("trioka.healing", "%r: healed by a copy from another replica: %s"): Event("replica.healed", ("replica", "damage")),
    ("trioka.healing", "%r: no replica has a good copy of %s"): Event("replica.unhealed", ("replica", "damage")),
    ("trioka.housekeeping", "%s: %s"): Event("housekeeping.failed", ("what", "reason")),
    ("trioka.housekeeping", "%s: deleting the segment at %d: it %s"): Event(
        "log.segment_deleted", ("partition", "base_offset", "reason")
    ),
    ("trioka.http", "internal error: HTTP"): Event("bug.http"),
    ("trioka.listening", "cannot open listener %s: %s"): Event("listener.failed", ("listener", "reason")),
    ("trioka.listening", "closed listener %s"): Event("listener.closed", ("listener",)),
    ("trioka.listening", "listeners not changed, the configuration is invalid: %s"): Event(
        "listener.refused", ("reason",)
    ),
    ("trioka.listening", "opened listener %s"): Event("listener.opened", ("listener",)),
    ("trioka.metadata", "cannot create topic %s for client %s: %s"): Event(
        "topic.not_created", ("topic", "client_id", "reason")
    ),
    ("trioka.moves", "%s in %s: %s"): Event("move.leftover", ("copy", "directory", "reason")),
    ("trioka.moves", "%s failed: %s"): Event("move.failed", ("move", "reason")),
    ("trioka.moves", "%s failed: internal error"): Event("bug.move", ("move",)),
    ("trioka.moves", "%s begins"): Event("move.begun", ("move",)),
    ("trioka.moves", "%s is done"): Event("move.done", ("move",)),
    ("trioka.moves", "the copy of %s cannot be removed: %s"): Event("move.leftover", ("copy", "reason")),
    ("trioka.network", "%s: %s"): Event("connection.lost", ("peer", "reason")),
    ("trioka.network", "internal error: connection of %s"): Event("bug.connection", ("peer",)),
    ("trioka.network", "closed %s on %s: login timed out"): Event("login.too_slow", ("peer", "listener")),
    ("trioka.network", "internal error: deferred requests of several connections"): Event("bug.connections", ()),
    ("trioka.network", "refused a connection on %s: out of file descriptors, raise ulimit -n"): Event(
        "connection.no_descriptor", ("listener",)
    ),
    ("trioka.network", "the quota of the ip entity %s has no effect: it cannot be looked up: %s"): Event(
        "quota.address_unknown", ("entity", "reason")
    ),
    ("trioka.network", "cannot accept connections on %s: %s"): Event("connection.not_accepted", ("listener", "reason")),
    ("trioka.quorum", "metadata snapshot at offset %d, %d bytes"): Event("metadata.snapshot", ("offset", "bytes")),
    ("trioka.replicas", "%s is not in the metadata: renamed to -stray"): Event("replica.stray", ("partition",)),
    ("trioka.replicas", "%s has a longer log in %s: the log in %s is renamed to -stray"): Event(
        "replica.stray", ("partition", "kept_directory", "directory")
    ),
    ("trioka.replicas", "%s-%d is offline: its log directory is %s"): Event(
        "replica.offline", ("topic", "partition", "directory_id")
    ),
    ("trioka.membership", "%s is empty: it gets a new id, and its replicas are copied from other brokers"): Event(
        "directory.emptied", ("directory",)
    ),
    ("trioka.replicas", "%s-%d is offline: this broker has no usable %s"): Event(
        "replica.offline", ("topic", "partition", "missing")
    ),
    ("trioka.replicas", "%s-%d begins empty: its memory directory is gone"): Event(
        "replica.memory_lost", ("topic", "partition")
    ),
    (
        "trioka.replicas",
        "%s is in %s, which is not of the class of its topic (trioka.log.dir.class): move it to another log directory",
    ): Event("replica.misplaced", ("partition", "directory")),
    ("trioka.replicas", "%s-%d cannot be appended to: %s"): Event("replica.refuses", ("topic", "partition", "reason")),
    ("trioka.replicas", "%s cannot be created: %s"): Event("replica.not_created", ("partition", "reason")),
    ("trioka.replicas", "%d logs cannot be created: %s"): Event("replicas.not_created", ("count", "reason")),
    ("trioka.scrubber", "%r cannot be scrubbed: %s"): Event("replica.not_scrubbed", ("replica", "reason")),
    ("trioka.scrubber", "internal error: scrubbing %r"): Event("bug.scrubber", ("replica",)),
    ("trioka.scrubber", "%r: a scrub has found damage: %s"): Event("replica.damage_found", ("replica", "damage")),
    ("trioka.transactions", "%s refused the transaction marker of %r: %s"): Event(
        "transaction.marker_failed", ("partition", "transactional_id", "reason")
    ),
    ("trioka.network", "internal error: TLS handshake of %s"): Event("bug.tls_handshake", ("peer",)),
    ("trioka.peers", "no connection to %s: %s"): Event("peer.not_secured", ("peer", "reason")),
    ("trioka.peers", "connections to other nodes by %s use stores that have changed"): Event(
        "peer.stores_changed", ("listener",)
    ),
}


def event_of(record: logging.LogRecord) -> Event:
    """The record's event. A sentence that is not in the table (such as another library's) is named after its logger."""
    return EVENTS.get((record.name, str(record.msg)), Event(f"{record.name}.{record.levelname.lower()}"))


class HumanFormatter(logging.Formatter):
    """Plain text for a terminal."""

    def __init__(self) -> None:
        super().__init__(HUMAN)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        if (count := left_out(record)) > 0:
            record.message += f" (and {count} times more since the last such line)"
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        event = event_of(record)
        fields: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": event.name,
            "logger": record.name,
            "message": record.getMessage()[:MAX_LINE],
        }
        if isinstance(record.args, tuple):
            for name, value in zip(event.fields, record.args, strict=False):
                fields[name] = value if isinstance(value, int | float) else str(value)[:MAX_LINE]
        if (count := left_out(record)) > 0:
            fields["repeated"] = count
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)[-MAX_LINE:]
        return json.dumps(fields, ensure_ascii=False)


class RepeatFilter(logging.Filter):
    """A filter for handlers: passes a warning or error with the same text once in `REPEAT_S`. The next such line
    contains how many were left out. Uses the time of the records."""

    def __init__(self) -> None:
        super().__init__()
        # By logger and text: when the line was last written, and how often it was left out since.
        self._last_written: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        message = record.getMessage()
        words = (record.name, message[:MAX_LINE])
        last, count = self._last_written.get(words, (-REPEAT_S, 0))
        if 0 <= record.created - last < REPEAT_S:
            self._last_written[words] = (last, count + 1)
            return False
        if words not in self._last_written and len(self._last_written) >= MAX_REPEATED:
            self._last_written.clear()
        self._last_written[words] = (record.created, 0)
        record.left_out = count
        return True


def left_out(record: logging.LogRecord) -> int:
    """How many lines with the same text were left out before this one."""
    count: int = getattr(record, "left_out", 0)
    return count


def printable(text: str) -> str:
    """The text with characters escaped that would start a new line or control a terminal."""
    text = text[:MAX_LINE]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
