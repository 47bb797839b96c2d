"""How log lines look, and what the events in them are called.

On a terminal a line is for people:      2026-11-16 10:00:00,123 WARNING trioka.dispatch: closed 127.0.0.1:5 on …
Anywhere else it is one JSON object:     {"time": "…Z", "level": "warning", "event": "connection.malformed", …}

An event's name is stable: whoever searches or alerts by it is not disturbed when a sentence gets better words. The
names stand here, in one table, by logger and sentence; so a call that logs is an ordinary one, and a test sees to it
that none is forgotten. What is filled into the sentence is in the JSON object too, by the names in the table.

What clients send may be in a line (a client id, a name), and may hold anything: it cannot begin a new line, nor speak
to a terminal. Records, passwords and tokens are in no line at all: nothing that logs is given them.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_LINE: Final = 16 * 1024  # letters; a traceback is the longest thing there is
HUMAN: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
RESERVED: Final = frozenset({"time", "level", "event", "logger", "message", "exception", "repeated"})
REPEAT_S: Final = 60.0  # the same complaint is written once in so long
MAX_REPEATED: Final = 1000  # complaints that are remembered for it


class Event(NamedTuple):
    name: str
    fields: tuple[str, ...] = ()  # what is filled into the sentence


# By logger and sentence. The same happening may be told by two loggers; then it has one name.
EVENTS: Final[Mapping[tuple[str, str], Event]] = {
    ("trioka.broker", "the broker is ready: node %d, epoch %d"): Event("broker.ready", ("node", "broker_epoch")),
    ("trioka.broker", "the broker has stopped"): Event("broker.stopped"),
    ("trioka.broker", "a log directory is offline: %s"): Event("directory.offline", ("reason",)),
    ("trioka.broker", "this node ends: %s"): Event("broker.failed", ("reason",)),
    ("trioka.broker", "%s is not closed cleanly: %s"): Event("directory.not_closed", ("directory", "reason")),
    ("trioka.broker", "the controller does not know where replicas are: %s"): Event("directory.untold", ("reason",)),
    ("trioka.broker", "passed over: %s"): Event("config.passed_over", ("reason",)),
    ("trioka.replicas", "%d logs in %s have no topic id: %s"): Event(
        "directory.no_topic_ids", ("logs", "directory", "reason")
    ),
    (
        "trioka.broker",
        "%s ends at %d, but the checkpoint of recovery points says that %d more offsets were durable: "
        "if it was not wrong, they are lost here; compare with the other replicas",
    ): Event("log.ends_early", ("partition", "end_offset", "missing_offsets")),
    ("trioka.broker", "%s was recovered: %d bytes looked at, %d cut"): Event(
        "log.recovered", ("partition", "scanned_bytes", "cut_bytes")
    ),
    ("trioka.broker", "%s was recovered, and is not as it was: %s"): Event("log.damaged", ("partition", "reason")),
    ("trioka.controller", "the controller could not do what was due: %s"): Event("controller.duty_failed", ("reason",)),
    ("trioka.controller", "a mistake of ours"): Event("bug.controller"),
    ("trioka.controller", "what was written for the sake of writing is not committed: %s"): Event(
        "controller.idle_write_failed", ("reason",)
    ),
    ("trioka.controller", "broker %d is fenced: it was silent for %.1f s"): Event(
        "broker.fenced", ("broker", "silent_s")
    ),
    ("trioka.controller", "%s is answered with error %d"): Event("controller.refused", ("request", "error_code")),
    ("trioka.controller", "%s is not answered: %s"): Event("controller.unanswered", ("request", "reason")),
    ("trioka.followers", "broker %d cannot be followed: %s"): Event("follower.unreachable", ("leader", "reason")),
    ("trioka.followers", "a mistake of ours: following broker %d"): Event("bug.follower", ("leader",)),
    ("trioka.followers", "broker %d: %s"): Event("follower.refused", ("leader", "reason")),
    ("trioka.followers", "%r: its log is cut from %d to %d"): Event(
        "follower.truncated", ("replica", "end_offset", "new_end_offset")
    ),
    ("trioka.followers", "%r: what is damaged is fetched anew, from %d on"): Event(
        "follower.healing", ("replica", "offset")
    ),
    ("trioka.followers", "%r: begins anew at %d, where its leader's log starts"): Event(
        "follower.begun_anew", ("replica", "offset")
    ),
    ("trioka.in_sync", "%r: its log is damaged, others shall do without it"): Event("replica.damaged", ("replica",)),
    ("trioka.in_sync", "%r: its log is damaged, and nobody else has it all"): Event("leader.damaged", ("replica",)),
    ("trioka.in_sync", "an ISR is proposed again: %s"): Event("isr.proposed_again", ("reason",)),
    ("trioka.in_sync", "%r: the ISR is %s"): Event("isr.changed", ("replica", "isr")),
    ("trioka.in_sync", "%r: the ISR shall be %s"): Event("isr.proposed", ("replica", "isr")),
    ("trioka.in_sync", "a mistake of ours: %d proposals"): Event("bug.isr", ("proposals",)),
    ("trioka.in_sync", "a replica whose log is damaged cannot step aside: %s"): Event("replica.not_left", ("reason",)),
    ("trioka.in_sync", "%r: the ISR %s shall shrink to %s"): Event("isr.shrinking", ("replica", "isr", "new_isr")),
    ("trioka.membership", "broker %d: %s: %s"): Event("broker.membership_failed", ("broker", "what", "reason")),
    ("trioka.membership", "broker %d stops without saying so: %s"): Event("broker.left_silently", ("broker", "reason")),
    ("trioka.membership", "broker %d stops, and may still lead partitions"): Event("broker.left_leading", ("broker",)),
    ("trioka.quorum", "node %d does not lead the metadata any more (epoch %d)"): Event(
        "quorum.resigned", ("node", "epoch")
    ),
    ("trioka.quorum", "node %d leads the metadata in epoch %d"): Event("quorum.leader", ("node", "epoch")),
    ("trioka.quorum", "the metadata cannot be written any more: %s"): Event("quorum.failed", ("reason",)),
    ("trioka.quorum", "a mistake of ours: what was decided did not come true"): Event("bug.metadata"),
    ("trioka.quorum", "node %d does not become the active controller: %s"): Event(
        "quorum.not_active", ("node", "reason")
    ),
    ("trioka.quorum", "%s"): Event("quorum.trouble", ("reason",)),
    ("trioka.quorum", "the metadata's leader: %s"): Event("quorum.leader_refused", ("reason",)),
    ("trioka.quorum", "fetching the metadata's snapshot at offset %d from %s"): Event(
        "quorum.snapshot_fetched", ("offset", "leader")
    ),
    ("trioka.quorum", "%s is not answered: %s"): Event("quorum.unanswered", ("request", "reason")),
    ("trioka.replicas", "%s-%d is no longer here: its replicas are %s"): Event(
        "replica.removed", ("topic", "partition", "replicas")
    ),
    ("trioka.transactions", "a mistake of ours: %s of node %d"): Event("bug.transaction_peer", ("what", "node")),
    ("trioka.coordinators", "a mistake of ours: %s"): Event("bug.coordinator", ("topic",)),
    ("trioka.coordinators", "a mistake of ours: %s-%d"): Event("bug.coordinator", ("topic", "partition")),
    ("trioka.coordinators", "%s-%d cannot be loaded: %s"): Event(
        "coordinator.load_failed", ("topic", "partition", "reason")
    ),
    ("trioka.coordinators", "topic %s is not created for %s: %s"): Event(
        "topic.not_created", ("topic", "client_id", "reason")
    ),
    ("trioka.dispatch", "a mistake of ours: %s from %s"): Event("bug.answer", ("request", "peer")),
    ("trioka.dispatch", "while serving %s"): Event("bug.connection", ("peer",)),
    ("trioka.dispatch", "a mistake of ours: %s"): Event("bug.request", ("request",)),
    ("trioka.dispatch", "closed %s on %s: %s"): Event("connection.malformed", ("peer", "listener", "reason")),
    ("trioka.dispatch", "client %s speaks %s to the %s listener"): Event(
        "connection.wrong_protocol", ("peer", "protocol", "listener")
    ),
    ("trioka.dispatch", "refused %s on %s: there are too many connections"): Event(
        "connection.refused", ("peer", "listener")
    ),
    ("trioka.groups", "group.consumer.assignors names %s, which is not there"): Event(
        "config.unknown_assignor", ("assignors",)
    ),
    ("trioka.partitions", "a mistake of ours: %s-%d"): Event("bug.partition", ("topic", "partition")),
    ("trioka.partitions", "a mistake of ours: DeleteRecords"): Event("bug.delete_records"),
    ("trioka.healing", "%r: not healed yet: %s"): Event("replica.not_healed_yet", ("replica", "reason")),
    ("trioka.healing", "a mistake of ours: healing %r"): Event("bug.healing", ("replica",)),
    ("trioka.healing", "%r: what its leader sent for %s is of no use: %s"): Event(
        "replica.copy_refused", ("replica", "damage", "reason")
    ),
    ("trioka.healing", "%r: broker %d cannot heal %s: %s"): Event(
        "replica.no_copy_there", ("replica", "broker", "damage", "reason")
    ),
    ("trioka.healing", "%r: healed by a copy from another replica: %s"): Event("replica.healed", ("replica", "damage")),
    ("trioka.healing", "%r: no replica has a good copy of %s"): Event("replica.unhealed", ("replica", "damage")),
    ("trioka.housekeeping", "%s: %s"): Event("housekeeping.failed", ("what", "reason")),
    ("trioka.housekeeping", "%s: the segment at %d goes, it %s"): Event(
        "log.segment_deleted", ("partition", "base_offset", "reason")
    ),
    ("trioka.http", "a mistake of ours: HTTP"): Event("bug.http"),
    ("trioka.listening", "cannot listen at %s: %s"): Event("listener.failed", ("listener", "reason")),
    ("trioka.listening", "does not listen any more: %s"): Event("listener.closed", ("listener",)),
    ("trioka.listening", "listeners stay as they are: %s"): Event("listener.refused", ("reason",)),
    ("trioka.listening", "listens: %s"): Event("listener.opened", ("listener",)),
    ("trioka.metadata", "topic %s is not created for %s: %s"): Event(
        "topic.not_created", ("topic", "client_id", "reason")
    ),
    ("trioka.moves", "%s in %s: %s"): Event("move.leftover", ("copy", "directory", "reason")),
    ("trioka.moves", "%s is given up: %s"): Event("move.failed", ("move", "reason")),
    ("trioka.moves", "%s is given up, a mistake of ours"): Event("bug.move", ("move",)),
    ("trioka.moves", "%s begins"): Event("move.begun", ("move",)),
    ("trioka.moves", "%s is done"): Event("move.done", ("move",)),
    ("trioka.moves", "the copy of %s cannot be removed: %s"): Event("move.leftover", ("copy", "reason")),
    ("trioka.network", "%s: %s"): Event("connection.lost", ("peer", "reason")),
    ("trioka.network", "while serving %s"): Event("bug.connection", ("peer",)),
    ("trioka.network", "while serving several connections"): Event("bug.connections", ()),
    ("trioka.network", "refused a connection on %s: too few descriptors are left, raise ulimit -n"): Event(
        "connection.no_descriptor", ("listener",)
    ),
    ("trioka.network", "cannot accept on %s: %s"): Event("connection.not_accepted", ("listener", "reason")),
    ("trioka.quorum", "metadata snapshot at offset %d, %d bytes"): Event("metadata.snapshot", ("offset", "bytes")),
    ("trioka.replicas", "%s is not in the metadata, and is set aside"): Event("replica.stray", ("partition",)),
    ("trioka.replicas", "%s is in %s too, and longer: what is in %s is set aside"): Event(
        "replica.stray", ("partition", "kept_directory", "directory")
    ),
    ("trioka.replicas", "%s-%d is offline: it is in the log directory %s"): Event(
        "replica.offline", ("topic", "partition", "directory_id")
    ),
    ("trioka.replicas", "%s-%d takes no records: %s"): Event("replica.refuses", ("topic", "partition", "reason")),
    ("trioka.replicas", "%s cannot be created: %s"): Event("replica.not_created", ("partition", "reason")),
    ("trioka.replicas", "%d logs cannot be created: %s"): Event("replicas.not_created", ("count", "reason")),
    ("trioka.scrubber", "%r cannot be scrubbed: %s"): Event("replica.not_scrubbed", ("replica", "reason")),
    ("trioka.scrubber", "a mistake of ours: scrubbing %r"): Event("bug.scrubber", ("replica",)),
    ("trioka.scrubber", "%r: a scrub has found damage: %s"): Event("replica.damage_found", ("replica", "damage")),
    ("trioka.transactions", "%s does not take the marker of %r: %s"): Event(
        "transaction.marker_failed", ("partition", "transactional_id", "reason")
    ),
}


def event_of(record: logging.LogRecord) -> Event:
    """Of a line that is not in the table (another library's, say) the logger's name is all there is."""
    return EVENTS.get((record.name, str(record.msg)), Event(f"{record.name}.{record.levelname.lower()}"))


class HumanLines(logging.Formatter):
    """For a terminal."""

    def __init__(self) -> None:
        super().__init__(HUMAN)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        if (count := left_out(record)) > 0:
            record.message += f" (and {count} times more since the last such line)"
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """For machines: one object to a line, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        event = event_of(record)
        said: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": event.name,
            "logger": record.name,
            "message": record.getMessage()[:MAX_LINE],
        }
        if isinstance(record.args, tuple):
            for name, value in zip(event.fields, record.args, strict=False):
                said[name] = value if isinstance(value, int | float) else str(value)[:MAX_LINE]
        if (count := left_out(record)) > 0:
            said["repeated"] = count
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)[-MAX_LINE:]
        return json.dumps(said, ensure_ascii=False)


class Repetitions(logging.Filter):
    """Lets a warning or an error through once in `REPEAT_S`, however often it is said in the same words; the next such
    line says how many were left out. For a handler. Time is that of the records."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # when last, and how often it was left out since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        said = record.getMessage()
        words = (record.name, said[:MAX_LINE])
        last, count = self._said.get(words, (-REPEAT_S, 0))
        if 0 <= record.created - last < REPEAT_S:
            self._said[words] = (last, count + 1)
            return False
        if words not in self._said and len(self._said) >= MAX_REPEATED:
            self._said.clear()
        self._said[words] = (record.created, 0)
        record.left_out = count
        return True


def left_out(record: logging.LogRecord) -> int:
    """How many lines in the same words were not written before this one."""
    count: int = getattr(record, "left_out", 0)
    return count


def printable(text: str) -> str:
    """Without anything that would begin a line or move a terminal's cursor."""
    text = text[:MAX_LINE]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
