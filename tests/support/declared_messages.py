"""Every declared message, for tests that check all of them."""

import pkgutil
from importlib import import_module

from trioka.protocol import header, internal_records, messages
from trioka.protocol.schema import Message, Struct


def every_message() -> list[type[Message]]:
    modules = [header]
    for package in (messages, internal_records):
        modules += [
            import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)
        ]
    found = [
        declared
        for module in modules
        for declared in vars(module).values()
        if isinstance(declared, type) and issubclass(declared, Message) and declared.__module__ == module.__name__
    ]
    return sorted(found, key=lambda message: message.__name__)


def every_version() -> list[tuple[type[Message], int]]:
    return [
        (message, version)
        for message in every_message()
        for version in range(message.__versions__.first, message.__versions__.last + 1)
    ]


def structs_of(declared: type[Struct]) -> list[type[Struct]]:
    """A declaration and all those inside it."""
    return [declared, *(s for f in declared.__fields__ if f.struct is not None for s in structs_of(f.struct))]
