"""Client input in log lines: quoted, on one line, with a limited length."""

from typing import Final

MAX_LOGGED_CHARS: Final = 500


def in_a_line(text: str) -> str:
    """The text, truncated and quoted so that it stays on one line."""
    text = text[:MAX_LOGGED_CHARS]
    return text if text.isprintable() else repr(text)[:MAX_LOGGED_CHARS]
