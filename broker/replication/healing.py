"""Healing: damaged ranges of this broker's logs are replaced by good copies from other replicas.

cluster/healing.py decides the action for a range and the replicas to copy from; storage/segment_repair.py checks the
copies and writes them into the log. This module fetches them by an ordinary consumer Fetch, from the leader or a
follower, since both have committed records. The request is marked as a broker's (`HEALER`), so that with an authorizer
the permission to replicate is sufficient.

Segments are healed one at a time, each with at most `MAX_PATCH_BYTES` before it is written. A worker thread builds the
segment file; the event loop only swaps it in.

If no replica has a good copy, the range stays as it is: reads of it get CORRUPT_MESSAGE, everything else is served,
producers continue, and the repair is retried less and less often. It is logged once, as an error, and counted.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.healing import HEALER, RepairAction, repair_action, sources
from trioka.cluster.partition import Partition
from trioka.protocol.errors import NONE, KafkaError, error_class
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.storage.batch_scan import BadBatch
from trioka.storage.log import Log
from trioka.storage.quarantine import Damage
from trioka.storage.scrub import SegmentScrub
from trioka.storage.segment import Segment
from trioka.storage.segment_repair import (
    BadPatch,
    LogChanged,
    Patch,
    accept,
    begin,
    build,
    epochs_around,
    install_repair,
    prepare,
    repairable_segments,
)

from .fetch_session_client import VERSION
from .partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.healing")

PURPOSE: Final = "healing"
CHECK_INTERVAL_S: Final = 0.5
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
RESPONSE_TIMEOUT_S: Final = 10.0
FETCH_BYTES: Final = 4 * 1024 * 1024
MAX_PATCH_BYTES: Final = 32 * 1024 * 1024
"""Limit for one segment. The rest of a larger range is healed afterwards."""


class Unavailable(Exception):
    """A replica has no good copy or does not respond."""


class Healing:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._not_before: dict[Log, float] = {}
        self._pause_s: dict[Log, float] = {}
        self._offered: dict[Log, bytes] = {}
        self._reported: dict[Log, tuple[Damage, ...]] = {}
        self._limiter = trio.CapacityLimiter(1)

    async def run(self) -> None:
        """Runs until the broker stops."""
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            await self.look()

    def unhealed(self, its_log: Log) -> int:
        """Ranges for which the last attempt found no good copy."""
        return len(self._reported.get(its_log, ()))

    def offer(self, replica: Replica, records: bytes) -> None:
        """Takes the records that a leader returned to a follower's fetch at its damage."""
        self._offered[replica.log] = records
        self._not_before.pop(replica.log, None)

    async def look(self) -> None:
        """Heals the logs whose next attempt is due."""
        damaged = [each for each in self._broker.partitions if each.log.quarantine.damages and not each.log.closed]
        for known in (self._not_before, self._pause_s, self._offered, self._reported):
            for gone in known.keys() - {each.log for each in damaged}:
                known.pop(gone, None)
        for replica in damaged:
            if self._broker.clock.now() < self._not_before.get(replica.log, 0.0):
                continue
            try:
                await self._heal(replica)
            except (KafkaError, OSError, LogChanged) as error:
                log.info("%r: not healed yet: %s", replica, error)
            except Exception as mistake:  # an internal error; the next attempt may succeed
                log.error("internal error: healing %r", replica, exc_info=mistake)
            self._back_off(replica.log)

    def _back_off(self, its_log: Log) -> None:
        pause_s = min(2 * self._pause_s.get(its_log, FIRST_PAUSE_S / 2), MAX_PAUSE_S)
        self._pause_s[its_log] = pause_s
        self._not_before[its_log] = self._broker.clock.now() + pause_s

    def _reset_backoff(self, its_log: Log) -> None:
        self._pause_s.pop(its_log, None)

    async def _heal(self, replica: Replica) -> None:
        its_log = replica.log
        if its_log.is_compacting:
            return
        missing: list[Damage] = []
        for segment, damages in repairable_segments(its_log).items():
            patches: list[Patch] = []
            for damage in damages:
                if sum(len(patch.data) for patch in patches) >= MAX_PATCH_BYTES:
                    break
                patch = await self._patch(replica, damage, missing)
                if patch is not None:
                    patches.append(patch)
            if patches:
                await self._repair(replica, segment, patches)
        self._log_unrepairable(replica, tuple(missing))

    async def _patch(self, replica: Replica, damage: Damage, missing: list[Damage]) -> Patch | None:
        """Good copies from other replicas; ranges without one are missing from the result."""
        its_log = replica.log
        cure = repair_action(
            damage,
            leads=replica.leads,
            high_watermark=its_log.high_watermark,
            log_end_offset=its_log.log_end_offset,
        )
        if cure is RepairAction.FETCH_AGAIN and its_log in self._offered:
            try:
                return self._accept(its_log, damage, self._offered.pop(its_log))
            except BadPatch as reason:
                log.info("%r: invalid copy of %s from the leader: %s", replica, damage, reason)
        if cure is not RepairAction.FETCH or damage.end_offset <= its_log.log_start_offset:
            return None
        topic = self._broker.metadata.topics.by_id(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.index)
        if partition is None:
            return None
        for node in self._sources(partition):
            try:
                return await self._fetch(node, replica, damage)
            except (Unavailable, BadPatch, KafkaError) as reason:
                log.info("%r: broker %d cannot heal %s: %s", replica, node, damage, reason)
        missing.append(damage)
        return None

    def _sources(self, partition: Partition) -> tuple[int, ...]:
        return sources(partition, self._broker.node_id, self._broker.metadata.brokers.is_active)

    def _accept(self, its_log: Log, damage: Damage, data: bytes) -> Patch:
        return accept(
            damage,
            data,
            epochs_around(its_log, damage),
            compacted=its_log.config.compacts,
            log_start_offset=its_log.log_start_offset,
        )

    async def _fetch(self, node: int, replica: Replica, damage: Damage) -> Patch:
        """Fetches the range from a replica, or as much of it as the limit allows."""
        data, end = b"", max(damage.first_offset, replica.log.log_start_offset)
        while True:
            data += await self._fetch_from(node, replica, end)
            patch = self._accept(replica.log, damage, data)
            if patch.is_whole or len(data) >= MAX_PATCH_BYTES or patch.end_offset == end:
                return patch
            end = patch.end_offset

    async def _fetch_from(self, node: int, replica: Replica, offset: int) -> bytes:
        """Batches from this offset on, as another replica has them."""
        broker = self._broker.metadata.brokers.get(node)
        listener = None if broker is None else broker.listener(self._broker.node.inter_broker)
        if listener is None:
            raise Unavailable("its address is not known")
        requested = FetchRequest.Topic.Partition(
            partition=replica.index,
            current_leader_epoch=replica.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=HEALER),
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            topics=[FetchRequest.Topic(topic_id=replica.topic_id, partitions=[requested])],
        )
        peer = self._broker.peers.peer(listener.host, listener.port, PURPOSE)
        response: FetchResponse = await peer.send_request(request, VERSION, timeout_s=RESPONSE_TIMEOUT_S)
        for topic in response.responses:
            for result in topic.partitions:
                if result.error_code != NONE:
                    raise Unavailable(error_class(result.error_code).name)
                if result.records:
                    assert isinstance(result.records, memoryview | bytes)
                    return bytes(result.records)
        raise Unavailable(f"it has no records from offset {offset} on")

    async def _repair(self, replica: Replica, segment: Segment, patches: Sequence[Patch]) -> None:
        its_log, now_ms = replica.log, self._broker.clock.now_ms()
        prepare(its_log, segment, now_ms=now_ms)
        await self._broker.commit.flush(its_log)
        work = begin(its_log, segment, now_ms=now_ms)
        try:
            with segment.checked.suspended():  # bytes are loaded before they are checked (storage/scrub.py)
                built = await trio.to_thread.run_sync(build, work, patches, limiter=self._limiter)
        except BadBatch:
            scrub = SegmentScrub(its_log, segment)
            with scrub.distrusted():
                await trio.to_thread.run_sync(scrub.run, limiter=self._limiter)
            scrub.note(its_log)
            raise LogChanged(f"{segment} has new damage") from None
        install_repair(work, built, patches)
        for patch in patches:
            self._broker.counts.damage_healed += patch.is_whole
            log.warning("%r: healed by a copy from another replica: %s", replica, patch.damage)
        self._reset_backoff(its_log)
        self._broker.purgatory.notify(replica)  # parked fetches may continue

    def _log_unrepairable(self, replica: Replica, missing: tuple[Damage, ...]) -> None:
        known = self._reported.get(replica.log, ())
        for damage in missing:
            if damage not in known:
                log.error("%r: no replica has a good copy of %s", replica, damage)
        if missing:
            self._reported[replica.log] = missing
        else:
            self._reported.pop(replica.log, None)
