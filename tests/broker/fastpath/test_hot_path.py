"""Shortcuts of the hot path, which change no response."""

import gc
from pathlib import Path
from struct import Struct

import pytest
import trio
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.handlers.produce import FIRST_VERSION_WITH_TEMPLATES, _new_template
from trioka.broker.network.channel import SMALL_RANGE_BYTES
from trioka.broker.network.connection import Call
from trioka.cluster.replication.purgatory import SWEEP_AT_LEAST
from trioka.protocol import batch
from trioka.protocol.frame import ResponseTemplate, frame_response
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.heartbeat import HeartbeatResponse
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
LARGE = SMALL_RANGE_BYTES + 10_000


def produce(size: int) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, bytes(size))]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetch(offset: int) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=topics)


@pytest.mark.parametrize("version", range(FIRST_VERSION_WITH_TEMPLATES, 14))
def test_the_answer_from_a_template_is_the_answer(version: int) -> None:
    name, topic_id = ("", bytes(range(16))) if version >= 13 else ("orders", NULL_UUID)
    result = ProduceResponse.Topic.Partition(
        index=3, error_code=0, base_offset=1 << 40, log_append_time_ms=-1, log_start_offset=17
    )
    topic = ProduceResponse.Topic(name=name, topic_id=topic_id, partition_responses=[result])
    (whole,) = frame_response(99, ProduceResponse(responses=[topic]), version)
    template = _new_template(name, topic_id, version)
    assert template.fill(1, 0, 0, 0, 0, 0) != whole
    assert template.fill(99, 3, 0, 1 << 40, -1, 17) == whole


def test_a_template_must_know_where_its_numbers_stand() -> None:
    response = HeartbeatResponse(throttle_time_ms=0, error_code=0)
    with pytest.raises(AssertionError):
        ResponseTemplate(response, 0, Struct(">h"), 0)  # a zero stands in many places


@on_trio
async def test_records_arrive_as_they_lie_in_the_log_whichever_way_they_are_sent(tmp_path: Path) -> None:
    """Small ones are read, large ones go from a map, and large ones that are newer than the map by sendfile."""
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        log = broker.partitions.get("t", 0).log
        for size in (10, LARGE, 2 * LARGE, 4 * LARGE, LARGE):
            offset, position = log.log_end_offset, log.segments.active.size
            await client.ask(produce(size), 9)
            for start, at in ((offset, position), (0, 0)):
                answer = (await client.ask(fetch(start), 11)).responses[0].partitions[0]
                stored = log.segments.active.range(at, log.segments.active.size - at).read()
                assert bytes(answer.records) == stored


@on_trio
async def test_nothing_of_a_request_that_waited_is_left_for_the_garbage_collector(tmp_path: Path) -> None:
    """It would stop everybody, now and then, to find it."""
    gc.collect()
    gc.disable()
    try:
        async with (
            running_broker(tmp_path) as broker,
            ClientConnection(broker) as reader,
            ClientConnection(broker) as writer,
        ):
            await broker.create_missing_topics({"t": 1})
            for offset in range(2 * SWEEP_AT_LEAST):  # those that are done are thrown out together
                await reader.say(fetch(offset), 11)
                while not len(broker.purgatory):
                    await trio.sleep(0.001)
                await writer.ask(produce(10), 9)
                await reader.hear(fetch(offset), 11)
            assert len([each for each in gc.get_objects() if type(each) is Call]) <= SWEEP_AT_LEAST
    finally:
        gc.enable()


@on_trio
async def test_another_client_name_or_version_on_the_same_connection_is_noticed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        for version in (9, 9, 8, 12, 3, 9):
            answer = await client.ask(produce(10), version)
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert (await client.ask(HELLO, 3)).error_code == 0
        (connection,) = (channel.connection for channel in broker.network._channels.values())
        assert connection.client_id == "test"


@on_trio
async def test_other_tasks_have_their_turn_while_there_is_traffic_all_the_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_missing_topics({"t": 1})
        turns = 0

        async def ask_on() -> None:
            async with ClientConnection(broker) as client:
                while True:
                    await client.ask(produce(10), 9)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask_on)
            while turns < 20:
                await trio.sleep(0.001)
                turns += 1
            nursery.cancel_scope.cancel()
