"""A broker with a slow object store answers a Fetch with no records, though there are some: nothing may be left out."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trioka.gateway.cluster_access import ClusterAccess
from trioka.gateway.kafka.cluster import Cluster
from trioka.gateway.reading import consume, fetch, read
from trioka.gateway.reading.consume import Consumption
from trioka.gateway.reading.fetch import EMPTY, FetchedPartition
from trioka.gateway.reading.read import Reading
from trioka.gateway.v1 import log_pb2
from trioka.testing.broker import Broker

MESSAGE_BYTES = 1 << 20


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many responses have no records from now on; the requests reach the broker."""
    left = 0

    async def fetch_slowly(*given: Any, **named: Any) -> list[FetchedPartition]:
        nonlocal left
        found = await fetch.fetch(*given, **named)
        if left:
            left -= 1
            found = [each._replace(data=EMPTY) for each in found]
        return found

    def set_left(count: int) -> None:
        nonlocal left
        left = count

    for module in (consume, read):
        monkeypatch.setattr(module, "fetch", fetch_slowly)
    return set_left


def test_records_that_come_late_are_not_taken_for_removed_ones(
    broker: Broker, topic: str, slow: Callable[[int], None]
) -> None:
    broker.produce(topic, b"old", key=b"k")
    broker.produce(topic, b"new", key=b"k")
    host, _, port = broker.bootstrap_servers.rpartition(":")

    async def run() -> tuple[list[bytes], list[bytes]]:
        cluster = Cluster(ClusterAccess(servers=((host, int(port)),)), timeout_s=30)
        slow(3)
        request = log_pb2.ConsumeRequest(topic=topic, partitions=[0])
        consumption = Consumption(cluster, request, max_message_bytes=MESSAGE_BYTES)
        consumed = [record.value async for each in consumption.responses() for record in each.records]
        found = []
        kinds: list[dict[str, Any]] = [{"latest_of_key": b"k"}, {"offset": 1}, {"timestamp_ms": 0}]
        for fields in kinds:
            slow(2)
            wanted = log_pb2.ReadRequest(topic=topic, partition=0, **fields)
            found.append((await Reading(cluster, wanted).response()).record.value)
        cluster.close()
        return consumed, found

    assert asyncio.run(run()) == ([b"old", b"new"], [b"new", b"new", b"old"])
