"""Addresses as Java prints them: Kafka compares them as texts, and writes them down."""

from ipaddress import IPv6Address


def java_text(host: str) -> str:
    """10.0.0.7, 0:0:0:0:0:0:0:1; an IPv4 address that came as IPv6 is told as IPv4."""
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    v6 = IPv6Address(address)
    if v6.ipv4_mapped is not None:
        return str(v6.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in v6.exploded.split(":")) + percent + zone
