"""Injects faults into requests before their handler.

A broker without armed faults has no overhead: while a fault is armed, the routes of its API are replaced by
`FaultyRoute`, and connections drop their cached routes and fast paths (`Dispatch.reroute`). When it is disarmed, the
plain routes are restored.

    fail    the handler's own `refuse` builds the response; where a response has an error for each partition, only
             those of the fault's topic get it, and the rest is served as usual
    delay   the request is executed later, and all later requests on its connection wait
    drop    the connection is closed without a response, before or after the request is executed

Requests of `Broker.produce`, `Broker.records` and similar methods are exempt (`HELPER_CLIENT_ID`), because faults are
meant for the software under test. So are requests between the nodes of a cluster (`PEER_CLIENT_ID`).
"""

import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.broker.api import Handler
from trioka.broker.network.connection import FETCH_KEY, PENDING, Call, CallResponse, Pending
from trioka.broker.network.dispatch import Route
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.schema import Request, Struct

from ..client import HELPER_CLIENT_ID
from .fault_schedule import FaultSchedule
from .faults import APIS, ERRORS, Effect, Fault, Faults

if TYPE_CHECKING:
    from trioka.broker.broker import Broker
    from trioka.broker.replication.partitions import Partitions, Replica

log = logging.getLogger("trioka.testing")

Strike = Callable[[], bool]
"""Count a strike of a fault; False if it must not strike any more."""

NO_FAST_PATH: Final = -1
PEER_CLIENT_ID: Final = re.compile(r"trioka-\d+")  # the client ids of nodes (broker/broker.py)

BY_PARTITION: Final = frozenset(
    APIS[name]
    for name in ("Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers")
)
"""Their handlers look up each partition and respond for each: the error is raised at the lookup."""

TOPIC_FIELDS: Final = frozenset({"name", "topic", "topic_name", "topic_id", "topics", "topic_names", "resource_name"})
"""The fields that name the topics of a request."""


class FaultyRoute(Route):
    """A route that checks the faults first."""

    __slots__ = ("_faults", "_profile")

    def __init__(
        self,
        broker: "Broker",
        handler: Handler[Any],
        key: int,
        version: int,
        faults: Faults,
        schedule: FaultSchedule | None = None,
    ) -> None:
        super().__init__(broker, handler, key, version)
        self._faults = faults
        self._profile = schedule
        self.fast_path_key = NO_FAST_PATH

    def decode(self, frame: memoryview, body: int) -> Request:
        # A delayed request must not stay in the buffer that receives the next one.
        return super().decode(memoryview(bytearray(frame)), body)

    def serve(self, call: Call, request: Request) -> CallResponse | Pending:
        if call.client_id == HELPER_CLIENT_ID or PEER_CLIENT_ID.fullmatch(call.client_id):
            return super().serve(call, request)
        met = self._meet(request)
        if met is None:
            return super().serve(call, request)
        strike, fault = met
        if fault.effect is Effect.FAIL:
            return self._fail(call, request, strike, fault)
        strike()
        if fault.effect is Effect.DELAY:
            self._begin(self._later(call, request, fault.delay_s))
            return PENDING
        if fault.is_done:
            return self._drop_answer(call, request)
        call.connection.is_closing = True
        return None

    def _meet(self, request: Request) -> tuple[Strike, Fault] | None:
        """The fault that strikes this request, and the function that counts its strike."""
        met = self._faults.meet(self.key, lambda topic: is_about(self._broker, request, topic))
        if met is not None:
            return partial(self._faults.strike, met[0]), met[1]
        schedule = self._profile
        if schedule is None or self.key not in schedule.keys or schedule.is_over:
            return None
        if schedule.topic is not None and not is_about(self._broker, request, schedule.topic):
            return None
        fault = schedule.meet(self.key)
        return None if fault is None else (_always, fault)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._broker.dispatch.running += 1
        self._broker.nursery.start_soon(self._counted, coroutine)

    async def _counted(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        finally:
            self._broker.dispatch.running -= 1

    # -- fail ----------------------------------------------------------------------------------------------------------

    def _fail(self, call: Call, request: Request, strike: Strike, fault: Fault) -> CallResponse | Pending:
        error = ERRORS[fault.error]("a fault of the test")
        if self.key not in BY_PARTITION:
            strike()
            return self._handler.error_response(request, error)
        refusing = _FailingBroker(self._broker, strike, fault, error)
        answer = Route(refusing, self._handler, self.key, self.version).serve(call, request)  # type: ignore[arg-type]
        if self.key == FETCH_KEY and not refusing.partitions.has_struck:
            refusing.partitions.is_over = True  # a pending Fetch must not fail when its records arrive later
        return answer

    # -- delay ---------------------------------------------------------------------------------------------------------

    async def _later(self, call: Call, request: Request, delay_s: float) -> None:
        await trio.sleep(delay_s)
        answer = super().serve(call, request)
        if not isinstance(answer, Pending):
            call.reply(answer)

    # -- drop ----------------------------------------------------------------------------------------------------------

    def _drop_answer(self, call: Call, request: Request) -> CallResponse | Pending:
        try:
            answer = self._handler.serve(self._broker, _DroppedReply(call), request)
        except KafkaError:
            answer = None
        if type(answer) is CoroutineType:
            self._begin(_then_abort(call, answer))
            return PENDING
        if answer is PENDING:
            return PENDING
        call.connection.is_closing = True
        return None


def _always() -> bool:
    return True


async def _then_abort(call: Call, coroutine: Coroutine[Any, Any, CallResponse]) -> None:
    with suppress(KafkaError):
        await coroutine
    call.connection.abort()


class _DroppedReply(Call):
    """A call that closes the connection instead of sending its response."""

    __slots__ = ()

    def __init__(self, call: Call) -> None:
        super().__init__(call.connection, call.route, call.correlation_id)

    def reply(self, response: CallResponse) -> None:
        self.connection.abort()


class _FailingBroker:
    """A broker whose partitions of one topic fail (of all topics, if the fault names none)."""

    def __init__(self, broker: "Broker", strike: Strike, fault: Fault, error: KafkaError) -> None:
        self._broker = broker
        self.partitions = _FailingPartitions(broker, strike, fault, error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class _FailingPartitions:
    def __init__(self, broker: "Broker", strike: Strike, fault: Fault, error: KafkaError) -> None:
        self._partitions: Partitions = broker.partitions
        self._strike = strike
        self._topic = fault.topic
        self._error = error
        self.has_struck = False
        self.is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partitions, name)

    def get(self, topic: str, index: int) -> "Replica":
        self._refuse(topic)
        return self._partitions.get(topic, index)

    def get_by_id(self, topic_id: bytes, index: int) -> "Replica":
        replica = self._partitions.get_by_id(topic_id, index)
        self._refuse(replica.topic)
        return replica

    def _refuse(self, topic: str) -> None:
        """Raise the error. A request is one strike, however many partitions it has."""
        if self.is_over or self._topic not in (None, topic):
            return
        if not self.has_struck:
            self.is_over = not self._strike()
            self.has_struck = not self.is_over
        if self.has_struck:
            raise self._error


def is_about(broker: "Broker", request: Request, topic: str) -> bool:
    """Whether a request names a topic, or continues a fetch session that contains it."""
    known = broker.metadata.topics.by_name(topic)
    wanted: tuple[object, ...] = (topic,) if known is None else (topic, known.topic_id)
    if any(text in wanted for text in _topics_of(request)):
        return True
    if not isinstance(request, FetchRequest):
        return False
    session = broker.fetch_sessions.find_at_epoch(request.session_id, request.session_epoch)
    return session is not None and any(requested.topic == topic for requested in session.partitions.values())


def _topics_of(struct: Struct) -> Iterator[object]:
    for field in struct.__fields__:
        value = getattr(struct, field.name, None)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _topics_of(each)
            elif field.name in TOPIC_FIELDS:
                yield each
