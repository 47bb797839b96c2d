"""TxnOffsetCommit (28): a group's place in partitions is kept, if a transaction is committed.

The partition that keeps it takes part in the transaction: that was added before (AddOffsetsToTxn), or is now.

v2 leader epochs · v3 flexible; fenced by the group's generation (KIP-447) · v4 TRANSACTION_ABORTABLE · v5 the partition
is added here (KIP-890)
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Decision, Moment, Producer, Ticket
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
from ..coordinators.txn_verification import Generation, Guard, Outcome
from ..replication.partitions import Replica
from ..security.guard import GROUP, TRANSACTIONAL_ID, take_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

Told = TxnOffsetCommitResponse.Topic

NO_SEQUENCE: Final = -1
FIRST_VERSION_WITH_LOADING: Final = 2
FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_OF_SECOND: Final = 5


def refuse(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=[_refused(topic, error) for topic in request.topics])


def _refused(topic: TxnOffsetCommitRequest.Topic, error: KafkaError) -> Told:
    return Told(
        name=topic.name,
        partitions=[
            Told.Partition(partition_index=asked.partition_index, error_code=error.code) for asked in topic.partitions
        ],
    )


@handles(TxnOffsetCommitRequest, refuse=refuse)
def txn_offset_commit(
    broker: "Broker", call: "Call", request: TxnOffsetCommitRequest
) -> "Response | Later | Coroutine[Any, Any, Response]":
    broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    denied = take_denied(broker, call, Operation.READ, request.topics, lambda topic: topic.name)
    told = [_refused(topic, TopicAuthorizationFailed()) for topic in denied]
    if denied and not request.topics:
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=told)
    return _Commit(broker, call, request, told).serve()


class _Commit:
    def __init__(self, broker: "Broker", call: "Call", request: TxnOffsetCommitRequest, denied: list[Told]) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._denied = denied  # what is said of topics that are left out
        self._client = client_of(call)
        self._producer = Producer(request.producer_id, request.producer_epoch)
        self._generation = Generation.of(
            call.version, abortable=FIRST_VERSION_WITH_ABORTABLE, second=FIRST_VERSION_OF_SECOND
        )
        self._is_wanted = broker.verification.is_wanted(self._generation)
        self._replica: Replica | None = None
        self._guard: Guard | None = None

    def serve(self) -> "Response | Later | Coroutine[Any, Any, Response]":
        if self._is_wanted and any(self._exists(topic, a.partition_index) for topic, a in self._asked()):
            try:
                self._start()
            except KafkaError as error:
                return self._said(self._refuse(self._request, error))
            if self._guard is not None:
                return self._verify_and_commit(self._guard)
        groups = self._broker.groups
        return groups.ask(self._call, self._request, self._refuse, self._request.group_id, self._decide, self._said)

    def _start(self) -> None:
        if not self._request.group_id:
            raise InvalidGroupId()
        index = self._broker.groups.partition_of(self._request.group_id)
        self._replica = self._broker.partitions.find(OFFSETS_TOPIC, index)
        if self._replica is None:
            raise NotCoordinator() if self._exists(OFFSETS_TOPIC, index) else CoordinatorNotAvailable()
        verification = self._broker.verification
        self._guard = verification.start(self._replica, self._producer, NO_SEQUENCE, self._generation)

    async def _verify_and_commit(self, guard: Guard) -> Response:
        assert self._replica is not None
        partition = (self._replica.topic, self._replica.index)
        outcomes: list[Outcome] = []
        is_there = trio.Event()

        def then(outcome: Outcome) -> None:
            outcomes.append(outcome)
            is_there.set()

        name = self._request.transactional_id
        self._broker.verification.ask(name, self._producer, [partition], self._generation, then)
        await is_there.wait()
        error = outcomes[0][partition]
        try:
            if error is not None:
                raise error
            return self._said(await self._broker.groups.answer(self._request.group_id, self._decide))
        except KafkaError as problem:
            return self._said(self._refuse(self._request, problem))

    def _decide(self, groups: GroupCoordinator, ticket: Ticket, now: Moment) -> Decision:
        if self._replica is not None:
            self._broker.verification.check(self._replica, self._producer, NO_SEQUENCE, self._guard)
        return groups.commit_offsets_in_transaction(ticket, self._request, self._client, now)

    # -- what is said --------------------------------------------------------------------------------------------------

    def _refuse(self, request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
        """Of what does not exist, that is said first."""
        if isinstance(error, NotLeaderOrFollower):
            error = NotCoordinator()
        topics: dict[str, list[Told.Partition]] = {}
        for name, asked in self._asked():
            index = asked.partition_index
            code = error.code if self._exists(name, index) else UnknownTopicOrPartition.code
            topics.setdefault(name, []).append(Told.Partition(partition_index=index, error_code=code))
        return TxnOffsetCommitResponse(
            throttle_time_ms=0, topics=[Told(name=name, partitions=told) for name, told in topics.items()]
        )

    def _said(self, response: Response) -> Response:
        """The first clients do not expect that a coordinator loads."""
        assert isinstance(response, TxnOffsetCommitResponse)
        response.topics.extend(self._denied)
        if self._call.version < FIRST_VERSION_WITH_LOADING:
            for topic in response.topics:
                topic.partitions[:] = [
                    Told.Partition(partition_index=told.partition_index, error_code=CoordinatorNotAvailable.code)
                    if told.error_code == CoordinatorLoadInProgress.code
                    else told
                    for told in topic.partitions
                ]
        return response

    def _asked(self) -> list[tuple[str, TxnOffsetCommitRequest.Topic.Partition]]:
        return [(topic.name, asked) for topic in self._request.topics for asked in topic.partitions]

    def _exists(self, name: str, index: int) -> bool:
        topic = self._broker.metadata.topics.by_name(name)
        return topic is not None and index in topic.partitions
