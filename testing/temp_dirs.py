"""Folders for the data of brokers under test (`cli/node/temp_folders.py`), and the few files that are written there."""

import os
from contextlib import suppress
from typing import BinaryIO, Final

from trioka.cli.node import temp_folders
from trioka.cli.node.temp_folders import FAST_FOLDER, remove

__all__ = ["FAST_FOLDER", "PREFIX", "appending", "log_tail", "new_folder", "remove", "sweep", "write"]

PREFIX: Final = "trioka-test-"
LOG_TAIL_BYTES: Final = 20_000  # of a process's output, shown when it does not respond


def new_folder() -> str:
    return temp_folders.new_folder(PREFIX)


def sweep() -> None:
    """Remove the folders of processes that were killed."""
    temp_folders.sweep(PREFIX)


def appending(path: str) -> BinaryIO:
    """A file that a process appends to."""
    return open(path, "ab")


def log_tail(path: str) -> str:
    """The end of a text file; nothing if it does not exist."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""


def write(path: str, text: str) -> None:
    """Create a file in such a folder, readable by its owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
