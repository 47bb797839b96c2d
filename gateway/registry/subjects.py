"""Subjects and their contexts.

    orders-value             the subject orders-value of the default context, which is called "."
    :.staging:orders-value   the same name in the context .staging
    :.staging:               no name: the context itself, for its compatibility level and its mode
    :*:                      every context, in prefixes of lists

Ids are unique within a context.
"""

from typing import Final, NamedTuple

from .errors import invalid_subject

DEFAULT_CONTEXT: Final = "."
ALL_CONTEXTS: Final = ":*:"
MAX_SUBJECT_CHARS: Final = 1024  # a topic's name has at most 249; record names and a context come on top
RESERVED: Final = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    context: str
    name: str

    def __str__(self) -> str:
        """The spelling in records and responses."""
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @property
    def is_context(self) -> bool:
        return not self.name


def parse_subject(text: str) -> Subject:
    if not text.startswith(":."):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def checked_subject(text: str, *, may_be_context: bool = False) -> str:
    """The subject in the spelling of records. Raises for one that no client may use."""
    subject = parse_subject(text)
    is_printable = not any(ord(character) < 32 or ord(character) == 127 for character in text)
    is_named = bool(subject.name) or may_be_context
    if not is_printable or not is_named or len(text) > MAX_SUBJECT_CHARS or subject.name in RESERVED:
        raise invalid_subject("".join(each if each.isprintable() else "?" for each in text[:100]))
    return str(subject)


def context_of(subject: str) -> str:
    return parse_subject(subject).context


def qualified(name: str, parent: str) -> str:
    """The subject of a reference: without a context of its own, that of the schema which refers to it."""
    subject = parse_subject(name)
    if name.startswith(":."):
        return str(subject)
    return str(Subject(context_of(parent), subject.name))
