"""What can go wrong for a reader of the archive."""


class ArchiveError(Exception):
    """The archive cannot be read. The message says which object, and what to do."""


class InvalidUrl(ArchiveError):
    """The URL or an option of the store is wrong."""


class StoreUnavailable(ArchiveError):
    """The object store did not answer, or refused the request."""


class AccessDenied(ArchiveError):
    """The object store does not accept the credentials, or they may not read the object."""


class MissingObject(ArchiveError):
    """An object is not, or no longer, in the store."""


class UnknownPartition(ArchiveError):
    """The archive has no such topic or partition."""


class AmbiguousTopic(ArchiveError):
    """Several topics of that name are in the archive: it was deleted and created again."""


class DamagedSegment(ArchiveError):
    """An object of a segment is not what its manifest or its checksum says."""


class MissingOffsets(ArchiveError):
    """A range of offsets is not in the archive, though later ones are."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(f"{topic}-{partition}: the offsets {start} to {end - 1} are not in the archive")
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type["MissingOffsets"], tuple[str, int, int, int]]:
        """Errors of Spark's tasks are pickled."""
        return MissingOffsets, (self.topic, self.partition, self.start, self.end)
