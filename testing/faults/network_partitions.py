"""A network between the nodes of one loop that can be cut: nodes connect to each other through it.

A cut closes all connections between two nodes, and refuses new ones until `heal`. Connections of clients are not
affected: clients reach a node that no other node reaches.
"""

from collections.abc import Callable

from trioka.broker.peers.link import PeerConnection, dial
from trioka.broker.peers.peer import Dial

Pair = frozenset[int]


class NetworkPartitions:
    def __init__(self, owner: Callable[[int], int]) -> None:
        """`owner`: the node of a port."""
        self.pairs: set[Pair] = set()
        self._owner = owner
        self._links: list[tuple[Pair, PeerConnection]] = []

    def cut(self, a: int, b: int) -> None:
        pair = frozenset((a, b))
        self.pairs.add(pair)
        for ends, link in self._links:
            if ends == pair:
                link.close()
        self._links = [(ends, link) for ends, link in self._links if ends != pair]

    def heal(self) -> None:
        self.pairs.clear()

    def refuses_connections(self, a: int, b: int) -> bool:
        return frozenset((a, b)) in self.pairs

    def forget(self, node: int) -> None:
        """Drop the connections of a node that has ended."""
        self._links = [(ends, link) for ends, link in self._links if node not in ends]

    def dial_from(self, node: int) -> Dial:
        async def dialled(host: str, port: int, timeout_s: float) -> PeerConnection:
            ends = frozenset((node, self._owner(port)))
            if ends in self.pairs:
                raise ConnectionRefusedError("cut")
            link = await dial(host, port, timeout_s)
            if ends in self.pairs:
                link.close()
                raise ConnectionRefusedError("cut")
            self._links.append((ends, link))
            return link

        return dialled
