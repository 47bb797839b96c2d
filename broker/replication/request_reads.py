"""The linearizable reads of one request (replication/linearizable_reads.py): one for each partition at whose end it is.

A read begins when the partition is first read up to its end, and once it has passed, it serves the request to its end:
what the request promises is about the time when it arrived.
"""

from typing import TYPE_CHECKING

from trioka.cluster.replication.read_barrier import NO_READ
from trioka.protocol.errors import NotLeaderOrFollower

from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker


class RequestReads:
    __slots__ = ("_at_end", "_broker", "_reads", "_refused")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._at_end: list[Replica] = []
        self._reads: dict[Replica, int] = {}  # NO_READ once it has passed
        self._refused: frozenset[Replica] = frozenset()

    def start_over(self) -> None:
        """The partitions are read again."""
        self._at_end.clear()

    def reach_end(self, replica: Replica) -> None:
        """The result will show the end of this partition. Raises NotLeaderOrFollower if the client must not see it."""
        if not replica.leads or replica in self._refused:
            raise NotLeaderOrFollower(
                f"{replica.topic}-{replica.index}: linearizable reads need a leader that all possible leaders follow"
            )
        self._at_end.append(replica)

    def begin(self) -> bool:
        """Begins the reads of partitions that are at their end. Whether the response must wait for one."""
        if not self._at_end:
            return False
        reads = self._broker.replication.reads
        for replica in self._at_end:
            read = self._reads.get(replica)
            if read is None:
                read = reads.begin(replica)
            self._reads[replica] = NO_READ if read == NO_READ or reads.has_passed(replica, read) else read
        return any(self._reads[replica] != NO_READ for replica in self._at_end)

    @property
    def pending(self) -> dict[Replica, int]:
        return {replica: read for replica, read in self._reads.items() if read != NO_READ}

    def end(self, refused: frozenset[Replica]) -> None:
        """All pending reads have passed or are refused."""
        self._refused |= refused
        self._reads = dict.fromkeys(self._reads, NO_READ)
