"""Reading without a consumer instance: records of a partition, and a topic as server-sent events.

    GET /topics/T/partitions/P/records?offset=7&count=100&max_bytes=1048576&timeout=1000&format=json
    GET /topics/T/tail?from=latest&partition=0&format=json

A request keeps nothing in the gateway, so any gateway can serve the next one. An event of the tail has the positions of
all partitions behind it as its id, `0:12,1:7`; a browser that connects again sends it as Last-Event-ID, and gets what
follows.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from ..clients import CallerClients
from ..failures import Refused
from ..kafka.cluster import LATEST
from ..reading.consume import Consumption
from ..reading.positions import isolation_of, start_positions
from ..v1 import log_pb2, types_pb2
from .errors import NO_PARTITION, RANGE, RestError, as_rest_error
from .metadata import check_partition
from .requests import whole_text

DEFAULT_COUNT, MAX_COUNT = 100, 10_000
DEFAULT_BYTES: Final = 1 << 20
MAX_BYTES: Final = 32 << 20
MAX_TIMEOUT_MS: Final = 60_000
MAX_PARTITIONS: Final = 10_000  # in an event's id
MESSAGE_BYTES: Final = 1 << 20
KEEP_ALIVE_S: Final = 15.0  # a comment, so that proxies keep a tail without records open
CONSISTENCIES: Final = {
    "nearest": types_pb2.CONSISTENCY_NEAREST,
    "committed": types_pb2.CONSISTENCY_COMMITTED,
    "read_uncommitted": types_pb2.CONSISTENCY_COMMITTED,
    "stable": types_pb2.CONSISTENCY_STABLE,
    "read_committed": types_pb2.CONSISTENCY_STABLE,
    "linearizable": types_pb2.CONSISTENCY_LINEARIZABLE,
}

Convert = Callable[[bytes | None, str], Any]


def start_of(text: str) -> log_pb2.Start:
    """`earliest`, `latest`, an offset, or `@` and a time in milliseconds."""
    if text in ("earliest", "beginning"):
        return log_pb2.Start(earliest=True)
    if text in ("latest", "end"):
        return log_pb2.Start(latest=True)
    if text.startswith("@"):
        return log_pb2.Start(timestamp_ms=whole_text(text[1:], "offset", 0))
    return log_pb2.Start(offset=whole_text(text, "offset", 0))


def consistency_of(text: str) -> int:
    if text not in CONSISTENCIES:
        raise RestError(422, f"'isolation' must be one of {', '.join(CONSISTENCIES)}.")
    return CONSISTENCIES[text]


def shown(topic: str, partition: int, record: types_pb2.Record, convert: Convert) -> dict[str, Any]:
    """A record in a response."""
    where = f"{topic}-{partition}@{record.offset}"
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "headers": [
            {"name": each.key, "value": base64.b64encode(each.value).decode() if each.HasField("value") else None}
            for each in record.headers
        ],
        "key": convert(record.key if record.HasField("key") else None, where),
        "value": convert(record.value if record.HasField("value") else None, where),
    }


async def records(
    clients: CallerClients, topic: str, partition: int, query: Mapping[str, str], convert: Convert
) -> list[dict[str, Any]]:
    """Blocks no loop: `convert` of a format with schemas is called in a thread."""
    count = whole_text(query.get("count", str(DEFAULT_COUNT)), "count", 1, MAX_COUNT)
    most = whole_text(query.get("max_bytes", str(DEFAULT_BYTES)), "max_bytes", 1, MAX_BYTES)
    timeout_ms = whole_text(query.get("timeout", "0"), "timeout", 0, MAX_TIMEOUT_MS)
    request = log_pb2.ConsumeRequest(
        topic=topic,
        partitions=[partition],
        start=start_of(query.get("offset", "earliest")),
        consistency=consistency_of(query.get("isolation", "committed")),  # type: ignore[arg-type]
        max_bytes=min(most, MESSAGE_BYTES),
        limit=count,
    )
    await check_partition(clients, topic, partition)
    found = await _collect(clients, request, most)
    if not found and request.start.WhichOneof("at") == "offset":
        end = (await clients.cluster.list_offsets(topic, [partition], LATEST))[partition]
        if request.start.offset > end:
            raise RestError(RANGE, f"{topic}-{partition} has no offset {request.start.offset}; its end is {end}.")
    if not found and timeout_ms:
        request.follow = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                found = await _collect(clients, request, most)
    return await asyncio.to_thread(lambda: [shown(topic, partition, each, convert) for each in found])


async def _collect(clients: CallerClients, request: log_pb2.ConsumeRequest, most: int) -> list[types_pb2.Record]:
    """Records up to the limits; when it follows, those of the first message."""
    found: list[types_pb2.Record] = []
    size = 0
    consumption = Consumption(clients.cluster, request, max_message_bytes=2 * MAX_BYTES)
    async with aclosing(consumption.responses()) as responses:
        async for response in responses:
            for record in response.records:
                size += len(record.key) + len(record.value)
                if found and size > most:
                    return found
                found.append(record)
            if request.follow:
                break
    return found


# -- tail --------------------------------------------------------------------------------------------------------------


def positions_of(last_event_id: str | None) -> dict[int, int]:
    if not last_event_id:
        return {}
    if re.fullmatch(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*", last_event_id) is None:
        raise RestError(422, "Last-Event-ID must be the id of an event, such as 0:12,1:7.")
    pairs = (each.split(":") for each in last_event_id.split(",")[:MAX_PARTITIONS])
    return {int(partition): int(offset) for partition, offset in pairs}


class Tail:
    """One tail. `drain` ends it at the next record."""

    def __init__(
        self, clients: CallerClients, topic: str, query: Mapping[str, str], last_event_id: str | None, convert: Convert
    ) -> None:
        self._clients, self._topic, self._convert = clients, topic, convert
        self._positions = positions_of(last_event_id)
        self._partitions = None if query.get("partition") is None else [whole_text(query["partition"], "partition", 0)]
        self._start = start_of(query.get("from", "latest"))
        self._consistency = consistency_of(query.get("isolation", "committed"))
        self._consumption: Consumption | None = None

    def drain(self) -> None:
        if self._consumption is not None:
            self._consumption.drain()

    async def begin(self) -> None:
        """What can be refused before the first byte is sent. From here on the positions of all partitions are known, so
        that a reader which comes back misses nothing, wherever it is written."""
        cluster, topic = self._clients.cluster, self._topic
        metadata = await cluster.topic(topic, fresh=True)
        for each in (*(self._partitions or ()), *self._positions):
            if each not in metadata.leaders:
                raise RestError(NO_PARTITION, f"Topic '{topic}' has no partition {each}.")
        partitions = self._partitions or sorted(metadata.leaders)
        isolation = isolation_of(self._consistency)
        starts = await start_positions(cluster, topic, partitions, self._start, isolation)
        self._positions = {each: self._positions.get(each, starts[each]) for each in partitions}
        request = log_pb2.ConsumeRequest(
            topic=topic,
            partitions=partitions,
            consistency=self._consistency,  # type: ignore[arg-type]
            max_bytes=MESSAGE_BYTES,
            follow=True,
        )
        self._consumption = Consumption(cluster, request, max_message_bytes=2 * MAX_BYTES, begin=self._positions)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream; a failure is its last event."""
        assert self._consumption is not None
        positions = dict(self._positions)
        yield f"id: {_id_of(positions)}\n\n".encode()
        responses = self._consumption.responses()
        try:
            async with aclosing(responses):
                pending: asyncio.Task[log_pb2.ConsumeResponse] | None = None
                try:
                    while True:
                        pending = pending or asyncio.ensure_future(anext(responses))
                        await asyncio.wait([pending], timeout=KEEP_ALIVE_S)
                        if not pending.done():
                            yield b": still here\n\n"
                            continue
                        response, pending = pending.result(), None
                        for chunk in await asyncio.to_thread(self._chunks, response, positions):
                            yield chunk
                finally:
                    if pending is not None:
                        pending.cancel()
                        with suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                            await pending
        except StopAsyncIteration:
            return
        except Refused:
            return  # the gateway stops; a browser connects again with the last id
        except Exception as error:
            found = as_rest_error(error)
            if found is None:
                raise
            yield _event("error", None, {"error_code": found.code, "message": found.message})

    def _chunks(self, response: log_pb2.ConsumeResponse, positions: dict[int, int]) -> list[bytes]:
        chunks = []
        for record in response.records:
            positions[response.partition] = record.offset + 1
            number = _id_of(positions)
            try:
                data = shown(self._topic, response.partition, record, self._convert)
            except RestError as error:
                place = {"partition": response.partition, "offset": record.offset}
                data = {**place, "error_code": error.code, "message": error.message}
            chunks.append(_event(None, number, data))
        return chunks


def _id_of(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _event(name: str | None, number: str | None, data: Mapping[str, Any]) -> bytes:
    lines = [f"event: {name}"] if name is not None else []
    lines += [f"id: {number}"] if number is not None else []
    lines.append(f"data: {json.dumps(data, separators=(',', ':'))}")  # ASCII, and without line ends
    return ("\n".join(lines) + "\n\n").encode()
