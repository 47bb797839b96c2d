"""Produce (0): appends records to partitions. The hot path of the broker: synchronous, without copies.

The records of the request are a view of the receive buffer; the log writes offset and epoch into the view and appends
it to its file before more bytes are received. Each partition has its own result, so an error in one partition does not
affect the others.

acks=all waits, for partitions with other replicas, until all in-sync replicas have the records (I1). The request is
parked under its partitions (cluster/purgatory.py) and checked when a high watermark advances or a leader changes.

acks=0 has no response; after an error the connection is closed, which is the only possible signal to the client. An
error has a message only if it concerns single records, and a log start offset only if it comes from the log. Most
requests have one batch for one partition, and responses to them differ in a few numbers: those are filled into a
template (`ResponseTemplate`), which takes a sixth of the time of building and encoding a response.

v5 log start offset · v7 zstd · v8 errors of single records · v10 leader hints · v11 TRANSACTION_ABORTABLE v12
partitions take part in a transaction without being added · v13 topics by id
"""

from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trioka.cluster.acls import AclOperation
from trioka.cluster.purgatory import DelayedOperation
from trioka.cluster.topics import BROKER_TOPICS, REMOTE_LOG_METADATA_TOPIC
from trioka.protocol.batch import CODEC_MASK, TRANSACTIONAL, single_batch_header
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
from trioka.protocol.record import NO_TIMESTAMP
from trioka.storage.append_validation import record_errors
from trioka.storage.log_config import SchemaIdRules
from trioka.storage.log_end import AppendResult

from ..api import handles
from ..metadata.leader_hints import LeaderHints
from ..network.connection import PENDING, Call
from ..replication.commit_wait import make_durable
from ..replication.partitions import ALL_REPLICAS, Replica
from ..security.guard import TOPIC, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..coordinators.txn_verification import WriteCheck
    from ..network.connection import CallResponse, Pending

PartitionRequest = ProduceRequest.Topic.Partition
PartitionResult = ProduceResponse.Topic.Partition

FLAGS_AT: Final = 22  # the lower byte of a batch's attributes
FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_IDS: Final = 13
FIRST_VERSION_WITH_LEADERS: Final = 10
ADMIN_CLIENT: Final = "__admin_client"  # a client id that may write to internal topics, as in Kafka

FIRST_VERSION_WITH_TEMPLATES: Final = 5  # from this version on the numbers of `NUMBERS` are adjacent
MAX_TEMPLATES: Final = 1000  # pairs of topic and version; above this limit all templates are discarded
NUMBERS: Final = Struct(">ihqqq")  # index, error code, base offset, log append time, log start offset
MARKS: Final = (0x7A7A7A7A, 0, -2, -3, -4)

# Errors without a log start offset in the result.
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


def error_response(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_error_result(partition, error, None) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _may_write_as_broker(broker: "Broker", call: "Call", topic: str) -> bool:
    """Whether the client may write to a topic of the brokers. The remote log metadata decides which segments are
    deleted: only brokers write it, which an authorizer identifies by their permission for ClusterAction."""
    if topic != REMOTE_LOG_METADATA_TOPIC:
        return call.client_id == ADMIN_CLIENT
    return broker.is_client_id_of_broker(call.client_id) and broker.guard.may(call, AclOperation.CLUSTER_ACTION)


class PendingPartition(NamedTuple):
    """Records that are appended here and not yet acknowledged, because other replicas must have them first."""

    replica: Replica
    term: int
    until: int
    result: PartitionResult


class PendingAck:
    """The flushes and commits that a request waits for after its records are appended."""

    __slots__ = ("_broker", "call", "to_commit", "to_flush")

    def __init__(self, broker: "Broker", call: "Call") -> None:
        self._broker = broker
        self.call = call
        self.to_flush: list[Replica] = []
        self.to_commit: list[PendingPartition] = []

    def answer(self, response: ProduceResponse) -> ProduceResponse:
        """Adds leader hints to the results of partitions that this broker does not lead."""
        leader_hints: LeaderHints | None = None
        for topic in response.responses:
            for reply in topic.partition_responses:
                if reply.error_code == NotLeaderOrFollower.code and self.call.version >= FIRST_VERSION_WITH_LEADERS:
                    if leader_hints is None:
                        leader_hints = LeaderHints(self._broker, self.call.connection.listener)
                    leader = leader_hints.leader(topic.name, topic.topic_id, reply.index)
                    reply.current_leader = PartitionResult.CurrentLeader(leader_id=leader.id, leader_epoch=leader.epoch)  # type: ignore[misc]
        if leader_hints is not None:
            response.node_endpoints = leader_hints.produce_endpoints()  # type: ignore[misc]
        return response


def _authorized(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Pending | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    """Serves the request on a broker with an authorizer. Topics that the client may not write to get an error and lose
    their partitions; the rest of the request is served as usual."""
    try:
        if any(_is_transactional(requested) for topic in request.topic_data for requested in topic.partition_data):
            if request.transactional_id is None:
                raise TransactionalIdAuthorizationFailed()
            broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    except TransactionalIdAuthorizationFailed:
        if request.acks:
            raise
        call.connection.is_closing = True
        return None
    names = [topic.name or broker.topic_name(topic.topic_id) for topic in request.topic_data]
    allowed = broker.guard.allowed(call, AclOperation.WRITE, TOPIC, [name for name in names if name is not None])
    denied = ProduceResponse(responses=[])
    for name, topic in zip(names, request.topic_data, strict=True):
        if name is not None and name not in allowed:
            reply = [_error_result(requested, TopicAuthorizationFailed(), None) for requested in topic.partition_data]
            denied.responses.append(
                ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=reply)
            )
            topic.partition_data = []  # type: ignore[misc]
    if not denied.responses:
        return produce.serve(broker, call, request)  # type: ignore[return-value]
    answer = produce.serve(broker, _PartialResponse(call, denied), request)
    if not request.acks:
        call.connection.is_closing = True
    if answer is PENDING:
        return PENDING
    return _with(answer, denied) if isinstance(answer, Coroutine) else _together(answer, denied)


class _PartialResponse(Call):
    """The call of a request with denied topics; their results are added to the later response."""

    __slots__ = ("_denied", "_whole")

    def __init__(self, whole: Call, denied: ProduceResponse) -> None:
        super().__init__(whole.connection, whole.route, whole.correlation_id)
        self._whole = whole
        self._denied = denied

    def reply(self, response: "CallResponse") -> None:
        self._whole.reply(_together(response, self._denied))

    def allow_pipelining(self) -> None:
        self._whole.allow_pipelining()


async def _with(answer: "Coroutine[Any, Any, CallResponse]", denied: ProduceResponse) -> ProduceResponse | None:
    return _together(await answer, denied)


def _together(answer: object, denied: ProduceResponse) -> ProduceResponse | None:
    if answer is None:
        return None
    assert isinstance(answer, ProduceResponse), "a plain answer is for a request of one topic"
    answer.responses.extend(denied.responses)
    return answer


def _is_transactional(requested: PartitionRequest) -> bool:
    records = requested.records
    return records is not None and len(records) > FLAGS_AT and bool(records[FLAGS_AT] & TRANSACTIONAL)  # type: ignore[index]


@handles(ProduceRequest, error_response=error_response, authorized=_authorized)
def produce(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Pending | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    if broker.schema_ids is not None:
        unknown = _unknown_schema_ids(broker, request, call.route.version >= FIRST_VERSION_WITH_IDS)
        if unknown:
            _own_records(request)
            return _after_lookup(broker, call, request, unknown)
    if request.transactional_id is not None:
        return _in_transaction(broker, call, request)
    return _append(broker, call, request, None)


def _unknown_schema_ids(broker: "Broker", request: ProduceRequest, by_id: bool) -> set[int]:
    """The schema ids that have to be requested before these records can be checked."""
    assert broker.schema_ids is not None
    find = broker.partitions.find_by_id if by_id else broker.partitions.find
    unknown: set[int] = set()
    for topic in request.topic_data:
        for requested in topic.partition_data:
            replica = find(topic.topic_id if by_id else topic.name, requested.index)  # type: ignore[arg-type]
            rules = None if replica is None or requested.records is None else replica.log.config.schema_ids
            if rules is not None and replica is not None:
                unknown |= broker.schema_ids.unknown(replica.topic, rules, requested.records)
    return unknown


async def _after_lookup(
    broker: "Broker", call: "Call", request: ProduceRequest, unknown: set[int]
) -> "ProduceResponse | bytes | None":
    assert broker.schema_ids is not None
    await broker.schema_ids.look_up(unknown)
    if request.transactional_id is None:
        return await _append_later(broker, call, request, None)
    permit = broker.verification.permit(request, call.route.version)
    is_there = permit.verify()
    if is_there is None:
        return await _append_later(broker, call, request, permit)
    return await _append_verified(broker, call, request, permit, is_there)


def _own_records(request: ProduceRequest) -> None:
    """Copies the records: their receive buffer is about to be reused."""
    for topic in request.topic_data:
        for requested in topic.partition_data:
            if requested.records is not None:
                requested.records = bytearray(requested.records)  # type: ignore[misc, call-overload]


def _in_transaction(
    broker: "Broker", call: "Call", request: ProduceRequest
) -> "ProduceResponse | bytes | Pending | Coroutine[Any, Any, ProduceResponse | bytes | None] | None":
    permit = broker.verification.permit(request, call.route.version)
    is_there = permit.verify()
    if is_there is None:
        return _append(broker, call, request, permit)
    _own_records(request)
    return _append_verified(broker, call, request, permit, is_there)


async def _append_verified(
    broker: "Broker", call: "Call", request: ProduceRequest, permit: "WriteCheck", is_there: "trio.Event"
) -> "ProduceResponse | bytes | None":
    await permit.settle(is_there)
    return await _append_later(broker, call, request, permit)


async def _append_later(
    broker: "Broker", call: "Call", request: ProduceRequest, permit: "WriteCheck | None"
) -> "ProduceResponse | bytes | None":
    """Appends records that are the request's own, because something had to be waited for."""
    afterwards = PendingAck(broker, call)
    response = _append_all(broker, call, request, afterwards, permit)
    if type(response) is bytes:
        return response
    assert isinstance(response, ProduceResponse)
    if not request.acks:
        _close_if_refused(call, response)
        return None
    call.allow_pipelining()
    return await _finished(broker, request, response, afterwards)


def _append(
    broker: "Broker", call: "Call", request: ProduceRequest, permit: "WriteCheck | None"
) -> "ProduceResponse | bytes | Pending | Coroutine[Any, Any, ProduceResponse | None] | None":
    afterwards = PendingAck(broker, call)
    response = _append_all(broker, call, request, afterwards, permit)
    if type(response) is bytes:
        return response
    assert isinstance(response, ProduceResponse)
    if not request.acks:
        _close_if_refused(call, response)
    if afterwards.to_flush:
        call.allow_pipelining()
        return _finished(broker, request, response, afterwards)
    if not request.acks:
        return None
    if afterwards.to_commit:
        parked = _ParkedProduce(broker, call, afterwards.to_commit, lambda: call.reply(afterwards.answer(response)))
        call.on_disconnect = parked.abandon
        parked.park(request.timeout_ms)
        call.allow_pipelining()
        return PENDING
    return afterwards.answer(response)


def _close_if_refused(call: "Call", response: ProduceResponse) -> None:
    """Closes the connection after an error with acks=0: the request has no response."""
    if any(partition.error_code for topic in response.responses for partition in topic.partition_responses):
        call.connection.is_closing = True


async def _finished(
    broker: "Broker", request: ProduceRequest, response: ProduceResponse, afterwards: PendingAck
) -> ProduceResponse | None:
    """flush.messages: waits until the records are durable here, then until the other replicas have them."""
    for replica in afterwards.to_flush:
        await make_durable(broker, replica)
    if afterwards.to_commit:
        is_there = trio.Event()
        parked = _ParkedProduce(broker, afterwards.call, afterwards.to_commit, is_there.set)
        if not parked.try_complete(None):
            parked.park(request.timeout_ms)
        await is_there.wait()
    return afterwards.answer(response) if request.acks else None


class _ParkedProduce(DelayedOperation):
    """Waits until the records are committed in all partitions, or cannot be committed any more."""

    __slots__ = ("_broker", "_call", "_then", "_waiting")

    def __init__(
        self, broker: "Broker", call: "Call", waiting: list[PendingPartition], then: Callable[[], None]
    ) -> None:
        super().__init__()
        self._broker = broker
        self._call = call
        self._waiting = waiting
        self._then = then

    def park(self, timeout_ms: int) -> None:
        deadline = self._broker.clock.now() + max(timeout_ms, 0) / 1000
        self._broker.park(self, [each.replica for each in self._waiting], deadline)

    def try_complete(self, key: Hashable) -> bool:
        self._waiting = [each for each in self._waiting if not _is_settled(each)]
        if self._waiting:
            return False
        self._then()
        return True

    def expire(self) -> None:
        for each in self._waiting:
            if not _is_settled(each):
                each.result.error_code = RequestTimedOut.code  # type: ignore[misc]
        self._then()

    def fail(self, mistake: Exception) -> None:
        for each in self._waiting:
            each.result.error_code = UnknownServerError.code  # type: ignore[misc]
        self._call.fail(mistake)
        with suppress(Exception):  # a task may still wait, although the client has disconnected
            self._then()

    def abandon(self) -> None:
        self._broker.purgatory.cancel(self)


def _is_settled(each: PendingPartition) -> bool:
    """Whether the outcome of the records is known. An error is written to the result."""
    outcome = each.replica.commit_status(each.until, each.term)
    if isinstance(outcome, KafkaError):
        each.result.error_code = outcome.code  # type: ignore[misc]
    return outcome is not False


def _append_all(
    broker: "Broker", call: "Call", request: ProduceRequest, afterwards: PendingAck, permit: "WriteCheck | None"
) -> ProduceResponse | bytes:
    partitions, delayed = broker.partitions, broker.purgatory
    now_ms = broker.clock.now_ms()
    acks, version = request.acks, call.route.version
    by_id = version >= FIRST_VERSION_WITH_IDS
    replica_of = partitions.get_by_id if by_id else partitions.get
    is_odd = version < FIRST_VERSION_WITH_ZSTD or not -1 <= acks <= 1
    is_plain = len(request.topic_data) == 1 and acks != 0 and version >= FIRST_VERSION_WITH_TEMPLATES
    topics = []
    for topic in request.topic_data:
        reply: list[PartitionResult] = []
        for requested in topic.partition_data:
            replica: Replica | None = None
            records = requested.records
            try:
                replica = replica_of(topic.topic_id if by_id else topic.name, requested.index)  # type: ignore[arg-type]
                if records is None:
                    raise InvalidRecord("there are no records")
                if is_odd:
                    _check_records(records, acks, version)
                if len(records) > FLAGS_AT and records[FLAGS_AT] & TRANSACTIONAL:  # type: ignore[index]
                    if permit is None:
                        raise TransactionalIdAuthorizationFailed("these records are of a transaction without an id")
                    permit.check(replica, records)
                if replica.topic in BROKER_TOPICS and not _may_write_as_broker(broker, call, replica.topic):
                    raise InvalidTopic(f"{replica.topic} is the brokers' own")
                rules = replica.log.config.schema_ids
                if rules is not None:
                    _check_schema_ids(broker, replica, rules, records)
                appended = replica.append(records, acks, now_ms)  # type: ignore[arg-type]
            except KafkaError as error:
                reply.append(_rejected(broker, call, requested, error, replica, permit))
                continue
            if not appended.duplicate:
                delayed.notify(replica)
            waits = acks == ALL_REPLICAS and not replica.is_unreplicated
            if replica.wants_flush:
                afterwards.to_flush.append(replica)
            elif is_plain and not waits and len(topic.partition_data) == 1:
                return _encoded_response(call, topic, requested.index, appended)
            reply.append(_appended(requested.index, appended))
            if waits:
                each = PendingPartition(replica, replica.term, appended.last_offset + 1, reply[-1])
                if not _is_settled(each):
                    afterwards.to_commit.append(each)
        if reply:
            topics.append(ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=reply))
    return ProduceResponse(responses=topics)


def _check_schema_ids(broker: "Broker", replica: Replica, rules: SchemaIdRules, records: RecordBytes) -> None:
    if broker.schema_ids is None:
        raise InvalidRecord(
            f"the schema ids of {replica.topic} cannot be checked: this broker has no confluent.schema.registry.url"
        )
    broker.schema_ids.check(replica.topic, rules, records)


def _rejected(
    broker: "Broker",
    call: "Call",
    requested: PartitionRequest,
    error: KafkaError,
    replica: Replica | None,
    permit: "WriteCheck | None",
) -> PartitionResult:
    broker.counts.failed_produce("" if replica is None else replica.topic)
    broker.dispatch.errors.add(call.route.key, error.code)
    if permit is not None and replica in permit.refused:
        return _error_result(requested, error, None, has_message=permit.has_message(error))
    return _error_result(requested, error, replica)


def _appended(index: int, appended: AppendResult) -> PartitionResult:
    return PartitionResult(
        index=index,
        error_code=0,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def uncommitted_response(
    broker: "Broker",
    call: "Call",
    topic: ProduceRequest.Topic,
    index: int,
    first_offset: int,
    log_start_offset: int,
    error: KafkaError,
) -> ProduceResponse:
    """The response to a request for one partition whose records were appended but not known to be committed."""
    result = PartitionResult(
        index=index,
        error_code=error.code,
        base_offset=first_offset,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=log_start_offset,
    )
    response = ProduceResponse(
        responses=[ProduceResponse.Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])]
    )
    return PendingAck(broker, call).answer(response)


def _encoded_response(call: "Call", topic: ProduceRequest.Topic, index: int, appended: AppendResult) -> bytes:
    """The encoded response to a request for one partition whose records were appended."""
    first_offset, _, log_append_time_ms, log_start_offset, _ = appended
    template = template_of(topic, call.route.version)
    return template.fill(call.correlation_id, index, 0, first_offset, log_append_time_ms, log_start_offset)


def template_of(topic: ProduceRequest.Topic, version: int) -> ResponseTemplate:
    """The response template for requests for this topic, to be filled with the five numbers of `NUMBERS`."""
    key = (topic.name, topic.topic_id, version)
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        template = _templates[key] = _new_template(*key)
    return template


def _new_template(name: str, topic_id: bytes, version: int) -> ResponseTemplate:
    index, error_code, base_offset, log_append_time_ms, log_start_offset = MARKS
    reply = PartitionResult(
        index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    topic = ProduceResponse.Topic(name=name, topic_id=topic_id, partition_responses=[reply])
    return ResponseTemplate(ProduceResponse(responses=[topic]), version, NUMBERS, *MARKS)


_templates: dict[tuple[str, bytes, int], ResponseTemplate] = {}


def _check_records(records: RecordBytes, acks: int, version: int) -> None:
    """Checks compression type and acks of a single batch. Other input is left to the log, which rejects it first."""
    header = single_batch_header(records)
    if header is None:
        return
    if version < FIRST_VERSION_WITH_ZSTD and header.attributes & CODEC_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType(f"version {version} knows no zstd")
    if not -1 <= acks <= 1:
        raise InvalidRequiredAcks(f"acks={acks}; -1, 0 and 1 are known")


def _error_result(
    requested: PartitionRequest, error: KafkaError, replica: Replica | None, *, has_message: bool = False
) -> PartitionResult:
    wrong = record_errors(error)
    log_start = -1
    if replica is not None and requested.records is not None and not isinstance(error, BEFORE_THE_LOG):
        log_start = replica.log.log_start_offset if single_batch_header(requested.records) is not None else -1
    return PartitionResult(
        index=requested.index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start,
        record_errors=[
            PartitionResult.RecordError(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in wrong
        ],
        error_message=str(error) if wrong or has_message else None,
    )
