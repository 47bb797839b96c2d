"""Addresses as people write them in a configuration, and what they mean.

    NAME://host:port      a listener; without a host it is every address of the machine     EXTERNAL://:9092
    host:port             a server                                                          [::1]:9093
    id@host:port          a voter of the quorum                                             1@node-1:9093

An IPv6 address stands in brackets. Whatever cannot be read raises a ValueError that goes on after "it": "must
be …". Names are not looked up here.
"""

import re
from enum import IntEnum
from typing import Final, NamedTuple

MAX_PORT: Final = 65535

# Compiled on first use, as in values.py.
_HOST: Final = r"(?:\[([0-9a-fA-F:.%]+[0-9a-zA-Z]*)\]|([0-9a-zA-Z\-%._]*))"
_LISTENER: Final = rf"([^:/]+)://{_HOST}:([0-9]{{1,5}})"
_SERVER: Final = rf"{_HOST}:([0-9]{{1,5}})"
_VOTER: Final = rf"([0-9]{{1,10}})@{_HOST}:([0-9]{{1,5}})"

LISTENER_FORM: Final = "must be NAME://host:port, such as PLAINTEXT://localhost:9092"
SERVER_FORM: Final = "must be host:port, such as localhost:9093"
VOTER_FORM: Final = "must be id@host:port, such as 1@localhost:9093"


class SecurityProtocol(IntEnum):
    """What a listener speaks; the numbers are those of the metadata records."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Server(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Voter(NamedTuple):
    id: int
    server: Server


class Endpoint(NamedTuple):
    """One listener: its name in capitals, what it speaks, and its address; the host is empty for "everywhere"."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{Server(self.host, self.port)}"


def parse_listener(text: str) -> tuple[str, Server]:
    """The name, in capitals, and the address."""
    if (found := re.fullmatch(_LISTENER, text)) is None:
        raise ValueError(LISTENER_FORM)
    return found[1].upper(), Server(found[2] or found[3], _port(found[4]))


def parse_server(text: str) -> Server:
    found = re.fullmatch(_SERVER, text)
    if found is None or not (found[1] or found[2]):
        raise ValueError(SERVER_FORM)
    return Server(found[1] or found[2], _port(found[3]))


def parse_voter(text: str) -> Voter:
    found = re.fullmatch(_VOTER, text)
    if found is None or not (found[2] or found[3]):
        raise ValueError(VOTER_FORM)
    return Voter(int(found[1]), Server(found[2] or found[3], _port(found[4])))


def _port(digits: str) -> int:
    if int(digits) > MAX_PORT:
        raise ValueError(f"must have a port of at most {MAX_PORT}")
    return int(digits)


def is_server(text: str) -> str | None:
    """For a key whose elements are servers: what is wrong with one of them."""
    try:
        parse_server(text)
    except ValueError as error:
        return str(error)
    return None


def is_voter(text: str) -> str | None:
    """For a key whose elements are voters: what is wrong with one of them."""
    try:
        parse_voter(text)
    except ValueError as error:
        return str(error)
    return None
