"""A coordinator at work without a broker: what it decides is carried out on a log that is a list.

It does what `broker/coordinators/runtime.py` does, in the same order, and checks what a coordinator owes: nobody is
answered twice, or without having asked. Writing can be made to fail, or to take its time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from trioka.coordinator.decision import Coordinator, Decision, MarkerOrder, Moment, Producer, Ticket
from trioka.coordinator.record_codec import Ledger
from trioka.protocol.errors import KafkaError
from trioka.protocol.schema import Response

C = TypeVar("C", bound=Coordinator)

WALL_MS = 1_700_000_000_000  # what people's clock says when the steady one says 0
MAX_ROUNDS = 10_000  # of deadlines in one stretch of time: more would be a loop


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    producer: Producer | None


class Told(NamedTuple):
    ticket: Ticket
    response: Response | KafkaError


class Coordinating(Generic[C]):
    def __init__(self, new: Callable[[], C], ledger: Ledger) -> None:
        self.log: list[Written] = []
        self.told: list[Told] = []
        self.orders: list[MarkerOrder] = []  # of markers; whoever writes them takes them
        self.waiting: set[Ticket] = set()
        self.failure: KafkaError | None = None  # what becomes of the next records
        self.holds_back = False  # whether what is written stays uncommitted
        self.hurries = False  # a mistake: only answers wait until it is committed, what follows does not
        self.now_ms = 0
        self._new = new
        self._ledger = ledger
        self._uncommitted: deque[tuple[Decision, int]] = deque()  # and where the log ended when it was appended
        self._tickets = 0
        self.coordinator = new()
        self._begin()

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    @property
    def is_up_to_date(self) -> bool:
        """Whether all that was written is committed, and so everything said that there was to say."""
        return not self._uncommitted

    @property
    def committed_end(self) -> int:
        """How much of the log is committed."""
        return self._uncommitted[0][1] if self._uncommitted else len(self.log)

    def ask(self, decide: Callable[[C, Ticket, Moment], Decision]) -> Ticket:
        self._tickets += 1
        ticket = self._tickets
        self.waiting.add(ticket)
        try:
            decision = decide(self.coordinator, ticket, self.now)
        except KafkaError as error:
            self._tell(ticket, error)
        else:
            self._carry_out(decision)
        return ticket

    def tell(self, decide: Callable[[C, Moment], Decision]) -> None:
        """Something that nobody waits for."""
        self._carry_out(decide(self.coordinator, self.now))

    def pass_time(self, ms: int) -> None:
        until = self.now_ms + ms
        for _ in range(MAX_ROUNDS):
            due = self.coordinator.next_deadline()
            if due is None or due > until:
                self.now_ms = until
                return
            self.now_ms = max(self.now_ms, due)
            for decision in self.coordinator.expire(self.now):
                self._carry_out(decision)
        raise AssertionError(f"something is due again and again at {self.now_ms}")

    def commit(self, error: KafkaError | None = None) -> None:
        """What was held back is committed; or, with an error, took too long. It stays in the log all the same."""
        self.holds_back = False
        while self._uncommitted:
            self._conclude(self._uncommitted.popleft()[0], error)

    def write_as(self, how: str, *names: str) -> None:
        """`waits`, `succeeds`, or `fails` or `expires` with the name of an error: what becomes of what is written."""
        error = next((e for name in names for e in KafkaError.__subclasses__() if e.name == name), None)
        if how == "waits":
            self.holds_back = True
        elif how == "fails":
            assert error is not None
            self.failure = error()
        else:
            self.failure = None
            self.commit(None if error is None else error())

    def crash(self, *, loses_uncommitted: bool = False) -> None:
        """Another coordinator takes over, with nothing but the log. Who waits is not answered by it."""
        if loses_uncommitted and self._uncommitted:
            del self.log[self._uncommitted[0][1] :]
        self._uncommitted.clear()
        self.holds_back = False
        self.waiting.clear()
        self.coordinator = self._new()
        for offset, written in enumerate(self.log):
            kept = self._ledger.decode(written.key, written.value)
            assert kept is not None
            self.coordinator.replay(kept, offset, written.producer)
        self._begin()

    def _begin(self) -> None:
        for decision in self.coordinator.begin(self.now):
            self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        start = len(self.log)
        if decision.records:
            if self.failure is not None:
                self._conclude(decision, self.failure)
                return
            for kept in decision.records:
                self.log.append(Written(*self._ledger.encode(kept), decision.producer))
            for n, kept in enumerate(decision.records):
                self.coordinator.replay(kept, start + n, decision.producer)
        if self._uncommitted or (decision.records and self.holds_back):
            if self.hurries:
                decision, hurried = Decision(answers=decision.answers), replace(decision, answers=())
                self._uncommitted.append((decision, start))
                self._conclude(hurried, None)
                return
            self._uncommitted.append((decision, start))
        else:
            self._conclude(decision, None)

    def _conclude(self, decision: Decision, error: KafkaError | None) -> None:
        for ticket, response in decision.answers:
            self._tell(ticket, response if error is None else error)
        if error is None:
            self.orders += decision.orders
        if decision.afterwards is not None:
            self._carry_out(decision.afterwards(error, self.now))

    def _tell(self, ticket: Ticket, response: Response | KafkaError) -> None:
        assert ticket in self.waiting, f"nobody asked with ticket {ticket}, or not any more: {response}"
        self.waiting.remove(ticket)
        self.told.append(Told(ticket, response))
