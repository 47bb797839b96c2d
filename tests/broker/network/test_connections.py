"""Connections: requests are served in order, a waiting one delays no other connection; garbage ends its own."""

import re
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import assert_noticed
from support.serving import (
    LISTENER,
    ClientConnection,
    ask,
    new_broker,
    on_trio,
    read_answer,
    request_frame,
    running_broker,
)

from trioka.broker.broker import Broker
from trioka.broker.handlers import api_versions as api_versions_file
from trioka.broker.handlers import metadata as metadata_file
from trioka.broker.network import dispatch
from trioka.broker.network.connection import MAX_OUTGOING_BYTES
from trioka.broker.network.server import STALLED_BYTES_PER_S, STALLED_S
from trioka.protocol import batch
from trioka.protocol.errors import UnsupportedVersion
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def produce(value: bytes, *, topic: str = "t", acks: int = 1) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, value)]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=[partition])]
    )


def fetch(offset: int = 0, *, max_wait_ms: int = 20_000, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


async def with_topic(broker: Broker, name: str = "t") -> None:
    await broker.create_missing_topics({name: 1})


async def raw(broker: Broker, data: bytes) -> bytes:
    """Everything that is answered to some bytes, until the broker hangs up."""
    async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as stream:
        await stream.send_all(data)
        heard = b""
        while more := await stream.receive_some():
            heard += more
        return heard


# -- order -------------------------------------------------------------------------------------------------------------


@on_trio
async def test_requests_that_come_together_are_answered_in_their_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await with_topic(broker)
        for number in range(50):
            await client.say(produce(b"%d" % number), 9)
        offsets = []
        for number in range(50):
            answer = await client.hear(produce(b"%d" % number), 9)
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == list(range(50))


@on_trio
async def test_a_request_that_waits_holds_up_those_behind_it_on_its_connection_only(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as waiting,
        ClientConnection(broker) as other,
    ):
        await with_topic(broker)
        await waiting.say(fetch(), 11)
        await waiting.say(HELLO, 3)
        assert (await other.ask(HELLO, 3)).error_code == 0  # served at once
        await other.ask(produce(b"now"), 9)
        records = (await waiting.hear(fetch(), 11)).responses[0].partitions[0].records
        assert [record.value for record in batch.records(records, batch.read_header(records))] == [b"now"]
        assert (await waiting.hear(HELLO, 3)).error_code == 0


@on_trio
async def test_a_topic_that_a_connection_creates_is_there_for_its_next_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        created = MetadataRequest(topics=[MetadataRequest.Topic(name="fresh")])
        await client.say(created, 9)
        await client.say(produce(b"first", topic="fresh"), 9)
        assert (await client.hear(created, 9)).topics[0].error_code == 0
        answer = await client.hear(produce(b"", topic="fresh"), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


# -- waiting -----------------------------------------------------------------------------------------------------------


@on_trio
async def test_a_fetch_is_answered_empty_when_its_time_is_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await with_topic(broker)
        answer = await ask(broker, fetch(max_wait_ms=10), 11)
        assert answer.responses[0].partitions[0].records == b""
        assert len(broker.purgatory) == 0


@on_trio
async def test_a_fetch_waits_until_there_are_min_bytes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await with_topic(broker)
        await client.say(fetch(min_bytes=400), 11)
        for _ in range(3):
            await ask(broker, produce(b"x" * 100), 9)
        answer = await client.hear(fetch(), 11)
        assert len(answer.responses[0].partitions[0].records) >= 400


@on_trio
async def test_no_client_waits_for_one_that_has_gone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await with_topic(broker)
        async with ClientConnection(broker) as client:
            await client.say(fetch(), 11)
            while len(broker.purgatory) == 0:
                await trio.sleep(0.001)
        while len(broker.purgatory) > 0 or len(broker.network) > 0:
            await trio.sleep(0.001)
        await ask(broker, produce(b"nobody reads this"), 9)


@on_trio
async def test_a_client_that_does_not_read_is_not_read_from_and_stalls_no_other(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await with_topic(broker)
        for _ in range(8):
            await ask(broker, produce(b"x" * 900_000), 9)
        while len(broker.network):
            await trio.sleep(0.001)  # it has noticed that all of these have gone
        async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as lazy:
            one = request_frame(fetch(max_bytes=8 << 20), 11)
            with trio.move_on_after(0.5):
                await lazy.send_all(one * 2000)  # twelve gigabytes of answers, if they were all made
            (connection,) = (channel.connection for channel in broker.network._channels.values())
            assert connection.outgoing_bytes < MAX_OUTGOING_BYTES + (9 << 20)
            assert (await ask(broker, HELLO, 3)).error_code == 0


# -- nonsense ----------------------------------------------------------------------------------------------------------


@on_trio
async def test_http_gets_an_explanation(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        answer = await raw(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"not HTTP" in body and b"Metrics" not in body


def http_gets_the_address_of_metrics(module: ModuleType) -> None:
    for elsewhere, text in (
        (("127.0.0.1", 10092), b"http://127.0.0.1:10092/metrics"),
        (("::1", 10092), b"http://[::1]:10092/metrics"),
        (("0.0.0.0", 10092), b"at port 10092"),
    ):
        head, _, body = module.wrong_port_response(elsewhere).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert text in body and b"not HTTP" in body


def test_http_gets_the_address_of_metrics() -> None:
    http_gets_the_address_of_metrics(dispatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            'f"HTTP/1.1 400 Bad Request\\r\\nContent-Type: text/plain\\r\\nContent-Length: {len(text)}\\r\\n"',
            'f"HTTP/1.1 400 Bad Request\\r\\nContent-Type: text/plain\\r\\nContent-Length: 76\\r\\n"',
        ),
        ("if http_address is not None:", "if False:"),
        ('f"http://[{host}]:{port}/metrics"', 'f"http://{host}:{port}/metrics"'),
    ],
)
def test_that_http_is_sent_elsewhere_would_be_noticed_if_it_were_wrong(right: str, wrong: str) -> None:
    assert_noticed(dispatch, right, wrong, http_gets_the_address_of_metrics)


@on_trio
async def test_tls_on_a_plain_listener_is_logged_by_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        assert await raw(broker, b"\x16\x03\x01\x02\x00\x01\x00\x01") == b""
        assert re.search(r"client 127\.0\.0\.1:\d+ sent TLS to the PLAINTEXT listener", caplog.text)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",  # a TLS hello
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # an unknown API
        struct.pack(">ihhih", 10, 3, 99, 1, -1),  # a version of the future
        struct.pack(">ihhih", 10, 0, 1, 1, -1),  # Produce v1, which is advertised and not served
        struct.pack(">ihhih", 10, 3, 9, 1, -1),  # a body that is missing
        struct.pack(">ihhih", 10, 3, 9, 1, 500),  # a client id that is longer than its frame
    ],
)
def test_nonsense_closes_its_connection_and_no_other(tmp_path: Path, nonsense: bytes) -> None:
    @on_trio
    async def check() -> None:
        async with running_broker(tmp_path) as broker, ClientConnection(broker) as other:
            assert await raw(broker, nonsense) == b""
            assert (await other.ask(HELLO, 3)).error_code == 0

    check()


@on_trio
async def test_api_versions_of_the_future_is_answered_in_version_0_with_its_own_range(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        async with await trio.open_tcp_stream(*broker.addresses[LISTENER]) as stream:
            frame = struct.pack(">hhih", 18, 57, 7, 2) + b"me" + b"\x00 a body of the future"
            await stream.send_all(len(frame).to_bytes(4) + frame)
            head = await stream.receive_some(4)
            body = b""
            while len(body) < int.from_bytes(head):
                body += await stream.receive_some()
        assert body[:4] == (7).to_bytes(4)
        assert struct.unpack(">h", body[4:6])[0] == UnsupportedVersion.code
        assert struct.unpack(">ihhh", body[6:16]) == (1, 18, 0, 4)


@on_trio
async def test_a_mistake_of_ours_is_answered_and_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[ApiVersionsResponse.ApiVersion]:
        raise ZeroDivisionError

    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as unlucky,
        ClientConnection(broker) as other,
    ):
        await with_topic(broker)
        with monkeypatch.context() as patch:
            patch.setattr(api_versions_file, "api_keys", broken)
            # `refuse` needs the keys too, so that even the refusal fails: then there is no answer at all.
            assert await unlucky.ask(HELLO, 3) is None
        assert (await other.ask(HELLO, 3)).error_code == 0


@on_trio
async def test_a_response_that_cannot_be_encoded_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unspeakable(*_: object) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[], cluster_id=7)  # type: ignore[arg-type]

    monkeypatch.setattr(metadata_file, "_create_and_respond", unspeakable)
    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as unlucky,
        ClientConnection(broker) as other,
    ):
        assert await unlucky.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="fresh")]), 9) is None
        assert (await other.ask(HELLO, 3)).error_code == 0


@on_trio
async def test_acks_0_has_no_answer_and_a_refusal_closes_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await with_topic(broker)
        async with ClientConnection(broker) as client:
            await client.say(produce(b"silent", acks=0), 9)
            assert (await client.ask(HELLO, 3)).error_code == 0  # this is the next thing that is heard
            await client.say(produce(b"refused", topic="nowhere", acks=0), 9)
            assert await client.hear(HELLO, 3) is None


@on_trio
async def test_a_byte_at_a_time_is_a_request_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        for byte in request_frame(HELLO, 3):
            await client._stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        assert (await client.hear(HELLO, 3)).error_code == 0


@on_trio
async def test_hundreds_of_connections_are_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        await with_topic(broker)
        answers = []

        async def one() -> None:
            async with ClientConnection(broker) as client:
                await client.ask(produce(b"x"), 9)
                answers.append(await client.ask(HELLO, 3))

        for _ in range(300):
            nursery.start_soon(one)
        while len(answers) < 300:
            await trio.sleep(0.01)
        assert (await ask(broker, fetch(299), 11)).responses[0].partitions[0].high_watermark == 300


# -- limits ------------------------------------------------------------------------------------------------------------


@on_trio
async def test_an_address_has_only_so_many_connections(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_connections_per_ip=2) as broker:
        async with ClientConnection(broker) as one, ClientConnection(broker) as two, ClientConnection(broker) as three:
            assert (await one.ask(HELLO, 3)).error_code == 0
            assert (await two.ask(HELLO, 3)).error_code == 0
            with pytest.raises((trio.BrokenResourceError, AssertionError)):
                assert await three.ask(HELLO, 3) is not None
        while len(broker.network):
            await trio.sleep(0.001)
        assert (await ask(broker, HELLO, 3)).error_code == 0


@on_trio
async def test_requests_that_come_slowly_share_what_memory_there_is_and_all_come_through(tmp_path: Path) -> None:
    """Eight clients send half of a large request each, more than the pool has room for, and then the other halves."""
    limits: dict[str, Any] = {"queued_max_request_bytes": 1_000_000, "socket_request_max_bytes": 900_000}
    async with running_broker(tmp_path, **limits) as broker, trio.open_nursery() as nursery:
        await with_topic(broker)
        request = produce(b"x" * 400_000)
        frame = request_frame(request, 9)
        answered = []

        async def slow() -> None:
            async with ClientConnection(broker) as client:
                await client._stream.send_all(frame[:200_000])
                await trio.sleep(0.05)
                await client._stream.send_all(frame[200_000:])
                answered.append((await client.hear(request, 9)).responses[0].partition_responses[0].base_offset)

        for _ in range(8):
            nursery.start_soon(slow)
        while len(answered) < 8:
            await trio.sleep(0.01)
        assert sorted(answered) == list(range(8))


@on_trio
async def test_a_request_that_dribbles_in_is_given_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await client._stream.send_all(request_frame(HELLO, 3)[:10])
        while not broker.network._channels:
            await trio.sleep(0.001)
        (channel,) = broker.network._channels.values()
        while not channel.connection.held_bytes:
            await trio.sleep(0.001)
        now = broker.clock.now()
        assert not channel.connection.is_stalled(now + 29, STALLED_S, STALLED_BYTES_PER_S)
        assert channel.connection.is_stalled(now + 31, STALLED_S, STALLED_BYTES_PER_S)


@on_trio
async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        ClientConnection(broker) as idle,
        ClientConnection(broker) as waiting,
    ):
        await with_topic(broker)
        await idle.ask(HELLO, 3)
        await waiting.say(fetch(), 11)
        while len(broker.purgatory) == 0:
            await trio.sleep(0.001)
        broker.network.close_idle(max_idle_s=-1.0, shrink_after_s=-1.0)
        assert len(broker.network) == 1
        assert await idle.hear(HELLO, 3) is None
        await ask(broker, produce(b"x"), 9)
        assert (await waiting.hear(fetch(), 11)).responses[0].partitions[0].records


@on_trio
async def test_a_broker_that_stops_finishes_what_it_serves(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        broker = new_broker(tmp_path)
        await nursery.start(broker.run)
        async with ClientConnection(broker) as client:
            created = MetadataRequest(topics=[MetadataRequest.Topic(name="last")])
            await client.say(created, 9)
            while not broker.dispatch.running:
                await trio.lowlevel.checkpoint()
            broker.stop()
            assert (await client.hear(created, 9)).topics[0].error_code == 0
            assert await client.hear(created, 9) is None
        await broker.stopped.wait()
        assert (tmp_path / ".kafka_cleanshutdown").exists()


@on_trio
async def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "advertised_listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://broker.example:29092",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
    }
    async with running_broker(tmp_path, **settings) as broker:
        requested = MetadataRequest(topics=[])
        inside = (await ask(broker, requested, 9)).brokers[0]
        assert (inside.host, inside.port) == broker.addresses[LISTENER]
        async with await trio.open_tcp_stream(*broker.addresses["EXTERNAL"]) as stream:
            await stream.send_all(request_frame(requested, 9))
            frame = await stream.receive_some()
        outside = read_answer(requested, 9, bytes(frame[4:])).brokers[0]
        assert (outside.host, outside.port) == ("broker.example", 29092)
