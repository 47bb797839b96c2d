"""A client of a producer name: it sends its sequences in order, and repeats what was not answered."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import grpc
from support.gateway_calls import TIMEOUT_S, produce

from trioka.gateway.v1 import log_pb2
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub

IN_FLIGHT: Final = 20
ATTEMPTS: Final = 200


def named(topic: str, name: str, sequence: int, **fields: object) -> log_pb2.ProduceRequest:
    return produce(topic, b"%d" % sequence, producer=(name, sequence), **fields)


class NamedClient:
    """Sends all sequences in order, repeats what was not answered, and goes on until all are."""

    def __init__(self, topic: str, name: str, count: int, answered: Callable[[int], None]) -> None:
        self._topic, self._name, self._count, self._answered = topic, name, count, answered
        self.next = 0  # the first sequence that is not answered

    def by_stream(self, address: str) -> None:
        """One stream with requests ahead of their answers; returns when it ends."""
        waiting: deque[int] = deque()
        ready = threading.Semaphore(IN_FLIGHT)
        is_over = threading.Event()

        def requests() -> Iterator[log_pb2.ProduceStreamRequest]:
            for sequence in range(self.next, self._count):
                ready.acquire(timeout=TIMEOUT_S)
                if is_over.is_set():
                    return
                waiting.append(sequence)
                request = named(self._topic, self._name, sequence)
                yield log_pb2.ProduceStreamRequest(id=sequence, request=request)

        with grpc.insecure_channel(address) as channel:
            try:
                for answer in LogServiceStub(channel).ProduceStream(requests(), timeout=TIMEOUT_S):
                    assert answer.id == waiting.popleft()
                    if answer.HasField("failure"):
                        return
                    self.next = answer.id + 1
                    self._answered(answer.id)
                    ready.release()
            except grpc.RpcError:
                pass
            finally:
                is_over.set()
                ready.release()

    def one_by_one(self, address: str, patience: threading.Event) -> None:
        """Unary calls, until all are answered."""
        with grpc.insecure_channel(address) as channel:
            log = LogServiceStub(channel)
            for _ in range(ATTEMPTS * self._count):
                if self.next == self._count:
                    return
                try:
                    log.Produce(named(self._topic, self._name, self.next), timeout=TIMEOUT_S)
                except grpc.RpcError:
                    patience.wait(0.05)
                    continue
                self._answered(self.next)
                self.next += 1
        raise AssertionError(f"{self._name} came only to sequence {self.next}")
