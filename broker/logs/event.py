"""The name of an event in the log, and the names of the arguments of its sentence."""

from typing import NamedTuple


class Event(NamedTuple):
    name: str
    fields: tuple[str, ...] = ()  # names of the sentence's arguments
