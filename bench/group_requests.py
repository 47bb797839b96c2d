"""Measures the CPU cost of group requests inside the broker, without a socket.

    python bench/group_requests.py [--rounds 20] [--profile heartbeat|newer|commit|commits|rebalance]

A whole broker is started and gets its requests as bytes, as in `request.py`. Everything is this process's CPU time, in
µs, and the best round counts. `groups.py` compares whole brokers; its client uses as much CPU as they do.
"""

import argparse
import cProfile
import pstats
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from group_members import (
    CONSUMER_HEARTBEAT,
    HEARTBEAT,
    JOIN,
    PROTOCOL,
    REBALANCE_MS,
    SESSION_MS,
    SYNC,
    assignment,
    subscription,
)
from request import FAST_FOLDER, MANY, Bench, framed, settings, started

from trioka.protocol.frame import read_response
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest
from trioka.protocol.schema import Request

CLASSIC, NEWER, TOPIC = "a-group-of-one", "another-group-of-one", "many"
COMMIT = 8  # the version
REPEAT = 200


class Member:
    """The only member of its group: one of a classic group, and one of a KIP-848 group."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.id = ""
        self.generation = -1
        self.newer_epoch = 0

    async def arrive(self) -> None:
        """Join: the first rebalance of a group waits for other members for a moment."""
        self.id = self.ask(self.join(0), JOIN).member_id
        self.say(self.join(0), JOIN)
        while not self._bench.connection.outgoing:  # noqa: ASYNC110 - once
            await trio.sleep(0.001)
        self._note(self.heard(self.join(0), JOIN))
        self.newer_epoch = self.ask(self.newer_beat(), CONSUMER_HEARTBEAT).member_epoch

    def ask(self, request: Request, version: int) -> Any:
        self.say(request, version)
        return self.heard(request, version)

    def say(self, request: Request, version: int) -> None:
        message = framed(request, version)
        self._bench.connection.receive_buffer()[: len(message)] = message
        self._bench.connection.received(len(message))

    def heard(self, request: Request, version: int) -> Any:
        connection = self._bench.connection
        (answer,) = connection.outgoing
        connection.outgoing.clear()
        connection.outgoing_bytes = 0
        result: Any = read_response(type(request), version, memoryview(bytes(answer))[4:], 1)  # type: ignore[arg-type]
        return result

    def join(self, note: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=CLASSIC,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name=PROTOCOL, metadata=subscription(TOPIC, note))],
        )

    def sync(self) -> SyncGroupRequest:
        part = SyncGroupRequest.Assignment(member_id=self.id, assignment=assignment(TOPIC, range(MANY)))
        return SyncGroupRequest(
            group_id=CLASSIC,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=[part],
        )

    def rebalance(self, note: int) -> None:
        self._note(self.ask(self.join(note), JOIN))

    def _note(self, joined: Any) -> None:
        assert joined.error_code == 0, joined
        self.generation = joined.generation_id
        synced = self.ask(self.sync(), SYNC)
        assert synced.error_code == 0, synced

    def beat(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=CLASSIC, generation_id=self.generation, member_id=self.id)

    def newer_beat(self) -> ConsumerGroupHeartbeatRequest:
        is_new = self.newer_epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=NEWER,
            member_id=self.id,
            member_epoch=self.newer_epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_new else -1,
            subscribed_topic_names=[TOPIC] if is_new else None,
            topic_partitions=[] if is_new else None,
        )

    def commit(self, partitions: int) -> OffsetCommitRequest:
        places = [
            OffsetCommitRequest.Topic.Partition(partition_index=n, committed_offset=n, committed_metadata="")
            for n in range(partitions)
        ]
        return OffsetCommitRequest(
            group_id=CLASSIC,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[OffsetCommitRequest.Topic(name=TOPIC, partitions=places)],
        )


def works(bench: Bench, member: Member) -> dict[str, tuple[str, Callable[[], object], int]]:
    """By name: the description, the work, and its number of requests."""
    notes = iter(range(2, 1 << 30))

    def said(request: Request, version: int, times: int) -> Callable[[], object]:
        assert member.ask(request, version) is not None
        message = framed(request, version)
        return lambda: [bench.say(message) for _ in range(times)]

    def rebalances() -> None:
        for _ in range(REPEAT // 10):
            member.rebalance(next(notes))

    beat, newer = said(member.beat(), HEARTBEAT, REPEAT), said(member.newer_beat(), CONSUMER_HEARTBEAT, REPEAT)
    one, all_of_them = said(member.commit(1), COMMIT, REPEAT), said(member.commit(MANY), COMMIT, 2)
    return {
        "heartbeat": ("a Heartbeat", beat, REPEAT),
        "newer": ("a ConsumerGroupHeartbeat without changes", newer, REPEAT),
        "commit": ("an OffsetCommit of one partition", one, REPEAT),
        "commits": (f"an OffsetCommit of {MANY:,}, each", all_of_them, 2 * MANY),
        "rebalance": ("a JoinGroup and a SyncGroup, with this client", rebalances, REPEAT // 10),
    }


async def run(directory: str, options: argparse.Namespace) -> None:
    config = settings(directory, {"group.initial.rebalance.delay.ms": "0", "offsets.topic.replication.factor": "1"})
    async with started(config, {TOPIC: MANY, "__consumer_offsets": 1}, options.rounds) as bench:
        member = Member(bench)
        await member.arrive()
        found = works(bench, member)
        if options.profile:
            work = found[options.profile][1]
            profiler = cProfile.Profile()
            profiler.enable()
            for _ in range(options.rounds):
                work()
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        else:
            for what, work, count in found.values():
                print(f"  {what:<52}{bench.best(work, count):7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--profile", choices=("heartbeat", "newer", "commit", "commits", "rebalance"))
    options = parser.parse_args()
    where = FAST_FOLDER if Path(FAST_FOLDER).is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as directory:
        trio.run(run, directory, options)


if __name__ == "__main__":
    main()
