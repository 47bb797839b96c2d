"""The archive: topics, partitions, segments and records of an object store, by one URL."""

from collections.abc import Mapping, Sequence
from types import TracebackType

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.manifest import SegmentManifest

from .catalog import ArchivedTopic, Catalog
from .errors import ArchiveError
from .lineage import Slice
from .partition import ALL_OFFSETS, ALL_TIMES, ArchivedPartition, OffsetRange, TimeRange
from .records import Isolation, RecordIterator
from .store import ReadOnlyStore

Limits = tuple[int | None, int | None]


@frozen
class ArchivedSegment:
    """What one segment contributes to a partition: the offsets from `start_offset` up to `end_offset`, exclusive."""

    number: int  # of the slice in the partition as it was listed
    start_offset: int
    end_offset: int
    manifest: SegmentManifest


class Archive:
    """`options` are those of the object store (`region`, `endpoint`, …); obstore also reads its environment variables.

    Each call lists the store anew, so that it sees what was uploaded since. `offsets` and `times` (milliseconds) are
    pairs of a start and an exclusive end, either of which may be None. A topic whose name was used several times must
    be named by its id, too. Where offsets are missing, `MissingOffsets` is raised; with `fail_on_data_loss=False` they
    are left out.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.store = ReadOnlyStore(url, options)
        self.catalog = Catalog(self.store)

    @property
    def url(self) -> str:
        return self.store.url

    def __enter__(self) -> "Archive":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """An archive holds no connection that had to be closed; `with` is for those who expect it."""

    def topics(self) -> list[ArchivedTopic]:
        return self.catalog.topics()

    def partitions(self, topic: str, *, topic_id: bytes | str | None = None) -> list[int]:
        return self.catalog.partitions(self.catalog.topic(topic, topic_id))

    def partition(self, topic: str, partition: int, *, topic_id: bytes | str | None = None) -> ArchivedPartition:
        """The partition as it is now: its lineage, slices, holes, and the offsets that it has."""
        found = self.catalog.topic(topic, topic_id)
        return ArchivedPartition(self.store, topic, partition, self.catalog.manifests(found, partition))

    def segments(
        self,
        topic: str,
        partition: int,
        *,
        offsets: Limits | None = None,
        times: Limits | None = None,
        topic_id: bytes | str | None = None,
        fail_on_data_loss: bool = True,
    ) -> Sequence[ArchivedSegment]:
        """The segments that may have such records, in the order of their offsets."""
        found = self.partition(topic, partition, topic_id=topic_id)
        numbers = found.chosen(_offsets(offsets), _times(times), fail_on_data_loss=fail_on_data_loss)
        return [_segment(number, found.slices[number]) for number in numbers]

    def records(
        self,
        topic: str,
        partition: int,
        *,
        offsets: Limits | None = None,
        times: Limits | None = None,
        isolation: str = Isolation.READ_COMMITTED,
        topic_id: bytes | str | None = None,
        fail_on_data_loss: bool = True,
    ) -> RecordIterator:
        """The records as a consumer of that isolation level sees them; `position` is where the next call goes on."""
        return RecordIterator(
            self.partition(topic, partition, topic_id=topic_id),
            offsets=_offsets(offsets),
            times=_times(times),
            isolation=isolation_level(isolation),
            fail_on_data_loss=fail_on_data_loss,
        )


def isolation_level(name: str) -> Isolation:
    try:
        return Isolation(name)
    except ValueError:
        raise ArchiveError(f"isolation {name!r}: it is {' or '.join(Isolation)}") from None


def _segment(number: int, each: Slice) -> ArchivedSegment:
    return ArchivedSegment(
        number=number, start_offset=each.start_offset, end_offset=each.end_offset, manifest=each.manifest
    )


def _offsets(limits: Limits | None) -> OffsetRange:
    if limits is None:
        return ALL_OFFSETS
    start, end = limits
    if (start is not None and start < 0) or (end is not None and end < 0):
        raise ArchiveError(f"offsets {start} to {end}: an offset is at least 0")
    return OffsetRange(start, end)


def _times(limits: Limits | None) -> TimeRange:
    return ALL_TIMES if limits is None or limits == (None, None) else TimeRange(*limits)
