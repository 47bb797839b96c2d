"""The cache folder for downloads: jars, a Java; for the compat tests also compiled programs.

`$TRIOKA_CACHE`, else `$XDG_CACHE_HOME/trioka`, else `~/.cache/trioka`. Its content can be deleted at any time; the next
run downloads it again. Several processes share it, so a process holds a lock while it adds a file.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """A required download, such as a jar or a Java, is not available. The message is one sentence."""


class Unreachable(Unavailable):
    """The download failed because a repository or a broker did not answer."""


def folder(*names: str) -> Path:
    """The cache folder, or a folder inside of it; created if missing."""
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
    """Hold the lock of a name, which excludes the other processes of this user."""
    with (folder("locks") / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
