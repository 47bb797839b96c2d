"""A read from the object store: what is requested, and what comes back."""

from typing import Final, NamedTuple

from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.log import Log


class RemoteRead(NamedTuple):
    """Whole batches, and the offset behind them. Without batches: the reader continues at `next_offset`, which is the
    local log start if nothing before it is left."""

    records: memoryview
    next_offset: int
    aborted: "tuple[tuple[int, int], ...]" = ()  # producer id and first offset of each aborted transaction


class RemotePlace(NamedTuple):
    """A partition, and its log here."""

    about: TopicIdPartition
    log: Log


class RemoteReadRequest(NamedTuple):
    place: RemotePlace
    offset: int
    end_offset: int
    max_bytes: int
    at_least_one: bool
    is_committed: bool


NOTHING_READ: Final = RemoteRead(memoryview(b""), -1)  # no answer yet
