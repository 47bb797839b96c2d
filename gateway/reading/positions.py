"""Where a reader begins and ends in each partition, and what its consistency asks of the cluster."""

from collections.abc import Sequence
from typing import Final

import grpc

from trioka.protocol import errors

from ..failures import Refused
from ..kafka.cluster import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Cluster, TopicMetadata
from ..v1 import log_pb2, types_pb2

LINEARIZABLE_CONFIG: Final = "trioka.read.consistency"
LINEARIZABLE_VALUE: Final = "linearizable"


def isolation_of(consistency: int) -> int:
    return READ_COMMITTED if consistency == types_pb2.CONSISTENCY_STABLE else READ_UNCOMMITTED


def rack_of(cluster: Cluster, consistency: int) -> str:
    """The rack whose replicas may be read; empty for the leaders only."""
    return cluster.access.rack if consistency == types_pb2.CONSISTENCY_NEAREST else ""


async def check_consistency(cluster: Cluster, topic: str, consistency: int) -> None:
    """Refuse a level that is unknown, or that the topic does not have. The topic is asked each time: what was true
    before may have been changed."""
    if consistency not in types_pb2.Consistency.values():
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"there is no consistency {consistency}")
    if consistency != types_pb2.CONSISTENCY_LINEARIZABLE:
        return
    try:
        configs = await cluster.topic_configs(topic, [LINEARIZABLE_CONFIG])
    except errors.InvalidConfig:
        configs = []
    values = [each.value for each in configs if each.name == LINEARIZABLE_CONFIG]
    if values != [LINEARIZABLE_VALUE]:
        raise Refused(
            grpc.StatusCode.UNIMPLEMENTED,
            f"topic {topic!r} has no linearizable reads; its config {LINEARIZABLE_CONFIG} would have to be "
            f"{LINEARIZABLE_VALUE}, which only trioka has",
        )


def chosen_partitions(topic: TopicMetadata, requested: Sequence[int]) -> list[int]:
    if not requested:
        return sorted(topic.leaders)
    unknown = sorted(set(requested) - set(topic.leaders))
    if unknown:
        raise errors.UnknownTopicOrPartition(
            f"topic {topic.name!r} has no partition {unknown[0]}; it has {len(topic.leaders)}"
        )
    return sorted(set(requested))


async def start_positions(
    cluster: Cluster, topic: str, partitions: Sequence[int], start: log_pb2.Start, isolation: int
) -> dict[int, int]:
    """The first offset to read, by partition."""
    kind = start.WhichOneof("at") or "earliest"
    if kind == "offset":
        if start.offset < 0:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"offset {start.offset} is below 0")
        return dict.fromkeys(partitions, start.offset)
    if kind in ("earliest", "latest"):
        wanted = EARLIEST if kind == "earliest" else LATEST
        return await cluster.list_offsets(topic, partitions, wanted, isolation=isolation)
    if kind == "timestamp_ms" and start.timestamp_ms < 0:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"timestamp_ms {start.timestamp_ms} is below 0")
    if kind == "last" and start.last < 0:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"last {start.last} is below 0")
    # The end first: with linearizable reads, this is the request that waits for the barrier.
    ends = await cluster.list_offsets(topic, partitions, LATEST, isolation=isolation)
    if kind == "timestamp_ms":
        found = await cluster.list_offsets(topic, partitions, start.timestamp_ms, isolation=isolation)
        return {each: found[each] if found[each] >= 0 else ends[each] for each in partitions}
    begins = await cluster.list_offsets(topic, partitions, EARLIEST)
    return {each: max(begins[each], ends[each] - start.last) for each in partitions}
