"""Measures the CPU cost of messages: decoding a Produce request and encoding a Fetch response.

    python bench/codec.py

It compares with kafka-python, whose codecs are compiled as trioka's are, and kio, whose codecs are written in C++. Each
round measures all of them in turn, so that other load affects all equally; the best round of each counts, in µs.
"""

import sys
import warnings
from collections.abc import Callable
from io import BytesIO
from timeit import timeit
from typing import Any

from trioka.protocol.codec import decoder, encode, encoder
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.messages.fetch import FetchResponse
from trioka.protocol.messages.produce import ProduceRequest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python loads its schemas with a deprecated function
    from kafka.protocol.consumer import FetchResponse as KafkaPythonFetchResponse
    from kafka.protocol.producer import ProduceRequest as KafkaPythonProduceRequest
from kio.schema.fetch.v12.response import FetchResponse as KioFetchResponse
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.serial import entity_reader, entity_writer

ROUNDS = 15
TOPICS = PARTITIONS = 10


def best(*works: Callable[[], object], number: int) -> list[float]:
    rounds = [[timeit(work, number=number) / number * 1e6 for work in works] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def produce_request(size: int) -> bytes:
    records = bytes(size)
    partition = ProduceRequest.Topic.Partition
    topics = [
        ProduceRequest.Topic(
            name=f"topic-{t}", partition_data=[partition(index=p, records=records) for p in range(PARTITIONS)]
        )
        for t in range(TOPICS)
    ]
    return encode(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)


def fetch_response(records: Any) -> FetchResponse:
    partition = FetchResponse.Topic.Partition
    topics = [
        FetchResponse.Topic(
            topic=f"topic-{t}",
            partitions=[
                partition(partition_index=p, error_code=0, high_watermark=9, aborted_transactions=None, records=records)
                for p in range(PARTITIONS)
            ],
        )
        for t in range(TOPICS)
    ]
    return FetchResponse(throttle_time_ms=0, responses=topics)


def report(what: str, ours: float, kafka_python: float, kio: float) -> None:
    ratios = f"{kafka_python:>13.1f}{kafka_python / ours:>7.1f}×{kio:>9.1f}{kio / ours:>7.1f}×"
    sys.stdout.write(f"{what:<50}{ours:>7.1f}{ratios}\n")


def decoding(size: int) -> None:
    whole = produce_request(size)
    view, ours, kio = memoryview(whole), decoder(ProduceRequest, 9), entity_reader(KioProduceRequest)
    times = best(
        lambda: ours(view, 0, MAX_ELEMENTS),
        lambda: KafkaPythonProduceRequest.decode(view, version=9),
        lambda: kio(whole, 0),
        number=100,
    )
    report(f"decode Produce v9, 10×10 partitions of {size} bytes", *times)


def encoding(size: int) -> None:
    response = fetch_response(bytes(size))
    whole = encode(response, 12)
    ours = encoder(FetchResponse, 12)
    heard = KafkaPythonFetchResponse.decode(whole, version=12)
    fields = {f.name: getattr(heard, f.name) for f in heard._struct._fields if f.for_version_q(12)}
    kafka_python = KafkaPythonFetchResponse(version=12, **fields)
    kio_response, _ = entity_reader(KioFetchResponse)(whole, 0)
    kio = entity_writer(KioFetchResponse)

    times = best(
        lambda: ours(response, bytearray()),
        lambda: kafka_python.encode(version=12),
        lambda: kio(BytesIO(), kio_response),
        number=50,
    )
    report(f"encode Fetch v12, 10×10 partitions of {size} bytes", *times)


def main() -> None:
    sys.stdout.write(f"{'µs':<50}{'trioka':>7}{'kafka-python':>21}{'kio (C++)':>17}\n")
    for size in (100, 1000, 16_000):
        decoding(size)
    for size in (1000, 16_000):
        encoding(size)


if __name__ == "__main__":
    main()
