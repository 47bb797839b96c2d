"""OffsetFetch (9): where groups are in partitions. A partition without a commit is at -1, and so is everything of a
group that does not exist.

v1 an error of the group stands at each partition · v2 null asks for all topics; an error of its own · v5 leader epochs
· v6 flexible · v7 require_stable: what an open transaction may change is refused (UNSTABLE_OFFSET_COMMIT) · v8 many
groups · v9 next-generation groups · v10 topics by id
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.coordinator.offset_requests import fetch_refused
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

from ..api import handles
from ..security.guard import GROUP, take_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Group = OffsetFetchResponse.Group

FIRST_WITH_MANY_GROUPS: Final = 8


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    groups = [fetch_refused(asked, error, FIRST_WITH_MANY_GROUPS) for asked in request.groups]
    return OffsetFetchResponse(error_code=0 if groups else error.code, groups=groups)


@handles(OffsetFetchRequest, refuse=refuse)
async def offset_fetch(broker: "Broker", call: "Call", request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version < FIRST_WITH_MANY_GROUPS:
        return _alone(await _fetch(broker, call, _only(request), request.require_stable))
    return OffsetFetchResponse(
        groups=[await _fetch(broker, call, asked, request.require_stable) for asked in request.groups]
    )


async def _fetch(broker: "Broker", call: "Call", asked: OffsetFetchRequest.Group, require_stable: bool) -> Group:
    denied: list[OffsetFetchRequest.Group.Topic] = []
    try:
        broker.guard.must(call, Operation.DESCRIBE, GROUP, asked.group_id)
        if asked.topics is not None:
            denied = take_denied(broker, call, Operation.DESCRIBE, asked.topics, _name_of(broker))
        found = await broker.groups.look(
            asked.group_id,
            lambda groups: groups.fetch_offsets(asked, require_stable=require_stable, version=call.version),
        )
    except KafkaError as error:
        found = fetch_refused(asked, error, call.version)
    if asked.topics is None:
        # Whoever asks for all is told of those of which it may know.
        take_denied(broker, call, Operation.DESCRIBE, found.topics, _name_of(broker), is_attempt=False)
    if not found.error_code:
        found.topics.extend(map(_denied, denied))
    return found


def _name_of(broker: "Broker") -> Callable[[OffsetFetchRequest.Group.Topic | Group.Topic], str | None]:
    """How a topic is called that may be named by its id; None if nobody knows it."""
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


def _only(request: OffsetFetchRequest) -> OffsetFetchRequest.Group:
    """The one group of a version that knows no more."""
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


def _alone(group: Group) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.Topic.Partition(
                        partition_index=told.partition_index,
                        committed_offset=told.committed_offset,
                        committed_leader_epoch=told.committed_leader_epoch,
                        metadata=told.metadata,
                        error_code=told.error_code,
                    )
                    for told in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
