"""Addresses in configuration values.

    NAME://host:port      a listener; an empty host means all interfaces     EXTERNAL://:9092
    host:port             a server                                           [::1]:9093
    id@host:port          a voter of the quorum                              1@node-1:9093

IPv6 addresses are written in brackets. Invalid text raises a ValueError whose message starts with "must", so that
callers can prepend the key. Host names are not resolved.
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
    """Security protocol of a listener, with the numbers of the metadata records."""

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
    """A listener: its name in upper case, its protocol and its address. An empty host means all interfaces."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{Server(self.host, self.port)}"


def parse_listener(text: str) -> tuple[str, Server]:
    """Return the name, in upper case, and the address."""
    if (match := re.fullmatch(_LISTENER, text)) is None:
        raise ValueError(LISTENER_FORM)
    return match[1].upper(), Server(match[2] or match[3], _port(match[4]))


def parse_server(text: str) -> Server:
    match = re.fullmatch(_SERVER, text)
    if match is None or not (match[1] or match[2]):
        raise ValueError(SERVER_FORM)
    return Server(match[1] or match[2], _port(match[3]))


def parse_voter(text: str) -> Voter:
    match = re.fullmatch(_VOTER, text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(VOTER_FORM)
    return Voter(int(match[1]), Server(match[2] or match[3], _port(match[4])))


def _port(digits: str) -> int:
    if int(digits) > MAX_PORT:
        raise ValueError(f"must have a port of at most {MAX_PORT}")
    return int(digits)


def is_server(text: str) -> str | None:
    """Check of a list key whose elements are servers: the complaint, or None."""
    try:
        parse_server(text)
    except ValueError as error:
        return str(error)
    return None


def is_voter(text: str) -> str | None:
    """Check of a list key whose elements are voters: the complaint, or None."""
    try:
        parse_voter(text)
    except ValueError as error:
        return str(error)
    return None
