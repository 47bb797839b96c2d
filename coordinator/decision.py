"""Decisions of coordinators, as data; the runtime executes them.

A coordinator serves the groups (or transactional ids) whose names hash to one partition of an internal topic. That
partition is its durable state:

    a request comes           coordinator.something(request_id, …, now)     → Decision
    its records are appended  in one batch, all or none
    … and replayed            coordinator.replay(record)                the only writer of durable state
    they are committed        the responses are sent, and `on_committed` may decide more

So a coordinator's state is equal to its log, on the broker that decided and on one that loads the log later; a decision
whose records could not be written has changed nothing. A decision may change soft state: pending requests and their
deadlines (`Deadlines`). A coordinator that is loaded starts without them.

A request is identified by its `RequestId`. Its only reply is part of the first decision or of a later one, for another
request or a deadline.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from trioka.protocol.errors import KafkaError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.schema import Entry, Response

RequestId: TypeAlias = int


class Now(NamedTuple):
    """The time of an event: on a monotonic clock, for deadlines, and on the wall clock, for records."""

    steady_ms: int
    wall_ms: int


class StoredRecord(NamedTuple):
    """A record of an internal topic; a value of None deletes the key."""

    key: Entry
    value: Entry | None


class Reply(NamedTuple):
    request_id: RequestId
    response: Response | KafkaError  # each API encodes an error in its own way


class Producer(NamedTuple):
    """The producer whose transaction the records are part of. They take effect only if it commits."""

    id: int
    epoch: int


@frozen
class TxnMarkerRequest:
    """All of these partitions get the transaction marker. The runtime retries until all have it, and reports each to
    the coordinator."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[tuple[str, int], ...]
    transaction_version: int


@frozen
class Decision:
    """Records to append, the replies and marker requests that wait until these are committed, and the next step. If the
    records cannot be appended or are not committed in time, the pending requests and `on_committed` get the error."""

    records: tuple[StoredRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    marker_requests: tuple[TxnMarkerRequest, ...] = ()
    producer: Producer | None = None
    on_committed: "Callable[[KafkaError | None, Now], Decision] | None" = None


NOTHING = Decision()


def reply(request_id: RequestId, response: Response | KafkaError) -> Decision:
    """A decision that only replies."""
    return Decision(replies=(Reply(request_id, response),))


class Coordinator(Protocol):
    """The interface of every coordinator."""

    def replay(self, kept: StoredRecord, offset: int, producer: Producer | None) -> None:
        """Replays a record of the log, in order; `producer` is set if it is part of an open transaction."""
        ...

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        """A producer's transaction has ended in this log."""
        ...

    def begin(self, now: Now) -> list[Decision]:
        """The log has been read; from now on there are requests and deadlines."""
        ...

    def next_deadline(self) -> int | None:
        """The monotonic time at which to call `expire`. Earlier calls do no harm."""
        ...

    def expire(self, now: Now) -> Iterable[Decision]:
        """The decisions that are due. Each is executed before the next one is computed: two members may time out at
        once."""
        ...
