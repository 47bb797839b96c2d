"""The one folder where what was fetched is kept: jars, a Java; for the compat tests also compiled programs.

`$TRIOKA_CACHE`, else `$XDG_CACHE_HOME/trioka`, else `~/.cache/trioka`. What is in it can be deleted at any time; the
next run fetches it again. Several processes share it, so whoever adds something holds its lock meanwhile.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """Something from outside, a jar or a Java, is needed and cannot be had. The message is one sentence."""


class Unreachable(Unavailable):
    """It cannot be had because nobody answered: a repository, or a broker."""


def folder(*names: str) -> Path:
    """The cache folder, or a folder inside of it; it exists afterwards."""
    if chosen := os.environ.get("TRIOKA_CACHE"):
        root = Path(chosen)
    elif chosen := os.environ.get("XDG_CACHE_HOME"):
        root = Path(chosen) / "trioka"
    else:
        root = Path.home() / ".cache" / "trioka"
    path = root.joinpath(*names)
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Among all processes of this user, one at a time is inside for a name."""
    with (folder("locks") / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
