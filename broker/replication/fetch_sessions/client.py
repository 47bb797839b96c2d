"""The client side of a fetch session (KIP-227): a follower names its partitions once, later requests have only changes.

After any failure (the leader was restarted, has evicted the session, or a response was lost) the next request is a full
fetch again. The broker side is replication/fetch_sessions/cache.py.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol.errors import NONE
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

from .cache import INITIAL_EPOCH, NO_SESSION, next_epoch

VERSION: Final = 17  # 18 adds the high watermark, which only followers of the metadata log send

Key: TypeAlias = tuple[bytes, int]  # topic id, partition


class Position(NamedTuple):
    """The fetch position of a follower."""

    offset: int
    last_epoch: int  # of the last record in the log
    log_start_offset: int
    leader_epoch: int  # of the leader that this replica follows


class Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class FetchSessionClient:
    """A fetch session with one leader."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.reset()

    def reset(self) -> None:
        """Makes the next request a full fetch."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._sent: dict[Key, Position] = {}

    def request(
        self,
        wanted: Mapping[Key, Position],
        broker_epoch: int,
        limits: Limits,
        changed_keys: Collection[Key] | None = None,
    ) -> FetchRequest:
        """The request for all of `wanted`. If `changed_keys` is given, only these keys are compared with the last
        request."""
        changed, forgotten = wanted, []
        if self._id == NO_SESSION:
            self._sent = dict(wanted)
        else:
            keys = {**self._sent, **wanted} if changed_keys is None else changed_keys
            changed = {key: wanted[key] for key in keys if key in wanted and self._sent.get(key) != wanted[key]}
            forgotten = [key for key in keys if key in self._sent and key not in wanted]
            self._sent |= changed
            for key in forgotten:
                del self._sent[key]
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
                    partitions=[_to_request(index, changed[topic_id, index], limits) for index in indexes],
                )
                for topic_id, indexes in _by_topic(changed)
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopicsData(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _by_topic(forgotten)
            ],
        )

    def handle_response(self, response: FetchResponse) -> bool:
        """Whether the response is valid for the session. If not, the next request is a full fetch."""
        is_ours = self._id in (NO_SESSION, response.session_id)
        if response.error_code != NONE or not is_ours:
            self.reset()
            return False
        self._id = response.session_id
        self._epoch = INITIAL_EPOCH if self._id == NO_SESSION else next_epoch(self._epoch)
        return True


def _to_request(index: int, at: Position, limits: Limits) -> FetchRequest.Topic.Partition:
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
