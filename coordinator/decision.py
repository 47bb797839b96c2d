"""What a coordinator decides, as data; somebody else carries it out.

A coordinator looks after the groups (or transactional ids) whose names hash to one partition of an internal topic. That
partition is its memory:

    a request comes           coordinator.something(ticket, …, now)     → Decision
    its records are appended  in one batch, all or none
    … and replayed            coordinator.replay(record)                this, and nothing else, changes what is kept
    they are committed        the answers go out, and `afterwards` may decide more

So what a coordinator keeps is what its log says, on the broker that decided as on one that loads the log later; and a
decision whose records could not be written has changed nothing. Deciding may change what is not kept: who waits for an
answer, and until when (`Deadlines`). A coordinator that is loaded begins without those.

A request is known by its ticket. Its answer may come with the first decision or with a later one, whoever's request or
deadline that is about; but it comes, once.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias

from trioka.protocol.errors import KafkaError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.schema import Entry, Response

Ticket: TypeAlias = int


class Moment(NamedTuple):
    """When something happens: on a clock that never goes back, for deadlines, and on the one that people read, for what
    is written down."""

    steady_ms: int
    wall_ms: int


class Kept(NamedTuple):
    """A record of an internal topic: one thing that is remembered, or (None) forgotten, under its key."""

    key: Entry
    value: Entry | None


class Answer(NamedTuple):
    ticket: Ticket
    response: Response | KafkaError  # an error is said the way that the request's API says it


class Producer(NamedTuple):
    """Whose transaction the records are part of. They count only if it is committed."""

    id: int
    epoch: int


@frozen
class MarkerOrder:
    """Every one of these partitions is to be told how the producer's transaction ended. Whoever does it reports to the
    coordinator, and goes on until it is done."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[tuple[str, int], ...]
    transaction_version: int


@frozen
class Decision:
    """Records to append, answers and orders that wait until these are committed, and what follows then. If the records
    cannot be appended or are not committed in time, those who would have been answered are told why, and `afterwards`
    too."""

    records: tuple[Kept, ...] = ()
    answers: tuple[Answer, ...] = ()
    orders: tuple[MarkerOrder, ...] = ()
    producer: Producer | None = None
    afterwards: "Callable[[KafkaError | None, Moment], Decision] | None" = None


NOTHING = Decision()


def answer(ticket: Ticket, response: Response | KafkaError) -> Decision:
    """Nothing changes; this is what the asker is told."""
    return Decision(answers=(Answer(ticket, response),))


class Coordinator(Protocol):
    """What every coordinator can do, whatever it coordinates."""

    def replay(self, kept: Kept, offset: int, producer: Producer | None) -> None:
        """A record of the log, in order; `producer` if it is part of a transaction that has not ended yet."""
        ...

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        """A producer's transaction has ended, as far as this log is concerned."""
        ...

    def begin(self, now: Moment) -> list[Decision]:
        """The log is read to its end; from now on there are requests, and time passes."""
        ...

    def next_deadline(self) -> int | None:
        """On the steady clock: when to call `expire`. Earlier calls do no harm."""
        ...

    def expire(self, now: Moment) -> Iterable[Decision]:
        """What is due. Each of them is carried out before the next is decided: two members may time out at once."""
        ...
