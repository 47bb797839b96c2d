"""OffsetFetch (9): returns the committed offsets of groups; -1 for partitions without a commit and for unknown groups.

v1 errors of the group are reported in each partition · v2 null means all topics; a group-level error · v5 leader epochs
· v6 flexible · v7 require_stable: UNSTABLE_OFFSET_COMMIT for offsets that an open transaction may change · v8 several
groups · v9 consumer groups (KIP-848) · v10 topics by id
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.offset_requests import fetch_error
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

from ..api import handles
from ..security.guard import GROUP, pop_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Group = OffsetFetchResponse.Group

FIRST_WITH_MANY_GROUPS: Final = 8


def error_response(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    groups = [fetch_error(group, error, FIRST_WITH_MANY_GROUPS) for group in request.groups]
    return OffsetFetchResponse(error_code=0 if groups else error.code, groups=groups)


@handles(OffsetFetchRequest, error_response=error_response)
async def offset_fetch(broker: "Broker", call: "Call", request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version < FIRST_WITH_MANY_GROUPS:
        return _single_group_response(await _fetch(broker, call, _single_group(request), request.require_stable))
    return OffsetFetchResponse(
        groups=[await _fetch(broker, call, group, request.require_stable) for group in request.groups]
    )


async def _fetch(broker: "Broker", call: "Call", requested: OffsetFetchRequest.Group, require_stable: bool) -> Group:
    denied: list[OffsetFetchRequest.Group.Topic] = []
    try:
        broker.guard.must(call, AclOperation.DESCRIBE, GROUP, requested.group_id)
        if requested.topics is not None:
            denied = pop_denied(broker, call, AclOperation.DESCRIBE, requested.topics, _topic_names(broker))
        result = await broker.groups.read(
            requested.group_id,
            lambda groups: groups.fetch_offsets(requested, require_stable=require_stable, version=call.version),
        )
    except KafkaError as error:
        result = fetch_error(requested, error, call.version)
    if requested.topics is None:
        # A request for all topics returns those that the client may describe.
        pop_denied(broker, call, AclOperation.DESCRIBE, result.topics, _topic_names(broker), is_attempt=False)
    if not result.error_code:
        result.topics.extend(map(_denied, denied))
    return result


def _topic_names(broker: "Broker") -> Callable[[OffsetFetchRequest.Group.Topic | Group.Topic], str | None]:
    """A function that returns the name of a topic, which may be given by id; None if the id is unknown."""
    return lambda topic: topic.name or broker.topic_name(topic.topic_id)


def _denied(topic: OffsetFetchRequest.Group.Topic) -> Group.Topic:
    return Group.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            Group.Topic.Partition(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=TopicAuthorizationFailed.code,
            )
            for index in topic.partition_indexes
        ],
    )


def _single_group(request: OffsetFetchRequest) -> OffsetFetchRequest.Group:
    """The only group of a request before v8."""
    topics = request.topics
    return OffsetFetchRequest.Group(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequest.Group.Topic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )


def _single_group_response(group: Group) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Topic.Partition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
