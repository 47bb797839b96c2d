"""A client of a whole cluster inside a test: each request goes to the responsible node, and is repeated while the
answer is a retriable error, or names another node.

    routed = Routed(cluster)
    writer = Writer(routed.ask)           # of transaction_requests.py
"""

from collections.abc import Iterator
from typing import Any

import trio
from support.broker_cluster import PATIENCE_S, Cluster
from support.retriable_errors import PASSES
from support.serving import ask
from support.transaction_requests import NAME, fetch, values_in

from trioka.broker.broker import Broker
from trioka.protocol import errors
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from trioka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.end_txn import EndTxnRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from trioka.protocol.schema import Request, Struct

GROUP, TRANSACTION = 0, 1
PAUSE_S = 0.02
ONE_ANSWER_S = 10.0


class Routed:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(self, request: Request, version: int) -> Any:
        with trio.fail_after(PATIENCE_S):
            while True:
                node = await self._node_for(request)
                if node is not None:
                    answer = await self._of(node, request, version)
                    if answer is not None and not PASSES.intersection(codes_in(answer)):
                        return answer
                await trio.sleep(PAUSE_S)

    async def _of(self, node: int, request: Request, version: int) -> Any:
        try:
            with trio.move_on_after(ONE_ANSWER_S):
                return await ask(self._cluster[node], request, version)
        except (OSError, trio.BrokenResourceError, KeyError):
            pass  # the connection has just closed
        return None

    async def _node_for(self, request: Request) -> int | None:
        if isinstance(request, ProduceRequest):
            return self.leader(request.topic_data[0].name, request.topic_data[0].partition_data[0].index)
        if isinstance(request, FetchRequest):
            return self.leader(request.topics[0].topic, request.topics[0].partitions[0].partition)
        key = _coordinated(request)
        return self._any_broker if key is None else await self.coordinator(*key)

    @property
    def there(self) -> dict[int, Broker]:
        """The serving nodes; a node that starts does not serve yet."""
        return {node: broker for node, broker in self._cluster.brokers.items() if broker.membership.has_joined}

    @property
    def _any_broker(self) -> int | None:
        return min(self.there, default=None)

    def leader(self, topic: str, index: int) -> int | None:
        """The leader, as all running nodes know it."""
        known = set()
        there = self.there
        for broker in there.values():
            found = broker.metadata.topics.by_name(topic)
            if found is None or index not in found.partitions:
                return None
            known.add(found.partitions[index].leader)
        return known.pop() if len(known) == 1 and known <= set(there) else None

    async def coordinator(self, key_type: int, key: str) -> int | None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        requested = self._any_broker
        answer = None if requested is None else await self._of(requested, request, 4)
        if answer is None or answer.coordinators[0].error_code:
            return None
        node = int(answer.coordinators[0].node_id)
        return node if node in self.there else None


def _coordinated(request: Request) -> tuple[int, str] | None:
    match request:
        case InitProducerIdRequest() | EndTxnRequest() | AddOffsetsToTxnRequest():
            return None if request.transactional_id is None else (TRANSACTION, request.transactional_id)
        case AddPartitionsToTxnRequest():
            return TRANSACTION, request.v3_and_below_transactional_id
        case DescribeTransactionsRequest():
            return TRANSACTION, request.transactional_ids[0]
        case TxnOffsetCommitRequest() | OffsetCommitRequest():
            return GROUP, request.group_id
        case OffsetFetchRequest():
            return GROUP, request.groups[0].group_id
        case _:
            return None


def codes_in(answer: Struct) -> Iterator[int]:
    """All error codes in a response, at any depth."""
    for declared in type(answer).__fields__:
        value = getattr(answer, declared.name)
        if declared.name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from codes_in(each)


# -- what can be seen of groups and transactions ----------------------------------------------------------------------


async def with_topic(cluster: Cluster) -> Routed:
    """A topic t, with node n as the leader of partition n - 1."""
    await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.brokers.values()))
    wanted = CreateTopicsRequest.Topic
    orders = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    topic = wanted(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[wanted.Assignment(partition_index=i, broker_ids=each) for i, each in enumerate(orders)],
        configs=[],
    )
    (result,) = (await ask(cluster[1], CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)).topics
    assert result.error_code == errors.NONE, result
    return Routed(cluster)


async def seen(routed: Routed, index: int, *, committed: bool = True) -> list[bytes]:
    return values_in(await routed.ask(fetch("t", index, committed=committed), 12))


async def place(routed: Routed, group: str) -> int:
    wanted = OffsetFetchRequest.Group
    requested = wanted(group_id=group, topics=[wanted.Topic(name="t", partition_indexes=[0])])
    (result,) = (await routed.ask(OffsetFetchRequest(groups=[requested], require_stable=True), 9)).groups
    return int(result.topics[0].partitions[0].committed_offset)


async def state(routed: Routed) -> str:
    answer = await routed.ask(DescribeTransactionsRequest(transactional_ids=[NAME]), 0)
    return str(answer.transaction_states[0].transaction_state)


async def until_state(routed: Routed, wanted: str, patience_s: float = 60.0) -> None:
    with trio.fail_after(patience_s):
        while await state(routed) != wanted:
            await trio.sleep(0.02)
