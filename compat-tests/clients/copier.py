"""A client that copies a topic, in a process of its own: it reads in a group, with read_committed, and sends what it
has read to the same partition of another topic; each time its sends and its new offsets are one transaction.

It receives `{"do": "copy", …}` and copies until its input ends. A copied value contains its name and the number of the
transaction, `0-17` becomes `0-17|java.1|4`, so that no value is ever sent twice. Every few transactions it aborts
one on purpose, once everything of it has arrived, and continues from its group's offsets. It reports a transaction
in two or three lines:

    ← {"began": 1700000000000, "read": [[0, 17, "0-17"], …]}       when it began to poll, and what came
    ← {"asks": "commit"}                                           the result is unknown from here on, until it ends
    ← {"ended": "ok", "at": 1700000000007, "offsets": [17, …]}     or "fail": it is certainly aborted

A program that cannot continue ends, and the test starts another one.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import toolchains

from .talker import LineProcess

PYTHON_COPIER = Path(__file__).with_name("python_copier.py")


@dataclass(slots=True, kw_only=True)
class CopiedTransaction:
    """A transaction. It is "open" until its client has reported the end."""

    number: int
    began_ms: int
    read: list[tuple[int, int, str]]
    has_asked: bool = False
    ended: str = "open"
    ended_ms: int = 0
    offsets: list[int] = field(default_factory=list)


def command_of(client: str) -> toolchains.Command:
    match client:
        case "java" | "java-2.8":
            return toolchains.java_client("Copy", old=client != "java")
        case "franz-go":
            return toolchains.go_program("franz")
        case "confluent-kafka":
            return [sys.executable, PYTHON_COPIER]
        case _:
            raise ValueError(client)


class Copier(LineProcess):
    def __init__(self, client: str, bootstrap: str, name: str, result: Mapping[str, object]) -> None:
        self.name = name
        self.copied: list[CopiedTransaction] = []
        super().__init__([*command_of(client), bootstrap], None, {"do": "copy", "name": name, **result})

    def hear(self, event: dict[str, Any]) -> None:
        if "began" in event:
            read = [(partition, offset, value) for partition, offset, value in event["read"]]
            self.copied.append(CopiedTransaction(number=len(self.copied), began_ms=event["began"], read=read))
        elif "asks" in event:
            self.copied[-1].has_asked = True
        elif "ended" in event:
            self.copied[-1].offsets = event.get("offsets", [])
            self.copied[-1].ended_ms = event["at"]
            self.copied[-1].ended = event["ended"]

    @property
    def count(self) -> int:
        """Of the records that it has certainly copied."""
        return sum(len(copied.read) for copied in list(self.copied) if copied.ended == "ok")
