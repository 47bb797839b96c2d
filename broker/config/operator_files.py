"""Reads the files of the operator that configuration names: secrets, and the modes of files with secrets.

They are not part of a node's data, so the node's Disk is not used.
"""

import os
import stat
from pathlib import Path

from .properties import MAX_FILE_BYTES


def read_file(path: str) -> bytes:
    """Return the content of a file of at most MAX_FILE_BYTES."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"it has more than {MAX_FILE_BYTES} bytes")
    return content


def real_path(path: str) -> str:
    """The path without symbolic links."""
    return os.path.realpath(path)


def exists(path: str) -> bool:
    return os.path.exists(path)


def file_mode(path: str) -> int | None:
    """The permission bits of a file; None if they cannot be read."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None
