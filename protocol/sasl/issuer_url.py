"""The URLs from which the keys of an issuer, or tokens, may come: https, http on this machine, or a file."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

PORTS: Final = {"https": 443, "http": 80}


def check_issuer_url(url: str) -> SplitResult:
    """Raises ValueError, with one sentence, for a URL from which neither keys nor tokens must be loaded."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must have no user name and no password")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError("must name an absolute path of this machine, as file:///path does")
        return parts
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("must begin with https:// and a host, or with file:///")
    _ = parts.port  # raises ValueError for an invalid port
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("must begin with https://; http:// is only for addresses of this machine")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must have no spaces and only ASCII characters")
    return parts


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
