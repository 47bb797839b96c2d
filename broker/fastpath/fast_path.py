"""The contract of a fast path: requests that begin with the same bytes as an earlier one are served without decoding.

There are two: Produces to one partition (fastpath/produce.py) and Fetches (fastpath/fetch.py). Each

- consumes whole requests or nothing,
- has no side effect unless it consumes, and
- never answers an error: what is not eligible stays in the receive buffer, unchanged, for the general path.

A fast path is chosen after the general path has served a request, so its checks (authorization, session, quota) have
been made once. What must hold for the next request too is in the connection's permit (security/permit.py), which
`Connection.received` compares before each use. `trioka.fast.path.enable=false` turns all fast paths off; tests send the
same bytes with the key on and off and compare responses, files and metrics.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network.connection import Connection


class FastPath:
    __slots__ = ()

    may_overtake = False
    """Whether its requests may be served while earlier requests of the connection wait for their replicas."""

    def matches(self, frame: memoryview) -> bool:
        """Whether this fast path was made from a request like this one."""
        raise NotImplementedError

    def try_serve(self, connection: "Connection") -> None:
        """Consumes the requests at the head of the receive buffer that belong here, and responds to them."""
        raise NotImplementedError

    def try_defer(self, connection: "Connection") -> bool:
        """Whether the received bytes are one request that is registered with the coalescer (fastpath/coalescer.py), to
        be served at the end of the round."""
        return False

    def release(self) -> None:
        """Drops references to replicas: the connection is idle, or replicas have left this broker."""
