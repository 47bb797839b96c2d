"""A follower begins behind what is in the object store, and copies only the rest from its leader.

    fetch ──▶ OFFSET_MOVED_TO_TIERED_STORAGE
          ──▶ ListOffsets -4: the leader's local log start ──▶ OffsetForLeaderEpoch: the epoch before it
          ──▶ the remote segment that ends there, or behind it: its chain of leader epochs, and its producers
          ──▶ the log continues behind that segment

As in Kafka (TierStateMachine). With follower.fetch.last.tiered.offset.enable an empty replica begins behind the last
tiered offset (ListOffsets -5) without a request to do so, although the leader still has earlier records (KIP-1023).

The segment must be of the leader's history to its end, because its epochs and producers are those at its end: the
leader is queried for the end of the segment's last epoch.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.errors import NONE, KafkaError, KafkaStorageError, error_class
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from trioka.storage.layout import CorruptFile
from trioka.storage.tiered_log import begin_behind_remote_part

from ..config.replication_keys import REPLICA_SOCKET_TIMEOUT_MS
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..peers.peer import Peer

LIST_OFFSETS_VERSION: Final = 9
OFFSET_FOR_LEADER_EPOCH_VERSION: Final = 4
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


class LeaderOffset(NamedTuple):
    """An offset of the leader's log, and the epoch of its record."""

    offset: int
    epoch: int


class RemoteBeginning:
    """Finds out where a replica begins, and lets it begin there."""

    def __init__(self, broker: "Broker", peer: "Peer", replica: Replica) -> None:
        self._broker = broker
        self._peer = peer
        self._replica = replica
        self._leader_epoch = replica.leader_epoch

    async def run(self, *, behind_last_tiered: bool = False) -> bool:
        """False if nothing was changed, because there is nothing before the leader's local log. Raises KafkaError; the
        log is as before then."""
        replica, tier = self._replica, self._broker.tier
        which = LATEST_TIERED if behind_last_tiered else EARLIEST_LOCAL
        found = await self._offset(which)
        if behind_last_tiered and found.offset < 0:
            return False
        last = found if behind_last_tiered else await self._record_before(found)
        if last.offset < 0:
            return False
        if tier is None:
            raise KafkaStorageError(f"{replica!r}: its leader has remote segments, and no object store is configured")
        history = await tier.history_at(replica, last.offset, last.epoch)
        await self._check_history(history.last_epoch, history.next_offset)
        start = await self._offset(EARLIEST)
        if not self._still_follows:
            return False
        if history.next_offset <= replica.log.log_end_offset and replica.log.log_end_offset > 0:
            return False  # this replica has more than that
        try:
            begin_behind_remote_part(
                replica.log,
                history.next_offset,
                log_start_offset=start.offset,
                epochs=history.epochs,
                producer_snapshot=history.producer_snapshot,
                now_ms=self._broker.clock.now_ms(),
            )
        except CorruptFile as error:
            raise KafkaStorageError(str(error)) from None
        return True

    @property
    def _still_follows(self) -> bool:
        replica = self._replica
        return not replica.leads and replica.leader_epoch == self._leader_epoch and not replica.log.closed

    async def _offset(self, which: int) -> LeaderOffset:
        partition = ListOffsetsRequest.Topic.Partition(
            partition_index=self._replica.index, current_leader_epoch=self._leader_epoch, timestamp=which
        )
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            isolation_level=0,
            topics=[ListOffsetsRequest.Topic(name=self._replica.topic, partitions=[partition])],
        )
        response = await self._peer.send_request(request, LIST_OFFSETS_VERSION, timeout_s=self._timeout_s)
        [result] = response.topics[0].partitions
        if result.error_code != NONE:
            raise error_class(result.error_code)()
        return LeaderOffset(result.offset, result.leader_epoch)

    async def _record_before(self, local_start: LeaderOffset) -> LeaderOffset:
        """The last offset before the leader's local log, and the epoch that wrote it."""
        last = local_start.offset - 1
        if last < 0 or local_start.epoch <= 0:
            return LeaderOffset(last, local_start.epoch)
        earlier = await self._end_of(local_start.epoch - 1)
        return LeaderOffset(last, earlier.epoch if earlier.offset > last else local_start.epoch)

    async def _end_of(self, epoch: int) -> LeaderOffset:
        """Where the epoch, or the largest before it, ends in the leader's log."""
        declared = OffsetForLeaderEpochRequest.Topic
        partition = declared.Partition(
            partition=self._replica.index, current_leader_epoch=self._leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._broker.node_id, topics=[declared(topic=self._replica.topic, partitions=[partition])]
        )
        response = await self._peer.send_request(request, OFFSET_FOR_LEADER_EPOCH_VERSION, timeout_s=self._timeout_s)
        [result] = response.topics[0].partitions
        if result.error_code != NONE:
            raise error_class(result.error_code)()
        return LeaderOffset(result.end_offset, result.leader_epoch)

    async def _check_history(self, last_epoch: int, next_offset: int) -> None:
        end = await self._end_of(last_epoch)
        if end.epoch != last_epoch or end.offset < next_offset:
            raise _foreign(self._replica, next_offset)

    @property
    def _timeout_s(self) -> float:
        return self._broker.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000


def _foreign(replica: Replica, offset: int) -> KafkaError:
    return KafkaStorageError(f"{replica!r}: the remote segment that ends at {offset} is not of its leader's history")
