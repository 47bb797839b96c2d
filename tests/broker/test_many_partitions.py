"""A Produce for many partitions of one topic: a refused partition does not affect the others."""

from pathlib import Path

import pytest
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.handlers.produce import FIRST_VERSION_WITH_IDS, FIRST_VERSION_WITH_TEMPLATES
from trioka.protocol import batch
from trioka.protocol.errors import CorruptMessage, UnknownTopicOrPartition
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.record import Record

PARTITIONS = 5
NOBODYS = 99  # a partition that is not there
VERSIONS = range(FIRST_VERSION_WITH_TEMPLATES, max(ProduceRequest.__versions__) + 1)
PartitionResponse = ProduceResponse.Topic.Partition


def records(value: bytes = b"value") -> bytearray:
    return batch.build([Record(0, 1_700_000_000_000, None, value)])


def damaged() -> bytearray:
    found = records()
    found[-1] ^= 1
    return found


def produce(*requested: tuple[int, bytearray], topic_id: bytes, version: int) -> ProduceRequest:
    partitions = [ProduceRequest.Topic.Partition(index=index, records=bytes(found)) for index, found in requested]
    name = "t" if version < FIRST_VERSION_WITH_IDS else ""
    topic = ProduceRequest.Topic(name=name, topic_id=topic_id if not name else bytes(16), partition_data=partitions)
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


@pytest.mark.parametrize("version", [VERSIONS[0], 8, 9, VERSIONS[-1]])
@on_trio
async def test_each_partition_has_its_own_answer(tmp_path: Path, version: int) -> None:
    """In the order of the request, whichever was refused, and the log has just what was not."""
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": PARTITIONS})
        topic_id = broker.partitions.get("t", 0).topic_id
        expected = [0] * PARTITIONS
        for wrong in (None, 0, 2, PARTITIONS):
            for found, code in ((records(), UnknownTopicOrPartition.code), (damaged(), CorruptMessage.code)):
                requested = [(index, records()) for index in range(PARTITIONS)]
                if wrong is not None:
                    requested.insert(wrong, (NOBODYS if code == UnknownTopicOrPartition.code else 1, found))
                request = produce(*requested, topic_id=topic_id, version=version)
                answer = await client.ask(request, version)
                result = answer.responses[0].partition_responses
                assert [one.index for one in result] == [index for index, _ in requested]
                for position, one in enumerate(result):
                    if position == wrong:
                        assert (one.error_code, one.base_offset) == (code, -1)
                    else:
                        assert (one.error_code, one.base_offset) == (0, expected[one.index])
                        expected[one.index] += 1
        ends = [broker.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)]
        assert ends == expected
        assert [broker.partitions.get("t", index).log.high_watermark for index in range(PARTITIONS)] == expected
