"""Scenario files: steps, and their results.

    # Comments and empty lines stay as they are.
    a joins session=10000        a step: the actor, the action, and its arguments
        a: MEMBER_ID_REQUIRED    the results, indented: the receiver and its answer, or what is written
    time 3000                    or only an action

The test plays the steps and writes the results behind each of them; the text must be equal to the file. So every result
is in the file. With TRIOKA_ACCEPT=1 in the environment the file is overwritten with the results, to be
reviewed before it is committed.

The steps are a table: the name of a step, and a function of a world, the actor, the words and the `name=value`s.
Worlds and tables for one kind of thing are in a file of their own, such as `classic_steps.py`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

FOLDER = Path(__file__).parents[1] / "scenarios"
INDENT = "    "


class World(Protocol):
    def happened(self) -> list[str]:
        """The results since the last call."""
        ...


class Line(NamedTuple):
    who: str
    words: list[str]
    options: dict[str, str]

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))


W = TypeVar("W", bound=World)
Steps = Mapping[str, Callable[[W, Line], None]]


def files(kind: str) -> list[str]:
    """The names of the files about this kind of thing."""
    found = sorted(path.name for path in FOLDER.glob(f"{kind}_*.txt"))
    assert found, f"there is no scenario about {kind}"
    return found


def play(text: str, steps: Steps[W], world: W) -> str:
    """The same text, with the actual results."""
    played: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        played.append(line.rstrip())
        if line.strip() and not line.startswith("#"):
            step, read = _read(line, steps)
            step(world, read)
            played += [INDENT + followed for followed in world.happened()]
    return "\n".join(played) + "\n"


def check(name: str, steps: Steps[W], world: W) -> None:
    file = FOLDER / name
    text = file.read_text()
    played = play(text, steps, world)
    if os.environ.get("TRIOKA_ACCEPT"):
        file.write_text(played)
        return
    assert played.splitlines() == text.splitlines()


def _read(line: str, steps: Steps[W]) -> tuple[Callable[[W, Line], None], Line]:
    message = line.split()
    for place in (1, 0):
        if place < len(message) and message[place] in steps:
            options = dict(word.split("=", 1) for word in message[place + 1 :] if "=" in word)
            words = [word for word in message[place + 1 :] if "=" not in word]
            return steps[message[place]], Line(message[0] if place else "", words, options)
    raise ValueError(f"no step is called that: {line!r}")
