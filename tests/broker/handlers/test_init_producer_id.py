"""InitProducerId and DescribeProducers: unique ids, and the producers that write with them."""

from pathlib import Path

import trio
from support.serving import ClientConnection, ask, on_trio, running_broker

from trioka.cluster.producer_ids import BLOCK_SIZE
from trioka.protocol.batch import build
from trioka.protocol.errors import (
    InvalidRequest,
    InvalidTopic,
    InvalidTransactionTimeout,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.describe_producers import DescribeProducersRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.schema import Request

IDEMPOTENT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


@on_trio
async def test_every_producer_gets_an_id_of_its_own(tmp_path: Path) -> None:
    """Also those who ask at the same time, beyond the end of a block, and after a new start."""
    ids: list[int] = []

    async with running_broker(tmp_path) as broker:

        async def take(times: int) -> None:
            async with ClientConnection(broker) as connection:
                for _ in range(times):
                    response = await connection.ask(IDEMPOTENT, 5)
                    assert (response.error_code, response.producer_epoch) == (0, 0)
                    ids.append(response.producer_id)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(take, BLOCK_SIZE // 4 + 10)
        assert max(ids) >= BLOCK_SIZE
    async with running_broker(tmp_path) as broker:
        await take(3)
    assert len(ids) == len(set(ids)) == BLOCK_SIZE + 43


@on_trio
async def test_a_transactional_id_has_no_coordinator_before_the_first_lookup(tmp_path: Path) -> None:
    def request(transactional_id: str | None, timeout_ms: int = 1000, had: int = -1, epoch: int = -1) -> Request:
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=had,
            producer_epoch=epoch,
        )

    async with running_broker(tmp_path) as broker:
        for requested, error in (
            (request("t"), NotCoordinator),
            (request(""), InvalidRequest),
            (request("t", 0), InvalidTransactionTimeout),
            (request("t", 10**9), InvalidTransactionTimeout),
            (request(None, had=5), InvalidRequest),
            (request(None, epoch=5), InvalidRequest),
        ):
            response = await ask(broker, requested, 5)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (error.code, -1, -1)


@on_trio
async def test_producers_are_described(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"orders": 1})
        producer_id = (await ask(broker, IDEMPOTENT, 5)).producer_id
        records = build(
            [Record(0, 1000, None, b"a"), Record(1, 1001, None, b"b")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        partition = ProduceRequest.Topic.Partition(index=0, records=bytes(records))
        produced = ProduceRequest.Topic(name="orders", partition_data=[partition])
        await ask(broker, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[produced]), 9)
        requested = [
            DescribeProducersRequest.Topic(name=name, partition_indexes=[0, 1]) for name in ("orders", "nobody", "a b")
        ]
        response = await ask(broker, DescribeProducersRequest(topics=requested), 0)
    codes = [[partition.error_code for partition in topic.partitions] for topic in response.topics]
    unknown, invalid = UnknownTopicOrPartition.code, InvalidTopic.code
    assert codes == [[0, unknown], [unknown, unknown], [invalid, invalid]]
    (producer,) = response.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 0, 1)
    assert (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset) == (1001, -1, -1)
