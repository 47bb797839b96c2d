"""`__remote_log_metadata` on this broker: replays it into an image, and writes to it.

A partition of the topic is replayed up to its high watermark if a user partition of this broker has its records there,
or if this broker leads it. Where there is a replica in this process its log is read, event by event; otherwise records
are fetched from its leader, by requests that wait there.

    write    append at the leader ──▶ committed ──▶ replayed here ──▶ True if the record counted

Everything that a leader decides stands on records that it has read back. `caught_up` is the other half: it returns
when everything is replayed that was in the log when it was called.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.remote_log_codec import (
    decode_record,
    encode_record,
    epoch_headers,
    partition_of,
    read_epoch,
)
from trioka.cluster.remote_log_jobs import RecordNotWritten
from trioka.cluster.remote_log_metadata import RemoteLogMetadata, RemotePartition, subject_of
from trioka.cluster.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.protocol import batch
from trioka.protocol.errors import NONE, KafkaError, NotLeaderOrFollower, OffsetOutOfRange, ProtocolError, error_class
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.protocol.schema import Entry
from trioka.storage.append_validation import AppendOrigin

from ..replication.commit_wait import on_committed
from ..replication.partitions import ALL_REPLICAS, Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.tier")

READ_BYTES: Final = 1 << 20
WRITE_TIMEOUT_S: Final = 10.0  # of an append, until it is committed and replayed here
FETCH_WAIT_MS: Final = 10_000  # how long a leader parks a fetch without records
RETRY_S: Final = 0.2
PURPOSE: Final = "remote log metadata"
PRODUCE_VERSION: Final = 12  # the last with topic names
FETCH_VERSION: Final = 12
LATEST: Final = -1  # of ListOffsets: the high watermark
EARLIEST: Final = -2

OnReplayed = Callable[[TopicIdPartition], None]


class _MetadataPartition:
    """One partition of the topic as far as it was replayed."""

    __slots__ = ("counted", "moved", "next_offset", "pending", "wake")

    def __init__(self) -> None:
        self.next_offset = 0
        self.pending = 0  # writes that wait for their records
        self.counted: dict[int, bool] = {}  # by offset; only while writes are pending
        self.moved = trio.Event()  # replaced when it is set
        self.wake = trio.Event()

    def advance(self, offset: int) -> None:
        self.next_offset = offset
        self.moved.set()
        self.moved = trio.Event()

    def on_notify(self, key: object) -> None:
        """The replica in this process has new records."""
        self.wake.set()

    def on_notified(self) -> None: ...


class RemoteLogMetadataTopic:
    def __init__(self, broker: "Broker", nursery: trio.Nursery, on_replayed: OnReplayed) -> None:
        self.image = RemoteLogMetadata()
        self._broker = broker
        self._nursery = nursery
        self._on_replayed = on_replayed
        self._partitions: dict[int, _MetadataPartition] = {}

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """0: the topic does not exist."""
        topic = self._broker.metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def index_of(self, about: TopicIdPartition) -> int:
        return partition_of(about.topic_id, about.partition, self.partition_count)

    def leads(self, index: int) -> bool:
        replica = self._broker.partitions.find(REMOTE_LOG_METADATA_TOPIC, index)
        return replica is not None and replica.leads

    def partition(self, about: TopicIdPartition) -> RemotePartition:
        """What is known about a partition; nothing yet, if there is no record."""
        return self.image.partition(about.topic_id, about.partition) or RemotePartition(about)

    def follow(self, index: int) -> None:
        """Replays a partition of the topic from now on."""
        if index not in self._partitions:
            self._partitions[index] = _MetadataPartition()
            self._nursery.start_soon(self._replay_forever, index)

    async def _replay_forever(self, index: int) -> None:
        partition = self._partitions[index]
        while True:
            try:
                replica = self._broker.partitions.find(REMOTE_LOG_METADATA_TOPIC, index)
                if replica is not None:
                    await self._replay_local(partition, replica)
                else:
                    await self._replay_remote(index, partition)
            except (KafkaError, ProtocolError, OSError) as error:
                log.warning("%s-%d is not replayed: %s", REMOTE_LOG_METADATA_TOPIC, index, error)
                await trio.sleep(RETRY_S)

    async def _replay_local(self, partition: _MetadataPartition, replica: Replica) -> None:
        """Until the replica is removed."""
        self._broker.purgatory.watch(replica, partition)
        try:
            while not replica.log.closed:
                partition.wake = trio.Event()
                its_log = replica.log
                partition.next_offset = max(partition.next_offset, its_log.log_start_offset)
                while partition.next_offset < its_log.high_watermark:
                    read = its_log.read(partition.next_offset, READ_BYTES, upto=its_log.high_watermark)
                    if read.records is None:
                        break
                    data = await trio.to_thread.run_sync(read.records.read)
                    self._replay(partition, data, read.next_offset)
                with trio.move_on_after(FETCH_WAIT_MS / 1000):  # a replica that was removed is not notified again
                    await partition.wake.wait()
        finally:
            self._broker.purgatory.unwatch(replica, partition)

    async def _replay_remote(self, index: int, partition: _MetadataPartition) -> None:
        asked = FetchRequest.Topic.Partition(
            partition=index, fetch_offset=partition.next_offset, partition_max_bytes=READ_BYTES
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=READ_BYTES,
            topics=[FetchRequest.Topic(topic=REMOTE_LOG_METADATA_TOPIC, partitions=[asked])],
        )
        response = await self._ask(index, request, FETCH_VERSION, FETCH_WAIT_MS / 1000 + WRITE_TIMEOUT_S)
        (result,) = (found for topic in response.responses for found in topic.partitions)
        if result.error_code == OffsetOutOfRange.code:  # retention has deleted the first records
            earliest = await self._offset(index, EARLIEST)
            if earliest > partition.next_offset:
                partition.advance(earliest)
                return
        if result.error_code != NONE:
            raise error_class(result.error_code)()
        if result.records:
            data = bytes(result.records)
            end = partition.next_offset
            for header in batch.headers(data, partial_tail=True):
                end = header.next_offset
            self._replay(partition, data, end)

    def _replay(self, partition: _MetadataPartition, data: bytes, next_offset: int) -> None:
        touched: dict[TopicIdPartition, None] = {}
        for header in batch.headers(data, partial_tail=True):
            batch.verify(data, header)
            if header.is_control:
                continue
            for offset, _, _, value, headers in batch.records(data, header):
                if offset < partition.next_offset:
                    continue
                counted = False
                try:
                    record = decode_record(value or b"")
                    about = subject_of(record)
                    counted = self.image.replay(record, read_epoch(headers))
                    if about is not None:
                        touched[about] = None
                except ProtocolError as error:
                    log.error("%s: the record at %d is skipped: %s", REMOTE_LOG_METADATA_TOPIC, offset, error)
                if partition.pending:
                    partition.counted[offset] = counted
        partition.advance(next_offset)
        for about in touched:
            self._on_replayed(about)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write(self, about: TopicIdPartition, record: Entry, epoch: int) -> bool:
        """Returns whether the record counted, when it is replayed here. Raises RecordNotWritten if it is not known
        whether it was appended, or not replayed in time."""
        if not self.partition_count:
            raise RecordNotWritten(f"the topic {REMOTE_LOG_METADATA_TOPIC} does not exist yet")
        index = self.index_of(about)
        self.follow(index)
        partition = self._partitions[index]
        now_ms = self._broker.clock.now_ms()
        values = [Record(0, now_ms, None, encode_record(record), epoch_headers(epoch))]
        partition.pending += 1
        try:
            with trio.fail_after(WRITE_TIMEOUT_S):
                offset = await self._append(index, batch.build(values), now_ms)
                while offset not in partition.counted:
                    await partition.moved.wait()
                return partition.counted[offset]
        except (KafkaError, trio.TooSlowError) as error:
            reason = "it is not replayed" if isinstance(error, trio.TooSlowError) else str(error)
            raise RecordNotWritten(f"{REMOTE_LOG_METADATA_TOPIC}-{index}: {reason}") from None
        finally:
            partition.pending -= 1
            if not partition.pending:
                partition.counted.clear()

    async def _append(self, index: int, records: bytearray, now_ms: int) -> int:
        replica = self._broker.partitions.find(REMOTE_LOG_METADATA_TOPIC, index)
        if replica is not None and replica.leads:
            return await self._append_here(replica, records, now_ms)
        return await self._append_there(index, records)

    async def _append_here(self, replica: Replica, records: bytearray, now_ms: int) -> int:
        appended = replica.append(records, ALL_REPLICAS, now_ms, AppendOrigin.COORDINATOR)
        self._broker.purgatory.notify(replica)
        outcome: list[KafkaError | None] = []
        is_there = trio.Event()

        def then(error: KafkaError | None) -> None:
            outcome.append(error)
            is_there.set()

        on_committed(self._broker, replica, appended.last_offset + 1, WRITE_TIMEOUT_S, then)
        await is_there.wait()
        if outcome[0] is not None:
            raise outcome[0]
        return appended.first_offset

    async def _append_there(self, index: int, records: bytearray) -> int:
        data = ProduceRequest.Topic.Partition(index=index, records=records)
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=int(WRITE_TIMEOUT_S * 1000),
            topic_data=[ProduceRequest.Topic(name=REMOTE_LOG_METADATA_TOPIC, partition_data=[data])],
        )
        response = await self._ask(index, request, PRODUCE_VERSION, WRITE_TIMEOUT_S)
        (result,) = (found for topic in response.responses for found in topic.partition_responses)
        if result.error_code != NONE:
            raise error_class(result.error_code)()
        return int(result.base_offset)

    async def caught_up(self, index: int) -> None:
        """Returns when everything is replayed that is committed now. Raises KafkaError."""
        self.follow(index)
        partition = self._partitions[index]
        replica = self._broker.partitions.find(REMOTE_LOG_METADATA_TOPIC, index)
        if replica is not None and replica.leads:
            end = replica.log.high_watermark
        else:
            end = await self._offset(index, LATEST)
        while partition.next_offset < end:
            await partition.moved.wait()

    async def _offset(self, index: int, which: int) -> int:
        asked = ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=which)
        topic = ListOffsetsRequest.Topic(name=REMOTE_LOG_METADATA_TOPIC, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        response = await self._ask(index, request, 5, WRITE_TIMEOUT_S)
        (result,) = (found for topic in response.topics for found in topic.partitions)
        if result.error_code != NONE:
            raise error_class(result.error_code)()
        return int(result.offset)

    async def _ask(self, index: int, request: Any, version: int, timeout_s: float) -> Any:
        """The response of the leader of a partition of the topic."""
        broker = self._broker
        topic = broker.metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        partition = None if topic is None else topic.partitions.get(index)
        node = None if partition is None else broker.metadata.brokers.get(partition.leader)
        address = None if node is None or node.fenced else node.listener(broker.node.inter_broker)
        if address is None:
            raise NotLeaderOrFollower(f"{REMOTE_LOG_METADATA_TOPIC}-{index} has no leader that can be reached")
        purpose = f"{PURPOSE} {index}" if isinstance(request, FetchRequest) else PURPOSE
        return await broker.peers.peer(address.host, address.port, purpose).send_request(
            request, version, timeout_s=timeout_s
        )
