"""Scenario files: what somebody does, and what follows.

    # Comments and empty lines stay as they are.
    a joins session=10000        a step: who, what, and more about it
        a: MEMBER_ID_REQUIRED    what follows from it, indented: who is told what, what is written
    time 3000                    or just what

The steps are played and what follows is written behind each of them; that must be what the file says. So nothing that
happens goes unmentioned. With TRIOKA_ACCEPT=1 in the environment the file is made to say what happened, to be
read before it is believed.

Which steps there are is a table: the name of a step, and what to do with a world, who, the words and the `name=value`s.
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
        """What has followed since it was asked before."""
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
    """The same text, with what really followed."""
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
    said = line.split()
    for place in (1, 0):
        if place < len(said) and said[place] in steps:
            options = dict(word.split("=", 1) for word in said[place + 1 :] if "=" in word)
            words = [word for word in said[place + 1 :] if "=" not in word]
            return steps[said[place]], Line(said[0] if place else "", words, options)
    raise ValueError(f"no step is called that: {line!r}")
