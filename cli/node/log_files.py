"""Segment files: finds them, maps them into memory, reads their batches, and verifies them.

    00000000000000000042.log         batches, one after the other
    00000000000000000042.index       int32 offset minus the base offset · int32 position in the log       8 bytes each
    00000000000000000042.timeindex   int64 timestamp · int32 offset minus the base offset                 12 bytes each

The index files of a running Apache Kafka are preallocated and end with zeros. The log of a broker that was not stopped
cleanly may end in the middle of a batch: such an end is torn, not damaged, and the broker truncates it at its next
start.
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from trioka.protocol import batch
from trioka.protocol.batch import BatchHeader
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.record import Record

from ..terminal.failure import Failure

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
NAME_DIGITS: Final = 20
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")

Bytes: TypeAlias = "mmap.mmap | bytes"


class Problem(NamedTuple):
    """`status` is "damaged", or "torn" for an end that a crash left incomplete."""

    file: str
    position: int
    status: str
    what: str


class MappedSegment(NamedTuple):
    path: Path
    base_offset: int
    size: int
    may_be_torn: bool  # the newest segment of its partition, and the broker was not stopped cleanly

    @property
    def partition(self) -> str:
        return self.path.parent.name

    @contextmanager
    def opened(self) -> Iterator[Bytes]:
        with _mapped(self.path) as buffer:
            yield buffer


@contextmanager
def _mapped(path: Path) -> Iterator[Bytes]:
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}") from None


def find_segments(place: Path) -> list[MappedSegment]:
    """The segments of a log directory, a partition, or one file, in the order of partition and offset."""
    if place.is_file():
        return [_segment(place, is_newest=True)] if _is_log(place) else []
    files = sorted(file for file in place.iterdir() if _is_log(file)) if place.is_dir() else []
    if files:
        return [_segment(file, is_newest=file is files[-1]) for file in files]
    folders = sorted(folder for folder in place.iterdir() if folder.is_dir()) if place.is_dir() else []
    return [
        _segment(file, is_newest=file is inside[-1])
        for folder in folders
        for inside in [sorted(file for file in folder.iterdir() if _is_log(file))]
        for file in inside
    ]


def _is_log(path: Path) -> bool:
    return path.suffix == ".log" and len(path.stem) == NAME_DIGITS and path.stem.isdigit()


def _segment(path: Path, *, is_newest: bool) -> MappedSegment:
    is_clean = (path.parent.parent / CLEAN_SHUTDOWN).exists()
    return MappedSegment(path, int(path.stem), path.stat().st_size, is_newest and not is_clean)


def batches(buffer: Bytes) -> Iterator[BatchHeader]:
    """The batches of a segment, up to the first that cannot be read."""
    try:
        yield from batch.headers(buffer, partial_tail=True)
    except (KafkaError, ProtocolError):
        return


def records_of(buffer: Bytes, header: BatchHeader) -> Iterator[Record]:
    try:
        yield from batch.records(buffer, header)
    except KafkaError as error:
        raise Failure(f"the batch at byte {header.position} cannot be read: {error}") from None


def is_sound(buffer: Bytes, header: BatchHeader) -> bool:
    return batch.check_crc(buffer, header)


def judge(segment: MappedSegment) -> Iterator[Problem]:
    """The problems of a segment and its indexes."""
    name = str(segment.path)
    starts: dict[int, BatchHeader] = {}
    with segment.opened() as buffer:
        position, expected = 0, segment.base_offset
        try:
            for header in batch.headers(buffer, partial_tail=True):
                starts[header.position] = header
                position = header.end
                if not batch.check_crc(buffer, header):
                    status = "torn" if segment.may_be_torn and header.end == segment.size else "damaged"
                    yield Problem(name, header.position, status, "the checksum of a batch is wrong")
                if header.base_offset < expected:
                    what = f"offset {header.base_offset}, where {expected} or a later one was expected"
                    yield Problem(name, header.position, "damaged", what)
                expected = header.next_offset
        except (KafkaError, ProtocolError) as error:
            status = "torn" if segment.may_be_torn else "damaged"
            yield Problem(name, position, status, f"no batch begins here: {error}")
            position = segment.size
    if position < segment.size:
        left = segment.size - position
        status = "torn" if segment.may_be_torn else "damaged"
        yield Problem(name, position, status, f"{left} bytes are left over behind the last whole batch")
    yield from _judge_offset_index(segment, starts)
    yield from _judge_time_index(segment, expected)


def _entries(path: Path, form: struct.Struct) -> Iterator[tuple[int, Any]]:
    """Number and content of each entry, without the zeros at the end."""
    if not path.exists():
        return
    with _mapped(path) as buffer:
        for number in range(len(buffer) // form.size):
            entry = form.unpack_from(buffer, number * form.size)
            if number and not any(entry):
                return
            yield number, entry


def _judge_offset_index(segment: MappedSegment, starts: dict[int, BatchHeader]) -> Iterator[Problem]:
    path = segment.path.with_suffix(".index")
    before = -1
    for number, (relative, position) in _entries(path, _OFFSET_ENTRY):
        if number == 0 and not relative and not position and not segment.size:
            return
        offset = segment.base_offset + relative
        header = starts.get(position)
        if header is None or offset < header.base_offset:
            what = f"entry {number} sends offset {offset} to byte {position}, where it is not"
            yield Problem(str(path), number * _OFFSET_ENTRY.size, "damaged", what)
        if relative <= before:
            yield Problem(str(path), number * _OFFSET_ENTRY.size, "damaged", f"entry {number} goes back")
        before = relative


def _judge_time_index(segment: MappedSegment, next_offset: int) -> Iterator[Problem]:
    path = segment.path.with_suffix(".timeindex")
    before = -1
    for number, (timestamp, relative) in _entries(path, _TIME_ENTRY):
        if timestamp < before:
            yield Problem(str(path), number * _TIME_ENTRY.size, "damaged", f"entry {number} goes back in time")
        if not 0 <= relative <= next_offset - segment.base_offset:
            what = f"entry {number} names offset {segment.base_offset + relative}, which is not in the segment"
            yield Problem(str(path), number * _TIME_ENTRY.size, "damaged", what)
        before = timestamp
