"""Frames come out whole, however the bytes came in; replies go out in order."""

from random import Random

import pytest

from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import ProtocolError
from trioka.protocol.frame import (
    KEPT_BYTES,
    MAX_REQUEST_BYTES,
    RECEIVE_BUFFER_BYTES,
    FrameReader,
    NotKafka,
    OrderedReplies,
    ReceiveBuffer,
    frame_response,
)
from trioka.protocol.header import (
    RequestHeader,
    ResponseHeader,
    client_id_and_body,
    request_header_version,
    response_header_version,
)
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def reader(max_bytes: int = MAX_REQUEST_BYTES) -> FrameReader:
    return FrameReader(ReceiveBuffer(), max_bytes)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(into: FrameReader, data: bytes) -> list[bytes]:
    """Gives the reader as much as it has room for, again and again, and takes what is complete."""
    frames = []
    while data:
        room = into.receive_buffer()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        into.received(size)
        frames += [bytes(f) for f in into.frames()]
        into.keep()
        data = data[size:]
    return frames


BODIES = [
    b"eight by",
    b"twelve bytes",
    bytes(1000),
    b"x" * (RECEIVE_BUFFER_BYTES - 4),
    bytes(range(256)) * 1200,
    b"the last",
]


def test_frames_come_out_as_they_went_in_whole() -> None:
    assert feed(reader(), b"".join(map(frame, BODIES))) == BODIES


def test_frames_come_out_as_they_went_in_byte_by_byte() -> None:
    drip = reader()
    small = [body for body in BODIES if len(body) < 2000] * 3
    assert [f for byte in b"".join(map(frame, small)) for f in feed(drip, bytes([byte]))] == small


def test_frames_come_out_as_they_went_in_on_connections_that_share_a_buffer() -> None:
    for seed in range(30):
        random = Random(seed)
        scratch = ReceiveBuffer()
        readers = [FrameReader(scratch) for _ in range(3)]
        sent = [[random.randbytes(random.choice((8, 20, 300, 40_000, 700_000))) for _ in range(12)] for _ in readers]
        left = [b"".join(map(frame, bodies)) for bodies in sent]
        seen: list[list[bytes]] = [[] for _ in readers]
        while any(left):
            which = random.randrange(3)
            size = random.choice((1, 3, 4, 100, 65_536, 150_000))
            seen[which] += feed(readers[which], left[which][:size])
            left[which] = left[which][size:]
        assert seen == sent, seed


def test_a_frame_stays_readable_until_more_is_received() -> None:
    inbox = reader()
    data = frame(b"first one") + frame(b"second one") + frame(b"half a frame")[:9]
    inbox.receive_buffer()[: len(data)] = data
    inbox.received(len(data))
    first, second = inbox.frames()
    assert (bytes(first), bytes(second)) == (b"first one", b"second one")
    assert first.obj is second.obj
    inbox.keep()
    assert inbox.waiting_bytes == 9


def test_a_connection_between_two_frames_holds_no_memory() -> None:
    inbox = reader()
    feed(inbox, frame(bytes(500)) + frame(bytes(500))[:100])
    assert 0 < inbox.held_bytes <= 4096
    feed(inbox, frame(bytes(500))[100:])
    assert inbox.held_bytes == 0


def test_a_connection_with_large_frames_keeps_its_buffer_until_it_is_quiet() -> None:
    inbox = reader()
    feed(inbox, frame(bytes(1_000_000)))
    held = inbox.held_bytes
    assert 1_000_000 < held <= 4_000_000
    feed(inbox, frame(bytes(1_000_000)) * 20)
    assert inbox.held_bytes == held
    inbox.shrink()
    assert inbox.held_bytes == 0


def test_shrinking_never_loses_what_waits() -> None:
    inbox = reader()
    feed(inbox, frame(b"not whole")[:8])
    inbox.shrink()
    assert feed(inbox, frame(b"not whole")[8:]) == [b"not whole"]


def test_little_of_the_next_frame_is_received_with_a_large_one() -> None:
    """What is received behind a frame has to be moved to the front: at most so much."""
    inbox = reader()
    feed(inbox, frame(bytes(1_000_000)))
    feed(inbox, (1_000_000).to_bytes(4, "big") + bytes(900_000))
    assert len(inbox.receive_buffer()) <= 100_000 + KEPT_BYTES


def test_an_announced_size_costs_nothing_until_the_bytes_come() -> None:
    inbox = reader()
    assert feed(inbox, (100 * 1024 * 1024).to_bytes(4, "big") + b"a few bytes") == []
    assert inbox.held_bytes <= 4096


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7])
def test_a_frame_too_small_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes, less than a request header has"):
        feed(reader(), size.to_bytes(4, "big", signed=True))


def test_a_frame_above_the_limit_is_refused_before_it_comes() -> None:
    with pytest.raises(ProtocolError, match="a frame of 1001 bytes, more than 1000"):
        feed(reader(max_bytes=1000), (1001).to_bytes(4, "big"))
    assert feed(reader(max_bytes=1000), frame(bytes(1000))) == [bytes(1000)]


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP/2"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"SSH-2.0-", "SSH"),
    ],
)
def test_another_protocol_is_recognised(said: bytes, spoken: str) -> None:
    with pytest.raises(NotKafka, match=f"the client sent {spoken}, not Kafka's protocol"):
        feed(reader(), said)


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", ["me", "", None, "käse"])
@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_request_is_a_header_and_a_body(version: int, client_id: str | None) -> None:
    header = RequestHeader(request_api_key=12, request_api_version=version, correlation_id=7, client_id=client_id)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    flexible = version in HeartbeatRequest.__flexible__
    whole = encode(header, request_header_version(HeartbeatRequest, version)) + encode(heartbeat, version)
    read, position = client_id_and_body(memoryview(whole), flexible)
    assert (None if read is None else str(read, "utf-8")) == client_id
    assert decode(HeartbeatRequest, version, whole[position:]) == heartbeat


def test_a_header_that_is_cut_off_or_lies_is_refused() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=4, correlation_id=7, client_id="me")
    whole = encode(header, 2)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError, match="request header"):
            client_id_and_body(memoryview(whole[:size]), True)
    for length in (b"\xff\xfe", b"\x80\x00", b"\x7f\xff"):
        with pytest.raises(ProtocolError, match="request header"):
            client_id_and_body(memoryview(whole[:8] + length + whole[10:]), True)


def test_tagged_fields_of_a_header_are_stepped_over() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=4, correlation_id=7, client_id="me")
    whole = encode(header, 2)[:-1] + b"\x01\x09\x02hi" + b"body"
    assert bytes(whole[client_id_and_body(memoryview(whole), True)[1] :]) == b"body"


def test_frames_that_were_not_taken_are_there_the_next_time() -> None:
    inbox = reader()
    data = b"".join(map(frame, [b"first one", b"second one", b"third one", b"half a one"]))[:-2]
    inbox.receive_buffer()[: len(data)] = data
    inbox.received(len(data))
    assert bytes(next(inbox.frames())) == b"first one"
    inbox.keep()
    inbox.receive_buffer()[:0] = b""
    assert [bytes(f) for f in inbox.frames()] == [b"second one", b"third one"]


def test_the_client_id_kept_its_form_in_flexible_headers() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=4, correlation_id=7, client_id="me")
    assert encode(header, 2) == b"\x00\x0c\x00\x04\x00\x00\x00\x07\x00\x02me\x00"


def test_api_versions_is_always_answered_with_a_header_of_version_0() -> None:
    assert request_header_version(ApiVersionsRequest, 4) == 2
    assert response_header_version(ApiVersionsResponse, 4) == 0
    assert response_header_version(HeartbeatResponse, 4) == 1
    assert response_header_version(HeartbeatResponse, 3) == 0


@pytest.mark.parametrize("version", [0, 4])
def test_a_framed_response_says_its_size_and_its_request(version: int) -> None:
    response = HeartbeatResponse(throttle_time_ms=0, error_code=27)
    (whole,) = frame_response(99, response, version)
    assert isinstance(whole, bytearray)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    header_version = response_header_version(HeartbeatResponse, version)
    header = encode(ResponseHeader(correlation_id=99), header_version)
    assert whole[4:] == header + encode(response, version)


def test_the_size_of_a_framed_response_counts_records_that_lie_elsewhere() -> None:
    class InAFile:
        def __len__(self) -> int:
            return 5000

    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=9, aborted_transactions=None, records=InAFile()
    )
    response = FetchResponse(throttle_time_ms=0, responses=[FetchResponse.Topic(topic="t", partitions=[partition])])
    head, records, tail = frame_response(1, response, 11)
    assert isinstance(head, bytearray)
    assert isinstance(records, InAFile)
    assert int.from_bytes(head[:4], "big") == len(head) - 4 + 5000 + len(tail)


# -- replies -----------------------------------------------------------------------------------------------------------


def test_a_quick_reply_waits_for_the_slow_one_before_it() -> None:
    replies: OrderedReplies[str] = OrderedReplies()
    slow, quick, quicker = (replies.expect() for _ in range(3))
    replies.ready(quicker, "third")
    replies.ready(quick, "second")
    assert replies.take() == []
    assert len(replies) == 3
    replies.ready(slow, "first")
    assert replies.take() == ["first", "second", "third"]
    assert len(replies) == 0


def test_a_request_without_a_reply_delays_no_other() -> None:
    replies: OrderedReplies[str] = OrderedReplies()
    silent, spoken = replies.expect(), replies.expect()
    replies.ready(spoken, "here")
    replies.ready(silent, None)
    assert replies.take() == ["here"]


def test_a_request_is_answered_once() -> None:
    replies: OrderedReplies[str] = OrderedReplies()
    ticket = replies.expect()
    replies.expect()
    replies.ready(ticket, "once")
    with pytest.raises(AssertionError):
        replies.ready(ticket, "twice")


def test_replies_keep_their_order_whatever_is_ready_first() -> None:
    for seed in range(50):
        random = Random(seed)
        replies: OrderedReplies[int] = OrderedReplies()
        waiting: list[int] = []
        left: list[int] = []
        for _ in range(200):
            if waiting and random.random() < 0.5:
                replies.ready(ticket := waiting.pop(random.randrange(len(waiting))), ticket)
            else:
                waiting.append(replies.expect())
            left += replies.take()
        for ticket in waiting:
            replies.ready(ticket, ticket)
        left += replies.take()
        assert left == list(range(len(left)))
