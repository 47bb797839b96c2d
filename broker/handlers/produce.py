"""Produce (0): records to partitions. The hot path of the broker: plain, synchronous, nothing copied.

The records of the request are a view of the receive buffer; the log patches offset and epoch into it and writes it out
before anything else is received. Each partition has its own answer, so that one refusal does not spoil the others.

acks=all waits, where a partition has other replicas, until those that are in sync have the records (I1); whoever waits
stands under its partitions (cluster/purgatory.py), and looks when the high watermark moves or the leader changes.

acks=0 has no answer; if something was refused, the connection is closed, which is all that a client can be told then.
A refusal has words only where it is about single records, and says where the log starts only if it came from the log.
Most requests bring one batch for one partition, and are answered with the same bytes but for a few numbers: they are
filled into a template (`ResponseTemplate`), a sixth of what making and encoding the response costs.

v5 where the log starts · v7 zstd · v8 errors of single records · v10 who leads instead · v11 TRANSACTION_ABORTABLE
v12 partitions take part in a transaction without being added · v13 topics by id
"""

from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trioka.cluster.acls import Operation
from trioka.cluster.purgatory import Waiter
from trioka.cluster.topics import INTERNAL_TOPICS
from trioka.protocol.batch import CODEC_MASK, TRANSACTIONAL, only_header
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnsupportedCompressionType,
)
from trioka.protocol.frame import ResponseTemplate
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.primitives import RecordBytes
from trioka.storage.append_validation import record_errors
from trioka.storage.log_end import Appended

from ..api import handles
from ..metadata.leader_hints import Elsewhere
from ..network.connection import LATER, Call
from ..replication.commit_wait import make_durable
from ..replication.partitions import ALL_REPLICAS, Replica
from ..security.guard import TOPIC, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..coordinators.txn_verification import Permit
    from ..network.connection import Answer, Later

Asked = ProduceRequest.Topic.Partition
Told = ProduceResponse.Topic.Partition

FLAGS_AT: Final = 22  # the lower byte of a batch's attributes
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_LEADERS: Final = 10
ADMIN_CLIENT: Final = "__admin_client"  # who calls itself so may write to the brokers' own topics

FIRST_VERSION_WITH_TEMPLATES: Final = 5  # where all numbers below stand side by side
MAX_TEMPLATES: Final = 1000  # topics, times versions; when there are more, all are made anew
NUMBERS: Final = Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset
MARKS: Final = (0x7A7A7A7A, 0, -2, -3, -4)

# Refusals that do not tell where the log starts.
BEFORE_THE_LOG: Final = (
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
)


def refuse(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(partition, error, None) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


class Uncommitted(NamedTuple):
    """Records that were appended, and that others must have before they are acknowledged."""

    replica: Replica
    reign: int
    until: int
    told: Told


class Afterwards:
    """What is left to do for a request when its records are appended."""

    __slots__ = ("_broker", "call", "to_commit", "to_flush")

    def __init__(self, broker: "Broker", call: "Call") -> None:
        self._broker = broker
        self.call = call
        self.to_flush: list[Replica] = []
        self.to_commit: list[Uncommitted] = []

    def answer(self, response: ProduceResponse) -> ProduceResponse:
        """Whoever asked the wrong broker is told whom to ask."""
        elsewhere: Elsewhere | None = None
        for topic in response.responses:
            for told in topic.partition_responses:
                if told.error_code == NotLeaderOrFollower.code and self.call.version >= FIRST_VERSION_WITH_LEADERS:
                    if elsewhere is None:
                        elsewhere = Elsewhere(self._broker, self.call.connection.listener)
                    leader = elsewhere.leader(topic.name, topic.topic_id, told.index)
                    told.current_leader = Told.CurrentLeader(leader_id=leader.id, leader_epoch=leader.epoch)  # type: ignore[misc]
        if elsewhere is not None:
            response.node_endpoints = elsewhere.produce_endpoints()  # type: ignore[misc]
        return response


def _guarded(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Later | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    """The same where there is an authorizer. Topics that the client may not write to are refused, and stay in the
    request without their partitions; the rest takes the usual road."""
    try:
        if any(_is_transactional(asked) for topic in request.topic_data for asked in topic.partition_data):
            if request.transactional_id is None:
                raise TransactionalIdAuthorizationFailed()
            broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    except TransactionalIdAuthorizationFailed:
        if request.acks:
            raise
        call.connection.is_closing = True
        return None
    names = [topic.name or broker.topic_name(topic.topic_id) for topic in request.topic_data]
    allowed = broker.guard.allowed(call, Operation.WRITE, TOPIC, [name for name in names if name is not None])
    denied = ProduceResponse(responses=[])
    for name, topic in zip(names, request.topic_data, strict=True):
        if name is not None and name not in allowed:
            told = [_refused(asked, TopicAuthorizationFailed(), None) for asked in topic.partition_data]
            denied.responses.append(
                ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=told)
            )
            topic.partition_data = []  # type: ignore[misc]
    if not denied.responses:
        return produce.serve(broker, call, request)  # type: ignore[return-value]
    answer = produce.serve(broker, _PartlyDenied(call, denied), request)
    if not request.acks:
        call.connection.is_closing = True
    if answer is LATER:
        return LATER
    return _with(answer, denied) if isinstance(answer, Coroutine) else _together(answer, denied)


class _PartlyDenied(Call):
    """Is answered later; and to what is said then, what was denied at once belongs too."""

    __slots__ = ("_denied", "_whole")

    def __init__(self, whole: Call, denied: ProduceResponse) -> None:
        super().__init__(whole.connection, whole.route, whole.correlation_id)
        self._whole = whole
        self._denied = denied

    def reply(self, response: "Answer") -> None:
        self._whole.reply(_together(response, self._denied))

    def let_pass(self) -> None:
        self._whole.let_pass()


async def _with(answer: "Coroutine[Any, Any, Answer]", denied: ProduceResponse) -> ProduceResponse | None:
    return _together(await answer, denied)


def _together(answer: object, denied: ProduceResponse) -> ProduceResponse | None:
    if answer is None:
        return None
    assert isinstance(answer, ProduceResponse), "a plain answer is for a request of one topic"
    answer.responses.extend(denied.responses)
    return answer


def _is_transactional(asked: Asked) -> bool:
    records = asked.records
    return records is not None and len(records) > FLAGS_AT and bool(records[FLAGS_AT] & TRANSACTIONAL)  # type: ignore[index]


@handles(ProduceRequest, refuse=refuse, guarded=_guarded)
def produce(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Later | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    if request.transactional_id is not None:
        return _in_transaction(broker, call, request)
    return _append(broker, call, request, None)


def _in_transaction(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Later | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    permit = broker.verification.permit(request, call.route.version)
    is_there = permit.ask()
    if is_there is None:
        return _append(broker, call, request, permit)
    for topic in request.topic_data:  # the buffer that they are in is about to be used for the next request
        for asked in topic.partition_data:
            if asked.records is not None:
                asked.records = bytearray(asked.records)  # type: ignore[misc, call-overload]
    return _append_later(broker, call, request, permit, is_there)


async def _append_later(
    broker: "Broker", call: "Call", request: ProduceRequest, permit: "Permit", is_there: "trio.Event"
) -> "ProduceResponse | bytes | None":
    await permit.settle(is_there)
    afterwards = Afterwards(broker, call)
    response = _append_all(broker, call, request, afterwards, permit)
    if type(response) is bytes:
        return response
    assert isinstance(response, ProduceResponse)
    if not request.acks:
        _close_if_refused(call, response)
        return None
    call.let_pass()
    return await _finished(broker, request, response, afterwards)


def _append(
    broker: "Broker", call: "Call", request: ProduceRequest, permit: "Permit | None"
) -> "ProduceResponse | bytes | Later | Coroutine[Any, Any, ProduceResponse | None] | None":
    afterwards = Afterwards(broker, call)
    response = _append_all(broker, call, request, afterwards, permit)
    if type(response) is bytes:
        return response
    assert isinstance(response, ProduceResponse)
    if not request.acks:
        _close_if_refused(call, response)
    if afterwards.to_flush:
        call.let_pass()
        return _finished(broker, request, response, afterwards)
    if not request.acks:
        return None
    if afterwards.to_commit:
        parked = _ParkedProduce(broker, call, afterwards.to_commit, lambda: call.reply(afterwards.answer(response)))
        call.on_abandoned = parked.abandon
        parked.park(request.timeout_ms)
        call.let_pass()
        return LATER
    return afterwards.answer(response)


def _close_if_refused(call: "Call", response: ProduceResponse) -> None:
    """acks=0. All that a client can be told then is that something is wrong."""
    if any(partition.error_code for topic in response.responses for partition in topic.partition_responses):
        call.connection.is_closing = True


async def _finished(
    broker: "Broker", request: ProduceRequest, response: ProduceResponse, afterwards: Afterwards
) -> ProduceResponse | None:
    """flush.messages: the answer waits until it is durable. Then it waits for the others that must have it."""
    for replica in afterwards.to_flush:
        await make_durable(broker, replica)
    if afterwards.to_commit:
        is_there = trio.Event()
        parked = _ParkedProduce(broker, afterwards.call, afterwards.to_commit, is_there.set)
        if not parked.look(None):
            parked.park(request.timeout_ms)
        await is_there.wait()
    return afterwards.answer(response) if request.acks else None


class _ParkedProduce(Waiter):
    """Waits until all its partitions have committed what was appended, or cannot any more."""

    __slots__ = ("_broker", "_call", "_then", "_waiting")

    def __init__(self, broker: "Broker", call: "Call", waiting: list[Uncommitted], then: Callable[[], None]) -> None:
        super().__init__()
        self._broker = broker
        self._call = call
        self._waiting = waiting
        self._then = then

    def park(self, timeout_ms: int) -> None:
        deadline = self._broker.clock.now() + max(timeout_ms, 0) / 1000
        self._broker.park(self, [each.replica for each in self._waiting], deadline)

    def look(self, key: Hashable) -> bool:
        self._waiting = [each for each in self._waiting if not _is_settled(each)]
        if self._waiting:
            return False
        self._then()
        return True

    def expire(self) -> None:
        for each in self._waiting:
            if not _is_settled(each):
                each.told.error_code = RequestTimedOut.code  # type: ignore[misc]
        self._then()

    def fail(self, mistake: Exception) -> None:
        for each in self._waiting:
            each.told.error_code = UnknownServerError.code  # type: ignore[misc]
        self._call.fail(mistake)
        with suppress(Exception):  # a task may wait for it; the client has gone
            self._then()

    def abandon(self) -> None:
        self._broker.delayed.abandon(self)


def _is_settled(each: Uncommitted) -> bool:
    """Whether it is known what became of it, which its answer says then."""
    outcome = each.replica.outcome(each.until, each.reign)
    if isinstance(outcome, KafkaError):
        each.told.error_code = outcome.code  # type: ignore[misc]
    return outcome is not False


def _append_all(
    broker: "Broker", call: "Call", request: ProduceRequest, afterwards: Afterwards, permit: "Permit | None"
) -> ProduceResponse | bytes:
    partitions, delayed = broker.partitions, broker.delayed
    now_ms = broker.clock.now_ms()
    acks, version = request.acks, call.route.version
    by_id = version >= FIRST_VERSION_WITH_IDS
    replica_of = partitions.get_by_id if by_id else partitions.get
    is_odd = version < FIRST_VERSION_WITH_ZSTD or not -1 <= acks <= 1
    is_plain = len(request.topic_data) == 1 and acks != 0 and version >= FIRST_VERSION_WITH_TEMPLATES
    topics = []
    for topic in request.topic_data:
        told: list[Told] = []
        for asked in topic.partition_data:
            replica: Replica | None = None
            records = asked.records
            try:
                replica = replica_of(topic.topic_id if by_id else topic.name, asked.index)  # type: ignore[arg-type]
                if records is None:
                    raise InvalidRecord("there are no records")
                if is_odd:
                    _check_odd(records, acks, version)
                if len(records) > FLAGS_AT and records[FLAGS_AT] & TRANSACTIONAL:  # type: ignore[index]
                    if permit is None:
                        raise TransactionalIdAuthorizationFailed("these records are of a transaction without an id")
                    permit.check(replica, records)
                if replica.topic in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT:
                    raise InvalidTopic(f"{replica.topic} is the brokers' own")
                appended = replica.append(records, acks, now_ms)  # type: ignore[arg-type]
            except KafkaError as error:
                told.append(_counted_refusal(broker, call, asked, error, replica, permit))
                continue
            if not appended.duplicate:
                delayed.touch(replica)
            waits = acks == ALL_REPLICAS and not replica.stands_alone
            if replica.wants_flush:
                afterwards.to_flush.append(replica)
            elif is_plain and not waits and len(topic.partition_data) == 1:
                return _plain_answer(call, topic, asked.index, appended)
            told.append(_appended(asked.index, appended))
            if waits:
                each = Uncommitted(replica, replica.reign, appended.last_offset + 1, told[-1])
                if not _is_settled(each):
                    afterwards.to_commit.append(each)
        if told:
            topics.append(ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=told))
    return ProduceResponse(responses=topics)


def _counted_refusal(
    broker: "Broker", call: "Call", asked: Asked, error: KafkaError, replica: Replica | None, permit: "Permit | None"
) -> Told:
    broker.counts.failed_produce("" if replica is None else replica.topic)
    broker.dispatch.errors.add(call.route.key, error.code)
    if permit is not None and replica in permit.refused:
        return _refused(asked, error, None, is_said=permit.is_said(error))
    return _refused(asked, error, replica)


def _appended(index: int, appended: Appended) -> Told:
    return Told(
        index=index,
        error_code=0,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _plain_answer(call: "Call", topic: ProduceRequest.Topic, index: int, appended: Appended) -> bytes:
    """To a request of one partition, whose records were appended."""
    first_offset, _, log_append_time_ms, log_start_offset, _ = appended
    template = template_of(topic, call.route.version)
    return template.fill(call.correlation_id, index, 0, first_offset, log_append_time_ms, log_start_offset)


def template_of(topic: ProduceRequest.Topic, version: int) -> ResponseTemplate:
    """What is answered to a request for this topic: to be filled with the five numbers of `NUMBERS`."""
    key = (topic.name, topic.topic_id, version)
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        template = _templates[key] = _new_template(*key)
    return template


def _new_template(name: str, topic_id: bytes, version: int) -> ResponseTemplate:
    index, error_code, base_offset, log_append_time_ms, log_start_offset = MARKS
    told = Told(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    topic = ProduceResponse.Topic(name=name, topic_id=topic_id, partition_responses=[told])
    return ResponseTemplate(ProduceResponse(responses=[topic]), version, NUMBERS, *MARKS)


_templates: dict[tuple[str, bytes, int], ResponseTemplate] = {}


def _check_odd(records: RecordBytes, acks: int, version: int) -> None:
    """What most requests need not be asked. What is no batch at all is left to the log, which refuses it first."""
    header = only_header(records)
    if header is None:
        return
    if version < FIRST_VERSION_WITH_ZSTD and header.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType(f"version {version} knows no zstd")
    if not -1 <= acks <= 1:
        raise InvalidRequiredAcks(f"acks={acks}; -1, 0 and 1 are known")


def _refused(asked: Asked, error: KafkaError, replica: Replica | None, *, is_said: bool = False) -> Told:
    wrong = record_errors(error)
    log_start = -1
    if replica is not None and asked.records is not None and not isinstance(error, BEFORE_THE_LOG):
        log_start = replica.log.log_start_offset if only_header(asked.records) is not None else -1
    return Told(
        index=asked.index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start,
        record_errors=[
            Told.RecordError(batch_index=each.batch_index, batch_index_error_message=each.message) for each in wrong
        ],
        error_message=str(error) if wrong or is_said else None,
    )
