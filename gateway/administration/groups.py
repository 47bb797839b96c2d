"""Groups: list, describe, delete, and the offsets that they have committed."""

from collections.abc import Iterable
from typing import Final

import grpc

from trioka.protocol import errors
from trioka.protocol.codec import decode
from trioka.protocol.errors import NONE, ProtocolError, error_class
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.describe_groups import DescribeGroupsRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

from ..failures import Refused
from ..kafka.cluster import Cluster
from ..v1 import admin_pb2, types_pb2

BY_NAME: Final = 9  # the last version of OffsetFetch and OffsetCommit that names topics by name
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
CLASSIC, NEXT_GENERATION = "classic", "consumer"


def _raise(code: int, what: str, message: str | None = None) -> None:
    if code != NONE:
        kind = error_class(code)
        raise kind(f"{what}: {message or str(kind())}")


async def list_groups(cluster: Cluster, request: admin_pb2.ListGroupsRequest) -> admin_pb2.ListGroupsResponse:
    found: dict[str, admin_pb2.GroupSummary] = {}
    for node in await cluster.nodes():
        response = await cluster.ask(ListGroupsRequest(), node=node)
        _raise(response.error_code, f"broker {node}")
        for each in response.groups:
            found[each.group_id] = admin_pb2.GroupSummary(
                group=each.group_id, state=each.group_state, type=each.group_type
            )
    return admin_pb2.ListGroupsResponse(groups=[found[name] for name in sorted(found)])


async def describe_group(cluster: Cluster, request: admin_pb2.DescribeGroupRequest) -> admin_pb2.DescribeGroupResponse:
    """As a group of the next generation, and if it is none as a classic one."""
    try:
        found = await _describe_next_generation(cluster, request.group)
    except errors.UnsupportedVersion:
        found = None
    return found if found is not None else await _describe_classic(cluster, request.group)


async def _describe_next_generation(cluster: Cluster, name: str) -> admin_pb2.DescribeGroupResponse | None:
    response = await cluster.ask_coordinator(
        name,
        ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False),
        lambda result: [result.groups[0].error_code],
    )
    (group,) = response.groups
    if group.error_code == errors.GroupIdNotFound.code:
        return None
    _raise(group.error_code, f"group {name!r}", group.error_message)
    members = [
        admin_pb2.GroupMember(
            member_id=each.member_id,
            client_id=each.client_id,
            host=each.client_host,
            partitions=[
                types_pb2.TopicPartition(topic=topic.topic_name, partition=partition)
                for topic in each.assignment.topic_partitions
                for partition in topic.partitions
            ],
        )
        for each in group.members
    ]
    return admin_pb2.DescribeGroupResponse(group=name, state=group.group_state, type=NEXT_GENERATION, members=members)


async def _describe_classic(cluster: Cluster, name: str) -> admin_pb2.DescribeGroupResponse:
    response = await cluster.ask_coordinator(
        name, DescribeGroupsRequest(groups=[name]), lambda result: [result.groups[0].error_code]
    )
    (group,) = response.groups
    _raise(group.error_code, f"group {name!r}", group.error_message)
    if group.group_state == DEAD:
        raise errors.GroupIdNotFound(f"there is no group {name!r}")
    members = [
        admin_pb2.GroupMember(
            member_id=each.member_id,
            client_id=each.client_id,
            host=each.client_host,
            partitions=list(_assigned(group.protocol_type, each.member_assignment)),
        )
        for each in group.members
    ]
    return admin_pb2.DescribeGroupResponse(group=name, state=group.group_state, type=CLASSIC, members=members)


def _assigned(protocol_type: str, data: bytes) -> Iterable[types_pb2.TopicPartition]:
    """The partitions in a member's assignment. Its bytes are the client's: what cannot be read is empty."""
    if protocol_type != CONSUMER or len(data) < 2:
        return
    version = int.from_bytes(data[:2])
    try:
        assignment = decode(
            ConsumerProtocolAssignment, min(version, ConsumerProtocolAssignment.__versions__.last), data[2:]
        )
    except ProtocolError:
        return
    for topic in assignment.assigned_partitions:
        for partition in topic.partitions:
            yield types_pb2.TopicPartition(topic=topic.topic, partition=partition)


async def delete_group(cluster: Cluster, request: admin_pb2.DeleteGroupRequest) -> admin_pb2.DeleteGroupResponse:
    response = await cluster.ask_coordinator(
        request.group,
        DeleteGroupsRequest(groups_names=[request.group]),
        lambda result: [result.results[0].error_code],
    )
    _raise(response.results[0].error_code, f"group {request.group!r}")
    return admin_pb2.DeleteGroupResponse()


async def list_group_offsets(
    cluster: Cluster, request: admin_pb2.ListGroupOffsetsRequest
) -> admin_pb2.ListGroupOffsetsResponse:
    kind = OffsetFetchRequest.Group
    response = await cluster.ask_coordinator(
        request.group,
        OffsetFetchRequest(groups=[kind(group_id=request.group, topics=None)]),
        lambda result: [result.groups[0].error_code],
        at_most=BY_NAME,
    )
    (group,) = response.groups
    _raise(group.error_code, f"group {request.group!r}")
    found = {
        (topic.name, each.partition_index): admin_pb2.GroupOffset(
            topic=topic.name, partition=each.partition_index, offset=each.committed_offset, metadata=each.metadata or ""
        )
        for topic in group.topics
        for each in topic.partitions
        if each.error_code == NONE and each.committed_offset >= 0
    }
    return admin_pb2.ListGroupOffsetsResponse(offsets=[found[place] for place in sorted(found)])


async def commit_group_offsets(
    cluster: Cluster, request: admin_pb2.CommitGroupOffsetsRequest
) -> admin_pb2.CommitGroupOffsetsResponse:
    kind = OffsetCommitRequest.Topic
    by_topic: dict[str, list[OffsetCommitRequest.Topic.Partition]] = {}
    for each in request.offsets:
        if not each.topic or each.partition < 0 or each.offset < 0:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "an offset names a topic, a partition and an offset")
        by_topic.setdefault(each.topic, []).append(
            kind.Partition(
                partition_index=each.partition, committed_offset=each.offset, committed_metadata=each.metadata
            )
        )
    if not by_topic:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "offsets is empty")
    response = await cluster.ask_coordinator(
        request.group,
        OffsetCommitRequest(
            group_id=request.group,
            member_id="",
            topics=[kind(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        ),
        lambda result: [each.error_code for topic in result.topics for each in topic.partitions],
        at_most=BY_NAME,
    )
    for topic in response.topics:
        for each in topic.partitions:
            _raise(each.error_code, f"group {request.group!r}, {topic.name}-{each.partition_index}")
    return admin_pb2.CommitGroupOffsetsResponse()


async def delete_group_offsets(
    cluster: Cluster, request: admin_pb2.DeleteGroupOffsetsRequest
) -> admin_pb2.DeleteGroupOffsetsResponse:
    kind = OffsetDeleteRequest.Topic
    by_topic: dict[str, list[int]] = {}
    for each in request.partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    if not by_topic or "" in by_topic:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "partitions is empty, or one names no topic")
    topics = [
        kind(name=name, partitions=[kind.Partition(partition_index=each) for each in partitions])
        for name, partitions in by_topic.items()
    ]
    response = await cluster.ask_coordinator(
        request.group, OffsetDeleteRequest(group_id=request.group, topics=topics), lambda result: [result.error_code]
    )
    _raise(response.error_code, f"group {request.group!r}")
    for topic in response.topics:
        for partition in topic.partitions:
            _raise(partition.error_code, f"group {request.group!r}, {topic.name}-{partition.partition_index}")
    return admin_pb2.DeleteGroupOffsetsResponse()
