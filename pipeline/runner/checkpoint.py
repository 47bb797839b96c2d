"""A pipeline's checkpoint: Spark's folders, and trioka's files.

    checkpoint/
      lock            held by the JVM that runs the pipeline, where the checkpoint is on this machine
      start.json      the start offsets of both queries; see beginning.py
      topics.json     the ids of the topics of these offsets; see topics.py
      late.json       the count of rows later than the watermark allows; see late.py
      run.json        the run that tables know the batches by, if this is a copy; see flows/shared_reads.py
      records/        Spark's checkpoint of the rows: offsets/N is written before batch N runs, commits/N after
      dead-letters/   Spark's checkpoint of the dead letters

Rows and dead letters are two queries, since a stateful plan has one output.

The JVM and not Python takes the lock: when a driver is killed, its JVM ends a moment later, and may write until then. A
new run waits for it. On an object store the lock is an object: see store_lock.py. HDFS and others have none.
"""

import errno
import json
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ..declaration.model import Positions
from ..errors import InvalidPipeline, ResourceUnreachable
from ..sources.offsets import Ends, from_json, positions_of_log, to_json
from ..tables.folder import Folder
from .store_lock import StoreLock, has_store_lock, open_store

RECORDS = "records"
DEAD_LETTERS = "dead-letters"
START = "start.json"
TOPICS = "topics.json"
LATE = "late.json"
LOCK = "lock"
RUN = "run.json"
LOCK_PATIENCE_S = 30.0
LOCK_POLL_S = 0.2
# Enough for the first files of a checkpoint; with less space a run does not start.
PROBE_BYTES = 256 << 10
# What Spark writes when a batch without a watermark is finished.
EMPTY_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def local_path(address: str) -> Path | None:
    """The path of a checkpoint on this machine; None for one elsewhere."""
    if address.startswith("file:"):
        return Path(address.removeprefix("file:").replace("///", "/", 1).replace("//", "/", 1))
    return Path(address) if ":/" not in address else None


def probe(address: str) -> None:
    """Raise `ResourceUnreachable` if the checkpoint is not writable. Called before Spark starts; it leaves nothing
    behind, because a later check may fail as well.
    """
    path = local_path(address)
    if path is None:
        return
    missing = [one for one in (path, *path.parents) if not one.exists()]
    file = path / ".probe"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as probing:
            probing.write(bytes(PROBE_BYTES))
            probing.flush()
            os.fsync(probing.fileno())
    except OSError as error:
        raise ResourceUnreachable(f"The checkpoint {address} cannot be written: {_why(error)}.") from None
    finally:
        for undo in (file.unlink, *(made.rmdir for made in missing)):
            with suppress(OSError):
                undo()


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space is left there"
    return error.strerror or str(error)


def offsets_reached(address: str) -> Ends:
    """The end offsets of the finished batches of a checkpoint on this machine, without Spark; nothing if there are
    none.
    """
    path = local_path(address)
    if path is None or not (path / RECORDS / "commits").is_dir():
        return {}
    done = [int(one.name) for one in (path / RECORDS / "commits").iterdir() if one.name.isdigit()]
    return positions_of_log((path / RECORDS / "offsets" / str(max(done))).read_text()) if done else {}


def late_rows(address: str) -> int:
    """The number of late rows, by a checkpoint on this machine, without Spark."""
    path = local_path(address)
    if path is None or not (path / LATE).exists():
        return 0
    return int(json.loads((path / LATE).read_text())["rows"])


class Checkpoint:
    def __init__(self, spark: SparkSession, address: str) -> None:
        self.address = address
        self._folder = Folder(spark, address)
        self._jvm: Any = spark.sparkContext._jvm
        self._lock: Any = None
        self._store_lock: StoreLock | None = None

    def of(self, query: str) -> str:
        return f"{self.address}/{query}"

    def take(self) -> None:
        """Become the only driver of this pipeline: on this machine, or wherever the store can be reached."""
        if has_store_lock(self.address):
            store = open_store(self.address, self._folder.setting)
            lock = StoreLock(store, self.address, str(uuid.uuid4()))
            lock.take()
            self._store_lock = lock
        path = local_path(self.address)
        if path is None:
            return
        self._folder.make()
        file = self._jvm.java.io.RandomAccessFile(str(path / LOCK), "rw")
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while (lock := self._try(file)) is None:
            if time.monotonic() > deadline:
                file.close()
                raise InvalidPipeline(f"Another driver runs this pipeline: it holds the checkpoint {self.address}.")
            time.sleep(LOCK_POLL_S)
        self._lock = file, lock

    def _try(self, file: Any) -> Any:
        try:
            return file.getChannel().tryLock()
        except Py4JError:  # held by this same JVM
            return None

    def confirm_taken(self) -> None:
        """Raise `LockLost` if another driver may have the checkpoint by now."""
        if self._store_lock is not None:
            self._store_lock.confirm()

    def release(self) -> None:
        if self._store_lock is not None:
            self._store_lock.release()
            self._store_lock = None
        if self._lock is not None:
            self._lock[0].close()
            self._lock = None

    def is_new(self, query: str) -> bool:
        """Whether no batch of a query has begun."""
        return not any(name.isdigit() for name in self._folder.names(query, "offsets"))

    def starts(self) -> dict[str, Ends]:
        """The start offsets of each query; nothing if the pipeline never ran."""
        if not self._folder.exists(START):
            return {}
        found = self.parsed(START)
        return {query: from_json(json.dumps(start)) for query, start in found.items()}

    def keep_starts(self, starts: Mapping[str, Positions]) -> None:
        self._folder.make()
        text = json.dumps({query: json.loads(to_json(start)) for query, start in starts.items()})
        if not self._folder.exists(START) or self._folder.text(START) != text:
            self._folder.write(text, START)

    def parsed(self, *names: str) -> dict[str, Any]:
        """A file of JSON; `InvalidPipeline` if it is damaged."""
        try:
            found = json.loads(self._folder.text(*names))
            if isinstance(found, dict):
                return found
        except ValueError:
            pass
        raise InvalidPipeline(
            f"The file {'/'.join([self.address, *names])} of the checkpoint is damaged. Bring back a copy of the "
            "checkpoint, or remove all of it: then it is made anew from the table."
        )

    def topics(self) -> dict[str, str]:
        """The ids of the topics that were read; nothing if they are unknown."""
        return dict(self.parsed(TOPICS)) if self._folder.exists(TOPICS) else {}

    def keep_topics(self, ids: Mapping[str, str]) -> None:
        self._folder.make()
        self._folder.write(json.dumps(dict(ids)), TOPICS)

    def late(self) -> dict[str, int]:
        """The last batch whose late rows were counted, and the total count."""
        return dict(self.parsed(LATE)) if self._folder.exists(LATE) else {}

    def keep_late(self, counted: Mapping[str, int]) -> None:
        self._folder.write(json.dumps(dict(counted)), LATE)

    def batch(self, query: str, number: int) -> tuple[Ends, Ends]:
        """The start and end offsets of a batch, which must have begun."""
        end = positions_of_log(self._folder.text(query, "offsets", str(number)))
        if number > 0 and self._folder.exists(query, "offsets", str(number - 1)):
            return positions_of_log(self._folder.text(query, "offsets", str(number - 1))), end
        return self.starts().get(query, {}), end

    def log_entry(self, query: str, number: int) -> str:
        """What Spark noted of a batch before it ran it; empty for a batch that has not begun."""
        name = str(number)
        return self._folder.text(query, "offsets", name) if self._folder.exists(query, "offsets", name) else ""

    def restore(self, query: str, *, run: str, log: str) -> None:
        """Write Spark's checkpoint anew, as after a first batch that ended at these offsets: after any other one, Spark
        asks for the batch before it. Without the last file, the checkpoint counts as new.
        """
        for name in ("offsets", "commits"):
            self._folder.make(query, name)
        self._folder.write(json.dumps({"id": run}), query, "metadata")
        self._folder.write(EMPTY_COMMIT, query, "commits", "0")
        self._folder.write(log, query, "offsets", "0")

    def run_id(self, query: str) -> str:
        """The id that Spark gave the query when its checkpoint was new, or that of the checkpoint it is a copy of."""
        id = str(self.parsed(query, "metadata").get("id"))
        if self._folder.exists(RUN):
            copied = self.parsed(RUN)
            if copied.get("id") == id:
                return str(copied.get("run"))
        return id

    def become_copy(self, query: str) -> None:
        """Give the copy of a checkpoint an id of its own: Spark runs one query of an id at a time. Its batches keep the
        run under which the tables know them.
        """
        run, id = self.run_id(query), str(uuid.uuid4())
        self._folder.write(json.dumps({"id": id, "run": run}), RUN)
        self._folder.write(json.dumps({"id": id}), query, "metadata")
