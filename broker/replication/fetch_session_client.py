"""The asking side of a fetch session (KIP-227; replication/fetch_session_cache.py is the answering one): a follower
names its partitions once, and from then on speaks of changes only.

Whatever goes wrong (the leader was started anew, has forgotten the session, or an answer was lost) the next request
names everything again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol.errors import NONE
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

from .fetch_session_cache import INITIAL_EPOCH, NO_SESSION, next_epoch

VERSION: Final = 17  # from 18 on an asker tells its high watermark, which only the metadata's followers do

Key: TypeAlias = tuple[bytes, int]  # the topic's id, the partition


class Position(NamedTuple):
    """Where a follower is."""

    offset: int
    last_epoch: int  # of what it has
    log_start_offset: int
    leader_epoch: int  # whom it follows


class Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class StandingFetch:
    """One session, with one leader."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.begin_anew()

    def begin_anew(self) -> None:
        """The next request says all."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._said: dict[Key, Position] = {}

    def request(
        self,
        wanted: Mapping[Key, Position],
        broker_epoch: int,
        limits: Limits,
        looked_at: Collection[Key] | None = None,
    ) -> FetchRequest:
        """For all that is wanted. If it is known which keys may be wanted otherwise than in the last request, or no
        longer, no other is looked at."""
        changed, forgotten = wanted, []
        if self._id == NO_SESSION:
            self._said = dict(wanted)
        else:
            keys = {**self._said, **wanted} if looked_at is None else looked_at
            changed = {key: wanted[key] for key in keys if key in wanted and self._said.get(key) != wanted[key]}
            forgotten = [key for key in keys if key in self._said and key not in wanted]
            self._said |= changed
            for key in forgotten:
                del self._said[key]
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                FetchRequest.Topic(
                    topic_id=topic_id,
                    partitions=[_asked(index, changed[topic_id, index], limits) for index in indexes],
                )
                for topic_id, indexes in _by_topic(changed)
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopicsData(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(forgotten)
            ],
        )

    def answered(self, response: FetchResponse) -> bool:
        """Whether the answer counts. If not, all is asked anew."""
        is_ours = self._id in (NO_SESSION, response.session_id)
        if response.error_code != NONE or not is_ours:
            self.begin_anew()
            return False
        self._id = response.session_id
        self._epoch = INITIAL_EPOCH if self._id == NO_SESSION else next_epoch(self._epoch)
        return True


def _asked(index: int, at: Position, limits: Limits) -> FetchRequest.Topic.Partition:
    return FetchRequest.Topic.Partition(
        partition=index,
        current_leader_epoch=at.leader_epoch,
        fetch_offset=at.offset,
        last_fetched_epoch=at.last_epoch,
        log_start_offset=at.log_start_offset,
        partition_max_bytes=limits.partition_max_bytes,
    )


def _by_topic(keys: Mapping[Key, Position] | Sequence[Key]) -> Iterator[tuple[bytes, list[int]]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    yield from topics.items()
