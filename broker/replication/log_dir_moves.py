"""Replicas that move from one log directory of this broker to another, while they are read and written.

storage/log_move.py defines how a log moves and what a crash leaves. This module runs the moves: a task for each
replica, of which num.replica.alter.log.dirs.threads copy at a time. Pieces are planned by the event loop, which owns
the log, and copied by a worker thread, which owns the copy; replica.alter.log.dirs.io.max.bytes.per.second limits all
moves together. The copy replaces the log between two requests. Afterwards the new directory is reported to the
controller.

A move ends early if it is cancelled: the replica stays, moves elsewhere, or its topic is deleted. A failure of one of
the two disks ends it, too. A broker that stops leaves the copy, and the next start begins the move again: the target
directory of a replica is durable.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from trioka.protocol.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartition
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition, parse_partition_directory
from trioka.storage.log_move import FutureLog, start_of

from ..config.replication_keys import (
    NUM_REPLICA_ALTER_LOG_DIRS_THREADS,
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
)
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.moves")


class Move:
    """The move of one replica."""

    __slots__ = ("begun", "called_off", "done", "failure", "future", "replica", "scope", "source", "target")

    def __init__(self, replica: Replica, source: LogDirectory, target: LogDirectory) -> None:
        self.replica = replica
        self.source = source
        self.target = target
        self.future: FutureLog | None = None
        self.scope = trio.CancelScope()
        self.called_off = False
        self.begun = trio.Event()  # set when the copy exists or creating it has failed
        self.done = trio.Event()
        self.failure: Exception | None = None

    def __repr__(self) -> str:
        return f"{self.name} from {self.source.path} to {self.target.path}"

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.replica.topic, self.replica.index)


class LogDirMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._moves: dict[TopicPartition, Move] = {}
        self._asking = trio.Lock()
        threads = broker.config[NUM_REPLICA_ALTER_LOG_DIRS_THREADS] or len(broker.data_directories)
        self._working = trio.CapacityLimiter(max(threads, 1))
        self._next_turn = 0.0  # when the rate limit allows the next piece

    async def move(self, replica: Replica, target: LogDirectory) -> None:
        """Move a replica to this directory. Returns when its copy exists or nothing is to be done."""
        name = TopicPartition(replica.topic, replica.index)
        async with self._asking:
            going_on = self._moves.get(name)
            if going_on is not None and going_on.target is target and not going_on.called_off:
                return
            await self.call_off(name)
            source = self._directory_of(replica)
            if source is target:
                return
            move = Move(replica, source, target)
            self._moves[name] = move
            self._broker.nursery.start_soon(self._run, move)
            await move.begun.wait()
        if move.failure is not None:
            raise KafkaStorageError(f"{move}: {move.failure}")

    def _directory_of(self, replica: Replica) -> LogDirectory:
        """Waits until the copy exists. Raises UnknownTopicOrPartition if the topic was deleted meanwhile."""
        name = TopicPartition(replica.topic, replica.index)
        known = self._broker.metadata.topics.by_id(replica.topic_id)
        for directory in self._broker.data_directories:
            if known is not None and directory.logs.get(name) is replica.log:
                return directory
        raise UnknownTopicOrPartition(f"{name} is no longer on this broker")

    async def call_off(self, name: TopicPartition) -> None:
        """Cancel the move of a replica and delete its copy. A finished move stays."""
        move = self._moves.get(name)
        if move is not None:
            move.called_off = True
            move.scope.cancel()
            await move.done.wait()

    async def call_off_all(self, topic: str) -> None:
        for name in [name for name in self._moves if name.topic == topic]:
            await self.call_off(name)

    # -- the start -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[tuple[LogDirectory, str]]:
        """Unfinished copies from before the restart whose original log is here. (If the original may be in an offline
        directory, the copy may be the only one left and is kept.)"""
        directories = self._broker.data_directories
        here = {name for directory in directories for name in directory.logs}
        found = []
        for directory in directories:
            for copy in directory.report.unfinished:
                parsed = parse_partition_directory(copy)
                if parsed is not None and parsed.topic_partition in here:
                    found.append((directory, copy))
        return found

    async def resume(self, unfinished: list[tuple[LogDirectory, str]]) -> None:
        """Restarts the moves that were in progress when the broker stopped."""
        for directory, copy in unfinished:
            parsed = parse_partition_directory(copy)
            assert parsed is not None
            try:
                await trio.to_thread.run_sync(directory.drop_unfinished, copy)
                replica = self._broker.partitions.find(*parsed.topic_partition)
                if replica is not None:
                    await self.move(replica, directory)
            except (KafkaError, OSError) as error:
                log.warning("%s in %s: %s", copy, directory.path, error)

    # -- one move ------------------------------------------------------------------------------------------------------

    async def _run(self, move: Move) -> None:
        try:
            with move.scope:
                await self._begin(move)
                async with self._working:
                    await self._copy(move)
                    await self._take_place(move)
        except (KafkaError, OSError) as error:
            log.warning("%s failed: %s", move, error)
            move.failure = error
        except Exception as mistake:  # an internal error must not end the broker
            log.error("%s failed: internal error", move, exc_info=mistake)
            move.failure = mistake
        finally:
            with trio.CancelScope(shield=True):
                await self._end(move)

    async def _begin(self, move: Move) -> None:
        broker, unique = self._broker, f"{self._broker.random.getrandbits(128):032x}"
        current, now_ms = move.replica.log, broker.clock.now_ms()
        start_offset = start_of(current)
        move.future = await trio.to_thread.run_sync(
            partial(
                FutureLog.begin, move.source, move.target, current, unique, start_offset=start_offset, now_ms=now_ms
            )
        )
        log.info("%s begins", move)
        move.begun.set()

    async def _copy(self, move: Move) -> None:
        """Copies until the rest is small: twice, because the flush of the first part takes time."""
        assert move.future is not None
        await self._catch_up(move.future)
        await trio.to_thread.run_sync(move.future.settle)
        await self._catch_up(move.future)

    async def _catch_up(self, future: FutureLog) -> None:
        while not future.is_nearly_caught_up:
            piece = future.next_copy_step()
            assert piece is not None
            await trio.to_thread.run_sync(partial(future.take, piece, now_ms=self._broker.clock.now_ms()))
            await self._wait_for_turn(piece.size)

    async def _wait_for_turn(self, size: int) -> None:
        limit = self._broker.config[REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND]
        if limit is not None:
            now = self._broker.clock.now()
            self._next_turn = max(self._next_turn, now) + size / max(limit, 1)
            await trio.sleep(self._next_turn - now)

    async def _take_place(self, move: Move) -> None:
        """Swaps the logs without waiting before `replica.log` is set: each request sees either the old log or the
        copy."""
        broker, future = self._broker, move.future
        assert future is not None
        copy = future.promote(now_ms=broker.clock.now_ms())
        copy.count_on(move.replica.log)
        move.replica.log = copy
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(future.settle)
            unique = f"{broker.random.getrandbits(128):032x}"
            await trio.to_thread.run_sync(partial(future.retire, unique, now_ms=broker.clock.now_ms()))
        log.info("%s is done", move)
        broker.report_directories_soon()

    async def _end(self, move: Move) -> None:
        """Deletes the copy of a move that was cancelled or failed. If that fails too, the next start deletes it; if the
        other disk has failed, the operator has to."""
        is_left = move.future is not None and move.name in move.target.futures
        if is_left and (move.called_off or move.failure is not None) and move.source.failure is None:
            try:
                await trio.to_thread.run_sync(move.target.drop_future, move.name)
            except (KafkaError, OSError) as error:
                log.warning("the copy of %s cannot be removed: %s", move, error)
        if move.called_off and move.failure is None:
            move.failure = KafkaStorageError("called off")
        del self._moves[move.name]
        move.begun.set()
        move.done.set()
