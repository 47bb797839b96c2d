"""TxnOffsetCommit (28): stores the offsets of a group as part of a transaction.

The group's partition of __consumer_offsets must be part of the transaction: AddOffsetsToTxn has added it, or this
request does.

v2 leader epochs · v3 flexible; fencing by the group's generation (KIP-447) · v4 TRANSACTION_ABORTABLE · v5 adds the
partition (KIP-890)
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.acls import AclOperation
from trioka.coordinator.decision import Decision, Now, Producer, RequestId
from trioka.coordinator.groups import GroupCoordinator
from trioka.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..controller.topic_creation import OFFSETS_TOPIC
from ..coordinators.groups import client_of
from ..coordinators.txn_verification import Generation, Outcome, PendingWrite
from ..replication.partitions import Replica
from ..security.guard import GROUP, TRANSACTIONAL_ID, pop_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

TopicResult = TxnOffsetCommitResponse.Topic

NO_SEQUENCE: Final = -1
FIRST_VERSION_WITH_LOADING: Final = 2
FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_OF_TXN_V2: Final = 5


def error_response(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=[_error_result(topic, error) for topic in request.topics])


def _error_result(topic: TxnOffsetCommitRequest.Topic, error: KafkaError) -> TopicResult:
    return TopicResult(
        name=topic.name,
        partitions=[
            TopicResult.Partition(partition_index=partition.partition_index, error_code=error.code)
            for partition in topic.partitions
        ],
    )


@handles(TxnOffsetCommitRequest, error_response=error_response)
def txn_offset_commit(
    broker: "Broker", call: "Call", request: TxnOffsetCommitRequest
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    denied = pop_denied(broker, call, AclOperation.READ, request.topics, lambda topic: topic.name)
    denied_results = [_error_result(topic, TopicAuthorizationFailed()) for topic in denied]
    if denied and not request.topics:
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=denied_results)
    return _Commit(broker, call, request, denied_results).serve()


class _Commit:
    def __init__(
        self, broker: "Broker", call: "Call", request: TxnOffsetCommitRequest, denied: list[TopicResult]
    ) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._denied = denied  # results of the topics that are not in the request any more
        self._client = client_of(call)
        self._producer = Producer(request.producer_id, request.producer_epoch)
        self._generation = Generation.of(
            call.version, abortable=FIRST_VERSION_WITH_ABORTABLE, second=FIRST_VERSION_OF_TXN_V2
        )
        self._needs_verification = broker.verification.is_required(self._generation)
        self._replica: Replica | None = None
        self._guard: PendingWrite | None = None

    def serve(self) -> "Response | Pending | Coroutine[Any, Any, Response]":
        if self._needs_verification and any(self._exists(topic, p.partition_index) for topic, p in self._partitions()):
            try:
                self._start()
            except KafkaError as error:
                return self._complete(self._error_response(self._request, error))
            if self._guard is not None:
                return self._verify_and_commit(self._guard)
        groups = self._broker.groups
        return groups.submit(
            self._call, self._request, self._error_response, self._request.group_id, self._decide, self._complete
        )

    def _start(self) -> None:
        if not self._request.group_id:
            raise InvalidGroupId()
        index = self._broker.groups.partition_of(self._request.group_id)
        self._replica = self._broker.partitions.find(OFFSETS_TOPIC, index)
        if self._replica is None:
            raise NotCoordinator() if self._exists(OFFSETS_TOPIC, index) else CoordinatorNotAvailable()
        verification = self._broker.verification
        self._guard = verification.start(self._replica, self._producer, NO_SEQUENCE, self._generation)

    async def _verify_and_commit(self, guard: PendingWrite) -> Response:
        assert self._replica is not None
        partition = (self._replica.topic, self._replica.index)
        outcomes: list[Outcome] = []
        verified = trio.Event()

        def then(outcome: Outcome) -> None:
            outcomes.append(outcome)
            verified.set()

        name = self._request.transactional_id
        self._broker.verification.verify(name, self._producer, [partition], self._generation, then)
        await verified.wait()
        error = outcomes[0][partition]
        try:
            if error is not None:
                raise error
            return self._complete(await self._broker.groups.submit_async(self._request.group_id, self._decide))
        except KafkaError as problem:
            return self._complete(self._error_response(self._request, problem))

    def _decide(self, groups: GroupCoordinator, request_id: RequestId, now: Now) -> Decision:
        if self._replica is not None:
            self._broker.verification.check(self._replica, self._producer, NO_SEQUENCE, self._guard)
        return groups.commit_offsets_in_transaction(request_id, self._request, self._client, now)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _error_response(self, request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
        """The error for each partition; UNKNOWN_TOPIC_OR_PARTITION takes precedence."""
        if isinstance(error, NotLeaderOrFollower):
            error = NotCoordinator()
        topics: dict[str, list[TopicResult.Partition]] = {}
        for name, partition in self._partitions():
            index = partition.partition_index
            code = error.code if self._exists(name, index) else UnknownTopicOrPartition.code
            topics.setdefault(name, []).append(TopicResult.Partition(partition_index=index, error_code=code))
        return TxnOffsetCommitResponse(
            throttle_time_ms=0, topics=[TopicResult(name=name, partitions=results) for name, results in topics.items()]
        )

    def _complete(self, response: Response) -> Response:
        """Add the denied topics. Versions before 2 do not know COORDINATOR_LOAD_IN_PROGRESS."""
        assert isinstance(response, TxnOffsetCommitResponse)
        response.topics.extend(self._denied)
        if self._call.version < FIRST_VERSION_WITH_LOADING:
            for topic in response.topics:
                topic.partitions[:] = [
                    TopicResult.Partition(
                        partition_index=result.partition_index, error_code=CoordinatorNotAvailable.code
                    )
                    if result.error_code == CoordinatorLoadInProgress.code
                    else result
                    for result in topic.partitions
                ]
        return response

    def _partitions(self) -> list[tuple[str, TxnOffsetCommitRequest.Topic.Partition]]:
        return [(topic.name, partition) for topic in self._request.topics for partition in topic.partitions]

    def _exists(self, name: str, index: int) -> bool:
        topic = self._broker.metadata.topics.by_name(name)
        return topic is not None and index in topic.partitions
