"""Which clients there are in groups, with which of their ways to divide partitions, and how a member is started."""

import sys
from pathlib import Path
from typing import NamedTuple

import toolchains

from .member import Member

SESSION_MS = 6000  # no less is allowed by default
PYTHON_MEMBER = Path(__file__).with_name("python_member.py")
# The old client knows nothing of the newer protocol; the others have no word for it yet.
SERVER_SIDE = ("java", "confluent-kafka")
ASSIGNORS = {
    "java": ("cooperative-sticky", "range", "roundrobin", "sticky"),
    "java-2.8": ("sticky", "range", "roundrobin", "cooperative-sticky"),
    "confluent-kafka": ("cooperative-sticky", "range", "roundrobin"),
    "kafka-python": ("roundrobin", "range", "sticky", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
    "franz-go": ("cooperative-sticky", "range", "roundrobin", "sticky"),
    "sarama": ("sticky", "range", "roundrobin"),
    "kafkajs": ("roundrobin",),
}


class Kind(NamedTuple):
    """A client, the protocol that it uses with its coordinator, and the assignor: in the classic protocol a member, in
    the other one the broker."""

    client: str
    protocol: str
    assignor: str

    def __str__(self) -> str:
        return "-".join(self)


def kinds(*, all_of_them: bool) -> list[Kind]:
    """Every client with every assignor that it has; else every client and protocol once, with all assignors among
    them."""
    found = [Kind(client, "classic", assignor) for client, assignors in ASSIGNORS.items() for assignor in assignors]
    found += [Kind(client, "consumer", assignor) for client in SERVER_SIDE for assignor in ("uniform", "range")]
    if all_of_them:
        return found
    return list({(kind.client, kind.protocol): kind for kind in reversed(found)}.values())


def start_member(kind: Kind, bootstrap: str, group: str, topic: str, session_ms: int | None = SESSION_MS) -> Member:
    """Without `session_ms`, a client that is written for Java or for Python keeps to its own defaults."""
    environment = None
    command: toolchains.Command
    match kind.client:
        case "java" | "java-2.8":
            command = toolchains.java_client(old=kind.client != "java")
        case "franz-go":
            command = toolchains.go_program("franz")
        case "sarama":
            command = toolchains.go_program("sarama")
        case "kafkajs":
            command, environment = toolchains.kafkajs()
        case name:
            command = [sys.executable, PYTHON_MEMBER, name]
    result = {
        "group": group,
        "topic": topic,
        "protocol": kind.protocol,
        "assignor": kind.assignor or None,  # None: the default of the client or the broker
        "session_ms": session_ms,
    }
    return Member([*command, bootstrap], environment, result)
