"""Group members without a client library: bare connections of one process, many at once.

`MemberConnections.ask` sends one request on each of its connections and returns when all have a response; the time that
it returns excludes encoding and decoding in Python. A request that waits for other members, such as JoinGroup, may get
its response late, or after a retry of another member.
"""

import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trioka.cli.client.connection import SIZE_BYTES, read_answer, request_frame
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest
from trioka.protocol.schema import Request

ANSWER_SECONDS = 120.0
SILENCE_SECONDS = 0.3
RECEIVE_BYTES = 1 << 18
SESSION_MS, REBALANCE_MS = 45_000, 300_000
JOIN, SYNC, HEARTBEAT, CONSUMER_HEARTBEAT = 9, 5, 4, 1  # versions
MEMBER_ID_REQUIRED = 79
PROTOCOL = "range"


class Responses(NamedTuple):
    answers: dict[int, Any]
    seconds: float


class MemberConnections:
    def __init__(self, address: tuple[str, int], size: int) -> None:
        self._sockets = [socket.create_connection(address, ANSWER_SECONDS) for _ in range(size)]
        self._selector = selectors.DefaultSelector()
        self._received = [bytearray() for _ in range(size)]
        for index, one in enumerate(self._sockets):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ, index)

    def close(self) -> None:
        self._selector.close()
        for one in self._sockets:
            one.close()

    def ask(self, requests: Mapping[int, Request] | Sequence[Request], version: int) -> Responses:
        """Send requests and return the responses, by the number of the connection."""
        requested = dict(requests) if isinstance(requests, Mapping) else dict(enumerate(requests))
        frames = _frames(requested, version)
        started = time.perf_counter()
        self._send(frames)
        heard = self._hear(set(requested), ANSWER_SECONDS)
        seconds = time.perf_counter() - started
        return Responses(_answers(requested, version, heard), seconds)

    def say(self, requests: Mapping[int, Request], version: int) -> None:
        self._send(_frames(requests, version))

    def hear(self, requests: Mapping[int, Request], version: int) -> dict[int, Any]:
        """The responses to earlier requests, until none arrives for a while."""
        return _answers(requests, version, self._hear(set(requests), SILENCE_SECONDS))

    def _send(self, frames: Mapping[int, bytes]) -> None:
        for index, frame in frames.items():
            self._sockets[index].sendall(frame)

    def _hear(self, expected: set[int], silence: float) -> dict[int, bytes]:
        heard: dict[int, bytes] = {}
        while expected:
            ready = self._selector.select(silence)
            if not ready:
                assert silence < ANSWER_SECONDS, f"{len(expected)} requests were not answered"
                break
            for key, _ in ready:
                index = key.data
                received = self._received[index]
                piece = self._sockets[index].recv(RECEIVE_BYTES)
                assert piece, "the broker hung up"
                received += piece
                if len(received) >= SIZE_BYTES:
                    end = SIZE_BYTES + int.from_bytes(received[:SIZE_BYTES])
                    if len(received) >= end:
                        heard[index] = bytes(received[SIZE_BYTES:end])
                        del received[:end]
                        expected.discard(index)
        return heard


def _frames(requests: Mapping[int, Request], version: int) -> dict[int, bytes]:
    return {index: request_frame(request, version, index + 1) for index, request in requests.items()}


def _answers(requests: Mapping[int, Request], version: int, heard: Mapping[int, bytes]) -> dict[int, Any]:
    return {index: read_answer(requests[index], version, frame, index + 1) for index, frame in heard.items()}


def subscription(topic: str, note: int) -> bytes:
    """A consumer's subscription; the unique note makes each one differ, so that the group must rebalance."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}sii", 0, 1, len(name), name, 4, note)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(partitions))
    return head + struct.pack(f">{len(partitions)}i", *partitions) + struct.pack(">i", -1)


class ClassicGroup:
    """All connections as members of one group, or of as many groups as there are names."""

    def __init__(self, crowd: MemberConnections, groups: Sequence[str], topic: str, partitions: int) -> None:
        self._crowd = crowd
        self._groups = groups
        self._topic = topic
        self._partitions = partitions
        self._ids = [""] * len(groups)
        self._leaders: dict[int, list[str]] = {}
        self._generations: dict[int, int] = {}

    def _join(self, index: int, note: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._groups[index],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._ids[index],
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=PROTOCOL, metadata=subscription(self._topic, note))],
        )

    def form(self) -> None:
        """All members join. Without an initial delay a group begins with the first members, which rejoin when others
        have joined.
        """
        everyone = range(len(self._groups))
        for index, answer in self._crowd.ask([self._join(index, 0) for index in everyone], JOIN).answers.items():
            assert answer.error_code == MEMBER_ID_REQUIRED, answer
            self._ids[index] = answer.member_id
        joins: dict[int, Request] = {index: self._join(index, 0) for index in everyone}
        answers: dict[int, Any] = {}
        waiting: dict[int, Request] = {}
        while len(answers) < len(joins):
            again = {index: join for index, join in joins.items() if index not in waiting}
            self._crowd.say(again, JOIN)
            waiting |= again
            answers = self._crowd.hear(waiting, JOIN)
            waiting = {index: join for index, join in waiting.items() if index not in answers}
        self._note(answers)
        self._sync()

    def rebalance(self, note: int) -> float:
        """All members rejoin and get an assignment; returns the duration."""
        joined = self._crowd.ask([self._join(index, note) for index in range(len(self._groups))], JOIN)
        self._note(joined.answers)
        return joined.seconds + self._sync()

    def _note(self, answers: Mapping[int, Any]) -> None:
        assert all(answer.error_code == 0 for answer in answers.values())
        self._generations = {index: answer.generation_id for index, answer in answers.items()}
        self._leaders = {i: [m.member_id for m in answer.members] for i, answer in answers.items() if answer.members}

    def _sync(self) -> float:
        syncs = []
        for index, group in enumerate(self._groups):
            ids = self._leaders.get(index, [])
            parts = [
                SyncGroupRequest.Assignment(
                    member_id=id, assignment=assignment(self._topic, range(n, self._partitions, len(ids)))
                )
                for n, id in enumerate(ids)
            ]
            syncs.append(
                SyncGroupRequest(
                    group_id=group,
                    generation_id=self._generations[index],
                    member_id=self._ids[index],
                    protocol_type="consumer",
                    protocol_name=PROTOCOL,
                    assignments=parts,
                )
            )
        synced = self._crowd.ask(syncs, SYNC)
        assert all(answer.error_code == 0 and answer.assignment for answer in synced.answers.values())
        return synced.seconds

    def beats(self) -> list[HeartbeatRequest]:
        """The heartbeats of all members; any connection may send them."""
        return [
            HeartbeatRequest(group_id=group, generation_id=self._generations[index], member_id=self._ids[index])
            for index, group in enumerate(self._groups)
        ]

    def heartbeat(self) -> float:
        """One heartbeat of each member."""
        beaten = self._crowd.ask(self.beats(), HEARTBEAT)
        assert all(answer.error_code == 0 for answer in beaten.answers.values())
        return beaten.seconds


class ConsumerGroup:
    """The same in the consumer protocol, where the broker assigns; members apply assignments immediately."""

    def __init__(self, crowd: MemberConnections, size: int, group: str, topic: str, partitions: int) -> None:
        self._crowd = crowd
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._ids = [f"{group}-member-{index:04}" for index in range(size)]
        self._epochs = [0] * size
        self._parts: list[list[Any]] = [[] for _ in range(size)]

    def _beat(self, index: int) -> ConsumerGroupHeartbeatRequest:
        parts = [
            ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=one.topic_id, partitions=one.partitions)
            for one in self._parts[index]
        ]
        is_new = self._epochs[index] == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._ids[index],
            member_epoch=self._epochs[index],
            rebalance_timeout_ms=REBALANCE_MS if is_new else -1,
            subscribed_topic_names=[self._topic] if is_new else None,
            topic_partitions=parts,
        )

    def settle(self, members: Sequence[int]) -> float:
        """Send heartbeats until all members have the same epoch and together all partitions."""
        seconds = 0.0
        while True:
            beaten = self._crowd.ask({index: self._beat(index) for index in members}, CONSUMER_HEARTBEAT)
            seconds += beaten.seconds
            changed = False
            for index, answer in beaten.answers.items():
                assert answer.error_code == 0, answer
                self._epochs[index] = answer.member_epoch
                if answer.assignment is not None:
                    changed |= answer.assignment.topic_partitions != self._parts[index]
                    self._parts[index] = answer.assignment.topic_partitions
            owned = [p for index in members for one in self._parts[index] for p in one.partitions]
            is_whole = len(owned) == len(set(owned)) == self._partitions
            if is_whole and not changed and len({self._epochs[index] for index in members}) == 1:
                return seconds

    def leave(self, index: int) -> None:
        self._epochs[index] = -1
        self._crowd.ask({index: self._beat(index)}, CONSUMER_HEARTBEAT)
        self._epochs[index], self._parts[index] = 0, []
