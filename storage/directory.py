"""One log directory: an entry of `log.dirs`, the logs in it, and what is written for all of them together.

Starting (S2, S3): lock the directory; read `meta.properties`, the clean-shutdown marker and the checkpoints; remove the
marker, and sync that, before anything is written; then load the logs, several at a time. A checkpoint that cannot be
read counts as empty and is reported: then more is scanned, and only the content of the logs is used.

Running: `checkpoint` writes recovery points, log starts, high watermarks and how far logs are compacted now and then. A
log that is about to be cut or shortened has them written at once (`Log.keep`), because after a crash they say what must
be there, and what compaction need not look at again.

The checkpoints have names as keys, and a topic may be deleted and created again. So they are always written from the
logs in memory, and **an entry is durably removed before its directory is**. An entry without a log, or beyond its log's
end, is removed at the start before the directory is used: it would be applied to the next log of that name, or to other
records.

Stopping: every log is made durable, the checkpoints are written, and last of all the marker.

Failing (S4): everything goes through one `FailStopDisk`. Its first I/O error takes the whole directory offline:
`failure` has the reason, `on_failure` is called once, every later operation raises KafkaStorageError, and no clean
shutdown marker is written.

Copies in progress (`-future`) and logs that were replaced by a copy elsewhere are in the checkpoints too, but not in
`logs`: log_move.py says how a log moves from one directory to another.

Other entries of the directory are left alone and named in `report`: partitions that the metadata no longer assigns to
this broker (`-stray`), and files of other origin. So are unfinished copies: their move begins again. Partitions that
were being deleted (`-delete`) are removed.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from random import Random
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.lazy_dataclass import mutable

from .checkpoint import (
    MetaProperties,
    read_clean_marker,
    read_meta_properties,
    read_offsets,
    read_topic_id,
    write_clean_marker,
    write_offsets,
    write_topic_id,
)
from .disk import Disk, File, descriptor_limit
from .failstop_disk import FailStopDisk
from .file_pool import VIEWS_LIMIT, FilePool, open_files_limit
from .layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARKS,
    LOCAL_LOG_STARTS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptFile,
    DirectoryState,
    TopicPartition,
    parse_partition_directory,
    partition_directory,
    renamed_directory,
)
from .log import LOADING_FILES, Log
from .log_config import LogConfig
from .recovery import ShutdownState

FUTURE_FILES: Final = 8
"""A copy that is filled in a worker thread has its own pool, with as many files as it needs at a time."""

LOADING_THREADS: Final = 4
"""num.recovery.threads.per.data.dir is 2 in Kafka; scanning is mostly waiting for the device, and CRCs let go of the
interpreter's lock."""

CHECKPOINTS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_START_OFFSETS: lambda log: log.log_start_offset,
    LOCAL_LOG_STARTS: lambda log: log.local_log_start_offset if log.has_remote_part else None,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    CLEANER_OFFSETS: lambda log: log.first_dirty_offset,
}
"""The value of each file for a log; None: no entry."""

CLOSING_THREADS: Final = 8
"""Threads that close logs. Closing is waiting for syncs, and concurrent syncs cost the disk little more than one."""

MAX_CLOSED_WITHOUT_THREADS: Final = 16
"""Up to this number, logs are closed one by one: threads would take longer to start."""

Item = TypeVar("Item")
Result = TypeVar("Result")

Progress: TypeAlias = Callable[[int, int, TopicPartition], None]
"""Called after each log, with the number of loaded logs, the number of all logs, and the log."""


class ForeignDirectory(Exception):
    """A log directory that belongs to another node or another cluster."""


class DirectoryInUse(Exception):
    """Another process has this log directory open."""


@mutable
class DirectoryReport:
    """The findings of a start in a log directory, for the report in the log."""

    clean: bool = False
    broker_epoch: int | None = None  # of the run that stopped cleanly
    damaged_files: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # copies that were on their way in
    removed: list[str] = field(default_factory=list)


class LogDirectory:
    """Made by `open`."""

    def __init__(
        self, disk: Disk, path: str, on_failure: Callable[[OSError], None] | None, random: Random | None, pools: int
    ) -> None:
        self.path = path.rstrip("/")
        self.volume = FailStopDisk(disk, self.path, on_failure)
        limit = open_files_limit(descriptor_limit(), pools)
        self.files = FilePool(self.volume, limit=limit, views_limit=max(1, min(VIEWS_LIMIT, limit // 4)))
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}
        self.futures: dict[TopicPartition, Log] = {}  # copies in progress, each filled by one owner
        self.replaced: dict[TopicPartition, Log] = {}  # by a copy elsewhere, and still needed if that is lost
        self.meta: MetaProperties | None = None
        self.in_memory = False  # a restart of the machine empties it; only memory topics are here
        self.report = DirectoryReport()
        self._random = random
        self._lock: File | None = None
        self._writing = Lock()
        self._written: dict[str, dict[TopicPartition, int]] = {}  # the content of each checkpoint
        self._threads = LOADING_THREADS
        self._leaving: list[tuple[int, str]] = []  # directories to be removed, and when

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        config_of: Callable[[TopicPartition], LogConfig],
        *,
        now_ms: int,
        threads: int = LOADING_THREADS,
        progress: Progress | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        random: Random | None = None,
        pools: int = 1,
    ) -> "LogDirectory":
        """Lock the directory and load every log in it. So many directories, each with a pool of files, share the
        descriptors of this process. Blocks.

        DirectoryInUse if another process has it, CorruptFile if `meta.properties` cannot be read: then this node must
        not start; nor without descriptors (OutOfDescriptors). If the disk fails, a directory comes back that is offline
        and has no logs.
        """
        directory = cls(disk, path, on_failure, random, pools)
        directory._threads = threads
        try:
            directory._start(config_of, now_ms, threads, progress)
        except BaseException as error:
            directory.close_handles()
            if directory.failure is None or not isinstance(error, KafkaStorageError):
                raise  # a shortage of descriptors, for one: a directory that looks empty must not be served
        return directory

    @property
    def failure(self) -> OSError | None:
        """Why the directory is offline, or None."""
        return self.volume.failure

    # Starting --------------------------------------------------------------------------------------------------------

    def _start(
        self, config_of: Callable[[TopicPartition], LogConfig], now_ms: int, threads: int, progress: Progress | None
    ) -> None:
        volume = self.volume
        volume.make_root()
        try:
            self._lock = volume.lock(f"{self.path}/{LOCK}")
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DirectoryInUse(f"{self.path} is in use by another process") from error
            raise
        meta = f"{self.path}/{META_PROPERTIES}"
        self.meta = read_meta_properties(volume, meta) if volume.exists(meta) else None
        report = self.report
        report.clean = self._read_clean_marker()
        recovery_points = self._read(RECOVERY_POINTS)
        log_starts = self._read(LOG_START_OFFSETS)
        local_starts = self._read(LOCAL_LOG_STARTS)
        high_watermarks = self._read(HIGH_WATERMARKS)
        cleaned = self._read(CLEANER_OFFSETS)
        self._remove_clean_marker()

        def load(name: TopicPartition) -> tuple[Log, bytes | None]:
            stopped = ShutdownState(
                clean=report.clean,
                recovery_point=recovery_points.get(name, 0),
                log_start_offset=log_starts.get(name, 0),
                cleaned_upto=cleaned.get(name, 0),
                local_log_start_offset=local_starts.get(name),
            )
            return self._open_log(name, config_of(name), stopped, now_ms), self._read_topic_id(name)

        names = self._find_partitions()
        is_sequential = min(threads, len(names)) <= 1
        loaded = map(load, names) if is_sequential else _in_threads(load, names, threads)
        for done, (log, topic_id) in enumerate(loaded, start=1):
            log.advance_high_watermark(high_watermarks.get(log.name, 0))
            log.first_dirty_offset = _inside(log, cleaned.get(log.name))
            self.logs[log.name] = log
            if topic_id is not None:
                self.topic_ids[log.name] = topic_id
            if progress is not None:
                progress(done, len(names), log.name)
        self._drop_stale_entries()

    def _drop_stale_entries(self) -> None:
        """Removes checkpoint entries without a log, or beyond its end, from the disk before anything is written."""
        ends = {name: log.log_end_offset for name, log in self.logs.items()}
        if any(offset > ends.get(name, -1) for offsets in self._written.values() for name, offset in offsets.items()):
            self.checkpoint()

    def _read_clean_marker(self) -> bool:
        try:
            self.report.broker_epoch = read_clean_marker(self.volume, f"{self.path}/{CLEAN_SHUTDOWN}")
        except CorruptFile as error:
            self.report.damaged_files.append(str(error))
        return self.report.broker_epoch is not None

    def _remove_clean_marker(self) -> None:
        """Before the first write, durably: from here on a stop is unclean until it has proved otherwise."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        if self.volume.exists(path):
            self.volume.remove(path)
            self.volume.sync_directory(self.path)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            self._written[name] = read_offsets(self.volume, f"{self.path}/{name}")
        except CorruptFile as error:
            self.report.damaged_files.append(str(error))
        return self._written.get(name, {})

    def _find_partitions(self) -> list[TopicPartition]:
        found = []
        for name in self.volume.list(self.path):
            path = f"{self.path}/{name}"
            parsed = parse_partition_directory(name)
            if not self.volume.is_directory(path):
                continue
            if parsed is None or parsed.state is DirectoryState.STRAY:
                self.report.ignored.append(name)
            elif parsed.state is DirectoryState.FUTURE:
                self.report.unfinished.append(name)
            elif parsed.state is DirectoryState.DELETE:
                self.volume.remove_tree(path)
                self.report.removed.append(name)
            else:
                found.append(parsed.topic_partition)
        return found

    def _open_log(self, name: TopicPartition, config: LogConfig, stopped: ShutdownState, now_ms: int) -> Log:
        path = self.partition_path(name)
        return Log.open(self.files, path, name, config, stopped, now_ms=now_ms, keep=self._keep, random=self._random)

    def _read_topic_id(self, name: TopicPartition) -> bytes | None:
        path = f"{self.partition_path(name)}/{PARTITION_METADATA}"
        try:
            return read_topic_id(self.volume, path) if self.volume.exists(path) else None
        except CorruptFile as error:
            self.report.damaged_files.append(str(error))
            return None

    def partition_path(self, name: TopicPartition) -> str:
        return f"{self.path}/{partition_directory(name)}"

    # Running ---------------------------------------------------------------------------------------------------------

    def create(self, name: TopicPartition, config: LogConfig, *, now_ms: int, topic_id: bytes | None = None) -> Log:
        """Creates an empty log, whose directory is durable when this returns. Blocks."""
        log = self.begin(name, config, now_ms=now_ms, topic_id=topic_id)
        self.admit([log])
        return log

    def begin(self, name: TopicPartition, config: LogConfig, *, now_ms: int, topic_id: bytes | None = None) -> Log:
        """Creates an empty log that is not in `logs` before `admit`: many can be created, each in any thread, and
        admitted together, so that one sync makes all their names durable. Blocks."""
        assert name not in self.logs, f"{name} exists"
        path = self.partition_path(name)
        self.volume.make_directory(path)
        log = self._open_log(name, config, ShutdownState(clean=True), now_ms)
        if topic_id is None:
            self.volume.sync_directory(path)
        else:  # which syncs the names of all files in there, those of the log too
            write_topic_id(self.volume, f"{path}/{PARTITION_METADATA}", topic_id)
            self.topic_ids[name] = topic_id
        return log

    def assign_topic_ids(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Gives a topic id to logs without one, after a crash during their creation. Without an id, such a log would be
        used for the next topic of that name, if this topic is deleted while the broker is down. Blocks."""
        for name, topic_id in topic_ids.items():
            assert name not in self.topic_ids, f"{name} has an id"
            write_topic_id(self.volume, f"{self.partition_path(name)}/{PARTITION_METADATA}", topic_id)
            self.topic_ids[name] = topic_id

    def admit(self, logs: Iterable[Log]) -> None:
        """Adds the logs made by `begin` to `logs`. They are durable when this returns. Blocks."""
        self.volume.sync_directory(self.path)
        self.logs.update({log.name: log for log in logs})

    def delete(self, uniques: Mapping[TopicPartition, str], *, now_ms: int) -> None:
        """Out of the way at once, removed by `sweep` later. For each of them 32 hex digits, from outside. Blocks."""
        due_ms = [now_ms + self.logs[name].config.file_delete_delay_ms for name in uniques]
        self._leaving += zip(due_ms, self._set_aside(self.logs, uniques, DirectoryState.DELETE), strict=True)

    def mark_stray(self, uniques: Mapping[TopicPartition, str]) -> None:
        """The metadata assigns these to other brokers: rename them to `-stray` and keep the files. Blocks."""
        self._set_aside(self.logs, uniques, DirectoryState.STRAY)

    def _set_aside(
        self, logs: dict[TopicPartition, Log], uniques: Mapping[TopicPartition, str], state: DirectoryState
    ) -> list[str]:
        for name in uniques:
            log = logs.pop(name)
            self.topic_ids.pop(name, None)
            log.close_handles()
        # Partitions of the same names may be created again: their checkpoint entries must go first. Each checkpoint
        # covers all logs, so logs that are removed together are left out together.
        self.checkpoint()
        paths = []
        for name, unique in uniques.items():
            paths.append(f"{self.path}/{renamed_directory(name, state, unique)}")
            self.volume.rename(self.partition_path(name), paths[-1])
        self.volume.sync_directory(self.path)
        return paths

    # Moving: log_move.py describes the order --------------------------------------------------------------------------

    def begin_future(
        self,
        name: TopicPartition,
        config: LogConfig,
        unique: str,
        *,
        start_offset: int,
        topic_id: bytes | None,
        now_ms: int,
    ) -> Log:
        """An empty log that starts there, beside the others, with a pool of files of its own. Blocks."""
        assert name not in self.logs, f"{name} is here"
        assert name not in self.futures, f"{name} is on its way"
        path = f"{self.path}/{renamed_directory(name, DirectoryState.FUTURE, unique)}"
        self.volume.make_directory(path)
        if topic_id is not None:
            write_topic_id(self.volume, f"{path}/{PARTITION_METADATA}", topic_id)
        log = Log.open(
            FilePool(self.volume, limit=FUTURE_FILES, views_limit=FUTURE_FILES),
            path,
            name,
            config,
            ShutdownState(clean=True, recovery_point=start_offset, log_start_offset=start_offset),
            now_ms=now_ms,
            keep=self._keep,
            random=self._random,
        )
        self.volume.sync_directory(path)
        self.volume.sync_directory(self.path)
        self.futures[name] = log
        return log

    def drop_future(self, name: TopicPartition) -> None:
        """The copy is not wanted any more. Blocks."""
        log = self.futures.pop(name)
        log.close_handles()
        self._remove_future(log.directory)

    def drop_unfinished(self, directory: str) -> None:
        """A copy that a former process did not finish. Blocks."""
        self.report.unfinished.remove(directory)
        self._remove_future(f"{self.path}/{directory}")

    def _remove_future(self, path: str) -> None:
        self.checkpoint()  # as in `_set_aside`
        self.volume.remove_tree(path)
        self.volume.sync_directory(self.path)

    def promote_future(self, name: TopicPartition, topic_id: bytes | None) -> Log:
        """The copy gets the partition's name and its place in `logs`. Its next sync makes the name durable."""
        assert name not in self.logs, f"{name} is here"
        log, path = self.futures[name], self.partition_path(name)
        self.volume.rename(log.directory, path)
        log.use(self.files)
        log.move(path)
        self.logs[name] = log
        del self.futures[name]
        if topic_id is not None:
            self.topic_ids[name] = topic_id
        return log

    def detach_replaced(self, name: TopicPartition) -> None:
        """A copy elsewhere has replaced this log, which is no longer used. Its files are needed until `retire`."""
        self.replaced[name] = self.logs[name]
        del self.logs[name]

    def retire(self, name: TopicPartition, unique: str, *, now_ms: int) -> None:
        """As `delete`, for a log that was replaced: the copy is durable. Blocks."""
        due_ms = now_ms + self.replaced[name].config.file_delete_delay_ms
        [path] = self._set_aside(self.replaced, {name: unique}, DirectoryState.DELETE)
        self._leaving.append((due_ms, path))

    def sweep(self, now_ms: int) -> None:
        """Removes segments and partitions whose deletion delay has passed. Blocks."""
        for log in list(self.logs.values()):  # a worker thread may be making others
            log.sweep(now_ms)
        for due_ms, path in list(self._leaving):
            if due_ms <= now_ms:
                self.volume.remove_tree(path)
                self._leaving.remove((due_ms, path))

    def _keep(self, log: Log) -> None:
        """A log is about to be cut or shortened: first the checkpoints."""
        self._write(RECOVERY_POINTS, log)
        self._write(LOG_START_OFFSETS, log)
        self._write(LOCAL_LOG_STARTS, log)
        if self._written.get(HIGH_WATERMARKS, {}).get(log.name, 0) > log.high_watermark:
            self._write(HIGH_WATERMARKS, log)
        self._write(CLEANER_OFFSETS, log)

    def checkpoint(self) -> None:
        """Writes the changed ones of the checkpoints, each file whole. Blocks."""
        for file in CHECKPOINTS:
            self._write(file)

    def compacted(self, log: Log, first_dirty_offset: int) -> None:
        """A round of compaction has ended, and the next one starts at this offset. Durable when it returns; blocks."""
        log.first_dirty_offset = first_dirty_offset
        self._write(CLEANER_OFFSETS)

    def _write(self, file: str, extra: Log | None = None) -> None:
        # Checkpoints are written from several threads, and the logs may come and go meanwhile.
        with self._writing:
            logs = self._all_logs()
            if extra is not None and not extra.closed:
                logs[extra.name] = extra
            # The metadata's log is not in Kafka's checkpoints either: it is small, and looked at whole.
            found = {name: CHECKPOINTS[file](log) for name, log in logs.items() if name.topic != CLUSTER_METADATA_TOPIC}
            offsets = {name: offset for name, offset in found.items() if offset is not None}
            if offsets != self._written.get(file, {} if file == LOCAL_LOG_STARTS else None):
                write_offsets(self.volume, f"{self.path}/{file}", offsets)
                self._written[file] = offsets

    def _all_logs(self) -> dict[TopicPartition, Log]:
        """In the order of their lives. A log enters its next state before it leaves the last, so a reader in
        another thread misses none."""
        return {**self.futures, **self.logs, **self.replaced}

    # Stopping --------------------------------------------------------------------------------------------------------

    def close(self, *, broker_epoch: int) -> None:
        """A clean stop, marked as one if everything became durable. Blocks."""
        try:
            if self.failure is None:
                self.files.close()
                self._close_logs(list(self._all_logs().values()))
                self.checkpoint()
                write_clean_marker(self.volume, f"{self.path}/{CLEAN_SHUTDOWN}", broker_epoch)
        finally:
            self.close_handles()

    def _close_logs(self, logs: list[Log]) -> None:
        """Closes several logs at a time: each takes some syncs, and concurrent syncs share one of the disk's. Each log
        has its own files meanwhile, because a pool is for one thread."""

        def close(log: Log) -> None:
            files = FilePool(self.volume, limit=LOADING_FILES, views_limit=LOADING_FILES)
            log.use(files)
            try:
                log.close()
            finally:
                files.close()

        if self._threads <= 1 or len(logs) <= MAX_CLOSED_WITHOUT_THREADS:
            for log in logs:
                log.close()
        else:
            for _ in _in_threads(close, logs, CLOSING_THREADS):
                pass

    def close_handles(self) -> None:
        """Close without a word: nothing is written any more, and the next start will look at everything."""
        for log in self._all_logs().values():
            log.close_handles()
        self.logs.clear()
        self.futures.clear()
        self.replaced.clear()
        self.files.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _inside(log: Log, first_dirty_offset: int | None) -> int | None:
    """The offset at which compaction continues, or None, for the log's start, if it is outside of this log (as in
    Kafka)."""
    if first_dirty_offset is None or not log.log_start_offset <= first_dirty_offset <= log.log_end_offset:
        return None
    return first_dirty_offset


def _in_threads(do: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """The results in order of completion. The first failure cancels calls that have not begun."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="logs") as pool:
        begun = [pool.submit(do, item) for item in items]
        try:
            for future in as_completed(begun):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
