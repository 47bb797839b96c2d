"""Reads as a member of a group: `GroupMember` has the partitions, `PartitionReader` reads them.

After each assignment reading goes on at the committed offsets. `commit` commits the offsets of the records that were
handed out, so what a rebalance interrupts between printing and committing is read again, and nothing is left out.

Errors of the coordinator that pass are repeated with fresh connections. A read with an end fails if it neither gets a
record nor reaches the end for as long as the command's timeout.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from trioka.protocol import errors
from trioka.protocol.errors import NONE

from .. import problems
from ..client.cluster_client import STALE_METADATA_ERRORS, Kafka, TopicPartition
from ..client.connection import ConnectionClosed
from ..client.group_member import JOINS_AGAIN, GroupMember
from ..client.offsets import EARLIEST, LATEST, CommittedOffset, commit, committed, offsets_or_fail
from ..client.settings import Settings
from ..terminal.failure import Failure
from .partition_reader import ConsumedRecord, PartitionReader, Window

RETRY_S: Final = 0.2
PASSING: Final = problems.PASSING | {
    problems.label(errors.error_class(code)) for code in (*STALE_METADATA_ERRORS, errors.UnstableOffsetCommit.code)
}


class GroupReader:
    def __init__(
        self, settings: Settings, group: str, topics: Sequence[str], *, from_end: bool, is_committed: bool
    ) -> None:
        self._settings = settings
        self._group = group
        self._from_end = from_end
        self._is_committed = is_committed
        self._member = GroupMember(settings, group, topics)
        self._kafka: Kafka | None = None
        self._reader: PartitionReader | None = None
        self._handed: dict[TopicPartition, int] = {}  # the offset behind the last record that was handed out
        self._wanted: dict[TopicPartition, int] = {}  # what is to be committed
        self._saved: dict[TopicPartition, int] = {}  # what is committed
        self._seen: dict[TopicPartition, int] = {}  # the positions at the last progress
        self._heard = time.monotonic()
        self._problem: Failure | None = None

    # -- what `consume` uses -------------------------------------------------------------------------------------------

    is_bounded = False
    most: int | None = None

    def poll(self, most: int) -> list[ConsumedRecord]:
        """Some records; none if none came within the poll time."""
        reader = self._ready()
        records = [] if reader is None else reader.poll(most)
        for record in records:
            self._handed[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return records

    def poll_lines(self, line_end: bytes) -> Iterator[tuple[bytes, int]]:
        reader = self._ready()
        if reader is not None:
            yield from reader.poll_lines(line_end)

    def commit(self) -> None:
        """Commit what was handed out."""
        self._wanted = self._offsets()
        self._save()

    def _save(self) -> None:
        offsets = self._unsaved()
        if not offsets:
            return
        wanted = {place: CommittedOffset(offset) for place, offset in offsets.items()}
        with self._repeating():
            codes = commit(self._connected(), self._group, wanted, member=self._member.id)
            for place, code in codes.items():
                if code in JOINS_AGAIN:
                    self._lose(code)
                elif code != NONE:
                    raise problems.from_error_code(code, f"group '{self._group}' cannot commit {place}")
            self._saved |= offsets

    def _unsaved(self) -> dict[TopicPartition, int]:
        return {place: offset for place, offset in self._wanted.items() if offset != self._saved.get(place)}

    def is_at_the_end(self) -> bool:
        """Whether the assigned partitions are read to their present ends."""
        if self._reader is not None:
            positions = dict(self._reader.positions)
            if positions != self._seen:
                self._seen, self._heard = positions, time.monotonic()
            with self._repeating():
                ends = offsets_or_fail(
                    self._connected(), dict.fromkeys(positions, LATEST), is_committed=self._is_committed
                )
                if all(positions[place] >= end for place, end in ends.items()):
                    self.commit()
                    return True
        if self._heard + self._settings.timeout_s <= time.monotonic():
            what = f"there is more to read, and no broker has sent it within {self._settings.timeout_s:g} s"
            why = [] if self._problem is None else [self._problem.what]
            raise Failure(what, hints=[*why, f"look at the group: trioka groups describe {self._group}"])
        return False

    def close(self) -> None:
        self._drop_reader()
        deadline = time.monotonic() + self._settings.timeout_s
        try:
            while self._unsaved() and time.monotonic() < deadline:
                self._save()
            # Otherwise the coordinator removes the member when its session ends.
            with suppress(Failure, ConnectionClosed):
                self._member.leave(self._connected())
        finally:
            self._disconnect()

    # -- the assignment ------------------------------------------------------------------------------------------------

    def _ready(self) -> PartitionReader | None:
        """The reader of the assigned partitions; None if there are none, or the group cannot be joined now."""
        if self._member.has_to_join():
            self._drop_reader()
            with self._repeating():
                self._reader = self._assigned(self._connected())
        if self._reader is None or not self._reader.positions:
            time.sleep(RETRY_S)
            return None
        return self._reader

    def _assigned(self, kafka: Kafka) -> PartitionReader:
        places = self._member.join(kafka)
        kafka.forget()
        known = committed(kafka, self._group, is_stable=True)
        starts = {place: known[place].offset for place in places if place in known}
        new = [place for place in places if place not in known]
        starts |= offsets_or_fail(kafka, dict.fromkeys(new, LATEST if self._from_end else EARLIEST))
        self._handed, self._wanted, self._saved, self._seen = {}, {}, dict(starts), {}
        self._heard = time.monotonic()
        windows = {place: Window(start, None) for place, start in starts.items()}
        return PartitionReader(self._settings, windows, resets_to_end=self._from_end, is_committed=self._is_committed)

    def _offsets(self) -> dict[TopicPartition, int]:
        positions = {} if self._reader is None else self._reader.positions
        return {place: max(position, self._handed.get(place, 0)) for place, position in positions.items()}

    def _lose(self, code: int) -> None:
        self._member.lose(code)
        self._wanted = {}  # another member may have the partitions
        self._drop_reader()

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _connected(self) -> Kafka:
        if self._kafka is None:
            self._kafka = self._settings.kafka()
        return self._kafka

    def _disconnect(self) -> None:
        if self._kafka is not None:
            self._settings = self._settings.with_servers(self._kafka.known_servers())
            self._kafka.__exit__()
            self._kafka = None

    @contextmanager
    def _repeating(self) -> Iterator[None]:
        """What fails for a reason that passes is done again by the next poll, over fresh connections."""
        try:
            yield
        except ConnectionClosed:
            self._later(Failure("a broker closed the connection"))
        except Failure as failure:
            if failure.code not in PASSING:
                raise
            self._later(failure)

    def _later(self, failure: Failure) -> None:
        self._problem = failure
        self._disconnect()
        time.sleep(RETRY_S)
