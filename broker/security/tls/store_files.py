"""Files of key stores and trust stores, and the memory file by which OpenSSL gets a private key.

They belong to the operator: they are outside of the broker's log directories and only read, so `storage/files/disk.py`,
whose fault injection and limits concern data, is not used.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...config.security_keys import SSL_KEYSTORE_LOCATION, SSL_TRUSTSTORE_LOCATION

STORE_KEYS: Final = (SSL_KEYSTORE_LOCATION, SSL_TRUSTSTORE_LOCATION)
MAX_STORE_BYTES: Final = 4 * 1024 * 1024

FileState = tuple[int, int, int]  # changes when the file is written or replaced


class StoreError(ValueError):
    """A store cannot be used. The message starts with a verb, so that callers can prepend the key."""


def read_file(path: str) -> bytes:
    """Raises StoreError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_STORE_BYTES:
        raise StoreError(f"is larger than {MAX_STORE_BYTES} bytes")
    if not data:
        raise StoreError("is empty")
    return data


def file_state(path: str | None) -> FileState | None:
    """None if the file does not exist."""
    try:
        found = os.stat(path or "")
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_readable_by_others(path: str) -> bool:
    """Whether the group or all users may read it."""
    return bool(os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH))


@contextmanager
def file_in_memory(text: str) -> Iterator[str]:
    """The path of a file in memory, which is removed at the end of the block."""
    descriptor = os.memfd_create("trioka-key", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "w", encoding="ascii") as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
