"""Whole brokers with tiered topics: four brokers, an object store that fails, partitions that are reassigned while they
are uploaded, and a topic that is deleted and created again.

Consumers read most of the history from the object store, so the history checker compares it with what was written. In
addition, an object of a finished segment is never deleted before the records say so (TI3, TI8), a finished segment has
all of its objects (TI3), every batch has the same bytes on each disk and in the object store (TI4), and at rest all
images of the remote log metadata are equal and, after a sweep, nothing is left over (TI5).
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

import pytest
import trio
from simulation.brokers_faults import FaultProfile, ScheduledFault
from simulation.brokers_world import CHECK_INTERVAL_S, BrokersWorld, SimNode, Violation
from simulation.client import PASSES, TOPICS, SimClient
from simulation.clients import Clients
from simulation.sim_object_store import SimBucket, SimObjectStore
from simulation.virtual_time import PROCESS

from trioka.broker.broker import Broker
from trioka.broker.tier import log_facts, metadata_snapshots
from trioka.broker.tier.metadata_topic import RemoteLogMetadataTopic
from trioka.broker.tier.store import object_store, obstore_client
from trioka.cluster.remote_log.metadata import RemotePartition, RemoteSegment
from trioka.protocol.batch import build, headers
from trioka.protocol.errors import (
    NONE,
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    ProtocolError,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.remote_segment.manifest import SegmentManifest, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix, parse_key
from trioka.protocol.remote_segment.object_key import RemoteSegment as SegmentKey

BROKERS = 4
SEGMENT_BYTES = 2048  # at least as large as the batches of the clients
PART_BYTES = 500
DAYS_S = 10 * 24 * 60 * 60.0
TIERED: Mapping[str, str] = MappingProxyType(
    {
        "remote.storage.enable": "true",
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "0",
        "index.interval.bytes": "100",
    }
)
BUSY = PASSES | {
    NoReassignmentInProgress.code,
    ReassignmentInProgress.code,
    InvalidReplicaAssignment.code,
    TopicAlreadyExists.code,
}
MOST_ROUNDS = 15  # of the topic that comes and goes: the disks remember every file
GONE = "gone"  # the topic that is deleted and created again
UNKNOWN = UnknownTopicOrPartition.code


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredFaultProfile(FaultProfile):
    failures: float = 0.05  # of requests to the object store
    uploads_early: bool = True
    snapshot_records: int = 10  # between two snapshots of the remote log metadata


def profile_of(seed: int) -> TieredFaultProfile:
    """The usual faults, fewer of them, and reassignments."""
    random = Random(f"tiered brokers {seed}")
    usual = FaultProfile.of(seed)
    troubles = [each for each in usual.troubles if random.random() < 0.4 and max(each.node, each.other) <= BROKERS]
    at = random.uniform(0.3, 1.5)
    while at < usual.chaos_s:
        troubles.append(ScheduledFault(at, "reassign", random.randint(1, BROKERS), 0.0, 0, random.random()))
        at += random.uniform(0.2, 2.5)
    return TieredFaultProfile(
        brokers=BROKERS,
        controllers=0,
        partitions=random.choice([1, 2]),
        flushes=usual.flushes,
        segment_bytes=SEGMENT_BYTES,
        quality=usual.quality,
        thread_s=usual.thread_s,
        skew_ms=usual.skew_ms,
        model=usual.model,
        troubles=tuple(sorted(troubles)),
        failures=random.choice([0.0, 0.02, 0.1, 0.25]),
        uploads_early=random.random() < 0.6,
        snapshot_records=random.choice([1, 5, 30, 10_000]),
    )


class TieredBrokersWorld(BrokersWorld):
    topic_configs: Mapping[str, str] = TIERED
    profile: TieredFaultProfile

    def __init__(self, seed: int, profile: TieredFaultProfile | None = None) -> None:
        super().__init__(seed, profile or profile_of(seed))
        self.bucket = SimBucket(self.clock, Random(f"bucket {seed}"), self.profile.failures)
        self.bucket.on_delete = self._check_deletion
        self.recreator = Recreator(self, "recreator")
        self.copied = self.reassigned = 0
        self._admin = SimClient(self, "reassigner")

    def run(self, part: float = 1.0) -> None:
        with self._simulated_store():
            super().run(part)

    @contextmanager
    def _simulated_store(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(obstore_client, "open_store", lambda options, limiter: SimObjectStore(self.bucket))
            patch.setattr(metadata_snapshots, "FEWEST_RECORDS", self.profile.snapshot_records)
            if self.profile.uploads_early:
                patch.setattr(object_store, "PART_BYTES", PART_BYTES)
                patch.setattr(log_facts, "EARLY_SEGMENT_BYTES", SEGMENT_BYTES)
            yield

    def more_clients(self) -> Sequence[SimClient]:
        return [self.recreator]

    def _properties(self, node: SimNode) -> dict[str, str]:
        return {
            **super()._properties(node),
            "remote.log.storage.system.enable": "true",
            "trioka.tier.url": SimObjectStore.url,
            "remote.log.manager.task.interval.ms": "2000",
            "remote.log.manager.task.retry.backoff.ms": "20",
            "remote.log.manager.task.retry.backoff.max.ms": "500",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(self.profile.replicas),
        }

    # -- faults --------------------------------------------------------------------------------------------------------

    def _reassign(self, node: SimNode, trouble: ScheduledFault) -> bool:
        """To three of the brokers; the old replicas may be in the middle of an upload."""
        random = Random(trouble.detail)
        wanted = AlterPartitionReassignmentsRequest.Topic.Partition(
            partition_index=random.randrange(self.profile.partitions),
            replicas=random.sample(range(1, BROKERS + 1), self.profile.replicas),
        )
        topic = AlterPartitionReassignmentsRequest.Topic(name=random.choice(TOPICS), partitions=[wanted])
        self._nursery.start_soon(self._send_reassignment, topic)
        return True

    async def _send_reassignment(self, topic: AlterPartitionReassignmentsRequest.Topic) -> None:
        request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
        answer = await self._admin.ask(self._admin.any_broker(), request, 0)
        if answer is None or answer.error_code != NONE:
            return
        code = answer.responses[0].partitions[0].error_code
        self.reassigned += code == NONE
        if code != NONE and code not in BUSY:
            self._admin.surprise("reassign", code)

    # -- rest ----------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        super()._heal()
        self.bucket.failures = 0.0

    def _unrest(self, clients: Clients) -> list[str]:
        found = super()._unrest(clients)
        if not clients.is_over:
            return found
        self.recreator.is_over = True
        if not self.recreator.is_done:
            found.append("the topic that comes and goes is not deleted yet")
        if found:
            return found
        for broker in self._brokers():
            if broker.tier is None or not broker.tier.is_running:
                return ["tiered storage has not begun"]
            if len(broker.tier.deletions):
                found.append(f"{broker.node_id} deletes the segments of a topic")
        return found or list(self._uncopied())

    def _uncopied(self) -> Iterator[str]:
        for broker in self._brokers():
            assert broker.tier is not None
            for replica in broker.partitions:
                if replica.topic in TOPICS and replica.leads:
                    image = broker.tier.topic.image.partition(replica.topic_id, replica.index)
                    closed = replica.log.segments.active.base_offset
                    name = f"{replica.topic}-{replica.index}"
                    if closed and (image is None or max((s.next_offset for s in image.finished), default=0) < closed):
                        yield f"{name}: closed segments are not copied"
                    elif image is not None and len(image.finished) != len(image.segments):
                        yield f"{name}: segments are being copied or deleted"
            for partition in broker.tier.topic.image:
                if partition.id.topic == GONE and partition.segments:
                    yield f"{partition.id} has segments, says {broker.node_id}"

    def _brokers(self) -> list[Broker]:
        return [node.broker for node in self.nodes.values() if node.broker is not None and node.has_joined]

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _newest(self, key: SegmentKey) -> RemotePartition | None:
        """What the broker that has replayed most knows about the partition of a segment."""
        best: tuple[int, RemotePartition | None] = (-1, None)
        about = key.topic_id_partition
        for broker in self._brokers():
            topic: RemoteLogMetadataTopic | None = None if broker.tier is None else vars(broker.tier).get("topic")
            if topic is not None and topic.partition_count:
                replayed = topic.replayed_until(topic.index_of(about))
                if replayed > best[0]:
                    best = (replayed, topic.image.partition(about.topic_id, about.partition))
        return best[1]

    def _check_deletion(self, name: str) -> None:
        try:
            key, suffix = parse_key(name)
        except ProtocolError:
            return
        newest = self._newest(key)
        segment = None if newest is None else newest.segments.get(key.segment_id)
        if segment is not None and segment.is_finished:
            self.violate(f"TI3: the {suffix.value} of a finished segment of {key.topic_id_partition} is deleted")

    async def _rest(self, clients: Clients) -> None:
        await super()._rest(clients)
        if clients.is_over:
            await self._check_store()

    async def _check_store(self) -> None:
        images: dict[tuple[bytes, int], dict[int, list[RemoteSegment]]] = {}
        await self._in_each(self._replay_all)
        for broker in self._brokers():
            assert broker.tier is not None
            for partition in broker.tier.topic.image:
                found = images.setdefault((partition.id.topic_id, partition.id.partition), {})
                found[broker.node_id] = list(partition.finished)
        for (topic_id, index), found in images.items():
            if len({tuple(segments) for segments in found.values()}) > 1:
                counts = {node: len(segments) for node, segments in found.items()}
                raise Violation(f"TI8: images of {topic_id.hex()}-{index} differ: {counts}")
        self.bucket.ages_s = DAYS_S
        await self._in_each(self._sweep)
        self.bucket.ages_s = 0.0
        known = {s.segment_id for found in images.values() for segments in found.values() for s in segments}
        self.copied = len(known)
        stored: dict[bytes, set[ObjectSuffix]] = {}
        for name in self.bucket.objects:
            if not name.startswith("_trioka/"):
                key, suffix = parse_key(name)
                stored.setdefault(key.segment_id, set()).add(suffix)
        for segment_id in known:
            if stored.get(segment_id) != set(ObjectSuffix):
                raise Violation(f"TI3: a finished segment has only {stored.get(segment_id)}")
        if left := stored.keys() - known:
            raise Violation(f"TI5: {len(left)} segments without a record are left over")

    async def _in_each(self, act: Callable[[Broker], Awaitable[object]]) -> None:
        """In the process of each broker."""

        async def run(node: SimNode) -> None:
            PROCESS.set(node.process)
            assert node.broker is not None
            await act(node.broker)

        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(run, node)

    @staticmethod
    async def _replay_all(broker: Broker) -> None:
        assert broker.tier is not None
        for index in range(broker.tier.topic.partition_count):
            while True:
                try:
                    await broker.tier.topic.caught_up(index)
                    break
                except KafkaError:  # a connection of the time of the faults
                    await trio.sleep(CHECK_INTERVAL_S)

    @staticmethod
    async def _sweep(broker: Broker) -> None:
        assert broker.tier is not None
        await broker.tier.sweep.sweep()

    def _judge_replicas(self, topics: Sequence[str]) -> None:
        """Of tiered topics, each batch has the same bytes everywhere; how much is on a disk differs."""
        batches: dict[str, dict[int, bytes]] = {}
        for folder, data in self._contents():
            known = batches.setdefault(folder, {})
            for header in headers(data):
                content = data[header.position : header.position + header.size]
                if known.setdefault(header.base_offset, content) != content:
                    raise Violation(f"TI4: {folder} has different bytes at {header.base_offset}")

    def _contents(self) -> Iterator[tuple[str, bytes]]:
        for broker in self._brokers():
            for replica in broker.partitions:
                if replica.topic in TOPICS:
                    for segment in replica.log.segments:
                        data = self.nodes[broker.node_id].disk.files()[segment.log_path]
                        yield f"{replica.topic}-{replica.index}", data
        for name, (data, _) in self.bucket.objects.items():
            if name.endswith(f".{ObjectSuffix.MANIFEST.value}"):
                found = decode_manifest(data)
                if isinstance(found, SegmentManifest):
                    about = found.segment.topic_id_partition
                    whole = self.bucket.objects[found.segment.key(ObjectSuffix.LOG)][0]
                    yield f"{about.topic}-{about.partition}", whole


class Recreator(SimClient):
    """Creates a tiered topic, writes to it, and deletes it, again and again."""

    is_over = False
    rounds = 0
    exists = False

    @property
    def is_done(self) -> bool:
        return self.is_over and not self.exists

    async def run(self) -> None:
        while True:
            if not self.exists and (self.is_over or self.rounds >= MOST_ROUNDS):
                await self.pause()
                continue
            if not self.exists:
                await self._create()
            for _ in range(self.random.randrange(30)):
                await self._produce()
            await self._delete()
            self.rounds += 1
            await self.pause(0.5)

    async def _create(self) -> None:
        configs = {**TIERED, "internal.segment.bytes": "300"}
        wanted = CreateTopicsRequest.Topic(
            name=GONE,
            num_partitions=1,
            replication_factor=self.world.profile.replicas,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in configs.items()],
        )
        self.exists = True
        answer = await self.ask(self.any_broker(), CreateTopicsRequest(topics=[wanted]), 7)
        if answer is not None and answer.topics[0].error_code not in BUSY | {NONE}:
            self.surprise("create", answer.topics[0].error_code)

    async def _produce(self) -> None:
        record = Record(0, self.world.now_ms(), None, bytes(150))
        data = ProduceRequest.Topic.Partition(index=0, records=bytes(build([record])))
        topic = ProduceRequest.Topic(name=GONE, partition_data=[data])
        await self.ask(self.any_broker(), ProduceRequest(acks=-1, timeout_ms=500, topic_data=[topic]), 9)

    async def _delete(self) -> None:
        while True:
            request = DeleteTopicsRequest(topics=[], topic_names=[GONE], timeout_ms=1000)
            answer = await self.ask(self.any_broker(), request, 5)
            code = None if answer is None else answer.responses[0].error_code
            if code in (NONE, UNKNOWN):
                self.exists = False
                return
            if code is not None and code not in BUSY:
                self.surprise("delete", code)
            await self.pause()
