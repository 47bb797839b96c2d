"""What brokers say to each other about transactions, and how much of it at once."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.broker.coordinators import txn_rpc as transaction_peers
from trioka.coordinator.decision import Producer
from trioka.protocol.errors import KafkaError, NetworkException, NotCoordinator, NotLeaderOrFollower
from trioka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    PartitionResult,
    TopicResult,
)
from trioka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from trioka.protocol.schema import Request

Items = list[transaction_peers.MarkerItem]


@pytest.fixture
def module() -> ModuleType:
    return transaction_peers


def marker(module: ModuleType, producer_id: int, epoch: int, index: int = 0) -> transaction_peers.MarkerItem:
    order = module.Marker(Producer(producer_id, epoch), True, 1, 2)
    item: transaction_peers.MarkerItem = module.MarkerItem(("t", index), order, lambda error: None)
    return item


def test_one_matter_of_each_producer_goes_with_a_request(module: ModuleType) -> None:
    first, same, later, other = (marker(module, *each) for each in ((1, 0), (1, 0, 1), (1, 1), (2, 0)))
    batch, left = module.take([first, same, later, other])
    assert (batch, left) == ([first, same, other], [later])
    assert module.take(left) == ([later], [])


def test_nothing_overtakes_what_waits(module: ModuleType) -> None:
    first, later, again = (marker(module, *each) for each in ((1, 0), (1, 1), (1, 0, 1)))
    assert module.take([first, later, again]) == ([first], [later, again])


def test_a_request_has_a_limit(module: ModuleType) -> None:
    items = [marker(module, number, 0) for number in range(5)]
    batch, left = module.take(items, 3)
    assert (batch, left) == (items[:3], items[3:])


async def answered(request: Request) -> object:
    """As the handlers answer: t-0 is done, t-1 has moved, and of t-2 there is no word."""
    codes = {0: 0, 1: NotLeaderOrFollower.code}
    if isinstance(request, WriteTxnMarkersRequest):
        result = WriteTxnMarkersResponse.Marker
        partitions = [result.Topic.Partition(partition_index=i, error_code=code) for i, code in codes.items()]
        return WriteTxnMarkersResponse(
            markers=[result(producer_id=1, topics=[result.Topic(name="t", partitions=partitions)])]
        )
    assert isinstance(request, AddPartitionsToTxnRequest)
    results = [PartitionResult(partition_index=i, partition_error_code=code) for i, code in codes.items()]
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResponse.Transaction(
                transactional_id="x", topic_results=[TopicResult(name="t", results_by_partition=results)]
            )
        ],
    )


def run(coroutine: object) -> None:
    """To its end: nothing in it waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)  # type: ignore[attr-defined]


def kinds(errors: dict[int, KafkaError | None]) -> dict[int, object]:
    return {index: None if error is None else type(error) for index, error in errors.items()}


EXPECTED = {0: None, 1: NotLeaderOrFollower, 2: NetworkException}


def test_each_gets_its_own_response_and_silence_is_none(module: ModuleType) -> None:
    found: dict[int, KafkaError | None] = {}
    order = module.Marker(Producer(1, 0), True, 1, 2)
    items = [module.MarkerItem(("t", i), order, lambda error, i=i: found.update({i: error})) for i in range(3)]
    run(module.write_markers(answered, items))
    assert kinds(found) == EXPECTED

    found.clear()
    names = tuple(("t", i) for i in range(3))
    requested = module.PartitionsItem(
        "x", Producer(1, 0), names, True, lambda errors: found.update({p[1]: e for p, e in errors.items()})
    )
    run(module.send_partitions(answered, [requested]))
    assert kinds(found) == EXPECTED


def test_an_answer_that_is_a_refusal_is_one_for_all() -> None:
    async def refused(request: Request) -> object:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=NotCoordinator.code)

    item = transaction_peers.PartitionsItem("x", Producer(1, 0), (("t", 0),), True, lambda errors: None)
    with pytest.raises(NotCoordinator):
        transaction_peers.send_partitions(refused, [item]).send(None)


MISTAKES = [
    (
        "matters.setdefault(item.key, item.matter) == item.matter",
        "matters.setdefault(item.key, item.matter) is not None",
        test_one_matter_of_each_producer_goes_with_a_request,
    ),
    ("matters[item.key] = None", "pass", test_nothing_overtakes_what_waits),
    ("len(batch) < limit and", "", test_a_request_has_a_limit),
    (
        'return NetworkException(f"the response has no {partition[0]}-{partition[1]}")',
        "return None",
        test_each_gets_its_own_response_and_silence_is_none,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(transaction_peers, right, wrong, rule)
