"""Small Produces of many connections that arrive together are appended together.

When one look at the epoll finds several connections ready, the network receives from each of them before it answers
any. A request that is in a lane and comes alone (broker/fastpath/produce.py) then waits for the others: where it lies
in the shared buffer is noted, by partition. At the end of the round each partition gets one run
(storage/batch_append.py), one write for all of them, and everybody is answered.

Nothing is decided here either. Whatever a run does not take, a batch that is refused or the next one of another
producer, is tried again at the head of the next run, and then takes the usual road, byte for byte as it came. Nobody
waits longer than a round, whose length is bounded by the events of one look and the size of the buffer.
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.frame import Scratch

from ..counters.latency import PRODUCE

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Connection
    from ..replication.partitions import Replica
    from .produce import AnswerParts

    Place = tuple[int, int]  # position in the shared buffer, size
    Asked = tuple[Connection, int, AnswerParts]  # with the correlation id
    Group = tuple[list[Place], list[Asked]]


class Together:
    """What one round has received and not served yet."""

    __slots__ = ("_broker", "_waiting", "is_open", "round", "scratch")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.scratch = Scratch()
        self.is_open = False  # whether the round has several events: for one alone there is nothing to wait for
        self.round = 0  # counts what was finished
        self._waiting: dict[Replica, Group] = {}

    def group_of(self, replica: "Replica") -> "Group":
        """What waits for a replica that stands alone, to be added to until the round is over."""
        group = self._waiting.get(replica)
        if group is None:
            group = self._waiting[replica] = ([], [])
        return group

    def finish(self) -> None:
        """Appends what waits, and leaves the answers with the connections. Those who have none then take the usual
        road; after that the shared buffer is free."""
        groups, self._waiting = self._waiting, {}
        self.round += 1
        now_ms = self._broker.clock.now_ms()
        answered = 0
        for replica, (places, asked) in groups.items():
            while places:
                done = self._append(replica, places, asked, now_ms)
                answered += done
                if done == len(places):
                    break
                places, asked = places[done or 1 :], asked[done or 1 :]  # who stopped the run may begin the next
        self._broker.dispatch.times.pending[PRODUCE] += answered

    def _append(self, replica: "Replica", places: "list[Place]", asked: "list[Asked]", now_ms: int) -> int:
        """As many as one run takes."""
        if not replica.stands_alone:  # any more
            return 0
        try:
            offsets = replica.append_run(self.scratch.view, places, now_ms)
        except (KafkaError, OSError):
            return 0
        if not offsets:
            return 0
        self._broker.delayed.touch(replica)
        index, log_start = replica.index, replica.log.log_start_offset
        for (connection, correlation_id, (pack, size, head, rest)), offset in zip(asked, offsets, strict=False):
            connection.put_off = pack(size, correlation_id, head, index, 0, offset, -1, log_start, rest)
        return len(offsets)
