"""The batches of a partition as the broker sends them, which no client shows: one Fetch over a plain socket."""

from support.serving import Client

from trioka.protocol.batch import BatchHeader, headers
from trioka.protocol.messages.fetch import FetchRequest

# The last version that names topics, before ids came; every broker of today serves it.
VERSION = 12
LIMIT_BYTES = 10 << 20


def stored_batches(bootstrap: str, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of all batches from offset 0 on, if they are no more than ten megabytes."""
    place = FetchRequest.Topic.Partition(partition=partition, fetch_offset=0, partition_max_bytes=LIMIT_BYTES)
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchRequest.Topic(topic=topic, partitions=[place])])
    host, port = bootstrap.rsplit(":", 1)
    client = Client(host, int(port))
    try:
        (result,) = client.ask(request, VERSION).responses
    finally:
        client.close()
    (only,) = result.partitions
    assert only.error_code == 0, only
    records = only.records or b""
    assert isinstance(records, bytes | bytearray | memoryview), "what was decoded is in memory"
    return list(headers(records))
