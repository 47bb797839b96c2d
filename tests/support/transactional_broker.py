"""A whole broker with loaded coordinators of transactions and groups, and a view of its transactions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import trio
from support.serving import ClientConnection, ask, running_broker
from support.transaction_requests import FIND_TRANSACTIONS, NAME, fetch, values_in

from trioka.broker.broker import Broker
from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_transactions import ListTransactionsRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

PARTITIONS = 3  # of the topic t
LIST = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
TOPIC = OffsetFetchRequest.Group.Topic(name="t", partition_indexes=[0])


@asynccontextmanager
async def transacting(
    directory: Path | str, *modules: ModuleType, **settings: object
) -> AsyncIterator[tuple[Broker, ClientConnection]]:
    """A broker with loaded coordinators; made of these modules, if they are given."""
    async with running_broker(directory, None, **settings) as broker:
        for module in modules:
            if hasattr(module, "new_transaction_runtime"):
                vars(broker)["transactions"] = module.new_transaction_runtime(broker)
            else:
                vars(broker)["verification"] = module.TxnVerifier(broker)
        await broker.create_missing_topics({"t": PARTITIONS, "u": 1})
        await ask(broker, FIND_TRANSACTIONS, 4)
        await ask(broker, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        while (await ask(broker, LIST, 0)).error_code or await place(broker, "g", stable=False) is None:
            await trio.sleep(0.005)
        async with ClientConnection(broker) as connection:
            yield broker, connection


async def seen(broker: Broker, topic: str = "t", index: int = 0, *, committed: bool = True) -> list[bytes]:
    return values_in(await ask(broker, fetch(topic, index, committed=committed), 12))


async def place(broker: Broker, group: str, *, stable: bool = True) -> int | None:
    """The committed offset of t-0, negative if it is unstable; None if it is unknown."""
    requested = OffsetFetchRequest(
        groups=[OffsetFetchRequest.Group(group_id=group, topics=[TOPIC])], require_stable=stable
    )
    (result,) = (await ask(broker, requested, 9)).groups
    if result.error_code:
        return None
    (partition,) = result.topics[0].partitions
    return -partition.error_code if partition.error_code else int(partition.committed_offset)


async def state(broker: Broker, name: str = NAME) -> str:
    (found,) = (await ask(broker, DescribeTransactionsRequest(transactional_ids=[name]), 0)).transaction_states
    return str(found.transaction_state)


async def open_here(broker: Broker) -> set[int]:
    """The producers with an open transaction in some partition of t."""
    requested = DescribeProducersRequest(
        topics=[DescribeProducersRequest.Topic(name="t", partition_indexes=list(range(PARTITIONS)))]
    )
    (topic,) = (await ask(broker, requested, 0)).topics
    return {p.producer_id for t in topic.partitions for p in t.active_producers if p.current_txn_start_offset >= 0}


async def known_as_open(broker: Broker) -> set[int]:
    requested = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
    return {found.producer_id for found in (await ask(broker, requested, 0)).transaction_states}


def produced(answer: object) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]
