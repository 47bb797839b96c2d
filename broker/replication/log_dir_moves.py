"""Replicas that move from one log directory of this broker to another, while they are read and written.

storage/log_move.py says how a log moves, and what a crash leaves. Here is who does it: a task for each replica, of
which as many copy at a time as num.replica.alter.log.dirs.threads says. Pieces are planned by the event loop, which has
the log, and copied by a worker thread, which has the copy; replica.alter.log.dirs.io.max.bytes.per.second limits how
many bytes that are in a second, for all moves together. Clients notice nothing: the copy takes the log's place between
two requests. Afterwards the controller is told in which directory the replica is.

A move ends early if it is called off: the replica shall stay, or go elsewhere, or its topic is deleted. If one of the
two disks fails it is given up. A broker that stops leaves the copy, and the next start begins it anew: that a replica
shall move is not forgotten.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from trioka.protocol.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartition
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import TopicPartition, parse_partition_directory
from trioka.storage.log_move import Future, start_of

from ..config.replication_keys import (
    NUM_REPLICA_ALTER_LOG_DIRS_THREADS,
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
)
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.moves")


class Move:
    """One replica on its way."""

    __slots__ = ("begun", "called_off", "done", "failure", "future", "replica", "scope", "source", "target")

    def __init__(self, replica: Replica, source: LogDirectory, target: LogDirectory) -> None:
        self.replica = replica
        self.source = source
        self.target = target
        self.future: Future | None = None
        self.scope = trio.CancelScope()
        self.called_off = False
        self.begun = trio.Event()  # there is a copy, or it has failed
        self.done = trio.Event()
        self.failure: Exception | None = None

    def __repr__(self) -> str:
        return f"{self.name} from {self.source.path} to {self.target.path}"

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.replica.topic, self.replica.index)


class ReplicaMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._moves: dict[TopicPartition, Move] = {}
        self._asking = trio.Lock()
        threads = broker.config[NUM_REPLICA_ALTER_LOG_DIRS_THREADS] or len(broker.data_directories)
        self._working = trio.CapacityLimiter(max(threads, 1))
        self._next_turn = 0.0  # when the limit of bytes allows the next piece

    async def move(self, replica: Replica, target: LogDirectory) -> None:
        """Let a replica be in this directory. Returns when the copy has begun to be, or nothing has to be done."""
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
        """UnknownTopicOrPartition if the topic was deleted meanwhile."""
        name = TopicPartition(replica.topic, replica.index)
        known = self._broker.metadata.topics.by_id(replica.topic_id)
        for directory in self._broker.data_directories:
            if known is not None and directory.logs.get(name) is replica.log:
                return directory
        raise UnknownTopicOrPartition(f"{name} is not here any more")

    async def call_off(self, name: TopicPartition) -> None:
        """A replica stays where it is, and nothing is left of its copy. One that has moved, has moved."""
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
        """Copies that the last process did not finish, of logs that are here. (What they are copies of may be in a
        directory that is offline: then they are all that there is, and left alone.)"""
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
        """Moves that were going on when the last process stopped begin anew."""
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
            log.warning("%s is given up: %s", move, error)
            move.failure = error
        except Exception as mistake:  # ours; it must not end the broker
            log.error("%s is given up, a mistake of ours", move, exc_info=mistake)
            move.failure = mistake
        finally:
            with trio.CancelScope(shield=True):
                await self._end(move)

    async def _begin(self, move: Move) -> None:
        broker, unique = self._broker, f"{self._broker.random.getrandbits(128):032x}"
        current, now_ms = move.replica.log, broker.clock.now_ms()
        start_offset = start_of(current)
        move.future = await trio.to_thread.run_sync(
            partial(Future.begin, move.source, move.target, current, unique, start_offset=start_offset, now_ms=now_ms)
        )
        log.info("%s begins", move)
        move.begun.set()

    async def _copy(self, move: Move) -> None:
        """Until the rest is small: twice, because most of it becomes durable in between, which takes its time."""
        assert move.future is not None
        await self._catch_up(move.future)
        await trio.to_thread.run_sync(move.future.settle)
        await self._catch_up(move.future)

    async def _catch_up(self, future: Future) -> None:
        while not future.is_near:
            piece = future.next_piece()
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
        """Up to `replica.log` nothing waits: requests see the former log or the copy, and both are whole."""
        broker, future = self._broker, move.future
        assert future is not None
        copy = future.take_place(now_ms=broker.clock.now_ms())
        copy.count_on(move.replica.log)
        move.replica.log = copy
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(future.settle)
            unique = f"{broker.random.getrandbits(128):032x}"
            await trio.to_thread.run_sync(partial(future.retire, unique, now_ms=broker.clock.now_ms()))
        log.info("%s is done", move)
        broker.say_directories_soon()

    async def _end(self, move: Move) -> None:
        """The copy of a move that was called off goes; so does one that failed by itself. What is left is for the next
        start, or if the other disk has failed, for people."""
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
