"""Calls of the gateway in tests: requests in short, streams, and failures with their details."""

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from trioka.gateway.v1 import log_pb2, types_pb2

TIMEOUT_S = 30


def values(*contents: bytes | None) -> list[types_pb2.Record]:
    return [types_pb2.Record(value=each) for each in contents]


def produce(topic: str, *contents: bytes | None, **fields: Any) -> log_pb2.ProduceRequest:
    """Of partition 0, unless the fields name another one."""
    if "producer" in fields:
        name, sequence = fields.pop("producer")
        fields["producer"] = log_pb2.Producer(name=name, sequence=sequence)
    return log_pb2.ProduceRequest(topic=topic, records=values(*contents), **{"partition": 0, **fields})


class Failed:
    """Filled in when the block ends: the code, and the `Failure`, which every error has."""

    code: grpc.StatusCode
    failure: types_pb2.Failure


@contextmanager
def failing() -> Iterator[Failed]:
    failed = Failed()
    with pytest.raises(grpc.RpcError) as raised:
        yield failed
    error: Any = raised.value
    failed.code, failed.failure = error.code(), failure_in(error)
    assert failed.failure.message == error.details()


def failure_in(error: Any) -> types_pb2.Failure:
    """The detail of type Failure, found by its type URL in a google.rpc.Status."""
    data = dict(error.trailing_metadata())["grpc-status-details-bin"]
    url = b"type.googleapis.com/trioka.v1.Failure"
    at = data.index(url) + len(url)
    assert data[at] == 0x12  # the field `value` of google.protobuf.Any
    size, at, shift = 0, at + 1, 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            break
    found: types_pb2.Failure = types_pb2.Failure.FromString(data[at : at + size])
    return found


class Stream:
    """A bidirectional stream, one message at a time."""

    def __init__(self, method: Callable[..., Any], *messages: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send(*messages)
        self.call = method(iter(self._requests.get, None), timeout=TIMEOUT_S)

    def send(self, *messages: Any) -> None:
        for each in messages:
            self._requests.put(each)

    def end(self) -> None:
        """No further requests; responses may still come."""
        self._requests.put(None)

    def next(self) -> Any:
        return next(self.call)

    def rest(self) -> list[Any]:
        return list(self.call)

    def cancel(self) -> None:
        self._requests.put(None)
        self.call.cancel()
