"""The sockets of the producer: carries out what `state.py` decides, in one loop that never waits for a broker.

What has to wait runs in a thread of its own and reports to the loop: a question to the cluster, and the opening of a
connection with TLS and login. The loop waits for input, for sockets and for these threads at once, so a broker that
does not answer delays nothing that goes to another one.

Ctrl-C ends the input, and the records that were read are sent; the second one abandons them.
"""

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final

from trioka.protocol.messages.produce import ProduceRequest, ProduceResponse

from ..client.channel import Channel
from ..client.cluster_client import Kafka
from ..client.connection import Connection, ConnectionClosed
from ..client.settings import Settings
from ..problems import PASSING
from ..terminal.failure import Failure
from .cluster_lookup import Leaders, find_leaders, find_producer_id, wait_for_partitions
from .lines import LineReader
from .state import Action, Answer, Connect, Disconnect, FindLeaders, FindProducerId, Producer, Send

PRODUCE_AT_MOST: Final = 12  # the last version with topic names instead of ids
READY_TO_READ: Final = select.POLLIN | select.POLLHUP | select.POLLERR
MAX_WAIT_S: Final = 3600.0

Done = Callable[[Any], None]


class Sender:
    """Use it in a `with`, so that its sockets are closed."""

    def __init__(self, settings: Settings, topic: str, producer: Producer) -> None:
        self._topic = topic
        self._producer = producer
        self._settings = settings._replace(timeout_s=settings.timeout_s / 3)  # of one question, as of one request
        self._connect = self._settings.connector(self._settings.timeout_s)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[int, Channel] = {}
        self._requests: dict[tuple[int, int], int] = {}  # by node and correlation id
        self._threads = _Threads()
        self._interrupts = 0

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()
        self._threads.close()

    @property
    def is_interrupted(self) -> bool:
        return self._interrupts > 0

    def prepare(self, kafka: Kafka) -> None:
        """Find what the first record needs."""
        self._found(wait_for_partitions(kafka, self._topic))
        if self._producer.is_idempotent:
            self._producer.producer_id_found(find_producer_id(kafka), time.monotonic())

    def run(self, lines: LineReader, add: Callable[[list[bytes]], None], report: Callable[[], None]) -> None:
        """Send the records that `add` makes of the lines, until all are written or given up. `report` is called after
        each round.
        """
        producer = self._producer
        problem: Failure | None = None
        with self._catching_interrupts(lines):
            while True:
                if producer.has_timed_out:
                    lines.end()
                if lines.is_ended:
                    producer.linger_no_more()
                for action in producer.step(time.monotonic()):
                    self._carry_out(action)
                report()
                if producer.fatal is not None or self._interrupts > 1:
                    break
                if lines.is_ended and producer.is_done and not any(each.has_output for each in self._channels.values()):
                    break
                if self._wait(lines):
                    try:
                        add(lines.read())
                    except Failure as failure:
                        problem = failure  # what was read before it is sent
        if problem is not None:
            raise problem

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _wait(self, lines: LineReader) -> bool:
        """Wait for something to do, and read responses. Returns whether lines can be read."""
        wants_lines = not lines.is_ended and self._producer.has_room
        poll = select.poll()
        if wants_lines and lines.descriptor is not None:
            poll.register(lines.descriptor, select.POLLIN)
        poll.register(self._threads, select.POLLIN)
        for channel in self._channels.values():
            poll.register(channel, select.POLLIN | (select.POLLOUT if channel.has_output else 0))
        due = self._producer.next_step_at()
        timeout_s = MAX_WAIT_S if due is None else min(max(0.0, due - time.monotonic()), MAX_WAIT_S)
        if wants_lines and lines.descriptor is None:
            timeout_s = 0.0
        ready = dict(poll.poll(math.ceil(1000 * timeout_s)))
        if self._threads.fileno() in ready:
            self._threads.hand_over()
        for node, channel in list(self._channels.items()):
            if channel.fileno() in ready:
                self._serve(node, channel, ready[channel.fileno()])
        if not wants_lines:
            return False
        return lines.descriptor is None or bool(ready.get(lines.descriptor, 0) & READY_TO_READ)

    def _serve(self, node: int, channel: Channel, events: int) -> None:
        try:
            if events & select.POLLOUT:
                channel.flush()
            if events & READY_TO_READ:
                for correlation_id, answer in channel.receive():
                    self._answered(node, correlation_id, answer)
        except ConnectionClosed:
            self._drop(node)
            self._producer.disconnected(node, time.monotonic())

    def _answered(self, node: int, correlation_id: int, response: ProduceResponse) -> None:
        answers = {
            each.index: Answer(
                each.error_code,
                each.base_offset,
                next((error.batch_index_error_message for error in each.record_errors), None) or each.error_message,
                tuple(error.batch_index for error in each.record_errors),
            )
            for topic in response.responses
            for each in topic.partition_responses
        }
        request = self._requests.pop((node, correlation_id))
        self._producer.answered(node, request, answers, time.monotonic(), response.throttle_time_ms / 1000)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case Disconnect(node):
                self._drop(node)
            case Connect(node):
                self._threads.run(lambda: self._open(node), lambda found: self._opened(node, found))
            case FindLeaders():
                self._threads.run(
                    lambda: self._ask(lambda kafka: find_leaders(kafka, self._topic)), self._leaders_found
                )
            case FindProducerId():
                self._threads.run(lambda: self._ask(find_producer_id), self._producer_id_found)

    def _send(self, action: Send) -> None:
        Topic = ProduceRequest.Topic
        request = ProduceRequest(
            acks=self._producer.acks,
            timeout_ms=self._producer.request_timeout_ms,
            topic_data=[
                Topic(
                    name=self._topic,
                    partition_data=[
                        Topic.Partition(index=batch.partition, records=batch.sealed()) for batch in action.batches
                    ],
                )
            ],
        )
        channel = self._channels.get(action.node)
        if channel is None:  # an earlier request of this round found it closed, and the state knows
            return
        version = channel.connection.version_of(ProduceRequest, at_most=PRODUCE_AT_MOST)
        correlation_id = channel.send(request, version, has_answer=self._producer.acks != 0)
        if self._producer.acks != 0:
            self._requests[action.node, correlation_id] = action.request
        try:
            channel.flush()
        except ConnectionClosed:
            self._drop(action.node)
            self._producer.disconnected(action.node, time.monotonic())

    def _drop(self, node: int) -> None:
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()
        self._requests = {key: request for key, request in self._requests.items() if key[0] != node}

    def _open(self, node: int) -> Connection:
        if node not in self._addresses:
            raise ConnectionClosed
        connection = self._connect(*self._addresses[node])
        try:
            connection.version_of(ProduceRequest, at_most=PRODUCE_AT_MOST)
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened(self, node: int, found: Connection | Exception) -> None:
        if isinstance(found, Connection):
            self._channels[node] = Channel(found)
            self._producer.connected(node)
        else:
            _unless_passing(found)
            self._producer.disconnected(node, time.monotonic())

    def _ask(self, question: Callable[[Kafka], Any]) -> Any:
        """Ask any broker, of the bootstrap servers and those that are known."""
        with self._settings.with_servers(self._addresses.values()).kafka() as kafka:
            return question(kafka)

    def _find_leaders(self, kafka: Kafka) -> Leaders:
        return find_leaders(kafka, self._topic)

    def _leaders_found(self, found: Leaders | Exception) -> None:
        if isinstance(found, Leaders):
            self._found(found)
        else:
            _unless_passing(found)
            self._producer.leaders_not_found(time.monotonic())

    def _found(self, leaders: Leaders) -> None:
        self._addresses |= leaders.addresses
        self._producer.leaders_found(leaders.by_partition, time.monotonic())

    def _producer_id_found(self, found: Any) -> None:
        if isinstance(found, Exception):
            _unless_passing(found)
            self._producer.producer_id_not_found(time.monotonic())
        else:
            self._producer.producer_id_found(found, time.monotonic())

    @contextmanager
    def _catching_interrupts(self, lines: LineReader) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupted(*_: object) -> None:
            self._interrupts += 1
            lines.end()
            self._threads.wake()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _unless_passing(error: Exception) -> None:
    """Raise an error that another attempt does not mend."""
    if not isinstance(error, ConnectionClosed) and not (isinstance(error, Failure) and error.code in PASSING):
        raise error


class _Threads:
    """Runs functions in threads, and hands their results over in the loop."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[tuple[Done, Any]] = SimpleQueue()
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self._lock = threading.Lock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._readable

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Call `done` with the result of the function, or with its exception."""

        def body() -> None:
            try:
                result: Any = function()
            except Exception as error:
                result = error
            self._ended.put((done, result))
            self.wake()

        threading.Thread(target=body, daemon=True).start()

    def wake(self) -> None:
        with self._lock:
            if not self._is_closed:
                with suppress(BlockingIOError):  # it is awake
                    os.write(self._writable, b"\0")

    def hand_over(self) -> None:
        os.read(self._readable, 1 << 16)
        while not self._ended.empty():
            done, result = self._ended.get()
            done(result)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self._readable)
            os.close(self._writable)
