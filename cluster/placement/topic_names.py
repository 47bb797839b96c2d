"""The rules for names of topics."""

import re
from typing import Final

from trioka.protocol.errors import InvalidTopic

MAX_NAME_LENGTH: Final = 249  # so that `name-12345` with a suffix fits into a file name of 255
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """InvalidTopic for an invalid name. Only ASCII letters are valid; other characters would end up in names
    of files and metrics."""
    if name == "":
        raise InvalidTopic("topic name is invalid: it is the empty string, which is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(
            f"topic name is invalid: {name!r} is not allowed, for it means something else to file systems"
        )
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(
            f"topic name is invalid: with {len(name)} characters it is longer than the max allowed length "
            f"{MAX_NAME_LENGTH}: {name}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name is invalid: {name!r} contains characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
