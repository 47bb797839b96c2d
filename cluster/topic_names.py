"""What a topic may be called."""

import re
from typing import Final

from trioka.protocol.errors import InvalidTopic

MAX_NAME_LENGTH: Final = 249  # so that `name-12345` with a suffix fits into a file name of 255
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """InvalidTopic if no topic can be called so. Letters are those of ASCII; other characters would end up in names
    of files and metrics."""
    if name == "":
        raise InvalidTopic("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic cannot be called {name!r}: the file system has another meaning for it")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(f"a topic name has at most {MAX_NAME_LENGTH} characters, and this one {len(name)}: {name}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(f"a topic name has only ASCII letters, digits, '.', '_' and '-', which {name!r} has not")
