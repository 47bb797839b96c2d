"""The load generator sends what it says, and believes nothing: a broker that fails, or loses records, has no figures.

Its requests are read by our own codecs. Its judgement is tried on a small broker of a few lines that acknowledges
everything and keeps nothing but a count, honest or not.
"""

import importlib
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trioka.protocol.batch import check_crc, read_header, records
from trioka.protocol.codec import decode
from trioka.protocol.frame import frame_response
from trioka.protocol.header import REQUEST_START, client_id_and_body
from trioka.protocol.messages.api_versions import ApiVersionsResponse
from trioka.protocol.messages.create_topics import CreateTopicsResponse
from trioka.protocol.messages.delete_topics import DeleteTopicsResponse
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsResponse
from trioka.protocol.messages.metadata import MetadataResponse
from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse
from trioka.protocol.schema import Request, Response

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
load_generator: Any = importlib.import_module("load_generator")

TOPIC = "greetings"
SUPPORTED_APIS = {0: 11, 1: 16, 2: 5, 3: 12, 18: 0, 19: 4, 20: 3}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    try:
        load_generator.program()
    except load_generator.Unavailable as missing:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"CI needs the load generator. {missing}")
        pytest.skip(f"THE LOAD GENERATOR IS NOT CHECKED: {missing}")


def shown(cls: type[Request], name: str, version: int, **options: object) -> Any:
    """A prepared request, decoded."""
    whole = bytes.fromhex(load_generator.run_load("show", {"topic": TOPIC, **options})[name])
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    frame = memoryview(whole)[4:]
    key, sent_version, _ = REQUEST_START.unpack_from(frame)
    assert (key, sent_version) == (cls.__key__, version)
    _, body = client_id_and_body(frame, True)
    return decode(cls, version, frame[body:])


def prepared_batch(**options: object) -> bytes:
    request = shown(ProduceRequest, "produce", 11, **options)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (request.acks, topic.name, partition.index) == (1, TOPIC, 0)
    return bytes(partition.records)


@pytest.mark.parametrize("record", [100, 1024])
@pytest.mark.parametrize("size", [1, 16 << 10, 64 << 10, 1 << 20])
def test_a_prepared_batch_is_full_and_valid(record: int, size: int) -> None:
    batch = prepared_batch(record=record, batch=size)
    header = read_header(batch)
    assert check_crc(batch, header) and header.size == len(batch)
    values = [len(one.value or b"") for one in records(batch, header)]
    assert values == [record] * header.record_count
    if size > 1:
        assert size - record - 20 < len(batch) <= size  # another record would not have fitted
    else:
        assert header.record_count == 1


def test_an_idempotent_batch_has_its_sequence_and_its_own_crc() -> None:
    batch = prepared_batch(record=100, batch=16384, idempotent=True)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 42)
    assert check_crc(batch, header)
    assert header.crc != read_header(prepared_batch(record=100, batch=16384)).crc


def test_a_transaction_has_as_many_records_as_it_should() -> None:
    request = shown(ProduceRequest, "transact", 12, record=100, count=100)
    ((partition,),) = (topic.partition_data for topic in request.topic_data)
    header = read_header(partition.records)
    assert (request.transactional_id, request.acks) == ("id", -1)
    assert check_crc(partition.records, header) and header.is_transactional
    assert [len(one.value or b"") for one in records(partition.records, header)] == [100] * 100


def test_a_fetch_asks_for_one_partition_without_a_session() -> None:
    request = shown(FetchRequest, "fetch", 16, size=65536)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.max_bytes, partition.partition_max_bytes) == (65536, 65536)
    assert (request.session_id, request.session_epoch, partition.fetch_offset) == (0, -1, 1234)


def test_a_spread_produce_has_a_batch_for_every_partition() -> None:
    request = shown(ProduceRequest, "spread", 11, record=100, batch=1)
    (topic,) = request.topic_data
    assert [partition.index for partition in topic.partition_data] == [0, 1, 2]
    for partition in topic.partition_data:
        header = read_header(partition.records)
        assert check_crc(partition.records, header) and header.record_count == 1


def test_a_session_asks_only_for_what_has_changed() -> None:
    request = shown(FetchRequest, "session", 16, size=65536)
    ((partition,),) = (topic.partitions for topic in request.topics)
    assert (request.session_id, request.session_epoch, request.max_bytes) == (11, 12, 65536)
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 9, 8192)


# Its judgement.


class Broker(socketserver.ThreadingTCPServer):
    """Acknowledges everything. What it `loses` it does not count, `error_code` is its answer to each Produce, and
    `forgets` is how many partitions of a request have no answer.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        *,
        loses: int = 0,
        error_code: int = 0,
        served: dict[int, int] = SUPPORTED_APIS,
        partitions: int = 1,
        forgets: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.partitions = partitions
        self.forgets = forgets
        self.indexes: set[int] = set()
        self.end = -loses
        self.error_code = error_code
        self.served = served
        self.deleted = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A generator that has heard enough hangs up, and what it has not read is of no interest."""

    def answer(self, key: int, frame: memoryview) -> Response:
        if key == 18:
            api = ApiVersionsResponse.ApiVersion
            keys = [api(api_key=key, min_version=0, max_version=version) for key, version in self.served.items()]
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        if key == 19:
            topic = CreateTopicsResponse.Topic(name=TOPIC, error_code=0, error_message=None)
            return CreateTopicsResponse(throttle_time_ms=0, topics=[topic])
        if key == 20:
            self.deleted += 1
            gone = DeleteTopicsResponse.Topic(name=TOPIC, error_code=0)
            return DeleteTopicsResponse(throttle_time_ms=0, responses=[gone])
        if key == 3:
            partition = MetadataResponse.Topic.Partition
            partitions = [
                partition(error_code=0, partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                for n in range(self.partitions)
            ]
            known = MetadataResponse.Topic(error_code=0, name=TOPIC, partitions=partitions)
            return MetadataResponse(brokers=[], topics=[known])
        if key == 2:
            place = ListOffsetsResponse.Topic.Partition(partition_index=0, error_code=0, offset=max(0, self.end))
            return ListOffsetsResponse(topics=[ListOffsetsResponse.Topic(name=TOPIC, partitions=[place])])
        return self.append(frame)

    def append(self, frame: memoryview) -> ProduceResponse:
        _, body = client_id_and_body(frame, True)
        request = decode(ProduceRequest, 11, frame[body:])
        result = []
        for requested in request.topic_data[0].partition_data:
            assert isinstance(requested.records, memoryview)
            self.end += read_header(requested.records).record_count
            self.indexes.add(requested.index)
            result.append(
                ProduceResponse.Topic.Partition(index=requested.index, error_code=self.error_code, base_offset=0)
            )
        del result[: self.forgets]
        return ProduceResponse(responses=[ProduceResponse.Topic(name=TOPIC, partition_responses=result)])


class Conversation(socketserver.StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = memoryview(self.rfile.read(int.from_bytes(size, "big")))
            key, version, correlation_id = REQUEST_START.unpack_from(frame)
            pieces = frame_response(correlation_id, self.server.answer(key, frame), version)
            self.wfile.write(b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview)))


@contextmanager
def running(broker: Broker) -> Iterator[dict[str, object]]:
    """The options with which the generator loads that broker for a moment."""
    thread = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        host, port = broker.server_address[:2]
        yield {"address": f"{host!s}:{port}", "topic": TOPIC, "seconds": 0.05, "warmup": 0.01, "record": 100}
    finally:
        broker.shutdown()
        thread.join()
        broker.server_close()


def test_an_honest_broker_has_figures_and_its_topic_is_deleted() -> None:
    broker = Broker()
    with running(broker) as options:
        outcome = load_generator.run_load("produce", options)
    assert 0 < outcome["records"] <= broker.end
    assert outcome["records"] * 100 < outcome["bytes"]
    assert broker.deleted == 1


def test_latency_counts_every_request() -> None:
    broker = Broker()
    with running(broker) as options:
        outcome = load_generator.run_load("latency", {**options, "rate": 1000})
    assert outcome["samples"] == 50 and broker.end == 60
    quantiles = outcome["micros"]
    assert 0 < quantiles["p50"] <= quantiles["p99"] <= quantiles["p99.9"] <= quantiles["max"]


@pytest.mark.parametrize(
    ("late", "taken", "counts"),
    [
        pytest.param([90], 1, 90, id="on time at once"),
        pytest.param([5000, 80, 20], 2, 80, id="the first that is on time"),
        pytest.param([5000, 3000, 9000, 7000, 80], 4, 3000, id="the least late, if none is"),
    ],
)
def test_a_latency_counts_from_a_try_in_which_the_generator_was_on_time(
    late: list[int], taken: int, counts: int
) -> None:
    """Whatever the broker's own figures are: the better ones here are those of the late tries."""
    tries = [{"lateness_micros": {"p99.9": each}, "micros": {"p99": -each}} for each in late]
    left = iter(tries)
    assert load_generator.on_time(lambda: next(left))["lateness_micros"]["p99.9"] == counts
    assert len(tries) - len(list(left)) == taken


def test_replicated_writes_go_round_and_each_is_counted() -> None:
    broker = Broker()
    with running(broker) as options:
        requested = {**options, "leaders": options["address"], "connections": 3, "rate": 1000, "pid": os.getpid()}
        outcome = load_generator.run_load("replicate", requested)
    assert (outcome["samples"], outcome["records"], broker.end) == (50, 50, 60)
    assert 0 < outcome["micros"]["p50"] <= outcome["micros"]["p99"] <= outcome["micros"]["max"]


def test_replicated_writes_that_are_refused_have_no_figures() -> None:
    with (
        running(Broker(error_code=19)) as options,
        pytest.raises(load_generator.LoadFailed, match="Produce: error 19"),
    ):
        load_generator.run_load("replicate", {**options, "leaders": options["address"]})


def test_a_broker_that_loses_a_record_has_none() -> None:
    with (
        running(Broker(loses=1)) as options,
        pytest.raises(load_generator.LoadFailed, match=r"acknowledged, .* in the log"),
    ):
        load_generator.run_load("produce", options)


def test_a_stream_over_many_partitions_is_counted_by_all_of_them() -> None:
    broker = Broker(partitions=3)
    with running(broker) as options:
        outcome = load_generator.run_load("produce", {**options, "partitions": 3, "spread": True, "batch": 1})
    assert outcome["records"] == 3 * outcome["requests"] > 0 and broker.end >= outcome["records"]
    assert broker.indexes == {0, 1, 2}


def test_an_answer_for_fewer_partitions_is_none() -> None:
    with (
        running(Broker(partitions=3, forgets=1)) as options,
        pytest.raises(load_generator.LoadFailed, match="3 partitions was answered for 2"),
    ):
        load_generator.run_load("produce", {**options, "partitions": 3, "spread": True, "batch": 1})


def test_requests_that_go_round_reach_every_partition_of_a_topic_that_stays() -> None:
    broker = Broker(partitions=3)
    with running(broker) as options:
        load_generator.run_load("produce", {**options, "partitions": 3, "rotate": True, "existing": True})
    assert broker.indexes == {0, 1, 2} and not broker.deleted


def test_an_error_code_is_not_an_acknowledgement() -> None:
    with running(Broker(error_code=6)) as options, pytest.raises(load_generator.LoadFailed, match="Produce: error 6"):
        load_generator.run_load("produce", options)


def test_what_is_not_served_is_named() -> None:
    without = {key: version for key, version in SUPPORTED_APIS.items() if key != 22}
    with (
        running(Broker(served=without)) as options,
        pytest.raises(load_generator.LoadFailed, match="not served: InitProducerId v1"),
    ):
        load_generator.run_load("produce", {**options, "idempotent": True})


def test_transactions_are_not_measured_where_there_are_none() -> None:
    with running(Broker()) as options, pytest.raises(load_generator.LoadFailed, match="not served: EndTxn v5"):
        load_generator.run_load("transact", options)


def test_no_server_at_the_address_is_one_sentence() -> None:
    with pytest.raises(load_generator.LoadFailed, match="connection refused"):
        load_generator.run_load("produce", {"address": "127.0.0.1:1"})
