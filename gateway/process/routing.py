"""Endpoints of HTTP by method and path. A path is cut at its slashes before it is decoded: names may contain `%2F`."""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

ANY: Final = "*"
H = TypeVar("H")


class Endpoint(NamedTuple, Generic[H]):
    """`path` in parts; ANY stands for a parameter."""

    method: str
    path: tuple[str, ...]
    handle: H


class NoEndpoint(Exception):
    """No endpoint has this path, or none has this method: then `allowed` has others."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__()
        self.allowed = tuple(dict.fromkeys(allowed))

    @property
    def status(self) -> int:
        return 405 if self.allowed else 404

    def __str__(self) -> str:
        if self.allowed:
            return f"HTTP 405 Method Not Allowed: this path takes {', '.join(self.allowed)}."
        return "HTTP 404 Not Found: there is no such path."


def endpoint(method: str, path: str, handle: H) -> Endpoint[H]:
    return Endpoint(method, tuple(path.strip("/").split("/")), handle)


def find_endpoint(endpoints: Sequence[Endpoint[H]], method: str, raw_path: bytes) -> tuple[Endpoint[H], list[str]]:
    """The first endpoint that has this path, and its parameters."""
    parts = raw_path.decode("latin-1").rstrip("/").split("/")[1:]
    allowed = []
    for each in endpoints:
        if len(each.path) == len(parts) and all(
            name in (ANY, part) for name, part in zip(each.path, parts, strict=True)
        ):
            if each.method == method:
                return each, [unquote(part) for name, part in zip(each.path, parts, strict=True) if name == ANY]
            allowed.append(each.method)
    raise NoEndpoint(allowed)
