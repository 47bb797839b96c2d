"""Reads the segments of tiered topics from the object store, without a broker.

    from trioka.archive import Archive

    with Archive("s3://bucket/prefix") as archive:
        for record in archive.records("orders", 0, isolation="read_committed"):
            ...

`docs/ARCHIVE.md` describes the objects. obstore is imported when an archive is opened.
"""

from .archive import Archive as Archive
from .catalog import ArchivedTopic as ArchivedTopic
from .errors import AmbiguousTopic as AmbiguousTopic
from .errors import ArchiveError as ArchiveError
from .errors import DamagedSegment as DamagedSegment
from .errors import MissingOffsets as MissingOffsets
from .errors import StoreUnavailable as StoreUnavailable
from .errors import UnknownPartition as UnknownPartition
from .records import ArchivedRecord as ArchivedRecord

__all__ = [
    "AmbiguousTopic",
    "Archive",
    "ArchiveError",
    "ArchivedRecord",
    "ArchivedTopic",
    "DamagedSegment",
    "MissingOffsets",
    "StoreUnavailable",
    "UnknownPartition",
]
