"""A coordinator without a broker: its decisions are carried out on a log that is a list.

It does what `broker/coordinators/runtime.py` does, in the same order, and checks that each request is answered
once, and that every answer has a request. Writes can be made to fail, or to be slow.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from trioka.coordinator.decision import Coordinator, Decision, Now, Producer, RequestId, TxnMarkerRequest
from trioka.coordinator.record_codec import RecordCodec
from trioka.protocol.errors import KafkaError
from trioka.protocol.schema import Response

C = TypeVar("C", bound=Coordinator)

WALL_MS = 1_700_000_000_000  # the wall clock when the monotonic clock is 0
MAX_ROUNDS = 10_000  # of deadlines in one stretch of time: more would be a loop


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    producer: Producer | None


class DeliveredResponse(NamedTuple):
    request_id: RequestId
    response: Response | KafkaError


class CoordinatorDriver(Generic[C]):
    def __init__(self, new: Callable[[], C], ledger: RecordCodec) -> None:
        self.log: list[Written] = []
        self.delivered: list[DeliveredResponse] = []
        self.orders: list[TxnMarkerRequest] = []  # of markers; the writer takes them
        self.waiting: set[RequestId] = set()
        self.failure: KafkaError | None = None  # the error of the next writes
        self.holds_back = False  # whether written records stay uncommitted
        self.hurries = False  # a mistake: only answers wait until it is committed, what follows does not
        self.now_ms = 0
        self._new = new
        self._ledger = ledger
        self._uncommitted: deque[tuple[Decision, int]] = deque()  # and where the log ended when it was appended
        self._tickets = 0
        self.coordinator = new()
        self._begin()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    @property
    def is_up_to_date(self) -> bool:
        """Whether all written records are committed, and so all answers sent."""
        return not self._uncommitted

    @property
    def committed_end(self) -> int:
        """How much of the log is committed."""
        return self._uncommitted[0][1] if self._uncommitted else len(self.log)

    def ask(self, decide: Callable[[C, RequestId, Now], Decision]) -> RequestId:
        self._tickets += 1
        request_id = self._tickets
        self.waiting.add(request_id)
        try:
            decision = decide(self.coordinator, request_id, self.now)
        except KafkaError as error:
            self._deliver(request_id, error)
        else:
            self._apply(decision)
        return request_id

    def notify(self, decide: Callable[[C, Now], Decision]) -> None:
        """Runs a command without a request that waits for it."""
        self._apply(decide(self.coordinator, self.now))

    def pass_time(self, ms: int) -> None:
        until = self.now_ms + ms
        for _ in range(MAX_ROUNDS):
            due = self.coordinator.next_deadline()
            if due is None or due > until:
                self.now_ms = until
                return
            self.now_ms = max(self.now_ms, due)
            for decision in self.coordinator.expire(self.now):
                self._apply(decision)
        raise AssertionError(f"something is due again and again at {self.now_ms}")

    def commit(self, error: KafkaError | None = None) -> None:
        """Commits the records that were held back; or, with an error, they took too long, and stay in the log all the
        same."""
        self.holds_back = False
        while self._uncommitted:
            self._conclude(self._uncommitted.popleft()[0], error)

    def write_as(self, how: str, *names: str) -> None:
        """`waits`, `succeeds`, or `fails` or `expires` with the name of an error: the result of the next writes."""
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
        """Another coordinator takes over, with nothing but the log. It does not answer the waiting requests."""
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
            self._apply(decision)

    def _apply(self, decision: Decision) -> None:
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
                decision, hurried = Decision(replies=decision.replies), replace(decision, replies=())
                self._uncommitted.append((decision, start))
                self._conclude(hurried, None)
                return
            self._uncommitted.append((decision, start))
        else:
            self._conclude(decision, None)

    def _conclude(self, decision: Decision, error: KafkaError | None) -> None:
        for request_id, response in decision.replies:
            self._deliver(request_id, response if error is None else error)
        if error is None:
            self.orders += decision.marker_requests
        if decision.on_committed is not None:
            self._apply(decision.on_committed(error, self.now))

    def _deliver(self, request_id: RequestId, response: Response | KafkaError) -> None:
        assert request_id in self.waiting, f"there is no request with ticket {request_id}, or not any more: {response}"
        self.waiting.remove(request_id)
        self.delivered.append(DeliveredResponse(request_id, response))
