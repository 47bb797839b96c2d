"""Addresses of clients in one spelling: the one in which Java prints them. Kafka compares addresses as texts, in access
rules, and writes them down, in groups.

    10.0.0.7 · 0:0:0:0:0:0:0:1 · fe80:0:0:0:0:0:0:1%2

An IPv4-mapped IPv6 address is reported as IPv4. A link-local address may have a scope: the number of the interface.

The spelling is made once: when a connection is accepted (`client_host`), or when an envelope is opened (`from_bytes`).
An envelope has no place for a scope, so that a client's address loses it on its way to the controller, as in Kafka.
"""

import functools
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, Final

IPV4_BYTES: Final = 4
IPV6_BYTES: Final = 16
MAX_KNOWN_SPELLINGS: Final = 10_000  # hosts of rules whose address is cached


def java_text(host: str) -> str:
    """Text that is no address is returned unchanged."""
    address, percent, scope = host.partition("%")
    try:
        return _of_six(IPv6Address(address).packed) + percent + scope
    except AddressValueError:
        return host


def client_host(address: tuple[Any, ...]) -> str:
    """The host of an address that `accept` returns: Python gives a scope by its name, Java by its number."""
    host, _, scope = address[0].partition("%")
    return java_text(f"{host}%{address[3]}" if scope else host)


def from_bytes(data: bytes) -> str:
    """ValueError unless there are four or sixteen bytes."""
    if len(data) == IPV6_BYTES:
        return _of_six(data)
    return str(IPv4Address(data))


def to_bytes(host: str) -> bytes:
    """None of them for what is no address."""
    try:
        address = host.partition("%")[0]
        return IPv6Address(address).packed if ":" in address else IPv4Address(address).packed
    except AddressValueError:
        return b""


def is_address_of(host: str, spelled: str) -> bool:
    """Whether an address, in any spelling and with or without its scope, is that of `host`, which is in normal form."""
    return host == spelled or _without_scope(spelled) == _without_scope(host)


@functools.lru_cache(MAX_KNOWN_SPELLINGS)
def _without_scope(host: str) -> str:
    return java_text(host.partition("%")[0])


def _of_six(data: bytes) -> str:
    mapped = IPv6Address(data).ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return ":".join(f"{int.from_bytes(data[at : at + 2]):x}" for at in range(0, IPV6_BYTES, 2))
