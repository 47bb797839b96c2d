"""A lane: requests like the last one are recognised by their bytes, and served without being read.

There are two: of Produces for one partition (fastpath/produce.py), and of Fetches (fastpath/fetch.py). Each says at its
top what it takes; what it does not take is as it was, and takes the usual road.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network.connection import Connection


class Lane:
    __slots__ = ()

    def is_for(self, frame: memoryview) -> bool:
        """Whether the request begins as those of this lane: then no other lane is better."""
        raise NotImplementedError

    def serve(self, connection: "Connection") -> int:
        """Takes what is at the head of what was received, as far as it belongs here, and appends the answers. How many
        bytes these are."""
        raise NotImplementedError

    def put_off(self, connection: "Connection") -> bool:
        """Whether what was received is noted, to be served with that of others (fastpath/coalescer.py)."""
        return False

    def quiet(self) -> None:
        """Nobody has had anything to say for a while, or replicas have left this broker: hold none of them."""
