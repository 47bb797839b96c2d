"""A member of a group in a process of its own, which can leave in order or be killed.

It is one of the programs of `program.py`, or `python_member.py`, started with `{"do": "group", …}`. It reports events
line by line until its input ends; then it leaves the group.

    ← {"polls": []}                     from now on; of members that are written for Java and Python
    ← {"has": [0, 2]}                   the partitions that are its own from now on
    ← {"saw": [[0, 17], [0, 18]]}       records, by partition and offset; told of before their offsets are committed

Every member commits the offsets that it has reported, and starts at the beginning where no offset is committed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .talker import LineProcess

Place = tuple[int, int]  # a partition and an offset


class Member(LineProcess):
    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None,
        result: Mapping[str, object],
    ) -> None:
        self.polls = False
        self.has: set[int] = set()
        self.saw: list[Place] = []
        super().__init__(command, environment, {"do": "group", **result})

    def hear(self, event: dict[str, Any]) -> None:
        self.polls |= "polls" in event
        if "has" in event:
            self.has = set(event["has"])
        self.saw += [(partition, offset) for partition, offset in event.get("saw", [])]

    def kill(self) -> None:
        super().kill()
        self.has = set()
